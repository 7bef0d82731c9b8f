//! reqwest's client, at home in one runtime.
//!
//! A pooled connection is driven by a task of the runtime that asked first, and may carry anybody's request afterwards. The
//! runtimes of lanes come and go (`server/lane.rs`), and a connection would end with the one that happened to make it. So
//! all requests are sent from the runtime the client was built in, which outlives them.

use std::{future::pending, panic::resume_unwind, time::Duration};

use http::{HeaderMap, Method};
use reqwest::{Body, IntoUrl, RequestBuilder, Response};
use tokio::{runtime::Handle, task::JoinSet};

/// As [`reqwest::Client`]. Clones share their connections.
#[derive(Debug, Clone)]
pub struct Client {
    inner: reqwest::Client,
    /// `None` where it was built outside of any runtime: then there is only one to use it in.
    home: Option<Handle>,
}

/// As [`reqwest::RequestBuilder`].
#[derive(Debug)]
pub struct Request {
    builder: RequestBuilder,
    home: Option<Handle>,
}

impl Client {
    pub(super) fn new(inner: reqwest::Client) -> Self {
        Self {
            inner,
            home: Handle::try_current().ok(),
        }
    }

    pub fn request(&self, method: Method, url: impl IntoUrl) -> Request {
        Request {
            builder: self.inner.request(method, url),
            home: self.home.clone(),
        }
    }

    pub fn get(&self, url: impl IntoUrl) -> Request {
        self.request(Method::GET, url)
    }

    pub fn post(&self, url: impl IntoUrl) -> Request {
        self.request(Method::POST, url)
    }
}

impl Request {
    fn with(self, change: impl FnOnce(RequestBuilder) -> RequestBuilder) -> Self {
        Self {
            builder: change(self.builder),
            home: self.home,
        }
    }

    pub fn headers(self, headers: HeaderMap) -> Self {
        self.with(|builder| builder.headers(headers))
    }

    pub fn header(self, name: http::HeaderName, value: impl Into<String>) -> Self {
        self.with(|builder| builder.header(name, value.into()))
    }

    pub fn bearer_auth(self, key: &str) -> Self {
        self.with(|builder| builder.bearer_auth(key))
    }

    pub fn body(self, body: impl Into<Body>) -> Self {
        self.with(|builder| builder.body(body))
    }

    /// For the whole answer, its body included.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.with(|builder| builder.timeout(timeout))
    }

    /// Sends it; dropping this takes it back.
    ///
    /// # Errors
    /// As [`reqwest::RequestBuilder::send`].
    pub async fn send(self) -> Result<Response, reqwest::Error> {
        let elsewhere = self.home.filter(|home| home.id() != Handle::current().id());
        let Some(home) = elsewhere else {
            return self.builder.send().await;
        };
        let mut sending = JoinSet::new();
        sending.spawn_on(self.builder.send(), &home);
        match sending.join_next().await {
            Some(Ok(sent)) => sent,
            Some(Err(error)) if error.is_panic() => resume_unwind(error.into_panic()),
            // That runtime is ending, and the program with it.
            _ => pending().await,
        }
    }
}
