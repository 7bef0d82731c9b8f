//! Small transcripts in, whole rewritten streams out, reviewed like code: `transcripts/NAME.sse` is what a llama-server
//! sends, `transcripts/NAME.snap` what Codex is given for it.

#![expect(clippy::unwrap_used, reason = "the helpers are tests too")]

use std::{fs, path::Path};

use codex_bridge::{
    config::{PhasePolicy, Policy},
    stream::{Rewriter, Settings, guard::Guard},
    translate::{Capabilities, Dialect, normalize},
};
use protocol::{Ids, Object};

const REQUEST: &str = r#"{"model": "m", "stream": true, "input": "go", "max_output_tokens": 10, "tools": [
    {"type": "function", "name": "exec"},
    {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "find"}]},
    {"type": "custom", "name": "apply_patch", "description": "Changes files."}]}"#;

#[test]
fn message_then_two_calls() {
    snapshot("llama_message_then_two_calls");
}

#[test]
fn custom_call_in_pieces() {
    snapshot("custom_call_in_pieces");
}

#[test]
fn bare_error_line() {
    snapshot("error_line");
}

#[test]
fn call_cut_at_the_limit() {
    snapshot("truncated_call");
}

fn snapshot(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let stream = fs::read(folder.join(name).with_extension("sse")).unwrap();
    insta::with_settings!({snapshot_path => "transcripts", prepend_module_to_snapshot => false, omit_expression => true}, {
        insta::assert_snapshot!(name, rewritten(&stream));
    });
}

fn rewritten(stream: &[u8]) -> String {
    let request: Object = serde_json::from_str(REQUEST).unwrap();
    let upstream = Capabilities {
        dialect: Dialect::LlamaCpp,
        vision: false,
        parallel_calls: true,
        custom_grammar: false,
    };
    let translation = normalize(request, &Policy::default(), &upstream)
        .unwrap()
        .translation;
    let settings = Settings {
        phase: PhasePolicy::Stream,
        repair: true,
        context: Some(4096),
        max_held_bytes: 1 << 20,
        request_id: "req_1".to_owned(),
        now_unix: 1,
        clock: || 2,
        ids: Ids::seeded(1),
    };
    let mut rewriter = Rewriter::new(settings, translation);
    let mut guard = Guard::new(1 << 20);
    guard
        .push(stream.to_vec().into(), |frame| rewriter.handle(&frame))
        .unwrap();
    if let Some(frame) = guard.finish() {
        rewriter.handle(&frame);
    }
    rewriter.finish();
    String::from_utf8(rewriter.take().to_vec()).unwrap()
}
