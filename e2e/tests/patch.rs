//! Freeform `apply_patch`: a function with one string for the model, a custom tool for Codex, and files really changed.

use std::fs;

use anyhow::Result;
use codex_bridge_e2e::{
    event::{ev_function_call, ev_message},
    invariants,
    rig::Rig,
    script::{Answer, Reply},
};
use pretty_assertions::assert_eq;
use serde_json::json;

fn patch(call_id: &str, lines: &[&str]) -> Answer {
    let input = format!("*** Begin Patch\n{}\n*** End Patch", lines.join("\n"));
    Reply::started()
        .item(ev_function_call(
            call_id,
            "apply_patch",
            &json!({"input": input}),
        ))
        .completed()
}

#[tokio::test(flavor = "multi_thread")]
async fn patches_add_update_and_delete_files() -> Result<()> {
    let rig = Rig::in_order(vec![
        patch(
            "call_1",
            &[
                "*** Add File: new.txt",
                "+one \"quoted\" \\ line",
                "+zwei – drei",
            ],
        ),
        patch(
            "call_2",
            &[
                "*** Update File: old.txt",
                "@@",
                " keep",
                "-before",
                "+after",
            ],
        ),
        patch("call_3", &["*** Delete File: gone.txt"]),
        Reply::started().item(ev_message("Changed.")).completed(),
    ])
    .await?;
    let codex = rig.codex()?;
    let work = codex.work();
    fs::write(work.join("old.txt"), "keep\nbefore\n")?;
    fs::write(work.join("gone.txt"), "bye\n")?;

    let turn = codex.exec("change the files").await?;

    turn.assert_completed();
    assert_eq!(turn.items("file_change").count(), 3);
    assert_eq!(
        fs::read_to_string(work.join("new.txt"))?,
        "one \"quoted\" \\ line\nzwei – drei\n"
    );
    assert_eq!(fs::read_to_string(work.join("old.txt"))?, "keep\nafter\n");
    assert!(!work.join("gone.txt").exists());
    let asked = rig.asked(4)?;
    let outputs = invariants::outputs(&asked[3].body);
    assert_eq!(outputs.len(), 3);
    assert!(
        outputs.iter().all(|output| output.contains("Success")),
        "{outputs:?}"
    );
    // The model sees its own calls again as it made them.
    let calls = asked[3].body["input"].as_array().into_iter().flatten();
    let names: Vec<_> = calls
        .filter(|item| item["type"] == "function_call")
        .map(|item| &item["name"])
        .collect();
    assert_eq!(names, ["apply_patch", "apply_patch", "apply_patch"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn patch_that_does_not_fit_is_reported_to_the_model() -> Result<()> {
    let rig = Rig::in_order(vec![
        patch(
            "call_1",
            &["*** Update File: missing.txt", "@@", "-a", "+b"],
        ),
        Reply::started()
            .item(ev_message("It is not there."))
            .completed(),
    ])
    .await?;

    let turn = rig.codex()?.exec("change it").await?;

    turn.assert_completed();
    let outputs = invariants::outputs(&rig.asked(2)?[1].body);
    assert!(
        outputs.len() == 1 && outputs[0].contains("missing.txt"),
        "{outputs:?}"
    );
    Ok(())
}
