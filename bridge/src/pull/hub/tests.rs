//! Fetching from a server that does as it is told: one answer a request, in order.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener},
    path::Path,
    sync::{Arc, Mutex, mpsc},
    thread,
};

use pretty_assertions::assert_eq;

use super::*;
use crate::pull::digest::Hasher;
use crate::{
    config::Environment,
    pull::{self, Reference},
};

const FILE: &str = "hf:acme/demo/m.gguf";

/// What a server answers, before it closes the connection.
struct Scripted {
    status: &'static str,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    /// The length it claims, where that is not the body's.
    length: Option<usize>,
}

fn answer(status: &'static str, body: &[u8]) -> Scripted {
    Scripted {
        status,
        headers: Vec::new(),
        body: body.to_vec(),
        length: None,
    }
}

impl Scripted {
    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Says how long it is, and ends early.
    fn cut_from(mut self, length: usize) -> Self {
        self.length = Some(length);
        self
    }

    fn linked(self, content: &[u8]) -> Self {
        self.with("x-linked-etag", format!("\"{}\"", sha256(content)))
            .with("x-linked-size", content.len().to_string())
    }
}

struct Server {
    origin: String,
    heads: mpsc::Receiver<String>,
}

/// Serves the answers, one a connection.
fn server(answers: Vec<Scripted>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let (sender, heads) = mpsc::channel();
    thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
                head.push(byte[0]);
            }
            sender
                .send(String::from_utf8(head).unwrap().to_lowercase())
                .unwrap();
            let length = answer.length.unwrap_or(answer.body.len());
            let mut text = format!(
                "HTTP/1.1 {}\r\ncontent-length: {length}\r\nconnection: close\r\n",
                answer.status
            );
            for (name, value) in answer.headers {
                text += &format!("{name}: {value}\r\n");
            }
            text += "\r\n";
            stream.write_all(text.as_bytes()).unwrap();
            // A client that is not interested closes first.
            let _ = stream.write_all(&answer.body);
            let _ = stream.shutdown(Shutdown::Write);
        }
    });
    Server { origin, heads }
}

impl Server {
    fn next_head(&self) -> String {
        self.heads.recv_timeout(Duration::from_secs(20)).unwrap()
    }
}

fn sha256(content: &[u8]) -> String {
    let mut hasher = Hasher::new();
    hasher.update(content);
    digest::to_hex(&hasher.finish())
}

fn places(folder: &Path, endpoint: &str) -> Places {
    let variables = [
        ("XDG_DATA_HOME", folder.display().to_string()),
        ("HF_ENDPOINT", endpoint.to_owned()),
        ("HF_TOKEN", "hf_secret".to_owned()),
    ];
    Places::new(
        &variables
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect::<Environment>(),
    )
}

async fn pull_from(folder: &Path, origin: &str, text: &str) -> Result<PathBuf, String> {
    pull::pull(text, &places(folder, origin), &|_| {})
        .await
        .map_err(|error| error.to_string())
}

/// All files below a folder, without their folders.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path.file_name().unwrap().to_string_lossy().into_owned());
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn a_file_is_fetched_through_a_redirect_and_the_token_stays_with_its_host() {
    let folder = tempfile::tempdir().unwrap();
    let content = b"all the weights".repeat(1000);
    let cdn = server(vec![answer("200 OK", &content)]);
    let hub = server(vec![
        answer("302 Found", b"")
            .linked(&content)
            .with("location", format!("{}/blob", cdn.origin)),
    ]);
    let steps = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&steps);
    let report = move |step: &Step| seen.lock().unwrap().push((step.done, step.total));

    let path = pull::pull(FILE, &places(folder.path(), &hub.origin), &report)
        .await
        .unwrap();

    assert_eq!(std::fs::read(&path).unwrap(), content);
    assert_eq!(files(folder.path()), ["m.gguf"]);
    let (asked, blob) = (hub.next_head(), cdn.next_head());
    assert!(
        asked.starts_with("get /acme/demo/resolve/main/m.gguf http/1.1\r\n")
            && asked.contains("authorization: bearer hf_secret\r\n"),
        "{asked}"
    );
    assert!(!blob.contains("authorization"), "{blob}");
    let steps = steps.lock().unwrap().clone();
    let total = content.len() as u64;
    assert_eq!(steps.first(), Some(&(0, Some(total))));
    assert_eq!(steps.last(), Some(&(total, Some(total))));
    // It is there now; nobody is asked a second time.
    let again = pull_from(folder.path(), "http://127.0.0.1:1", FILE).await;
    assert_eq!(again, Ok(path));
}

