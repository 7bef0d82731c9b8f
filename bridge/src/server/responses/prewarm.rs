//! The answer to `generate: false`.

use http::{HeaderValue, StatusCode, header};
use protocol::{EventKind, Ids, Object, response};
use serde_json::Value;
use warp::reply::Response;

use super::{super::error, now_unix};
use crate::{server::RequestContext, translate::Translation};

/// A completed response with nothing in it, and no work upstream.
pub(super) fn prewarmed(translation: &Translation, request: &RequestContext) -> Response {
    let mut object = Object::new();
    object.insert("id".into(), Ids::random().make("resp").into());
    object.insert("object".into(), "response".into());
    object.insert("status".into(), "completed".into());
    response::complete(&mut object, &translation.declared, now_unix());
    object.insert(
        "usage".into(),
        response::complete_usage(&Object::new()).into(),
    );
    request
        .log
        .update(|record| record.terminal_event = Some(EventKind::Completed.as_str().to_owned()));
    if !translation.stream {
        return error::json(StatusCode::OK, &Value::Object(object));
    }
    let mut body = bytes::BytesMut::new();
    let mut started = object.clone();
    started.insert("status".into(), "in_progress".into());
    for (number, (kind, object)) in [
        (EventKind::Created, started),
        (EventKind::Completed, object),
    ]
    .into_iter()
    .enumerate()
    {
        let mut event = protocol::event::lifecycle(kind, object);
        event.insert("sequence_number".into(), number.into());
        protocol::sse::encode(kind.as_str(), &Value::Object(event).to_string(), &mut body);
    }
    body.extend_from_slice(protocol::sse::DONE);
    let mut response = Response::new(body.freeze().into());
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    response
}
