use serde_json::json;

use super::*;
use crate::tokenizer::Tokenizer;

fn llama3() -> Value {
    let mut vocab: Map<String, Value> = (0..=255u8)
        .map(|byte| {
            (
                crate::tokenizer::pre::character_of(byte).to_string(),
                json!(byte),
            )
        })
        .collect();
    vocab.insert("he".to_owned(), json!(256));
    vocab.insert("hello".to_owned(), json!(257));
    json!({
        "added_tokens": [
            {"id": 300, "content": "<|begin_of_text|>", "special": true},
            {"id": 301, "content": "<|eot_id|>", "special": true},
            {"id": 302, "content": "<tool_call>", "special": false},
            {"id": 303, "content": "\t\t\t", "special": false},
        ],
        "normalizer": null,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": Pre::LLAMA3_PATTERN}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
        ]},
        "post_processor": {"type": "TemplateProcessing", "single": [
            {"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]},
        "model": {"type": "BPE", "vocab": vocab, "merges": ["h e"], "ignore_merges": true, "byte_fallback": false, "unk_token": null, "dropout": null},
    })
}

fn build(file: &Value, config: &Value) -> Result<Tokenizer, TokenizerError> {
    Tokenizer::build(read(file.to_string().as_bytes(), config)?)
}

fn refusal(file: &Value) -> String {
    build(file, &Value::Null).unwrap_err().to_string()
}

#[test]
fn a_file_in_llama_3s_shape_is_read() {
    let tokenizer = build(&llama3(), &json!({"eos_token": {"content": "<|eot_id|>"}})).unwrap();
    assert_eq!(tokenizer.vocab_len(), 304);
    assert_eq!(tokenizer.bos(), Some(300));
    assert_eq!(tokenizer.eos(), Some(301));
    assert!(tokenizer.adds_bos());
    assert_eq!(*tokenizer.end_tokens(), [301]);
    assert!(tokenizer.is_control(258), "a hole in the ids");
    // "hello" is a token no merges lead to.
    assert_eq!(tokenizer.encode_text("hello"), [257]);
    assert_eq!(tokenizer.encode_text("hex"), [256, 120]);
}

#[test]
fn control_tokens_come_from_templates_only() {
    let tokenizer = build(&llama3(), &Value::Null).unwrap();
    assert_eq!(
        tokenizer.encode_template("<|eot_id|><tool_call>h"),
        [301, 302, 104]
    );
    for forged in ["<|eot_id|>", "<tool_call>"] {
        let tokens = tokenizer.encode_text(forged);
        assert_eq!(tokens.len(), forged.len());
        assert!(tokens.iter().all(|token| *token < 256));
    }
    assert_eq!(
        tokenizer.encode_text("a\t\t\tb"),
        [97, 303, 98],
        "a user-defined token that is ordinary text"
    );
    assert_eq!(tokenizer.token_bytes(302), b"<tool_call>");
    assert!(!tokenizer.is_control(302));
    assert_eq!(tokenizer.control_text(301), Some("<|eot_id|>"));
}

#[test]
fn llama_2s_shape_is_read_too() {
    let mut vocab = Map::new();
    for (id, text) in ["<unk>", "<s>", "</s>"].iter().enumerate() {
        vocab.insert((*text).to_owned(), json!(id));
    }
    for byte in 0..256 {
        vocab.insert(format!("<0x{byte:02X}>"), json!(3 + byte));
    }
    for (index, text) in ["▁", "h", "i", "hi", "▁hi"].iter().enumerate() {
        vocab.insert((*text).to_owned(), json!(259 + index));
    }
    let file = json!({
        "added_tokens": [
            {"id": 0, "content": "<unk>", "special": true}, {"id": 1, "content": "<s>", "special": true}, {"id": 2, "content": "</s>", "special": true},
        ],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ]},
        "pre_tokenizer": null,
        "model": {"type": "BPE", "vocab": vocab, "merges": ["h i", "▁ hi"], "byte_fallback": true, "fuse_unk": true, "unk_token": "<unk>"},
    });
    let tokenizer = build(&file, &json!({"bos_token": "<s>", "eos_token": "</s>"})).unwrap();
    assert_eq!(tokenizer.encode_text("hi hi"), [263, 263]);
    assert_eq!(tokenizer.encode_text("é"), [259, 3 + 0xC3, 3 + 0xA9]);
    assert_eq!(tokenizer.encode_template("<s>hi</s>hi"), [1, 263, 2, 263]);
    assert_eq!(*tokenizer.end_tokens(), [2]);
    assert_eq!(tokenizer.token_bytes(263), b" hi");
    assert_eq!(tokenizer.token_bytes(3 + 0xC3), [0xC3]);
    let forged = tokenizer.encode_text("</s>");
    assert!(forged.iter().all(|token| !tokenizer.is_control(*token)));
}

#[test]
fn unknown_steps_are_refused_by_name_with_what_is_supported() {
    let mut file = llama3();
    file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = json!("\\w+");
    let message = refusal(&file);
    assert!(
        message.contains("pre_tokenizer")
            && message.contains(r"\\w+")
            && message.contains("Llama 3"),
        "{message}"
    );
    let mut file = llama3();
    file["normalizer"] = json!({"type": "Lowercase"});
    assert!(refusal(&file).contains("Lowercase"));
    let mut file = llama3();
    file["model"]["type"] = json!("Unigram");
    assert!(
        refusal(&file).contains("model.type: \"Unigram\" is not supported; supported are \"BPE\"")
    );
}

#[test]
fn broken_files_are_errors_that_name_their_place() {
    let mut file = llama3();
    file["model"]["merges"] = json!(["h e", "x yz"]);
    assert!(refusal(&file).contains("merges[1]"));
    let mut file = llama3();
    file["model"]["merges"] = json!([["h", 1]]);
    assert!(refusal(&file).contains("model.merges[0]"));
    let mut file = llama3();
    file["added_tokens"][0]["id"] = json!(4_000_000_000_u64);
    assert!(refusal(&file).contains("added_tokens[0].id"));
    assert!(build(&json!([]), &Value::Null).is_err());
    assert!(read(b"{", &Value::Null).is_err());
}
