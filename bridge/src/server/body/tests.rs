use std::io::Write;

use futures_util::{StreamExt, stream};
use http::HeaderValue;
use pretty_assertions::assert_eq;
use serde_json::json;

use super::*;

const LIMIT: u64 = 1024;

fn chunks(body: &[u8]) -> Chunks {
    let chunks: Vec<_> = body.chunks(7).map(Bytes::copy_from_slice).collect();
    Box::pin(stream::iter(chunks).map(Ok))
}

fn coded(coding: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(header::CONTENT_ENCODING, HeaderValue::from_static(coding))])
}

async fn read(body: &[u8], coding: &'static str) -> Result<Value, String> {
    read_object(chunks(body), &coded(coding), LIMIT)
        .await
        .map(Value::Object)
        .map_err(|error| error.to_string())
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn zstd(body: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(body, ruzstd::encoding::CompressionLevel::Fastest)
}

/// A JSON object of exactly `size` bytes.
fn object_of(size: u64) -> Vec<u8> {
    let padding = "x".repeat(size as usize - r#"{"a":""}"#.len());
    format!(r#"{{"a":"{padding}"}}"#).into_bytes()
}

#[tokio::test]
async fn every_coding_gives_the_same_object() {
    let body = br#"{"model":"m","seed":12345678901234567890123}"#;
    let whole = read(body, "identity").await.unwrap();
    assert_eq!(whole.to_string().as_bytes(), body);
    assert_eq!(read(&gzip(body), "gzip").await.unwrap(), whole);
    assert_eq!(read(&gzip(body), "X-Gzip").await.unwrap(), whole);
    assert_eq!(read(&zstd(body), "zstd").await.unwrap(), whole);
}

#[tokio::test]
async fn compressed_bodies_may_come_in_several_members() {
    let (one, two) = (br#"{"model":"#, br#""m"}"#);
    let skippable = [
        &0x184d_2a50_u32.to_le_bytes()[..],
        &3_u32.to_le_bytes(),
        b"abc",
    ]
    .concat();
    let expected = Ok(json!({"model": "m"}));
    assert_eq!(
        read(&[gzip(one), gzip(two)].concat(), "gzip").await,
        expected
    );
    let frames = [zstd(one), skippable, zstd(two)].concat();
    assert_eq!(read(&frames, "zstd").await, expected);
}

#[tokio::test]
async fn an_empty_body_is_an_empty_object() {
    assert_eq!(read(b"", "identity").await, Ok(json!({})));
    assert_eq!(read(&gzip(b""), "gzip").await, Ok(json!({})));
}

#[tokio::test]
async fn the_limit_is_inclusive_and_counts_decoded_bytes() {
    let (fits, too_long) = (object_of(LIMIT), object_of(LIMIT + 1));
    let refusal = Err("the request body has more than 1024 bytes".to_owned());
    for (coding, pack) in [
        ("identity", (|body| body.to_vec()) as fn(&[u8]) -> Vec<u8>),
        ("gzip", gzip),
        ("zstd", zstd),
    ] {
        assert!(read(&pack(&fits), coding).await.is_ok(), "{coding}");
        assert_eq!(read(&pack(&too_long), coding).await, refusal, "{coding}");
    }
}

/// Blanks for as long as anyone reads, but no further than a decoder may look past the limit.
struct Bomb {
    left: usize,
}

impl Read for Bomb {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        assert!(self.left > 0, "read on after the limit was passed");
        let count = buffer.len().min(self.left);
        self.left -= count;
        buffer[..count].fill(b' ');
        Ok(count)
    }
}

#[test]
fn decoding_stops_at_the_limit() {
    let bomb = Bomb {
        left: LIMIT as usize + 1,
    };
    let error = read_up_to(bomb, "gzip", LIMIT).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
}

#[tokio::test]
async fn a_bomb_is_too_large() {
    let bomb = vec![b' '; 64 * 1024 * 1024];
    for (coding, packed) in [("gzip", gzip(&bomb)), ("zstd", zstd(&bomb))] {
        let error = Coding::of(&coded(coding))
            .unwrap()
            .decode(packed.into(), LIMIT)
            .unwrap_err();
        assert!(
            matches!(error, Error::TooLarge { limit: LIMIT, .. }),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_zstd_header_cannot_claim_memory() {
    // Window descriptor 16 << 3: 64 MiB.
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0, 16 << 3, 1, 0, 0];
    let error = read(&frame, "zstd").await.unwrap_err();
    assert!(error.contains("67108864"), "{error}");
}

#[tokio::test]
async fn a_declared_length_is_judged_before_the_first_byte() {
    let headers = HeaderMap::from_iter([(header::CONTENT_LENGTH, HeaderValue::from(LIMIT + 1))]);
    let never = Box::pin(stream::pending());
    let error = read_object(never, &headers, LIMIT).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the request body has more than 1024 bytes: Content-Length is 1025"
    );
}

#[tokio::test]
async fn chained_and_unknown_codings_are_refused_by_name() {
    for coding in ["br", "gzip, zstd", "deflate"] {
        let error = read(b"{}", coding).await.unwrap_err();
        assert!(
            error.contains(coding) && error.contains(ALLOWED_CODINGS),
            "{error}"
        );
    }
    let mut twice = coded("gzip");
    twice.append(header::CONTENT_ENCODING, HeaderValue::from_static("zstd"));
    assert!(matches!(Coding::of(&twice), Err(Error::Coding(_))));
}

#[tokio::test]
async fn what_is_not_a_json_object_is_refused_with_its_place() {
    for (body, expected) in [
        (&b"{\"a\":\"\xff\"}"[..], "is not UTF-8 at byte 6"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b"{\"a\":}", "line 1 column 6"),
        (b"{} {}", "line 1 column 4"),
        (b"{\"a\"", "line 1 column 4"),
        (b"[1,2]", "must be a JSON object, but an array of 2 came"),
        (b"null", "but null came"),
    ] {
        let error = read(body, "identity").await.unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let error = read(b"(\xb5/\xfd", "gzip").await.unwrap_err();
    assert!(error.contains("is not gzip"), "{error}");
}

#[tokio::test]
async fn deep_nesting_is_an_error_and_no_crash() {
    let deep = format!("{{\"a\":{}", "[".repeat(900));
    let error = read(deep.as_bytes(), "identity").await.unwrap_err();
    assert!(error.contains("recursion limit"), "{error}");
}

#[tokio::test]
async fn large_bodies_parse_off_the_async_path_all_the_same() {
    let body = object_of(2 * PARSE_INLINE as u64);
    let object = read_object(chunks(&body), &HeaderMap::new(), u64::MAX)
        .await
        .unwrap();
    assert_eq!(object["a"].as_str().unwrap().len(), body.len() - 8);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stops_coming_is_given_up() {
    let stalls = stream::iter([Ok(Bytes::from_static(b"{"))]).chain(stream::pending());
    let started = Instant::now();
    let error = read_object(Box::pin(stalls), &HeaderMap::new(), LIMIT)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Idle(_)), "{error}");
    assert_eq!(started.elapsed().as_secs(), LONGEST_SILENCE.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_slow_body_is_no_silent_one() {
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        for byte in br#"{"a":1}"# {
            tokio::time::sleep(LONGEST_SILENCE - Duration::from_secs(1)).await;
            sender
                .send(Ok(Bytes::copy_from_slice(&[*byte])))
                .await
                .unwrap();
        }
    });
    let slow = stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|chunk| (chunk, receiver))
    });
    let object = read_object(Box::pin(slow), &HeaderMap::new(), LIMIT)
        .await
        .unwrap();
    assert_eq!(Value::Object(object), json!({"a": 1}));
}
