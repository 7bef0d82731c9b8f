//! Copies of pages.

use kernels::{
    ops::{CacheCopy, PageCopy},
    source::CacheFormat,
};

use super::{
    On,
    cache::{Heads, place},
    get, launch, put,
    random::Random,
};

pub fn a_copied_page_has_the_first_tokens_and_zeros_behind(on: &mut On<'_>) {
    for format in [CacheFormat::Bf16, CacheFormat::Fp8] {
        let heads = Heads {
            heads: 2,
            kv_heads: 2,
            head_dim: 48,
            format,
        };
        let cache = heads.cache();
        let mut random = Random(35);
        let bytes: Vec<u8> = (0..3 * cache.page_bytes())
            .map(|_| random.next_u32() as u8 | 1)
            .collect();
        let copies = [PageCopy::new(0, 2, 16), PageCopy::new(0, 1, 5)];
        let got = on.run(|sim| {
            let (from, to) = (put(sim, &bytes), put(sim, &bytes));
            let op = CacheCopy {
                cache,
                from,
                to,
                copies: put(sim, &copies),
                count: 2,
            };
            launch(sim, &op.launch().unwrap());
            get::<u8>(sim, to, bytes.len())
        });
        let size = cache.page_bytes();
        assert!(got[2 * size..] == bytes[..size]);
        let number = if format == CacheFormat::Bf16 { 2 } else { 1 };
        let half = heads.head_dim * 16;
        for part in (size..2 * size).step_by(cache.part_bytes()) {
            for token in 0..16 {
                let same = |at: usize, bytes_of: usize| {
                    let got = &got[part + at..part + at + bytes_of];
                    let from = part - size + at;
                    if token < 5 {
                        assert_eq!(got, &bytes[from..from + bytes_of]);
                    } else {
                        assert!(got.iter().all(|byte| *byte == 0));
                    }
                };
                for dim in 0..heads.head_dim {
                    for value in [false, true] {
                        let at = usize::from(value) * half + place(value, token, dim);
                        same(at * number, number);
                    }
                }
                if format == CacheFormat::Fp8 {
                    same(2 * half + token * 4, 4);
                    same(2 * half + (16 + token) * 4, 4);
                }
            }
        }
    }
}
