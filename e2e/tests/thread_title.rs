//! The terminal interface asks for a title at the same moment as for the first answer: tools and a schema together.

use anyhow::{Context, Result};
use codex_bridge_e2e::{
    event::ev_message,
    rig::Rig,
    script::{Answer, Asked, Gate, Reply, Upstream},
};
use pretty_assertions::assert_eq;
use serde_json::json;

fn is_title(asked: &Asked) -> bool {
    asked.body["text"]["format"]["type"] == "json_schema"
}

#[tokio::test(flavor = "multi_thread")]
async fn title_is_answered_while_the_first_turn_is_still_open() -> Result<()> {
    let gate = Gate::closed();
    let turn_gate = gate.clone();
    let answer = move |asked: &Asked| -> Answer {
        if is_title(asked) {
            Reply::started()
                .item(ev_message("{\"title\": \"Greeting\"}"))
                .completed()
        } else {
            Reply::started()
                .wait(&turn_gate)
                .item(ev_message("Visible-answer."))
                .completed()
        }
    };
    let rig = Rig::new(Upstream::routed(answer).await?, json!({})).await?;

    let codex = rig.codex()?;
    let terminal = codex.terminal("hello there")?;

    let asked = rig.upstream.wait_for(2).await;
    let asked = asked.with_context(|| format!("the terminal shows {:?}", terminal.log()))?;
    let title = asked
        .iter()
        .find(|asked| is_title(asked))
        .expect("a title request");
    title.end().await?;
    gate.open();
    let shown = |drawn: &str| drawn.contains("Visible-answer.").then_some(());
    terminal
        .wait_for(codex_bridge_e2e::script::PATIENCE, shown)
        .await?;
    let asked = rig.asked(2)?;
    assert_eq!(asked.iter().filter(|asked| is_title(asked)).count(), 1);
    Ok(())
}
