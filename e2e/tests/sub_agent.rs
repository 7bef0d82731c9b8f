//! A sub-agent: a second thread that asks the same server while the first one waits for it.

use anyhow::Result;
use codex_bridge_e2e::{
    event::{ev_function_call, ev_message},
    invariants,
    rig::Rig,
    script::{Answer, Asked, Reply, Upstream},
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

const CHILD: &str = "x-openai-subagent";

/// The bridge sends no header of Codex's upstream; the same word stands in the body.
fn is_child(asked: &Asked) -> bool {
    asked.body["client_metadata"].get(CHILD).is_some()
}

fn answer(asked: &Asked) -> Answer {
    let reply = Reply::started();
    if is_child(asked) {
        return reply.item(ev_message("The child found 42.")).completed();
    }
    let outputs = invariants::outputs(&asked.body);
    match outputs.as_slice() {
        [] => {
            let task = json!({"message": "Find the number.", "fork_context": false});
            reply
                .item(ev_function_call(
                    "call_1",
                    "multi_agent_v1__spawn_agent",
                    &task,
                ))
                .completed()
        }
        [spawned] => {
            let spawned: Value = serde_json::from_str(spawned).unwrap_or_default();
            let wait = json!({"targets": [spawned["agent_id"]], "timeout_ms": 60_000});
            reply
                .item(ev_function_call(
                    "call_2",
                    "multi_agent_v1__wait_agent",
                    &wait,
                ))
                .completed()
        }
        _ => reply.item(ev_message("The number is 42.")).completed(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn child_is_spawned_answers_and_is_waited_for() -> Result<()> {
    let rig = Rig::new(Upstream::routed(answer).await?, json!({})).await?;

    let turn = rig.codex()?.exec("ask a helper").await?;

    turn.assert_completed();
    assert_eq!(turn.messages(), ["The number is 42."]);
    let asked = rig.asked(4)?;
    let (child, parent): (Vec<&Asked>, Vec<&Asked>) =
        asked.iter().partition(|asked| is_child(asked));
    assert_eq!((child.len(), parent.len()), (1, 3));
    assert!(
        child[0].body["input"]
            .to_string()
            .contains("Find the number.")
    );
    let outputs = invariants::outputs(&parent[2].body);
    assert!(outputs[1].contains("The child found 42."), "{outputs:?}");
    Ok(())
}
