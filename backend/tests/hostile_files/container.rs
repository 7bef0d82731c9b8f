//! Broken containers: header, metadata, tensor table, parts of a split model.

use std::{
    fs::{self, File},
    path::Path,
    time::{Duration, Instant},
};

use codex_bridge_backend::{
    model,
    testing::gguf::{Gguf, Value},
};

use super::{open, peak_memory, refuse, refused, small};

#[test]
fn the_small_model_itself_is_good() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    small().write(&path).unwrap();
    open(&path).unwrap();
}

#[test]
fn other_kinds_of_files_and_versions_are_named() {
    refuse(&[
        (
            "version 1",
            |file| file.version = 1,
            "version: found 1; supported: 2 and 3",
        ),
        ("version 4", |file| file.version = 4, "version: found 4"),
        (
            "big endian",
            |file| file.version = 3 << 24,
            "version: found a big-endian file",
        ),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    fs::write(&path, b"PK\x03\x04 and so on").unwrap();
    refused(
        "zip",
        &path,
        r#"header: found "PK\x03\x04"; supported: "GGUF""#,
    );
    fs::write(&path, b"").unwrap();
    refused(
        "empty",
        &path,
        "header: found 4 bytes announced at byte 0, and 0 bytes left",
    );
    refused(
        "absent",
        &folder.path().join("n.gguf"),
        "file: found No such file",
    );
    refused("folder", folder.path(), "config.json: found no such file");
    refused(
        "weights alone",
        Path::new("/x/model.safetensors"),
        "the folder it lies in",
    );
}

#[test]
fn version_2_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let mut file = small();
    file.version = 2;
    file.write(&path).unwrap();
    open(&path).unwrap();
}

#[test]
fn every_cut_of_a_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let bytes = small().encode();
    let padding = bytes.len() - bytes.iter().rposition(|byte| *byte != 0).unwrap() - 1;
    for length in (0..bytes.len() - padding).step_by(7) {
        fs::write(&path, &bytes[..length]).unwrap();
        assert!(open(&path).is_err(), "{length} bytes");
    }
}

#[test]
fn metadata_that_cannot_be_is_refused_by_its_key() {
    refuse(&[
        (
            "duplicate key",
            |file| file.metadata.push(("general.name".into(), "b".into())),
            "general.name: found this key twice",
        ),
        (
            "value type",
            |file| file.set("general.name", Value::Raw(13, vec![0; 8])),
            "general.name: found value type 13",
        ),
        (
            "array of arrays",
            |file| {
                // Nesting a million deep costs no more than one level.
                let deep = [9u32.to_le_bytes().as_slice(), &1u64.to_le_bytes()]
                    .concat()
                    .repeat(1_000_000);
                file.set("general.deep", Value::Raw(9, deep));
            },
            "general.deep: found an array of arrays",
        ),
        (
            "huge array",
            |file| {
                file.set(
                    "general.huge",
                    Value::Raw(
                        9,
                        [10u32.to_le_bytes().as_slice(), &u64::MAX.to_le_bytes()].concat(),
                    ),
                );
            },
            "general.huge: found 18446744073709551615 bytes announced",
        ),
        (
            "huge array of texts",
            |file| {
                file.set(
                    "general.huge",
                    Value::Raw(
                        9,
                        [8u32.to_le_bytes().as_slice(), &u64::MAX.to_le_bytes()].concat(),
                    ),
                );
            },
            "general.huge: found",
        ),
        (
            "huge text",
            |file| {
                file.set(
                    "general.name",
                    Value::Raw(8, u64::MAX.to_le_bytes().to_vec()),
                );
            },
            "general.name: found 18446744073709551615 bytes announced",
        ),
        (
            "text that is no text",
            |file| file.set("general.name", 5),
            "general.name: found 5; supported: a text",
        ),
        (
            "text that is not UTF-8",
            |file| {
                file.set(
                    "general.name",
                    Value::Raw(8, [1u64.to_le_bytes().as_slice(), b"\xff"].concat()),
                );
            },
            "general.name: found invalid utf-8",
        ),
        (
            "number that is no number",
            |file| file.set("llama.block_count", "two"),
            "llama.block_count: found \"two\"; supported: a whole number",
        ),
        (
            "negative count",
            |file| file.set("llama.block_count", Value::I32(-1)),
            "llama.block_count: found -1",
        ),
        (
            "fraction",
            |file| file.set("llama.block_count", Value::F32(1.5)),
            "llama.block_count: found 1.5",
        ),
        (
            "alignment 0",
            |file| file.set("general.alignment", 0),
            "general.alignment: found 0; supported: powers of two",
        ),
        (
            "alignment 12",
            |file| file.set("general.alignment", 12),
            "general.alignment: found 12",
        ),
        (
            "alignment 2^31",
            |file| file.set("general.alignment", 1 << 31),
            "general.alignment: found 2147483648",
        ),
    ]);
}

