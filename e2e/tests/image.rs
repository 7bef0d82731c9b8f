//! Images arrive in the output of a tool, as parts.

use std::fs;

use anyhow::Result;
use codex_bridge_e2e::{
    event::{ev_function_call, ev_message},
    rig::Rig,
    script::Reply,
};
use pretty_assertions::assert_eq;
use serde_json::json;

/// Four by four red pixels.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x04\0\0\0\x04\x08\x02\0\0\0\x26\x93\x09\x29\0\0\0\x10IDAT\
    \x78\xda\x63\xf8\xcf\xc0\0\x47\x0c\xc4\x71\0\xae\x93\x0f\xf1\x38\x5e\x8c\x11\0\0\0\0IEND\xae\x42\x60\x82";

#[tokio::test(flavor = "multi_thread")]
async fn viewed_image_reaches_the_upstream() -> Result<()> {
    let look =
        |path: &std::path::Path| ev_function_call("call_1", "view_image", &json!({"path": path}));
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("red.png");
    fs::write(&path, PNG)?;
    let rig = Rig::in_order(vec![
        Reply::started().item(look(&path)).completed(),
        Reply::started().item(ev_message("It is red.")).completed(),
    ])
    .await?;

    let turn = rig.codex()?.exec("look at the picture").await?;

    turn.assert_completed();
    assert_eq!(turn.messages(), ["It is red."]);
    let asked = rig.asked(2)?;
    let input = asked[1].body["input"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let part = json!("input_image");
    let images = input
        .iter()
        .flat_map(|item| [&item["output"], &item["content"]])
        .filter_map(|parts| parts.as_array());
    let images: Vec<_> = images
        .flatten()
        .filter(|each| each["type"] == part)
        .collect();
    assert_eq!(images.len(), 1);
    let url = images[0]["image_url"].as_str().unwrap_or_default();
    assert!(url.starts_with("data:image/png;base64,"), "{url}");
    Ok(())
}
