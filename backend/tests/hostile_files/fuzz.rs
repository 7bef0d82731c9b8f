//! Seeded mutations of good files.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
};

use codex_bridge_backend::{
    model::weights::Format,
    testing::{Random, TinyLlama, fuzz_runs},
};

use serde_json::Value;

use super::{open, peak_memory, small};

/// Resident bytes at the peak, over what the test began with, that no file may cause.
const MOST_MEMORY: u64 = 64 << 20;

fn runs() -> usize {
    fuzz_runs(5_000) as usize
}

/// Writes mutations over `file` and opens `model` each time; returns how many different fields were named in refusals. Some mutations must be
/// refused and some not, or they miss what they should hit.
fn survive(
    name: &str,
    file: &Path,
    model: &Path,
    mutated: impl Fn(&mut Random) -> Vec<u8>,
) -> usize {
    let before = peak_memory();
    let mut random = Random(0x5eed);
    let (mut opened, mut refusals) = (0, std::collections::BTreeSet::new());
    let output = File::options().write(true).open(file).unwrap();
    for run in 0..runs() {
        let bytes = mutated(&mut random);
        // Not truncated to nothing first: some file systems flush at every close after that.
        output.write_all_at(&bytes, 0).unwrap();
        output.set_len(bytes.len() as u64).unwrap();
        let outcome = std::panic::catch_unwind(|| open(model));
        match outcome {
            Ok(Ok(_)) => opened += 1,
            Ok(Err(error)) => {
                // A bound on the test's own memory.
                if refusals.len() < 10_000 {
                    refusals.insert(error.field);
                }
            }
            Err(_) => {
                let kept = std::env::temp_dir().join(format!("hostile-{name}-{run}"));
                fs::write(&kept, &bytes).unwrap();
                panic!("run {run} of {name} broke on {}", kept.display());
            }
        }
    }
    let grown = peak_memory().saturating_sub(before);
    println!(
        "{name}: {} mutations, {opened} opened, {} fields named in refusals, peak memory grew by {} KiB",
        runs(),
        refusals.len(),
        grown >> 10
    );
    assert!(grown < MOST_MEMORY, "peak memory grew by {grown} bytes");
    assert!(opened > 0 && opened < runs());
    refusals.len()
}

/// One to four changes: bits, bytes, numbers, words, pieces of other seeds, cuts.
fn mutated(seeds: &[Vec<u8>], words: &[&[u8]], random: &mut Random) -> Vec<u8> {
    const NUMBERS: [u64; 12] = [
        0,
        1,
        31,
        32,
        255,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        1 << 32,
        1 << 62,
        1 << 63,
        u64::MAX,
    ];
    let mut bytes = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        let end = (at + random.below(48)).min(bytes.len());
        match random.below(8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 if at < bytes.len() => bytes[at] = random.next_u64() as u8,
            2 | 3 => {
                let width = [4, 8][random.below(2)];
                let number = NUMBERS[random.below(NUMBERS.len())].to_le_bytes();
                if let Some(place) = bytes.get_mut(at..at + width) {
                    place.copy_from_slice(&number[..width]);
                }
            }
            4 => {
                let word = words[random.below(words.len())];
                // Over as often as in between: the latter shifts all that follows.
                let over = random.below(2) * word.len();
                bytes.splice(at..(at + over).min(bytes.len()), word.iter().copied());
            }
            5 => {
                let piece = bytes[at..end].to_vec();
                let to = random.below(bytes.len() + 1);
                bytes.splice(to..to, piece);
            }
            6 => drop(bytes.drain(at..end)),
            _ if random.below(8) == 0 => bytes.truncate(at),
            _ => {
                let other = &seeds[random.below(seeds.len())];
                let from = at.min(other.len());
                let to = (from + random.below(64)).min(other.len());
                let until = (at + to - from).min(bytes.len());
                bytes.splice(at..until, other[from..to].iter().copied());
            }
        }
    }
    bytes
}

#[test]
fn gguf_heads_survive_mutations() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let plain = small();
    let mut llama3 = small();
    llama3.alignment = 64;
    llama3.set("general.alignment", 64);
    llama3.set("llama.rope.scaling.type", "linear");
    llama3.set(
        "llama.rope.scaling.factor",
        codex_bridge_backend::testing::gguf::Value::F32(2.0),
    );
    plain.write(&path).unwrap();
    let words: [&[u8]; 12] = [
        b"GGUF",
        b"llama",
        b"general.alignment",
        b"split.count",
        b"llama.block_count",
        b"tokenizer.ggml.tokens",
        b"token_embd.weight",
        b"blk.0.attn_q.bias",
        b"blk.1.attn_q.weight",
        b"\x09\0\0\0\x09\0\0\0",
        b"\x09\0\0\0\x08\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x08\0\0\0",
    ];
    let whole = [plain.encode(), llama3.encode()];
    let heads = [plain.head(), llama3.head()];
    let mutated = |random: &mut Random| {
        if random.below(4) == 0 {
            return mutated(&whole, &words, random);
        }
        // The rest of the time the head alone is changed, since most of the file is weights.
        let mut bytes = mutated(&heads, &words, random);
        bytes.extend(&whole[0][heads[0].len()..]);
        bytes
    };
    assert!(survive("gguf", &path, &path, mutated) > 50);
}

