//! The engine's events as the text of an event stream, which is what the rewriter reads from any upstream. A native and
//! complete event then passes it as the same text.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use backend::backend::Responding;
use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use protocol::{event::Event, object::str_or_empty, sse};
use sync_wrapper::SyncWrapper;

use crate::stream::Body;

/// Enough for one chunk; more waits for the reader.
const BATCH: usize = 64 << 10;

/// Dropping it cancels the response.
pub(super) fn body(responding: Responding) -> Body {
    // Only ever polled through `&mut`.
    Box::pin(Events {
        responding: SyncWrapper::new(responding),
    })
}

struct Events {
    responding: SyncWrapper<Responding>,
}

impl Stream for Events {
    type Item = Result<Bytes, String>;

    /// All events that are ready, in one chunk.
    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let responding = self.responding.get_mut();
        let mut text = BytesMut::new();
        while text.len() < BATCH {
            match responding.poll_next(context) {
                Poll::Ready(Some(event)) => encode(&event, &mut text),
                Poll::Ready(None) if text.is_empty() => return Poll::Ready(None),
                Poll::Pending if text.is_empty() => return Poll::Pending,
                // The end is said again when it is asked for again, and so is that nothing is ready.
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        Poll::Ready(Some(Ok(text.freeze())))
    }
}

fn encode(event: &Event, text: &mut BytesMut) {
    // Strings and JSON values always print.
    let data = serde_json::to_string(event).unwrap_or_default();
    sse::encode(str_or_empty(event, "type"), &data, text);
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;
    use protocol::{EventKind, Object, event};

    use super::*;
    use crate::stream::{guard::Guard, incoming};

    #[test]
    fn the_reader_gets_the_very_event_back() {
        let mut response = Object::new();
        response.insert("id".into(), "resp_1".into());
        response.insert("note".into(), "two\nlines \u{2028} and more".into());
        let mut event = event::lifecycle(EventKind::Completed, response);
        event.insert("sequence_number".into(), 7.into());
        let mut text = BytesMut::new();
        encode(&event, &mut text);
        let mut read = Vec::new();
        let mut guard = Guard::new(1 << 20);
        guard
            .push(text.freeze(), |frame| {
                let incoming = incoming::read(frame.as_str()).unwrap();
                let name = incoming.name.unwrap().into_owned();
                read.push((
                    name,
                    serde_json::from_str::<Object>(&incoming.data).unwrap(),
                ));
            })
            .unwrap();
        assert_eq!(read, [("response.completed".to_owned(), event)]);
    }
}
