//! Who may talk to the bridge: checked on every route, before anything else is looked at.
//!
//! Three questions, in this order. *Was the request meant for us?* A page that rebinds its own name to our address
//! sends that name as `Host`. *Does a web page speak?* Then its `Origin` must be one the user allowed. *Does the client
//! hold the key*, where one is set? A program on the same machine passes the first two without noticing them.

use std::net::IpAddr;

use http::{HeaderMap, HeaderValue, Uri, Version, header, uri::Authority};
use subtle::ConstantTimeEq;

use crate::{
    config::{Listen, Secret},
    headers::X_API_KEY,
};

/// The checks of one listener.
#[derive(Debug)]
pub(super) struct Guard {
    /// Names accepted in `Host` beside the loopback ones, lower case.
    hosts: Vec<String>,
    /// Listening on every address: then any literal address may stand in `Host`. Rebinding needs a name, so an
    /// address there only says which network card the client came through.
    any_address: bool,
    origins: Vec<String>,
    key: Option<Secret>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("the Host header is missing")]
    NoHost,
    #[error("the Host header is not one host")]
    BadHost,
    #[error("Host {0:?} is not served here; add it to listen.allowedHosts if it is yours")]
    Host(String),
    #[error(
        "Origin {0:?} may not call this bridge; add it to listen.allowedOrigins if it is yours"
    )]
    Origin(String),
    #[error("a web page of another site may not call this bridge")]
    CrossSite,
    #[error("a key is needed: send Authorization: Bearer <key>")]
    NoKey,
    #[error("the key is not the one configured as listen.apiKey")]
    WrongKey,
}

impl Guard {
    pub(super) fn new(listen: &Listen) -> Self {
        let configured = listen.host.trim_matches(['[', ']']).to_ascii_lowercase();
        let any_address = configured
            .parse()
            .is_ok_and(|address: IpAddr| address.is_unspecified());
        let mut hosts = vec![configured];
        hosts.extend(listen.allowed_hosts.iter().cloned());
        Self {
            hosts,
            any_address,
            origins: listen
                .allowed_origins
                .iter()
                .map(|origin| normal_origin(origin))
                .collect(),
            key: listen.api_key.clone(),
        }
    }

    /// The web page that asks, if one does.
    pub(super) fn admit(
        &self,
        version: Version,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Option<HeaderValue>, Refusal> {
        self.check_host(version, uri, headers)?;
        self.check_origin(headers)
    }

    /// Asked apart, since `/health` and preflights do without.
    pub(super) fn check_key(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(key) = &self.key else {
            return Ok(());
        };
        let presented = presented_key(headers).ok_or(Refusal::NoKey)?;
        if bool::from(presented.ct_eq(key.expose().as_bytes())) {
            Ok(())
        } else {
            Err(Refusal::WrongKey)
        }
    }

    fn check_host(&self, version: Version, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        let mut named = headers.get_all(header::HOST).iter();
        match (named.next(), named.next()) {
            (_, Some(_)) => return Err(Refusal::BadHost),
            (Some(value), None) => {
                let authority = Authority::try_from(value.as_bytes()).or(Err(Refusal::BadHost))?;
                self.check_authority(&authority)?;
            }
            // Only HTTP/1.0 may leave it out, and no browser speaks that.
            (None, None) if version >= Version::HTTP_11 => return Err(Refusal::NoHost),
            (None, None) => {}
        }
        // `GET http://name/path`: the name in the request line outranks the header.
        uri.authority()
            .map_or(Ok(()), |it| self.check_authority(it))
    }

    fn check_authority(&self, authority: &Authority) -> Result<(), Refusal> {
        if authority.as_str().contains('@') {
            return Err(Refusal::BadHost);
        }
        let host = authority.host().trim_matches(['[', ']']);
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let known = match host.parse::<IpAddr>() {
            Ok(address) => self.any_address || address.to_canonical().is_loopback(),
            Err(_) => host == "localhost" || host.ends_with(".localhost"),
        };
        if known || self.hosts.contains(&host) {
            Ok(())
        } else {
            Err(Refusal::Host(authority.as_str().to_owned()))
        }
    }

    fn check_origin(&self, headers: &HeaderMap) -> Result<Option<HeaderValue>, Refusal> {
        let mut sent = headers.get_all(header::ORIGIN).iter();
        let Some(origin) = sent.next() else {
            return check_site(headers).map(|()| None);
        };
        let text = origin.to_str().unwrap_or_default();
        // "null" is what sandboxed frames and local files send: nobody in particular.
        let allowed =
            text != "null" && sent.next().is_none() && self.origins.contains(&normal_origin(text));
        if allowed {
            Ok(Some(origin.clone()))
        } else {
            Err(Refusal::Origin(
                String::from_utf8_lossy(origin.as_bytes()).into_owned(),
            ))
        }
    }
}

/// A page can load a picture or a script from us without saying its origin; browsers then still say where it stands.
fn check_site(headers: &HeaderMap) -> Result<(), Refusal> {
    match headers.get("sec-fetch-site").map(HeaderValue::as_bytes) {
        None | Some(b"none" | b"same-origin") => Ok(()),
        Some(_) => Err(Refusal::CrossSite),
    }
}

fn presented_key(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.as_bytes().split_first_chunk::<7>()?;
        scheme
            .eq_ignore_ascii_case(b"bearer ")
            .then(|| key.trim_ascii())
    });
    bearer.or_else(|| headers.get(X_API_KEY).map(HeaderValue::as_bytes))
}

/// Scheme and host do not care for case, and people write a slash at the end.
fn normal_origin(text: &str) -> String {
    text.trim_end_matches('/').to_ascii_lowercase()
}

#[cfg(test)]
mod tests;
