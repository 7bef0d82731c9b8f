//! One frame read as one upstream event.
//!
//! Nearly every frame is `event: …` and one `data: …` line, or the latter alone; those two shapes are read where they
//! lie. Every other shape (several data lines, comments, ids, odd spacing) goes through `eventsource-stream`, one whole
//! frame at a time. A property test holds the two readers to the same answer.

use std::borrow::Cow;

use eventsource_stream::Eventsource;
use futures_util::{FutureExt, StreamExt, stream};

/// The `event:` name, if any, and the data of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incoming<'a> {
    pub name: Option<Cow<'a, str>>,
    pub data: Cow<'a, str>,
}

/// Reads a frame; `None` when it carries no data (a comment, a lone id).
pub fn read(frame: &str) -> Option<Incoming<'_>> {
    in_place(frame).or_else(|| parsed(frame))
}

fn in_place(frame: &str) -> Option<Incoming<'_>> {
    let lines = frame.strip_suffix("\n\n")?;
    let (name, data) = match lines.split_once('\n') {
        None => (None, lines),
        Some((first, data)) => (Some(first.strip_prefix("event: ")?), data),
    };
    let data = data.strip_prefix("data: ")?;
    if data.contains('\n') || name == Some("") {
        return None;
    }
    Some(Incoming {
        name: name.map(Cow::Borrowed),
        data: Cow::Borrowed(data),
    })
}

fn parsed(frame: &str) -> Option<Incoming<'static>> {
    // The crate takes what comes first for the start of the stream, and panics on a byte order mark there. Inside a
    // stream it is none, so a comment goes first.
    let frame = match frame.strip_prefix('\u{feff}') {
        Some(_) => Cow::Owned(format!(":\n{frame}")),
        None => Cow::Borrowed(frame),
    };
    let whole = stream::iter([Ok::<_, std::convert::Infallible>(frame.as_bytes())]);
    let event = whole.eventsource().next().now_or_never()??.ok()?;
    // The crate says "message" for a frame without a name; no event of this protocol is called that.
    let name = (event.event != "message").then_some(Cow::Owned(event.event));
    Some(Incoming {
        name,
        data: Cow::Owned(event.data),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn data(frame: &str) -> Option<(Option<String>, String)> {
        let incoming = read(frame)?;
        Some((
            incoming.name.map(Cow::into_owned),
            incoming.data.into_owned(),
        ))
    }

    #[test]
    fn both_shapes_are_read_in_place() {
        let named = read("event: a.b\ndata: {}\n\n").unwrap();
        assert!(matches!(named.data, Cow::Borrowed("{}")));
        let bare = read("data: {}\n\n").unwrap();
        assert!(matches!(bare.data, Cow::Borrowed("{}")));
    }

    #[test]
    fn other_shapes_are_read_by_the_parser() {
        let owned =
            |name: Option<&str>, data: &str| Some((name.map(str::to_owned), data.to_owned()));
        assert_eq!(data("data: {\ndata: }\n\n"), owned(None, "{\n}"));
        assert_eq!(data("data:{}\nevent:a\n\n"), owned(Some("a"), "{}"));
        assert_eq!(data(": ping\ndata: 1\nid: 7\n\n"), owned(None, "1"));
        assert_eq!(data(": ping\n\n"), None);
    }

    #[test]
    fn a_byte_order_mark_inside_a_stream_makes_an_unknown_field() {
        assert_eq!(data("\u{feff}data: 1\n\n"), None);
        assert_eq!(
            data("\u{feff}event: a\ndata: 1\n\n"),
            Some((None, "1".to_owned()))
        );
    }

    proptest! {
        #[test]
        fn the_short_way_agrees_with_the_parser(
            frame in "(event: ?[a-z]{0,3}\n)?(data: ?[a-z {}:]{0,6}\n){0,2}(: x\n)?\n",
        ) {
            let short = in_place(&frame).map(|found| (found.name.map(Cow::into_owned), found.data.into_owned()));
            let long = parsed(&frame).map(|found| (found.name.map(Cow::into_owned), found.data.into_owned()));
            if short.is_some() && !short.as_ref().is_some_and(|(_, data)| data.is_empty()) {
                prop_assert_eq!(short, long);
            }
        }
    }
}
