//! `--health`: asks the running bridge for its own `/health`, as a container's health check does.

use std::{net::IpAddr, time::Duration};

use crate::config::Listen;

/// Container runtimes check often; a bridge that needs longer than this is not well.
const TIMEOUT: Duration = Duration::from_secs(3);

/// What `/health` said.
#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    pub healthy: bool,
    pub body: String,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "listen.port is 0, so the running bridge's port is not known here; give it with --listen"
    )]
    NoFixedPort,
    #[error("{url}: {problem}")]
    NoAnswer { url: String, problem: String },
}

/// Asks at the configured address, with the configured key.
pub async fn ask(listen: &Listen) -> Result<Report, Error> {
    if listen.port == 0 {
        return Err(Error::NoFixedPort);
    }
    let url = format!("http://{}:{}/health", reachable(&listen.host), listen.port);
    let no_answer = |error: &reqwest::Error| Error::NoAnswer {
        url: url.clone(),
        problem: innermost(error),
    };
    // A proxy from the environment would be asked for our own loopback address.
    let client = reqwest::Client::builder()
        .no_proxy()
        .timeout(TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|error| no_answer(&error))?;
    let mut request = client.get(&url);
    if let Some(key) = &listen.api_key {
        request = request.bearer_auth(key.expose());
    }
    let response = request.send().await.map_err(|error| no_answer(&error))?;
    let healthy = response.status() == http::StatusCode::OK;
    let body = response.text().await.map_err(|error| no_answer(&error))?;
    Ok(Report { healthy, body })
}

/// "All addresses" is one to listen on, not one to call.
pub(crate) fn reachable(host: &str) -> String {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) if address.is_unspecified() => "127.0.0.1".to_owned(),
        Ok(IpAddr::V6(address)) if address.is_unspecified() => "[::1]".to_owned(),
        Ok(IpAddr::V6(address)) => format!("[{address}]"),
        _ => host.to_owned(),
    }
}

/// reqwest's own text repeats the URL; the cause at the bottom says what happened.
fn innermost(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return format!("no answer within {} s", TIMEOUT.as_secs());
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn an_unspecified_address_is_called_over_loopback() {
        for (host, expected) in [
            ("0.0.0.0", "127.0.0.1"),
            ("::", "[::1]"),
            ("::1", "[::1]"),
            ("192.168.7.2", "192.168.7.2"),
            ("box.example", "box.example"),
        ] {
            assert_eq!(reachable(host), expected);
        }
    }
}