#[tokio::test]
async fn a_cut_file_is_gone_on_with_where_it_ended() {
    let folder = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..=255).cycle().take(5000).collect();
    let hub = server(vec![
        answer("200 OK", &content[..3000])
            .linked(&content)
            .cut_from(5000),
        answer("302 Found", b"")
            .linked(&content)
            .with("location", "/blob"),
        answer("206 Partial Content", &content[3000..4000])
            .with("content-range", "bytes 3000-4999/5000")
            .cut_from(2000),
        answer("206 Partial Content", &content[4000..])
            .linked(&content)
            .with("content-range", "bytes 4000-4999/5000"),
    ]);

    let path = pull_from(folder.path(), &hub.origin, FILE).await.unwrap();

    assert_eq!(std::fs::read(path).unwrap(), content);
    assert_eq!(files(folder.path()), ["m.gguf"]);
    let heads: Vec<String> = (0..4).map(|_| hub.next_head()).collect();
    let ranges: Vec<bool> = heads
        .iter()
        .map(|head| head.contains("range: bytes="))
        .collect();
    assert_eq!(ranges, [false, true, true, true]);
    assert!(heads[2].contains("range: bytes=3000-\r\n"), "{}", heads[2]);
    assert!(heads[3].contains("range: bytes=4000-\r\n"), "{}", heads[3]);
}

#[tokio::test]
async fn what_an_earlier_run_left_is_used_only_for_the_same_file() {
    let folder = tempfile::tempdir().unwrap();
    let content = b"0123456789".repeat(50);
    let place = folder.path().join("codex-bridge/models/hf/acme/demo/main");
    std::fs::create_dir_all(&place).unwrap();
    let part = |content: &[u8]| place.join(format!(".m.gguf.{}.part", &sha256(content)[..16]));
    std::fs::write(part(&content), &content[..200]).unwrap();
    std::fs::write(part(b"another file"), "something else").unwrap();
    let hub = server(vec![
        answer("302 Found", b"")
            .linked(&content)
            .with("location", "/blob"),
        answer("206 Partial Content", &content[200..]).with("content-range", "bytes 200-499/500"),
    ]);

    let path = pull_from(folder.path(), &hub.origin, FILE).await.unwrap();

    assert_eq!(std::fs::read(path).unwrap(), content);
    assert!(!hub.next_head().contains("range:"));
    assert!(hub.next_head().contains("range: bytes=200-\r\n"));
}

#[tokio::test]
async fn a_server_that_knows_no_ranges_starts_anew() {
    let folder = tempfile::tempdir().unwrap();
    let content = b"0123456789".repeat(50);
    let hub = server(vec![
        answer("200 OK", &content[..100])
            .linked(&content)
            .cut_from(500),
        answer("200 OK", &content).linked(&content),
    ]);
    let path = pull_from(folder.path(), &hub.origin, FILE).await.unwrap();
    assert_eq!(std::fs::read(path).unwrap(), content);
}

#[tokio::test]
async fn a_wrong_checksum_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let hub = server(vec![
        answer("200 OK", b"tampered")
            .with("x-linked-etag", format!("\"{}\"", sha256(b"weights!")))
            .with("x-linked-size", "8"),
    ]);
    let problem = pull_from(folder.path(), &hub.origin, FILE)
        .await
        .unwrap_err();
    assert_eq!(
        problem,
        format!(
            "m.gguf: the file has the sha256 {}, and {} was expected; it was thrown away",
            sha256(b"tampered"),
            sha256(b"weights!")
        )
    );
    assert!(
        !files(folder.path())
            .iter()
            .any(|file| file.contains("part") || file == "m.gguf")
    );
}

#[tokio::test]
async fn a_checksum_of_the_users_own_is_compared_before_anything_is_fetched() {
    let folder = tempfile::tempdir().unwrap();
    let hub = server(vec![answer("200 OK", b"weights!").linked(b"weights!")]);
    let text = format!("{FILE}#sha256={}", "ab".repeat(32));
    let problem = pull_from(folder.path(), &hub.origin, &text)
        .await
        .unwrap_err();
    assert!(problem.contains(&sha256(b"weights!")), "{problem}");
    assert!(!files(folder.path()).contains(&"m.gguf".to_owned()));
}

