//! Every stored format becomes the same numbers as in gguf-py, bit for bit. `backend/python/golden_quant.py` wrote the files.

#![expect(clippy::unwrap_used, reason = "the helpers are tests too")]

use std::path::PathBuf;

use codex_bridge_backend::model::{
    quant::{dequantize_row, first_non_finite},
    weights::Format,
};

/// Blocks, and the numbers they stand for.
fn golden(format: Format) -> (Vec<u8>, Vec<u32>) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden/quant")
        .join(format!("{format}.bin"));
    let mut blocks = std::fs::read(path).unwrap();
    let count = blocks.len() / (format.block_bytes() + 4 * format.block_len());
    let numbers = blocks.split_off(count * format.block_bytes());
    assert_eq!(numbers.len(), 4 * count * format.block_len());
    let bits = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    (blocks, numbers.chunks_exact(4).map(bits).collect())
}

#[test]
fn dequantisation_is_equal_to_gguf_py_bit_for_bit() {
    for format in Format::ALL {
        let (blocks, expected) = golden(format);
        assert!(expected.len() >= 64, "{format}");
        let mut numbers = vec![f32::NAN; expected.len()];
        dequantize_row(format, &blocks, &mut numbers);
        for (index, (number, expected)) in numbers.iter().zip(expected).enumerate() {
            assert_eq!(
                number.to_bits(),
                expected,
                "{format}: number {index} is {number}, not {}",
                f32::from_bits(expected)
            );
        }
    }
}

#[test]
fn scales_that_are_not_finite_are_found_where_they_are() {
    for format in Format::ALL {
        let (blocks, _) = golden(format);
        assert_eq!(first_non_finite(format, &blocks), None, "{format}");
        let (size, inf): (usize, &[u8]) = match format {
            Format::F32 => (4, &[0x00, 0x00, 0x80, 0xff]),
            Format::Bf16 => (2, &[0x81, 0xff]),
            other => (other.block_bytes(), &[0x01, 0xfc]),
        };
        let places: &[usize] = match format {
            Format::Q4_1 | Format::Q4K | Format::Q5K => &[0, 2],
            Format::Q6K => &[208],
            _ => &[0],
        };
        for place in places {
            let mut broken = blocks.clone();
            let at = 5 * size + place;
            broken[at..at + inf.len()].copy_from_slice(inf);
            assert_eq!(first_non_finite(format, &broken), Some(5), "{format}");
        }
    }
}

#[test]
#[should_panic(expected = "Q4_K row")]
fn bytes_that_are_not_whole_blocks_are_a_bug_of_the_caller() {
    dequantize_row(Format::Q4K, &[0; 144], &mut [0.0; 255]);
}
