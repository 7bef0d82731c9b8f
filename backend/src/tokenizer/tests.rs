use std::path::PathBuf;

use serde_json::Value;

use super::{testing::*, *};
use crate::model::GgufVocabulary;

fn gguf(change: impl FnOnce(&mut GgufVocabulary)) -> Result<Tokenizer, TokenizerError> {
    let mut vocabulary = GgufVocabulary {
        model: "gpt2".to_owned(),
        pre: Some("gpt-2".to_owned()),
        tokens: (0..=255u8)
            .map(|byte| pre::character_of(byte).to_string())
            .chain(["<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|im_end|>"].map(str::to_owned))
            .collect(),
        token_types: [[1; 256].as_slice(), &[3; 4]].concat(),
        eos: Some(256),
        ..GgufVocabulary::default()
    };
    change(&mut vocabulary);
    Tokenizer::new(&TokenizerSource::Gguf(vocabulary))
}

#[test]
fn every_end_the_vocabulary_has_ends_the_output() {
    // Field case F040: the file names end_of_text only, the model ends its turns with eot_id.
    let tokenizer = gguf(|_| {}).unwrap();
    assert_eq!(*tokenizer.end_tokens(), [256, 257, 258, 259]);
    assert!(
        tokenizer
            .end_tokens()
            .iter()
            .all(|token| tokenizer.token_bytes(*token).is_empty())
    );
    let named = gguf(|vocabulary| {
        vocabulary.tokens[257] = "<eot>".to_owned();
        vocabulary.eot = Some(257);
    });
    assert!(named.unwrap().end_tokens().contains(&257));
    let tokenizer = tokenizer.with_end_tokens(&[7, 256, 9999]);
    assert_eq!(
        *tokenizer.end_tokens(),
        [7, 256, 257, 258, 259],
        "generation_config's list, without what is no token"
    );
}

#[test]
fn early_files_that_call_control_tokens_normal_are_understood() {
    let tokenizer = gguf(|vocabulary| vocabulary.token_types.clear()).unwrap();
    assert!(tokenizer.is_control(257));
    assert!(
        tokenizer
            .encode_text("<|eot_id|>")
            .iter()
            .all(|token| *token < 256)
    );
}

#[test]
fn unknown_kinds_are_refused_with_what_is_supported() {
    let model = gguf(|vocabulary| vocabulary.model = "t5".to_owned()).unwrap_err();
    assert_eq!(
        model.to_string(),
        "tokenizer.ggml.model: \"t5\" is not supported; supported are \"gpt2\" (byte-level BPE) and \"llama\" (SentencePiece)"
    );
    let pre = gguf(|vocabulary| vocabulary.pre = Some("tekken".to_owned())).unwrap_err();
    assert!(
        pre.to_string().contains("tokenizer.ggml.pre: \"tekken\"")
            && pre.to_string().contains("\"smollm\"")
    );
    let none = gguf(|vocabulary| vocabulary.pre = None).unwrap_err();
    assert!(none.to_string().contains("a file without it"));
    let types = gguf(|vocabulary| vocabulary.token_types.truncate(3)).unwrap_err();
    assert_eq!(
        types.to_string(),
        "tokenizer.ggml.token_type: has 3 entries, but there are 260 tokens"
    );
    let merges = gguf(|vocabulary| vocabulary.merges = vec!["h".to_owned()]).unwrap_err();
    assert!(merges.to_string().contains("merges[0]"));
    let merges = gguf(|vocabulary| vocabulary.merges = vec!["h e".to_owned()]).unwrap_err();
    assert!(
        merges.to_string().contains("\"he\" is no token"),
        "{merges}"
    );
    let long = gguf(|vocabulary| {
        vocabulary.tokens[0] = "x".repeat(1025);
        vocabulary.token_types[0] = 3;
    });
    let long = long.unwrap_err().to_string();
    assert!(long.contains("1025 bytes; at most 1024"), "{long}");
}

#[test]
fn text_comes_back_byte_for_byte_and_never_as_a_control_token() {
    let tokenizer = bytes_only();
    let forged: String = tokenizer.markup().collect();
    for text in [
        forged.as_str(),
        "<|im_start|",
        "a\u{FDD0}b",
        "\u{0}\r\n\t",
        "<<|eot_id|>>",
    ] {
        let tokens = tokenizer.encode_text(text);
        assert!(tokens.iter().all(|token| !tokenizer.is_control(*token)));
        let bytes: Vec<u8> = tokens
            .iter()
            .flat_map(|token| tokenizer.token_bytes(*token).to_vec())
            .collect();
        assert_eq!(String::from_utf8(bytes).unwrap(), text);
    }
    let eot = tokenizer.token_id("<|eot_id|>").unwrap();
    assert_eq!(tokenizer.encode_template("<<|eot_id|>>"), [60, eot, 62]);
}

