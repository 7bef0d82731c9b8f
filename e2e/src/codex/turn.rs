//! What one `codex exec --json` run said.

use std::process::ExitStatus;

use serde_json::Value;

#[derive(Debug, Clone)]
pub struct Turn {
    pub status: ExitStatus,
    /// The JSON lines of standard output, in order.
    pub events: Vec<Value>,
    pub stderr: String,
}

impl Turn {
    pub(super) fn new(status: ExitStatus, stdout: &[u8], stderr: &[u8]) -> Self {
        let lines = String::from_utf8_lossy(stdout);
        let events = lines
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        Self {
            status,
            events,
            stderr: String::from_utf8_lossy(stderr).into_owned(),
        }
    }

    /// The finished items of one kind: `agent_message`, `command_execution`, `file_change`, `mcp_tool_call`, …
    pub fn items<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        let done = self
            .events
            .iter()
            .filter(|event| event["type"] == "item.completed");
        done.map(|event| &event["item"])
            .filter(move |item| item["type"] == kind)
    }

    /// The text of every assistant message, in order.
    pub fn messages(&self) -> Vec<&str> {
        self.items("agent_message")
            .filter_map(|item| item["text"].as_str())
            .collect()
    }

    /// Everything Codex reported as an error, in events of any shape.
    pub fn errors(&self) -> Vec<&str> {
        let mut found = Vec::new();
        for event in &self.events {
            match event["type"].as_str() {
                Some("error") => found.extend(event["message"].as_str()),
                Some("turn.failed") => found.extend(event["error"]["message"].as_str()),
                Some("item.completed") if event["item"]["type"] == "error" => {
                    found.extend(event["item"]["message"].as_str());
                }
                _ => {}
            }
        }
        found
    }

    /// The turn ended well: exit status 0, no error, and a `turn.completed`.
    #[track_caller]
    pub fn assert_completed(&self) {
        let completed = self
            .events
            .iter()
            .any(|event| event["type"] == "turn.completed");
        assert!(
            self.status.success() && completed,
            "the turn did not complete: {self:#?}"
        );
        assert!(
            !self.stderr.contains("unsupported call"),
            "Codex did not know a call: {}",
            self.stderr
        );
    }
}
