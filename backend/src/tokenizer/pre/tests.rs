use tokenizers::utils::SysRegex;

use super::*;
use crate::testing::{Random, fuzz_runs};

fn words(pre: Pre, text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    pre.words(text, |word| words.push(word));
    words
}

/// The published expression, run by the regex engine. `None`: the engine gave up.
fn by_regex<'a>(regex: &SysRegex, text: &'a str) -> Vec<&'a str> {
    let mut words = Vec::new();
    let mut end = 0;
    for (start, stop) in regex.find_iter(text) {
        assert_eq!(start, end, "the expression matches everything");
        words.push(&text[start..stop]);
        end = stop;
    }
    assert_eq!(end, text.len());
    words
}

#[test]
fn every_character_is_of_the_class_that_the_regex_engine_finds() {
    let every: String = ('\0'..=char::MAX).collect();
    let mut found = vec![Class::Other; char::MAX as usize + 1];
    for (pattern, class) in [
        (r"\p{L}+", Class::Letter),
        (r"\p{N}+", Class::Number),
        (r"\s+", Class::Blank),
    ] {
        let regex = SysRegex::new(pattern).unwrap();
        for (start, end) in regex.find_iter(&every) {
            for character in every[start..end].chars() {
                found[character as usize] = class;
            }
        }
    }
    let differs = every
        .chars()
        .find(|character| classes().of(*character) != found[*character as usize]);
    assert_eq!(differs, None);
}

fn random_text(random: &mut Random) -> String {
    const ALPHABETS: [&str; 8] = [
        "abcXYZ",
        "0189²Ⅳ٣",
        "  \t\n\r\u{A0}\u{3000}\u{85}\u{2028}",
        "'\"`.,;!?(){}<>|/\\#$%&*-_=+~",
        "sStTrReEvVmMlLdD'ſK",
        "äßñłąǅʰ",
        "жЯαΩאبहิ่中文カ한",
        "😀👩\u{200D}\u{FE0F}\u{20E3}\u{301}",
    ];
    let mut next = |bound: usize| random.below(bound);
    let mut text = String::new();
    for _ in 0..1 + next(10) {
        let alphabet: Vec<char> = ALPHABETS[next(ALPHABETS.len())].chars().collect();
        for _ in 0..1 + next(6) {
            text.push(alphabet[next(alphabet.len())]);
        }
        if next(20) == 0 {
            text.extend(char::from_u32(next(0x11_0000) as u32));
        }
    }
    text
}

#[test]
fn words_are_those_of_the_published_expressions() {
    let runs = fuzz_runs(20_000);
    for (pre, pattern) in [
        (Pre::Gpt2, Pre::GPT2_PATTERN),
        (Pre::Llama3, Pre::LLAMA3_PATTERN),
        (Pre::Qwen2, Pre::QWEN2_PATTERN),
    ] {
        let regex = SysRegex::new(pattern).unwrap();
        let mut random = Random(1);
        for _ in 0..runs {
            let text = random_text(&mut random);
            assert_eq!(
                words(pre, &text),
                by_regex(&regex, &text),
                "{pre:?} {text:?}"
            );
        }
    }
}

#[test]
fn every_character_is_of_the_class_the_expressions_give_it() {
    let regex = SysRegex::new(Pre::LLAMA3_PATTERN).unwrap();
    for code in 0..=0x10_FFFF {
        let Some(character) = char::from_u32(code) else {
            continue;
        };
        let text =
            format!("a{character}{character}1{character}.{character} {character}'{character}\n");
        assert_eq!(
            words(Pre::Llama3, &text),
            by_regex(&regex, &text),
            "{text:?}"
        );
    }
}

/// Fowler-Noll-Vo hash of all characters of a class, as the Python package `tokenizers` 0.22 and 0.23 (Oniguruma, Unicode 16) has them.
#[test]
fn classes_are_those_of_the_python_original() {
    let hash = |class: Class| {
        ('\0'..=char::MAX)
            .filter(|character| classes().of(*character) == class)
            .fold(
                (0, 0xCBF2_9CE4_8422_2325_u64),
                |(count, hash), character| {
                    let hash = character
                        .encode_utf8(&mut [0; 4])
                        .bytes()
                        .fold(hash, |hash, byte| {
                            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
                        });
                    (count + 1, hash)
                },
            )
    };
    assert_eq!(hash(Class::Letter), (141_028, 0x0670_A59D_3634_7290));
    assert_eq!(hash(Class::Number), (1911, 0xBFA8_B591_3B20_00DA));
    assert_eq!(hash(Class::Blank), (25, 0x53AF_17E7_1405_196A));
}

#[test]
fn digits_stand_alone_before_the_blanks_around_them_are_looked_at() {
    assert_eq!(words(Pre::SmolLm, "a  12 b"), ["a", "  ", "1", "2", " b"]);
    assert_eq!(words(Pre::Gpt2, "a  12 b"), ["a", " ", " 12", " b"]);
}

#[test]
fn a_megabyte_of_blanks_is_one_word_at_once() {
    let text = format!("{}x", " ".repeat(1 << 20));
    for pre in [Pre::Gpt2, Pre::SmolLm, Pre::Llama3, Pre::Qwen2] {
        assert_eq!(words(pre, &text).len(), 2, "{pre:?}");
    }
}

#[test]
fn every_byte_has_a_character_of_its_own() {
    for byte in 0..=255u8 {
        assert_eq!(byte_of(character_of(byte)), Some(byte));
    }
    assert_eq!(character_of(b' '), 'Ġ');
    assert_eq!(character_of(b'\n'), 'Ċ');
    assert_eq!(byte_of('中'), None);
}
