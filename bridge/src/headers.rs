//! Which header fields may cross a relay.
//!
//! Fields that speak about one connection never cross it: the fixed hop-by-hop set and whatever `Connection` names
//! (RFC 9110 §7.6.1). Everything else keeps its order and its repetitions, `Set-Cookie` above all.

use http::{HeaderMap, HeaderName, header};

const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Fields of a client's request that end at the bridge.
///
/// `Authorization` and `x-api-key` hold the key to the bridge, which is nobody else's business. `Origin` was judged
/// here, and a server behind the relay would judge it again by its own, other list. Length and encodings are for our
/// own client to say; `Expect` was answered when the body was first read.
const ENDS_HERE: [HeaderName; 7] = [
    header::HOST,
    header::CONTENT_LENGTH,
    header::ACCEPT_ENCODING,
    header::EXPECT,
    header::AUTHORIZATION,
    X_API_KEY,
    header::ORIGIN,
];

pub const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What of a client's request header a server behind the bridge gets to see.
pub fn upward(headers: &HeaderMap) -> HeaderMap {
    let mut kept = end_to_end(headers);
    for name in ENDS_HERE {
        kept.remove(name);
    }
    kept
}

/// What of a server's response header the client gets to see.
pub fn downward(headers: &HeaderMap) -> HeaderMap {
    end_to_end(headers)
}

fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let mut kept = headers.clone();
    for name in named_by_connection(headers) {
        kept.remove(name);
    }
    for name in HOP_BY_HOP {
        kept.remove(name);
    }
    kept
}

fn named_by_connection(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|token| token.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn map(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        fields
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            })
            .collect()
    }

    #[test]
    fn fields_of_one_connection_do_not_cross() {
        let headers = map(&[
            ("connection", "close, X-Private"),
            ("connection", "x-other"),
            ("x-private", "1"),
            ("x-other", "2"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("content-encoding", "gzip"),
            ("mcp-session-id", "s1"),
        ]);
        assert_eq!(
            downward(&headers),
            map(&[("content-encoding", "gzip"), ("mcp-session-id", "s1")])
        );
    }

    #[test]
    fn repeated_fields_stay_apart() {
        let headers = map(&[("set-cookie", "a=1"), ("set-cookie", "b=2; Expires=Mon, 1")]);
        assert_eq!(downward(&headers), headers);
    }

    #[test]
    fn keys_origin_and_framing_end_at_the_bridge() {
        let headers = map(&[
            ("host", "127.0.0.1"),
            ("content-length", "3"),
            ("accept-encoding", "br"),
            ("expect", "100-continue"),
            ("authorization", "Bearer k"),
            ("x-api-key", "k"),
            ("origin", "http://localhost:3000"),
            ("accept", "text/event-stream"),
            ("cookie", "a=1"),
        ]);
        assert_eq!(
            upward(&headers),
            map(&[("accept", "text/event-stream"), ("cookie", "a=1")])
        );
    }
}
