//! A crowd of connections is served by more than one thread, and none of them is forgotten on the way down.

use std::{
    fs,
    num::NonZero,
    sync::{Arc, Mutex},
};

use codex_bridge::server::Server;
use http::Response;

use crate::{
    drain::streaming,
    scripted::{self, Scripted, gated},
    support::{Bridge, Raw, config, nobody, soon},
};

const THREADS: NonZero<usize> = NonZero::new(3).unwrap();
const REQUEST: &str = "GET /nowhere HTTP/1.1\nhost: localhost\n\n";

/// Each has been answered once and is still open.
async fn crowd(bridge: &Bridge, count: usize) -> Vec<Raw> {
    let mut crowd = Vec::new();
    for _ in 0..count {
        let mut raw = bridge.connect().await;
        raw.send(REQUEST).await;
        let answer = raw.until("}}").await;
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
        crowd.push(raw);
    }
    crowd
}

/// Threads of this process that serve connections beside the one that accepts; `None` where the system does not tell.
fn lanes() -> Option<usize> {
    let tasks = fs::read_dir("/proc/self/task").ok()?;
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    Some(names.filter(|name| name.trim_end() == "lane").count())
}

#[tokio::test]
async fn a_crowd_gets_threads_and_a_few_do_not() {
    let server = Server::bind(config(nobody())).await.unwrap();
    let mut bridge = Bridge::serving(server.on_threads(THREADS));

    let few = crowd(&bridge, 8).await;
    assert!(matches!(lanes(), None | Some(0)), "{:?}", lanes());
    let many = crowd(&bridge, 30).await;
    assert!(matches!(lanes(), None | Some(2)), "{:?}", lanes());

    bridge.stop();
    for mut raw in few.into_iter().chain(many) {
        assert_eq!(raw.rest().await, "", "an idle connection closes at once");
    }
    bridge.stopped().await;
}

#[tokio::test]
async fn a_thread_without_connections_ends_and_another_begins_when_needed() {
    let server = Server::bind(config(nobody())).await.unwrap();
    let mut bridge = Bridge::serving(server.on_threads(THREADS));

    drop(crowd(&bridge, 20).await);
    soon(async {
        while !matches!(lanes(), None | Some(0)) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let again = crowd(&bridge, 20).await;
    assert!(matches!(lanes(), None | Some(1..)), "{:?}", lanes());

    drop(again);
    bridge.stop();
    bridge.stopped().await;
}

#[tokio::test]
async fn an_open_answer_of_another_thread_ends_in_order() {
    let (server, feed) = streaming().await;
    let mut config = config(nobody());
    config.mcp_proxy = Some(format!("http://{}/s", server.address).parse().unwrap());
    let server = Server::bind(config).await.unwrap();
    let mut bridge = Bridge::serving(server.on_threads(THREADS));
    let crowd = crowd(&bridge, 20).await;
    let mut raw = bridge.connect().await;
    raw.send("GET /mcp/a HTTP/1.1\nhost: localhost\n\n").await;
    feed.send("one").await.unwrap();
    raw.until("one\r\n").await;

    bridge.stop();
    for mut idle in crowd {
        assert_eq!(idle.rest().await, "");
    }
    feed.send("two").await.unwrap();
    raw.until("two\r\n").await;
    drop(feed);
    assert_eq!(raw.rest().await, "0\r\n\r\n");
    bridge.stopped().await;
}

#[tokio::test]
async fn a_thread_that_ends_takes_no_connection_to_a_server_with_it() {
    let (feed, stream) = gated();
    let answers = Arc::new(Mutex::new(vec![stream, scripted::text("whole")]));
    let server = Scripted::start(move |_| {
        let answer = answers.lock().unwrap().pop();
        async move { Response::new(answer.unwrap()) }
    })
    .await;
    let mut config = config(nobody());
    config.mcp_proxy = Some(format!("http://{}/s", server.address).parse().unwrap());
    let server = Server::bind(config).await.unwrap();
    let mut bridge = Bridge::serving(server.on_threads(THREADS));
    let mut few = crowd(&bridge, 8).await;

    // The ninth has a thread of its own, and opens the connection that the next request to that server finds.
    let mut ninth = bridge.connect().await;
    ninth.send("GET /mcp/a HTTP/1.1\nhost: localhost\n\n").await;
    ninth.until("whole").await;
    assert!(matches!(lanes(), None | Some(1)), "{:?}", lanes());
    few[0]
        .send("GET /mcp/a HTTP/1.1\nhost: localhost\n\n")
        .await;
    feed.send("one").await.unwrap();
    few[0].until("one\r\n").await;
    drop(ninth);
    soon(async {
        while !matches!(lanes(), None | Some(0)) {
            tokio::task::yield_now().await;
        }
    })
    .await;

    feed.send("two").await.unwrap();
    few[0].until("two\r\n").await;
    drop(feed);
    bridge.stop();
    bridge.stopped().await;
}
