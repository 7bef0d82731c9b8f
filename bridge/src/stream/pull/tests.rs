use futures_util::{FutureExt, stream};
use protocol::Ids;

use super::*;
use crate::{config::PhasePolicy, stream::Settings};

/// A message that stays open, and a call that must wait for its end.
const WAITING_CALL: &str = r#"data: {"type":"response.output_item.added","item":{"id":"m","type":"message","role":"assistant","content":[]}}

data: {"type":"response.output_item.added","item":{"id":"f","type":"function_call","call_id":"c","name":"exec","arguments":""}}

data: {"type":"response.function_call_arguments.delta","item_id":"f","delta":"{}"}

"#;

#[tokio::test]
async fn what_a_stream_holds_is_in_the_gauge_until_it_is_dropped() {
    let settings = Settings {
        phase: PhasePolicy::Stream,
        repair: true,
        context: None,
        max_held_bytes: 1 << 20,
        request_id: "req_1".to_owned(),
        now_unix: 1,
        clock: || 2,
        ids: Ids::seeded(1),
    };
    let rewriter = Rewriter::new(settings, Translation::default());
    let body: Body = Box::pin(
        stream::iter([Ok(Bytes::from_static(WAITING_CALL.as_bytes()))]).chain(stream::pending()),
    );
    let gauge = Gauge::default();
    let mut open = ResponseStream::new(
        Box::pin(std::future::pending()),
        Guard::new(1 << 20),
        rewriter,
        None,
        None,
    )
    .open(body)
    .showing(gauge.clone());

    let first = open.next().await;
    assert!(first.is_some());
    assert!(open.next().now_or_never().is_none());
    assert!(gauge.get() > 0, "{}", gauge.get());

    drop(open);
    assert_eq!(gauge.get(), 0);
}
