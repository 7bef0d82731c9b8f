//! A thread goes on in a second run; the history grows at its end only, so that a prefix cache holds.

use anyhow::Result;
use codex_bridge_e2e::{event::ev_message, rig::Rig, script::Reply};
use pretty_assertions::assert_eq;

#[tokio::test(flavor = "multi_thread")]
async fn resumed_thread_repeats_its_history_as_a_prefix() -> Result<()> {
    let rig = Rig::in_order(vec![
        Reply::started()
            .item(ev_message("The first answer."))
            .completed(),
        Reply::started()
            .item(ev_message("The second answer."))
            .completed(),
    ])
    .await?;
    let codex = rig.codex()?;

    codex.exec("the first question").await?.assert_completed();
    let turn = codex.resume("the second question").await?;

    turn.assert_completed();
    assert_eq!(turn.messages(), ["The second answer."]);
    let asked = rig.asked(2)?;
    let input = |index: usize| {
        asked[index].body["input"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    let (first, second) = (input(0), input(1));
    assert_eq!(second[..first.len()], first[..]);
    assert_eq!(asked[0].body["tools"], asked[1].body["tools"]);
    let rest = serde_json::to_string(&second[first.len()..])?;
    assert!(
        rest.contains("The first answer.") && rest.contains("the second question"),
        "{rest}"
    );
    Ok(())
}
