//! The HTTP client, built in one place for upstreams and MCP servers alike.
//!
//! It never follows a redirect (a prompt must not travel to a host the user did not name), has no overall time limit
//! (a long prefill is not an error) and decompresses nothing (bytes are relayed as they came).

mod home;

use std::{
    net::IpAddr,
    sync::{Arc, Once},
    time::Duration,
};

use reqwest::redirect;
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use url::{Host, Url};

pub use self::home::{Client, Request};

/// Shorter than the 5 s after which llama-server closes an idle connection: a request sent into that closing would fail.
pub(super) const POOL_IDLE: Duration = Duration::from_secs(4);

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("cannot build the HTTP client: {0}")]
    Client(#[from] reqwest::Error),
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// A client for requests to `target`'s server.
///
/// # Errors
/// Only when TLS cannot be set up.
pub fn build(target: &Url, connect_timeout: Duration) -> Result<Client, ClientError> {
    let mut builder = reqwest::Client::builder()
        .connect_timeout(connect_timeout)
        .redirect(redirect::Policy::none())
        .http1_only()
        .tcp_nodelay(true)
        .pool_idle_timeout(POOL_IDLE);
    if is_loopback(target) {
        // HTTP_PROXY is meant for the world outside; no proxy can reach our own loopback.
        builder = builder.no_proxy();
    }
    if target.scheme() == "https" {
        install_provider();
    } else {
        builder = builder.tls_backend_preconfigured(trust_nobody()?);
    }
    Ok(Client::new(builder.build()?))
}

/// A client for nowhere in particular, over plain http.
///
/// # Errors
/// As [`build`].
pub fn plain() -> Result<Client, ClientError> {
    let builder = reqwest::Client::builder()
        .tls_backend_preconfigured(trust_nobody()?)
        .redirect(redirect::Policy::none())
        .no_proxy();
    Ok(Client::new(builder.build()?))
}

/// True for `localhost` and loopback addresses.
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::from(address).to_canonical().is_loopback(),
        None => false,
    }
}

/// `host:port` of a URL, for messages.
pub fn authority(url: &Url) -> String {
    match (url.host_str(), url.port_or_known_default()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (Some(host), None) => host.to_owned(),
        _ => url.as_str().to_owned(),
    }
}

/// Reading the system's root certificates is the slowest step of the whole start, so only `https` pays for it. A client
/// for plain http trusts nobody: it follows no redirect and so never meets TLS.
fn trust_nobody() -> Result<ClientConfig, rustls::Error> {
    Ok(
        ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth(),
    )
}

fn install_provider() {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        // An error means that there is one already.
        let _ = ring::default_provider().install_default();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_recognised_in_every_spelling() {
        let loopback = |text: &str| is_loopback(&text.parse().unwrap());
        for url in [
            "http://localhost:1",
            "http://LOCALHOST",
            "http://127.8.9.1",
            "http://[::1]:3",
            "http://[::ffff:127.0.0.1]",
            "https://a.localhost",
        ] {
            assert!(loopback(url), "{url}");
        }
        for url in [
            "http://10.0.0.1",
            "http://localhost.example",
            "http://[::2]",
        ] {
            assert!(!loopback(url), "{url}");
        }
    }

    #[test]
    fn both_schemes_build() {
        for url in ["http://127.0.0.1:1", "https://model.example"] {
            build(&url.parse().unwrap(), Duration::from_secs(1)).unwrap();
        }
    }
}
