//! The entry point of the fuzzer, which an ordinary test replays over the corpus.

use protocol::Object;
use serde_json::Value;

use super::{Capabilities, Dialect, normalize, restore};
use crate::config::{NamespacedTool, Policy, UnknownTools};

/// Normalises `data` as a request for every kind of upstream and checks the laws that hold for any input.
///
/// # Panics
/// When a law is broken: an error without a path, different bytes for the same request, or a tool that does not come
/// back as it was declared.
pub fn fuzz_normalize(data: &[u8]) {
    let Ok(Value::Object(request)) = serde_json::from_slice(data) else {
        return;
    };
    let strict = Policy::default();
    let lenient = Policy {
        unknown_tools: UnknownTools::Drop,
        web_search_tool: Some(NamespacedTool {
            namespace: "mcp__finder".into(),
            tool: "query".into(),
        }),
        repair_patch_markers: true,
        ..Policy::default()
    };
    for dialect in [Dialect::LlamaCpp, Dialect::Responses] {
        for able in [false, true] {
            let upstream = Capabilities {
                dialect,
                vision: able,
                parallel_calls: able,
                custom_grammar: able,
            };
            check(&request, &strict, &upstream);
            check(&request, &lenient, &upstream);
        }
    }
}

fn check(request: &Object, policy: &Policy, upstream: &Capabilities) {
    let once = normalize(request.clone(), policy, upstream);
    let twice = normalize(request.clone(), policy, upstream);
    match (once, twice) {
        (Ok(once), Ok(twice)) => {
            assert_eq!(
                text(&once.body),
                text(&twice.body),
                "same request, same bytes"
            );
            for tool in once.translation.catalog.tools() {
                let mut item = Object::new();
                item.insert("type".into(), "function_call".into());
                item.insert("name".into(), tool.wire_name.as_str().into());
                restore::item(&mut item, &once.translation);
                if tool.id.kind != protocol::ToolKind::ToolSearch {
                    assert_eq!(item["name"], tool.id.name.as_str());
                }
                let namespace = item.get("namespace").and_then(Value::as_str);
                assert_eq!(namespace, tool.id.namespace.as_deref());
            }
        }
        (Err(once), Err(twice)) => {
            assert_eq!(once, twice);
            assert!(!once.param().is_empty(), "an error names a field: {once}");
        }
        (once, _) => panic!("same request, different outcome: {once:?}"),
    }
}

fn text(body: &Object) -> String {
    Value::Object(body.clone()).to_string()
}
