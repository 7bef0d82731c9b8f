//! The harness itself: a scripted model on the real server says what it should, with nothing in between.

use anyhow::Result;
use codex_bridge_e2e::{client, llama::Llama, models};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

async fn output(llama: &Llama, input: Value) -> Result<Value> {
    let parameters =
        json!({"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]});
    let tool = json!({"type": "function", "name": "exec_command", "description": "Runs a command.", "parameters": parameters});
    let body = json!({"model": "local-model", "input": input, "tools": [tool]});
    let (status, text) = client::post(&llama.base_url(), &body).await?;
    assert_eq!(status, 200, "{text}");
    Ok(serde_json::from_str::<Value>(&text)?["output"].take())
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_follows_from_the_number_of_tool_results() -> Result<()> {
    for script in [models::command(), models::bare_command()] {
        let llama = Llama::scripted(&script).await?;
        let question = json!({"type": "message", "role": "user", "content": "Go."});
        let call = json!({"type": "function_call", "call_id": "c1", "name": "exec_command", "arguments": "{\"cmd\": \"x\"}"});
        let result = json!({"type": "function_call_output", "call_id": "c1", "output": "done"});

        let first = output(&llama, json!([question])).await?;
        let second = output(&llama, json!([question, call, result])).await?;

        assert_eq!(first[0]["name"], "exec_command");
        assert_eq!(first[0]["arguments"], "{\"cmd\": \"echo ran > ran.txt\"}");
        assert_eq!(second[0]["content"][0]["text"], "The command has run.");
    }
    Ok(())
}
