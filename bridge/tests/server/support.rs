//! A bridge under test, and two clients: reqwest for what clients do, a raw socket for what they should not.

use std::{future::Future, net::SocketAddr, time::Duration};

use codex_bridge::{
    config::{
        Config, HttpUpstream, Limits, Listen, Log, LogFormat, Policy, UpstreamConfig, UpstreamKind,
    },
    server::Server,
};
use reqwest::{Client, Method, RequestBuilder, redirect};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::oneshot,
    task::JoinHandle,
};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A configuration for an upstream at `authority`, e.g. `127.0.0.1:80`.
pub(crate) fn config(authority: SocketAddr) -> Config {
    Config {
        listen: Listen {
            host: "127.0.0.1".to_owned(),
            port: 0,
            api_key: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
        },
        limits: Limits {
            max_request_body_bytes: 16 * 1024,
            max_event_bytes: 1024 * 1024,
            max_held_bytes: 1024 * 1024,
            max_response_bytes: 1024 * 1024,
            max_connections: 64,
            header_timeout: 30 * SECOND,
        },
        upstream: UpstreamConfig::Http(HttpUpstream {
            base_url: format!("http://{authority}/v1").parse().unwrap(),
            kind: UpstreamKind::Auto,
            api_key: None,
            connect_timeout: SECOND,
            idle_timeout: None,
            wait_for_ready: None,
        }),
        policy: Policy::default(),
        mcp_proxy: None,
        log: Log {
            format: LogFormat::Text,
            filter: "off".to_owned(),
        },
        shutdown_grace: 30 * SECOND,
    }
}

/// The upstream settings of a `config`.
pub(crate) fn upstream(config: &mut Config) -> &mut HttpUpstream {
    match &mut config.upstream {
        UpstreamConfig::Http(upstream) => upstream,
        UpstreamConfig::Bundled(_) => panic!("these tests have an HTTP upstream"),
    }
}

/// An address where nobody listens.
pub(crate) fn nobody() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}

pub(crate) struct Bridge {
    pub(crate) address: SocketAddr,
    client: Client,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<()>,
}

impl Bridge {
    pub(crate) async fn start(config: Config) -> Self {
        Self::serving(Server::bind(config).await.unwrap())
    }

    pub(crate) fn serving(server: Server) -> Self {
        let address = server.addr();
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(server.serve(async {
            let _ = stopped.await;
        }));
        let client = Client::builder()
            .no_proxy()
            .redirect(redirect::Policy::none())
            .tls_backend_preconfigured(no_tls())
            .build()
            .unwrap();
        Self {
            address,
            client,
            stop: Some(stop),
            served,
        }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("http://{}{path}", self.address);
        self.client.request(method, url)
    }

    pub(crate) fn get(&self, path: &str) -> RequestBuilder {
        self.request(Method::GET, path)
    }

    pub(crate) fn post(&self, path: &str) -> RequestBuilder {
        self.request(Method::POST, path)
    }

    pub(crate) async fn connect(&self) -> Raw {
        Raw(TcpStream::connect(self.address).await.unwrap())
    }

    /// The first stop signal.
    pub(crate) fn stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }

    /// The server has returned.
    pub(crate) async fn stopped(self) {
        soon(self.served).await.unwrap();
    }
}

fn no_tls() -> rustls::ClientConfig {
    let provider = rustls::crypto::ring::default_provider();
    rustls::ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth()
}

/// A client that writes and reads bytes.
pub(crate) struct Raw(pub(crate) TcpStream);

impl Raw {
    /// Sends text whose lines end in plain `\n`.
    pub(crate) async fn send(&mut self, text: &str) {
        let text = text.replace('\n', "\r\n");
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    /// Everything until the server closes.
    pub(crate) async fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        soon(self.0.read_to_end(&mut rest)).await.unwrap();
        String::from_utf8_lossy(&rest).into_owned()
    }

    /// Everything up to and including `mark`.
    pub(crate) async fn until(&mut self, mark: &str) -> String {
        let mut seen = Vec::new();
        while !seen.ends_with(mark.as_bytes()) {
            let byte = soon(self.0.read_u8()).await;
            let so_far = String::from_utf8_lossy(&seen);
            seen.push(byte.unwrap_or_else(|_| panic!("closed before {mark:?}: {so_far:?}")));
        }
        String::from_utf8(seen).unwrap()
    }
}

/// One request with `Connection: close` on a connection of its own; status and JSON body.
pub(crate) async fn ask(bridge: &Bridge, head: &str) -> (u16, Value) {
    let mut raw = bridge.connect().await;
    raw.send(&format!("{head}\nconnection: close\n\n")).await;
    let answer = raw.rest().await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).unwrap_or("0").parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_default())
}

pub(crate) async fn json(response: reqwest::Response) -> Value {
    serde_json::from_str(&response.text().await.unwrap()).unwrap()
}

/// The message of an error answer, after a look at the shape every error has.
pub(crate) async fn error_message(response: reqwest::Response) -> String {
    let id = response.headers()["x-request-id"]
        .to_str()
        .unwrap()
        .to_owned();
    let body = json(response).await;
    let error = body["error"].as_object().unwrap();
    let keys: Vec<_> = error.keys().map(String::as_str).collect();
    assert_eq!(keys, ["message", "type", "param", "code"]);
    let message = error["message"].as_str().unwrap();
    assert!(message.contains(&id), "{message}");
    message.to_owned()
}

/// Waits for what must happen; a test that waits longer has failed.
pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(20 * SECOND, future)
        .await
        .expect("this should have happened by now")
}
