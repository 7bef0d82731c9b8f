use crate::{
    model::{GgufVocabulary, TokenizerSource},
    tokenizer::{Detokenizer, Tokenizer},
};

/// `<unk> <s> </s>`, 256 bytes, then pieces of falling score, as in Llama 2's files.
fn tokenizer() -> Tokenizer {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).into();
    tokens.extend((0..256).map(|byte| format!("<0x{byte:02X}>")));
    let pieces = [
        "▁t", "he", "▁a", "in", "▁the", "el", "hel", "lo", "hello", "▁▁", "▁hello", "<s", "t", "h",
        "e", "l", "o", "▁", "a", "i", "n", "<", "s", ">", "/",
    ];
    tokens.extend(pieces.map(str::to_owned));
    let mut token_types = vec![2, 3, 3];
    token_types.extend([6; 256]);
    token_types.extend([1; 25]);
    let scores = (0..tokens.len()).map(|token| -(token as f32)).collect();
    Tokenizer::new(&TokenizerSource::Gguf(GgufVocabulary {
        model: "llama".to_owned(),
        tokens,
        token_types,
        scores,
        bos: Some(1),
        eos: Some(2),
        unknown: Some(0),
        ..GgufVocabulary::default()
    }))
    .unwrap()
}

fn spelled(tokenizer: &Tokenizer, text: &str) -> Vec<String> {
    tokenizer
        .encode_text(text)
        .into_iter()
        .map(|token| String::from_utf8_lossy(tokenizer.token_bytes(token)).into_owned())
        .collect()
}

#[test]
fn neighbours_of_the_highest_score_join_first() {
    let tokenizer = tokenizer();
    // "he" (score -260) comes before "hel" and "el", then "▁the" needs "▁t" + "he".
    assert_eq!(spelled(&tokenizer, "the"), [" the"]);
    assert_eq!(spelled(&tokenizer, "hello hello"), [" hello", " hello"]);
    assert_eq!(spelled(&tokenizer, "  a"), ["  ", " a"]);
}

#[test]
fn what_is_no_piece_becomes_its_bytes() {
    let tokenizer = tokenizer();
    let tokens = tokenizer.encode_text("é");
    assert_eq!(
        tokens,
        [tokenizer.token_id("▁").unwrap(), 3 + 0xC3, 3 + 0xA9]
    );
}

#[test]
fn text_never_becomes_a_control_token() {
    let tokenizer = tokenizer();
    for text in ["<s>", "</s>", "<unk>", "<0x41>"] {
        let tokens = tokenizer.encode_text(text);
        assert!(
            tokens.iter().all(|token| !tokenizer.is_control(*token)),
            "{text}"
        );
        let mut detokenizer = Detokenizer::new(&tokenizer);
        let back: String = tokens
            .iter()
            .map(|token| detokenizer.push(*token))
            .collect();
        assert_eq!(back, text);
    }
    assert_eq!(
        tokenizer.encode_template("<s>the</s>"),
        [1, tokenizer.token_id("▁the").unwrap(), 2]
    );
}

#[test]
fn long_text_is_no_slower_than_its_length() {
    let tokenizer = tokenizer();
    let text = "hello the in a ".repeat(20_000);
    let started = std::time::Instant::now();
    assert!(tokenizer.encode_text(&text).len() > 60_000);
    assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
}