#[test]
fn counts_in_the_header_allocate_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let before = peak_memory();
    for (place, field) in [(8, "number of tensors"), (16, "number of metadata keys")] {
        for count in [65_537, 1 << 32, u64::MAX] {
            let mut bytes = small().encode();
            bytes[place..place + 8].copy_from_slice(&count.to_le_bytes());
            fs::write(&path, &bytes).unwrap();
            refused(
                field,
                &path,
                &format!("{field}: found {count}; supported: at most 65536"),
            );
        }
        let mut bytes = small().encode();
        bytes[place..place + 8].copy_from_slice(&65_536u64.to_le_bytes());
        fs::write(&path, &bytes).unwrap();
        assert!(open(&path).is_err());
    }
    assert!(peak_memory() - before < 16 << 20);
}

#[test]
fn a_gigantic_file_of_zeros_is_refused_without_reading_it_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    // A text array that claims 2^60 empty texts, and a terabyte (none of it on the disk) to find them in.
    let mut file = Gguf::default();
    let claim = [8u32.to_le_bytes().as_slice(), &(1u64 << 60).to_le_bytes()].concat();
    file.set("tokenizer.ggml.tokens", Value::Raw(9, claim));
    file.write(&path).unwrap();
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    let start = Instant::now();
    refused(
        "sparse",
        &path,
        "at most 256 MiB of metadata and tensor tables",
    );
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn tensors_must_lie_in_the_file_each_for_itself() {
    refuse(&[
        (
            "duplicate",
            |file| file.tensors[1] = file.tensors[0].clone(),
            "token_embd.weight: found this tensor twice",
        ),
        (
            "overlap",
            |file| file.tensors[2].offset = Some(0),
            "in it; supported: tensors that do not overlap",
        ),
        (
            "beyond the end",
            |file| file.tensors[0].offset = Some(1 << 40),
            "place of token_embd.weight: found [32, 8] of Q8_0 at offset 1099511627776",
        ),
        (
            "offset overflows",
            |file| file.tensors[0].offset = Some(u64::MAX - 31),
            "place of token_embd.weight",
        ),
        (
            "not aligned",
            |file| file.tensors[3].offset = Some(8),
            "multiples of the alignment, 32",
        ),
        (
            "no dimensions",
            |file| file.tensors[0].dims.clear(),
            "token_embd.weight: found 0 dimensions; supported: 1 to 4",
        ),
        (
            "many dimensions",
            |file| file.tensors[0].dims = vec![1; 5],
            "token_embd.weight: found 5 dimensions",
        ),
        (
            "length 0",
            |file| file.tensors[0].dims[1] = 0,
            "shape of token_embd.weight: found [32, 0] of Q8_0",
        ),
        (
            "half a block",
            |file| file.tensors[0].dims[0] = 33,
            "rows of whole blocks of 32",
        ),
        (
            "product overflows",
            |file| file.tensors[0].dims = vec![1 << 33, 1 << 33],
            "place of token_embd.weight",
        ),
        (
            "bytes overflow",
            |file| file.tensors[0].dims = vec![1 << 62, 1],
            "place of token_embd.weight",
        ),
        (
            "unknown type",
            |file| file.tensors[0].kind = 99,
            "type of token_embd.weight: found type 99; supported: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K, Q5_K, Q6_K",
        ),
        (
            "known type we do not read",
            |file| file.tensors[0].kind = 23,
            "found IQ4_XS (type 23)",
        ),
        (
            "name that is not UTF-8",
            |file| file.tensors[0].name = "\u{0}\u{1b}[31m".into(),
            "no such tensor",
        ),
    ]);
}

#[test]
fn parts_of_a_split_model_must_fit_together() {
    let folder = tempfile::tempdir().unwrap();
    let parts = small().write_split(folder.path(), "m", 2).unwrap();
    open(&parts[0]).unwrap();
    let renamed = folder.path().join("renamed.gguf");
    fs::copy(&parts[0], &renamed).unwrap();
    refused(
        "renamed",
        &renamed,
        "file name: found renamed.gguf; supported: names that end in -00001-of-00002.gguf",
    );
    fs::remove_file(&parts[1]).unwrap();
    let line = model::open(&parts[0]).unwrap_err().to_string();
    assert!(
        line.contains("m-00002-of-00002.gguf: file: found No such file"),
        "{line}"
    );

    let mut many = small();
    many.set("split.count", Value::U16(u16::MAX));
    many.write(&renamed).unwrap();
    refused(
        "many parts",
        &renamed,
        "split.count: found 65535; supported: up to 1000",
    );
    let mut announced = small();
    announced.set("split.tensors.count", Value::I32(99));
    announced.write(&renamed).unwrap();
    refused(
        "missing tensors",
        &renamed,
        "split.tensors.count: found 99 tensors announced, 12 in the parts",
    );
}
