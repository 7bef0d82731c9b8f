use std::{convert::Infallible, io::Write, time::Duration};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use futures_util::stream;
use reqwest::Body;
use tokio::io::AsyncWriteExt;

use crate::support::{Bridge, SECOND, config, error_message, nobody, soon};

#[tokio::test]
async fn a_head_that_never_ends_is_cut_off() {
    let mut config = config(nobody());
    config.limits.header_timeout = Duration::from_millis(50);
    let bridge = Bridge::start(config).await;
    let mut raw = bridge.connect().await;
    raw.send("GET /health HTTP/1.1\nhost: local").await;
    assert_eq!(raw.rest().await, "");
}

#[tokio::test]
async fn a_connection_over_the_cap_waits_for_its_turn() {
    let mut config = config(nobody());
    config.limits.max_connections = 1;
    let bridge = Bridge::start(config).await;
    let request = "GET /metrics HTTP/1.1\nhost: localhost\n\n";

    let mut first = bridge.connect().await;
    first.send(request).await;
    first.until("# EOF\n").await;
    let mut second = bridge.connect().await;
    second.send(request).await;
    // While the first is open, only it is answered.
    first.send(request).await;
    let text = first.until("# EOF\n").await;
    assert!(text.contains("codex_bridge_connections 1"), "{text}");
    let mut byte = [0];
    assert!(
        second.0.try_read(&mut byte).is_err(),
        "it should still wait"
    );

    drop(first);
    let text = second.until("# EOF\n").await;
    assert!(text.contains("codex_bridge_connections 1"), "{text}");
}

#[tokio::test]
async fn a_declared_length_over_the_limit_is_refused_before_the_upload() {
    let bridge = Bridge::start(config(nobody())).await;
    let mut raw = bridge.connect().await;
    raw.send(
        "POST /v1/responses HTTP/1.1\nhost: localhost\nexpect: 100-continue\ncontent-length: 99999999999\n\n",
    )
    .await;
    let answer = raw.until("}}").await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    assert!(
        answer.contains("16384 bytes: Content-Length is 99999999999"),
        "{answer}"
    );
    assert!(answer.contains(r#""code":"request_too_large""#), "{answer}");
}

#[tokio::test]
async fn a_client_that_uploads_first_and_reads_later_still_reads_413() {
    let bridge = Bridge::start(config(nobody())).await;
    for framing in ["content-length: 8388608", "transfer-encoding: chunked"] {
        let mut raw = bridge.connect().await;
        raw.send(&format!(
            "POST /v1/responses HTTP/1.1\nhost: localhost\n{framing}\n\n"
        ))
        .await;
        if framing.starts_with("transfer") {
            raw.send("800000\n").await;
        }
        let upload = vec![b' '; 8 * 1024 * 1024];
        soon(raw.0.write_all(&upload)).await.expect(framing);
        let answer = raw.rest().await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{framing}: {answer}");
        assert!(answer.contains("16384 bytes"), "{answer}");
    }
}

#[tokio::test]
async fn ordinary_clients_read_413_too() {
    let bridge = Bridge::start(config(nobody())).await;
    let chunk = Bytes::from(vec![b' '; 64 * 1024]);
    let chunked = Body::wrap_stream(stream::iter(vec![Ok::<_, Infallible>(chunk); 64]));
    let declared = Body::from(vec![b' '; 4 * 1024 * 1024]);
    for body in [chunked, declared] {
        let answer = bridge
            .post("/v1/responses")
            .body(body)
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 413);
        error_message(answer).await;
    }
}

#[tokio::test]
async fn a_decompression_bomb_is_too_large() {
    let bridge = Bridge::start(config(nobody())).await;
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(&vec![b' '; 8 * 1024 * 1024]).unwrap();
    let bomb = gzip.finish().unwrap();
    assert!(bomb.len() < 16 * 1024);
    let request = bridge
        .post("/v1/responses")
        .header("content-encoding", "gzip");
    let answer = request.body(bomb).send().await.unwrap();
    assert_eq!(answer.status(), 413);
    assert!(error_message(answer).await.contains("16384"));
}

#[tokio::test]
async fn compressed_bodies_are_read_and_their_faults_found() {
    let bridge = Bridge::start(config(nobody())).await;
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(b"[1,2,3]").unwrap();
    let zstd = ruzstd::encoding::compress_to_vec(
        &b"[1,2,3]"[..],
        ruzstd::encoding::CompressionLevel::Fastest,
    );
    for (coding, body) in [("gzip", gzip.finish().unwrap()), ("zstd", zstd)] {
        let request = bridge
            .post("/v1/responses")
            .header("content-encoding", coding);
        let answer = request.body(body).send().await.unwrap();
        assert_eq!(answer.status(), 400);
        assert!(
            error_message(answer).await.contains("an array of 3"),
            "{coding}"
        );
    }
    let request = bridge
        .post("/v1/responses")
        .header("content-encoding", "gzip, zstd");
    let answer = request.body("{}").send().await.unwrap();
    assert_eq!(answer.status(), 415);
    assert_eq!(answer.headers()["accept-encoding"], "gzip, zstd, identity");
    assert!(error_message(answer).await.contains("gzip, zstd, identity"));
}

#[tokio::test]
async fn a_server_at_its_cap_still_stops() {
    let mut config = config(nobody());
    config.limits.max_connections = 1;
    config.shutdown_grace = SECOND / 20;
    let mut bridge = Bridge::start(config).await;
    let mut raw = bridge.connect().await;
    raw.send("GET /metrics HTTP/1.1\nhost: localhost\n\n").await;
    raw.until("# EOF\n").await;
    bridge.stop();
    bridge.stopped().await;
}