/// A folder with a small model.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let tiny = TinyLlama {
        layers: 1,
        hidden: 8,
        ffn: 8,
        heads: 2,
        kv_heads: 1,
        head_dim: 4,
        format: Format::Bf16,
        embedding_format: Format::Bf16,
        ..TinyLlama::default()
    };
    tiny.write_hf(folder.path(), 1).unwrap();
    folder
}

const JSON_WORDS: [&[u8]; 14] = [
    b"{",
    b"}",
    b"[",
    b"\"",
    b"\\u",
    b"null",
    b"true",
    b"-1",
    b"0",
    b"1e999",
    b"18446744073709551615",
    b"\"F64\"",
    b"\"llama3\"",
    b"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
];

fn survive_in_folder(name: &str) -> usize {
    let folder = folder();
    let path = folder.path().join(name);
    let seed = fs::read(&path).unwrap();
    survive_json(name, &path, folder.path(), &[seed])
}

/// Half of the mutations are of the text, half are of the values and leave it good JSON.
fn survive_json(name: &str, path: &Path, folder: &Path, seeds: &[Vec<u8>]) -> usize {
    let parsed: Vec<Option<Value>> = seeds
        .iter()
        .map(|seed| serde_json::from_slice(seed).ok())
        .collect();
    survive(name, path, folder, |random| {
        let seed = random.below(seeds.len());
        match &parsed[seed] {
            Some(json) if random.below(2) == 0 => revalued(json, random).into_bytes(),
            _ => mutated(&seeds[seed..=seed], &JSON_WORDS, random),
        }
    })
}

/// One to three values replaced or removed.
fn revalued(json: &Value, random: &mut Random) -> String {
    let mut json = json.clone();
    for _ in 0..=random.below(3) {
        revalue(&mut json, random);
    }
    json.to_string()
}

fn revalue(value: &mut Value, random: &mut Random) {
    const VALUES: [&str; 20] = [
        "null",
        "true",
        "false",
        "0",
        "1",
        "-1",
        "3",
        "1.5",
        "1e999",
        "4294967295",
        "18446744073709551615",
        "99999999999999999999999",
        r#""""#,
        r#""llama3""#,
        r#""linear""#,
        r#""F16""#,
        r#""../x.safetensors""#,
        "[]",
        "{}",
        "[1, 2, 3]",
    ];
    let (removed, replaced) = (random.below(8) == 0, random.below(16) == 0);
    match value {
        Value::Object(members) if !members.is_empty() && !replaced => {
            let member = random.below(members.len());
            let key = members.keys().nth(member).unwrap().clone();
            if removed {
                members.shift_remove(&key);
            } else {
                revalue(&mut members[&key], random);
            }
        }
        Value::Array(elements) if !elements.is_empty() && !replaced => {
            let element = random.below(elements.len());
            if removed {
                elements.remove(element);
            } else {
                revalue(&mut elements[element], random);
            }
        }
        _ => *value = serde_json::from_str(VALUES[random.below(VALUES.len())]).unwrap(),
    }
}

#[test]
fn safetensors_headers_survive_mutations() {
    let folder = folder();
    let path = folder.path().join("model.safetensors");
    let seed = fs::read(&path).unwrap();
    let length = u64::from_le_bytes(*seed.first_chunk().unwrap()) as usize;
    let (header, data) = seed[8..].split_at(length);
    let header: Value = serde_json::from_slice(header).unwrap();
    let mutated = |random: &mut Random| {
        if random.below(2) == 0 {
            return mutated(&[seed[..8 + length].to_vec()], &JSON_WORDS, random)
                .into_iter()
                .chain(data.iter().copied())
                .collect();
        }
        let header = revalued(&header, random);
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    };
    assert!(survive("safetensors", &path, folder.path(), mutated) > 20);
}

#[test]
fn config_json_survives_mutations() {
    let folder = folder();
    let path = folder.path().join("config.json");
    let plain = fs::read_to_string(&path).unwrap();
    let scaling = r#""rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":64}"#;
    let llama3 = plain.replace(r#""rope_scaling":null"#, scaling);
    assert_ne!(plain, llama3);
    let seeds = [plain.into_bytes(), llama3.into_bytes()];
    assert!(survive_json("config.json", &path, folder.path(), &seeds) > 20);
}

#[test]
fn tokenizer_config_and_generation_config_survive_mutations() {
    assert!(survive_in_folder("generation_config.json") > 3);
    assert!(survive_in_folder("tokenizer_config.json") > 0);
}

#[test]
fn a_shard_index_survives_mutations() {
    let folder = folder();
    let path = folder.path().join("model.safetensors.index.json");
    let tiny = TinyLlama {
        layers: 1,
        hidden: 8,
        ffn: 8,
        heads: 2,
        kv_heads: 1,
        head_dim: 4,
        ..TinyLlama::default()
    };
    tiny.write_hf(folder.path(), 2).unwrap();
    let seed = fs::read(&path).unwrap();
    assert!(survive_json("index", &path, folder.path(), &[seed]) > 20);
}