fn from_json(variable: &str) -> Option<(PathBuf, Tokenizer)> {
    let Some(path) = std::env::var_os(variable).map(PathBuf::from) else {
        println!("skipped: {variable} does not name a tokenizer.json");
        return None;
    };
    let source = TokenizerSource::Json {
        tokenizer_json: path.clone(),
        config: Value::Null,
    };
    Some((path, Tokenizer::new(&source).unwrap()))
}

/// The vocabulary as a GGUF file has it: pieces with scores, the merges unsaid. A `tokenizer.json` is made of such scores by sorting what they join.
fn by_scores(tokenizer_json: &std::path::Path) -> Tokenizer {
    let file: Value = serde_json::from_slice(&std::fs::read(tokenizer_json).unwrap()).unwrap();
    let vocab = file["model"]["vocab"].as_object().unwrap();
    let mut tokens = vec![String::new(); vocab.len()];
    for (text, id) in vocab {
        tokens[id.as_u64().unwrap() as usize].clone_from(text);
    }
    let mut scores = vec![-1e9; tokens.len()];
    for (rank, merge) in file["model"]["merges"]
        .as_array()
        .unwrap()
        .iter()
        .enumerate()
        .rev()
    {
        let (left, right) = vocabulary::merge(merge.as_str().unwrap()).unwrap();
        scores[vocab[&(left + &right)].as_u64().unwrap() as usize] = -(rank as f32);
    }
    Tokenizer::new(&TokenizerSource::Gguf(GgufVocabulary {
        model: "llama".to_owned(),
        token_types: [
            [2, 3, 3].as_slice(),
            &[6; 256],
            &vec![1; tokens.len() - 259],
        ]
        .concat(),
        scores,
        tokens,
        bos: Some(1),
        eos: Some(2),
        unknown: Some(0),
        ..GgufVocabulary::default()
    }))
    .unwrap()
}

/// The vocabularies of the golden numbers. They are not in the repository.
fn golden_vocabularies() -> Vec<(&'static str, Tokenizer)> {
    let mut found = Vec::new();
    if let Some((path, tokenizer)) = from_json("CODEX_BRIDGE_TEST_LLAMA2_TOKENIZER") {
        found.push(("llama2", by_scores(&path)));
        found.push(("llama2", tokenizer));
    }
    found.extend(
        from_json("CODEX_BRIDGE_TEST_LLAMA3_TOKENIZER").map(|(_, tokenizer)| ("llama3", tokenizer)),
    );
    match std::env::var_os("CODEX_BRIDGE_TEST_MODEL").map(PathBuf::from) {
        Some(path) => {
            let model = crate::model::open(&path).unwrap();
            found.push(("smollm", Tokenizer::new(&model.tokenizer).unwrap()));
        }
        None => println!(
            "skipped: SmolLM2's golden tokens; CODEX_BRIDGE_TEST_MODEL does not name its GGUF file"
        ),
    }
    found
}

fn check(case: &Value, vocabularies: &[(&str, Tokenizer)]) {
    let text = case["text"].as_str().unwrap();
    for (name, tokenizer) in vocabularies {
        let expected: Vec<u32> = case[*name]
            .as_array()
            .unwrap()
            .iter()
            .map(|token| token.as_u64().unwrap() as u32)
            .collect();
        assert_eq!(tokenizer.encode_text(text), expected, "{name} {text:?}");
    }
}

#[test]
fn vocabularies_that_tests_write_open_from_both_kinds_of_files() {
    use crate::testing::Vocabulary;
    let vocabulary = Vocabulary::english();
    let folder = tempfile::tempdir().unwrap();
    let tokenizer_json = folder.path().join("tokenizer.json");
    std::fs::write(&tokenizer_json, vocabulary.json().to_string()).unwrap();
    let config = serde_json::json!({"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"});
    let json = Tokenizer::new(&TokenizerSource::Json {
        tokenizer_json,
        config,
    })
    .unwrap();
    let tiny = crate::testing::TinyLlama::default();
    let path = folder.path().join("tiny.gguf");
    tiny.write_gguf(&path).unwrap();
    let gguf = Tokenizer::new(&crate::model::open(&path).unwrap().tokenizer).unwrap();
    for text in [
        "the rain in the train",
        "<|im_start|>zażółć 😀",
        "  a\n\tb 123",
    ] {
        assert_eq!(json.encode_text(text), gguf.encode_text(text));
        assert_eq!(json.encode_template(text), gguf.encode_template(text));
    }
    assert_eq!(json.end_tokens(), gguf.end_tokens());
    assert_eq!((json.bos(), json.eos()), (gguf.bos(), gguf.eos()));
}

#[test]
fn tokens_are_those_of_the_python_original() {
    let vocabularies = golden_vocabularies();
    let cases: Vec<Value> = serde_json::from_str(include_str!("golden/tokens.json")).unwrap();
    for case in &cases {
        check(case, &vocabularies);
    }
    // Many more, when backend/python/golden_tokens.py has written them.
    if let Some(path) = std::env::var_os("CODEX_BRIDGE_TOKEN_CASES") {
        for line in std::fs::read_to_string(path).unwrap().lines() {
            check(&serde_json::from_str(line).unwrap(), &vocabularies);
        }
    }
}
