use super::*;

#[test]
fn packing_keeps_every_byte_of_a_full_tile() {
    // A row of bytes that are all ones fills a tile with ones: no place is left out, none is written twice.
    for format in Format::ALL {
        let shape = Packed::new(format, 16, 256).unwrap();
        let row = vec![0xff; format.row_bytes(256)];
        let packed = shape.pack_ordered(|_| Some(&row));
        assert_eq!(
            packed.len(),
            format.row_bytes(256) * 16,
            "{}",
            format.name()
        );
        assert!(packed.iter().all(|byte| *byte == 0xff), "{}", format.name());
    }
}

#[test]
fn missing_rows_and_columns_are_zeros() {
    let shape = Packed::new(Format::Q8_0, 3, 96).unwrap();
    assert_eq!((shape.tiles(), shape.records()), (1, 2));
    let bytes = Format::Q8_0.row_bytes(96);
    let packed = shape.pack(&vec![0xff; 3 * bytes]);
    let ones: u32 = packed.iter().map(|byte| byte.count_ones()).sum();
    assert_eq!(ones as usize, 3 * bytes * 8);
}

#[test]
fn columns_that_are_no_whole_blocks_are_refused() {
    let error = Packed::new(Format::Q4K, 16, 576).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a q4_k matrix of 16 x 576; columns are a multiple of 256"
    );
}

#[test]
fn rows_of_a_head_are_each_used_once_and_pairs_stand_eight_apart() {
    for (head_dim, rope_dim) in [(64, 64), (128, 64), (32, 32), (48, 16)] {
        for pairs in [Pairs::Neighbours, Pairs::Halves, Pairs::None] {
            let mut rows: Vec<usize> = (0..head_dim)
                .map(|place| head_row(place, head_dim, rope_dim, pairs))
                .collect();
            for pair in 0..rope_dim / 2 {
                let place = pair / 8 * 16 + pair % 8;
                let expected = match pairs {
                    Pairs::Neighbours => (2 * pair, 2 * pair + 1),
                    Pairs::Halves => (pair, pair + rope_dim / 2),
                    Pairs::None => (pair, pair + head_dim / 2),
                };
                assert_eq!((rows[place], rows[place + 8]), expected);
            }
            rows.sort_unstable();
            assert!(rows.into_iter().eq(0..head_dim));
        }
    }
}

#[test]
fn e4m3_round_trips_and_rounds_to_the_nearest() {
    for byte in 0..=255u8 {
        let value = e4m3_value(byte);
        if !value.is_nan() {
            assert_eq!(e4m3(value), byte, "{value}");
        }
    }
    let numbers: Vec<f32> = (0..=0x7e).map(e4m3_value).collect();
    for step in 0..46_000 {
        let x = step as f32 * 0.01;
        let nearest = numbers
            .iter()
            .map(|n| (n - x).abs())
            .fold(f32::MAX, f32::min);
        assert_eq!((e4m3_value(e4m3(x)) - x).abs(), nearest, "{x}");
    }
}