#[tokio::test]
async fn refusals_are_told_at_once_with_what_to_do() {
    for (status, expected) in [
        (
            "404 Not Found",
            "404: there is no such repository, revision or file",
        ),
        ("401 Unauthorized", "put a token into HF_TOKEN"),
        ("403 Forbidden", "accept its licence"),
        ("410 Gone", "the server answered 410 Gone"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let hub = server(vec![answer(status, b"<html>")]);
        let problem = pull_from(folder.path(), &hub.origin, FILE)
            .await
            .unwrap_err();
        assert!(
            problem.starts_with(&format!("{}/acme/demo/resolve/main/m.gguf: ", hub.origin))
                && problem.contains(expected),
            "{problem}"
        );
        assert!(!files(folder.path()).contains(&"m.gguf".to_owned()));
    }
}

#[tokio::test]
async fn a_server_that_always_ends_early_is_given_up_and_its_part_kept() {
    let folder = tempfile::tempdir().unwrap();
    let content = b"0123456789".repeat(50);
    let first = answer("200 OK", &content[..100])
        .linked(&content)
        .cut_from(500);
    let rest = (0..5).map(|_| {
        answer("206 Partial Content", b"")
            .linked(&content)
            .with("content-range", "bytes 100-499/500")
            .cut_from(400)
    });
    let hub = server(std::iter::once(first).chain(rest).collect());
    let Ok(Reference::Hub(file)) = Reference::read(FILE, None) else {
        panic!("a hub file");
    };
    let patience = Patience {
        pause: Duration::from_millis(1),
        ..Patience::default()
    };
    let places = places(folder.path(), &hub.origin);
    let problem = fetch_patiently(&file, &places, &|_| {}, patience)
        .await
        .unwrap_err()
        .to_string();
    assert_eq!(
        problem,
        "m.gguf: the connection ended 5 times, last after 100 of 500 bytes; pull again to go on from there"
    );
    assert!(
        files(folder.path())
            .iter()
            .any(|file| file.ends_with(".part"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let problem = pull_from(folder.path(), &origin, FILE).await.unwrap_err();
    assert!(problem.ends_with("no answer in 30 s"), "{problem}");
}

#[tokio::test]
async fn redirects_in_a_circle_end() {
    let folder = tempfile::tempdir().unwrap();
    let around = (0..=MOST_REDIRECTS)
        .map(|_| answer("302 Found", b"").with("location", "/acme/demo/resolve/main/m.gguf"));
    let hub = server(around.collect());
    let problem = pull_from(folder.path(), &hub.origin, FILE)
        .await
        .unwrap_err();
    assert!(problem.ends_with("more than 10 redirects"), "{problem}");
}

#[tokio::test]
async fn all_parts_of_a_split_model_are_fetched_and_the_first_is_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let hub = server(vec![
        answer("200 OK", b"one").linked(b"one"),
        answer("200 OK", b"two").linked(b"two"),
    ]);
    let path = pull_from(
        folder.path(),
        &hub.origin,
        "hf:acme/demo/m-00001-of-00002.gguf",
    )
    .await
    .unwrap();
    assert_eq!(path.file_name().unwrap(), "m-00001-of-00002.gguf");
    assert_eq!(
        files(folder.path()),
        ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]
    );
}

#[tokio::test]
async fn a_second_pull_waits_for_the_first_and_takes_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let content = b"weights".to_vec();
    let hub = server(vec![answer("200 OK", &content).linked(&content)]);
    // The one answer there is serves both.
    let (first, second) = tokio::join!(
        pull_from(folder.path(), &hub.origin, FILE),
        pull_from(folder.path(), &hub.origin, FILE)
    );
    assert_eq!(first, second);
    assert_eq!(std::fs::read(first.unwrap()).unwrap(), content);
}

#[tokio::test]
async fn a_place_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("not-a-folder");
    std::fs::write(&file, "").unwrap();
    let problem = pull_from(&file, "http://127.0.0.1:1", FILE)
        .await
        .unwrap_err();
    assert!(
        problem.starts_with(&file.display().to_string())
            && problem.ends_with("XDG_DATA_HOME chooses another place for models"),
        "{problem}"
    );
}
