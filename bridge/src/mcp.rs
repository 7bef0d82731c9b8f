//! The relay to MCP servers (Streamable HTTP): `/mcp/<name>` here is `<base>/<name>/mcp` there.
//!
//! Bytes pass both ways as they come and nothing is understood: no JSON is read, no encoding undone, no redirect
//! followed, no time limit set, since a server may keep a `GET` stream open for days. Dropping the relayed answer
//! drops the connection to the server.

use std::{error::Error as _, time::Duration};

use http::{HeaderMap, Method};
use reqwest::{Body, Response};
use url::Url;

use crate::{
    headers,
    server::body,
    upstream::{
        client::{self, Client, ClientError, authority},
        probe::root_cause,
    },
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The servers behind one base URL.
#[derive(Debug)]
pub struct Relay {
    base: Url,
    client: Client,
}

/// A server's name as it stands in a path: `[A-Za-z0-9_-]+`, so it can never leave its place in the URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerName(String);

/// What of the client's request goes up.
#[derive(Debug)]
pub struct RelayRequest<'a> {
    pub method: Method,
    pub query: Option<&'a str>,
    /// As received; the relay takes out what must not cross.
    pub headers: &'a HeaderMap,
    /// `None` where the client sent neither a length nor chunks.
    pub body: Option<body::Limited>,
}

#[derive(Debug, thiserror::Error)]
#[error("the MCP server {name:?} at {server} cannot be reached: {}", root_cause(.source))]
pub struct RelayError {
    name: String,
    server: String,
    source: reqwest::Error,
}

impl ServerName {
    /// `None` when it is no name.
    pub fn parse(text: &str) -> Option<Self> {
        let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        (!text.is_empty() && text.bytes().all(is_name_byte)).then(|| Self(text.to_owned()))
    }
}

impl Relay {
    /// # Errors
    /// TLS cannot be set up.
    pub fn new(base: Url) -> Result<Self, ClientError> {
        let client = client::build(&base, CONNECT_TIMEOUT)?;
        Ok(Self { base, client })
    }

    /// The server's answer, its header fields already those for the client.
    ///
    /// # Errors
    /// The server cannot be reached, or the client's body failed on the way up (`RelayError::request_body`).
    pub async fn forward(
        &self,
        name: &ServerName,
        request: RelayRequest<'_>,
    ) -> Result<Response, RelayError> {
        let mut upward = self
            .client
            .request(request.method, self.url(name, request.query))
            .headers(headers::upward(request.headers));
        if let Some(body) = request.body {
            upward = upward.body(Body::wrap(body));
        }
        let mut response = upward.send().await.map_err(|source| RelayError {
            name: name.0.clone(),
            server: authority(&self.base),
            source,
        })?;
        *response.headers_mut() = headers::downward(response.headers());
        Ok(response)
    }

    fn url(&self, name: &ServerName, query: Option<&str>) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push(&name.0).push("mcp");
        }
        url.set_query(query);
        url
    }
}

impl RelayError {
    pub fn is_timeout(&self) -> bool {
        self.source.is_timeout()
    }

    /// The fault of the client's own body, if it was that.
    pub(crate) fn request_body(&self) -> Option<&body::Error> {
        let mut cause = self.source.source();
        while let Some(error) = cause {
            if let Some(error) = error.downcast_ref() {
                return Some(error);
            }
            cause = error.source();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_in_its_place() {
        let relay = Relay::new("http://127.0.0.1:9000/servers".parse().unwrap()).unwrap();
        let url = |name| relay.url(&ServerName::parse(name).unwrap(), Some("a=1&b"));
        assert_eq!(
            url("ddg-search_2").as_str(),
            "http://127.0.0.1:9000/servers/ddg-search_2/mcp?a=1&b"
        );
        for bad in ["", "..", "a/b", "a%2Fb", "a.b", "ä"] {
            assert_eq!(ServerName::parse(bad), None, "{bad:?}");
        }
    }
}
