//! Server-sent events on the way out. Source: WHATWG HTML, section 9.2.

use bytes::BytesMut;

/// The data of the event that ends every stream of the Responses API.
pub const DONE: &[u8] = b"data: [DONE]\n\n";

/// Appends one frame: `event: kind`, then `data:` once a line of `data`, then a blank line.
pub fn encode(kind: &str, data: &str, out: &mut BytesMut) {
    out.reserve(kind.len() + data.len() + 17);
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\n");
    for line in data.split('\n') {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(line.as_bytes());
        out.extend_from_slice(b"\n");
    }
    out.extend_from_slice(b"\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_the_data_becomes_a_data_line() {
        let mut out = BytesMut::new();
        encode("a.b", "{\n}", &mut out);
        assert_eq!(out, "event: a.b\ndata: {\ndata: }\n\n");
    }
}
