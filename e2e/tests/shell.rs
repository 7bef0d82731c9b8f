//! The model calls `exec_command`; Codex runs it and sends the output back.

use anyhow::Result;
use codex_bridge_e2e::{
    event::{ev_function_call, ev_function_call_text, ev_message, ev_reasoning},
    invariants,
    rig::Rig,
    script::Reply,
};
use pretty_assertions::assert_eq;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn command_runs_and_its_output_returns() -> Result<()> {
    let command = json!({"cmd": "echo from the shell | tee made.txt"});
    let rig = Rig::in_order(vec![
        Reply::started()
            .item(ev_reasoning("A file is wanted."))
            .item(ev_message("I make it."))
            .item(ev_function_call("call_1", "exec_command", &command))
            .completed(),
        Reply::started().item(ev_message("Made.")).completed(),
    ])
    .await?;
    let codex = rig.codex()?;

    let turn = codex.exec("make a file").await?;

    turn.assert_completed();
    assert_eq!(turn.messages(), ["I make it.", "Made."]);
    assert_eq!(turn.items("command_execution").count(), 1);
    assert_eq!(
        std::fs::read_to_string(codex.work().join("made.txt"))?,
        "from the shell\n"
    );
    let asked = rig.asked(2)?;
    let outputs = invariants::outputs(&asked[1].body);
    assert!(
        outputs.len() == 1 && outputs[0].contains("from the shell"),
        "{outputs:?}"
    );
    // What was thought and said before the call is still in the history, in that order.
    let history = asked[1].body["input"].to_string();
    let place = |text: &str| {
        history
            .find(text)
            .unwrap_or_else(|| panic!("{text:?} is missing in {history}"))
    };
    assert!(
        place("A file is wanted.") < place("I make it.")
            && place("I make it.") < place("tee made.txt")
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn several_calls_of_one_answer_all_run() -> Result<()> {
    let call = |id: &str, text: &str| {
        ev_function_call(id, "exec_command", &json!({"cmd": format!("echo {text}")}))
    };
    let rig = Rig::in_order(vec![
        Reply::started()
            .item(call("call_1", "first"))
            .item(call("call_2", "second"))
            .completed(),
        Reply::started().item(ev_message("Both done.")).completed(),
    ])
    .await?;

    let turn = rig.codex()?.exec("do two things").await?;

    turn.assert_completed();
    assert_eq!(turn.items("command_execution").count(), 2);
    let outputs = invariants::outputs(&rig.asked(2)?[1].body);
    assert!(
        outputs.len() == 2 && outputs[0].contains("first") && outputs[1].contains("second"),
        "{outputs:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_arguments_go_back_to_the_model_instead_of_ending_the_turn() -> Result<()> {
    let rig = Rig::in_order(vec![
        Reply::started()
            .item(ev_function_call_text(
                "call_1",
                "exec_command",
                "{\"cmd\": ",
            ))
            .completed(),
        Reply::started().item(ev_message("I give up.")).completed(),
    ])
    .await?;

    let turn = rig.codex()?.exec("do it").await?;

    turn.assert_completed();
    assert_eq!(turn.items("command_execution").count(), 0);
    let outputs = invariants::outputs(&rig.asked(2)?[1].body);
    assert!(
        outputs.len() == 1 && outputs[0].contains("parse"),
        "{outputs:?}"
    );
    Ok(())
}
