//! Every recorded llama-server stream comes out lawful. The recordings are not part of this repository.

use std::{fs, path::PathBuf};

use bytes::Bytes;
use serde_json::Value;

use super::{laws, rewriter, sent};
use crate::stream::guard::Guard;

#[test]
fn every_recorded_llama_server_stream_comes_out_lawful() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/fixtures/llamacpp");
    if !folder.is_dir() {
        eprintln!("skipped: no recordings at {}", folder.display());
        return;
    }
    let (mut checked, mut cut) = (0, 0);
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if path.extension().is_none_or(|extension| extension != "sse") {
                continue;
            }
            let mut request: Value =
                serde_json::from_slice(&fs::read(path.with_extension("req.json")).unwrap())
                    .unwrap();
            // The recordings send llama-server what no client of ours may.
            request["tools"] = Value::Array(
                request["tools"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter(|tool| tool["type"] == "function")
                    .cloned()
                    .collect(),
            );
            request["tool_choice"] = "auto".into();
            if request["max_output_tokens"]
                .as_i64()
                .is_some_and(|limit| limit < 1)
            {
                request["max_output_tokens"] = Value::Null;
            }
            let limit = request["max_output_tokens"].as_u64();
            let mut rewriter = rewriter(request, true);
            let mut guard = Guard::new(1 << 20);
            for chunk in fs::read(&path).unwrap().chunks(37) {
                guard
                    .push(Bytes::copy_from_slice(chunk), |frame| {
                        rewriter.handle(&frame);
                    })
                    .unwrap();
            }
            if let Some(frame) = guard.finish() {
                rewriter.handle(&frame);
            }
            rewriter.finish();
            println!("{}", path.display());
            let response = laws::check(&sent(&mut rewriter));
            let spent = response["usage"]["output_tokens"].as_u64();
            let is_cut = limit.is_some() && spent >= limit;
            assert_eq!(
                response["status"] == "incomplete",
                is_cut,
                "{}",
                path.display()
            );
            cut += u32::from(is_cut);
            checked += 1;
        }
    }
    assert!(
        checked > 50 && cut > 5,
        "{checked} recordings, {cut} of them cut"
    );
}
