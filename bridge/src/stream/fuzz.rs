//! The whole response side on arbitrary bytes: for a fuzzer and for ordinary tests alike.

use bytes::Bytes;
use protocol::{Ids, Object};

use super::{Rewriter, Settings, guard::Guard};
use crate::{
    config::{PhasePolicy, Policy},
    translate::{Capabilities, Dialect, Translation, normalize},
};

/// Caps small enough that a fuzzer reaches them.
const MAX_EVENT_BYTES: usize = 16 << 10;
const MAX_HELD_BYTES: usize = 64 << 10;

/// Runs `data` through guard and rewriter as an upstream's stream.
///
/// The first byte chooses the settings and the size of the chunks; the rest is the stream.
///
/// # Panics
/// A law is broken: not exactly one terminal event, bytes after the end, more held than the caps allow.
#[expect(
    clippy::expect_used,
    reason = "a fuzz target reports a broken law by panicking"
)]
pub fn fuzz_rewriter(data: &[u8]) {
    let Some((choice, stream)) = data.split_first() else {
        return;
    };
    let mut rewriter = Rewriter::new(settings(*choice), translation(*choice));
    let mut guard = Guard::new(MAX_EVENT_BYTES);
    let size = 1 + usize::from(choice >> 4) * 7;
    let mut sent = 0;
    let mut terminals = 0;
    let mut count = |rewriter: &mut Rewriter| {
        let bytes = rewriter.take();
        let text = std::str::from_utf8(&bytes).expect("what is sent is UTF-8");
        assert!(
            text.is_empty() || text.ends_with("\n\n"),
            "whole frames only"
        );
        sent += bytes.len();
        terminals += text
            .lines()
            .filter(|line| {
                [
                    "event: response.completed",
                    "event: response.failed",
                    "event: response.incomplete",
                ]
                .contains(line)
            })
            .count();
    };
    for chunk in stream.chunks(size) {
        if guard
            .push(Bytes::copy_from_slice(chunk), |frame| {
                rewriter.handle(&frame);
            })
            .is_err()
        {
            rewriter.fail(super::rewriter::upstream_error("an event is too large"));
            break;
        }
        assert!(
            guard.held_bytes() <= MAX_EVENT_BYTES,
            "the guard holds more than one event"
        );
        // One event may pass the cap before it is noticed.
        assert!(
            rewriter.held_bytes() <= MAX_HELD_BYTES + 4 * MAX_EVENT_BYTES,
            "more held than allowed"
        );
        count(&mut rewriter);
    }
    if let Some(frame) = guard.finish() {
        rewriter.handle(&frame);
    }
    rewriter.finish();
    count(&mut rewriter);
    rewriter.heartbeat();
    assert!(rewriter.take().is_empty(), "nothing after the end");
    assert_eq!(terminals, 1, "one terminal event");
    // Everything sent comes from the stream, from our own fields around an event, or from the two lifecycle objects.
    assert!(
        sent <= 64 * stream.len() + 64 * 1024,
        "{sent} bytes sent for {} received",
        stream.len()
    );
}

fn settings(choice: u8) -> Settings {
    Settings {
        phase: match choice & 3 {
            1 => PhasePolicy::Hold,
            _ => PhasePolicy::Stream,
        },
        repair: choice & 4 != 0,
        context: (choice & 8 != 0).then_some(100),
        max_held_bytes: MAX_HELD_BYTES,
        request_id: "req_fuzz".to_owned(),
        now_unix: 1,
        clock: || 2,
        ids: Ids::seeded(1),
    }
}

#[expect(clippy::expect_used, reason = "a literal request")]
fn translation(choice: u8) -> Translation {
    let request = r#"{"model":"m","stream":true,"input":"x","tools":[
        {"type":"function","name":"exec"},{"type":"custom","name":"apply_patch"},
        {"type":"namespace","name":"ns","tools":[{"type":"function","name":"find"}]},
        {"type":"tool_search","execution":"client","parameters":{"type":"object"}}]}"#;
    let mut request: Object = serde_json::from_str(request).expect("a literal");
    request.insert("parallel_tool_calls".into(), (choice & 16 == 0).into());
    let upstream = Capabilities {
        dialect: Dialect::Responses,
        vision: true,
        parallel_calls: true,
        custom_grammar: false,
    };
    normalize(request, &Policy::default(), &upstream)
        .expect("a literal")
        .translation
}
