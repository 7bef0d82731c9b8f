//! The bytes of one answer, as a native server or llama-server writes them.
//!
//! Every delta's text is the moment it left, in nanoseconds and always as wide: `@@0000012345678901`.

use std::fmt::Write as _;

use super::plan::{Kind, Plan, Shape};

pub const STAMP: &str = "@@";
pub const STAMP_DIGITS: usize = 16;

pub fn stamp(nanoseconds: u64) -> String {
    format!("{STAMP}{nanoseconds:016}")
}

/// Builds the frames of one answer in order; numbers them where the shape has numbers.
#[derive(Debug)]
pub struct Writer {
    kind: Kind,
    shape: Shape,
    sequence: u32,
    /// What the deltas add up to, as it stands inside a JSON string.
    whole: String,
    frames: String,
}

impl Writer {
    pub fn new(plan: &Plan) -> Self {
        Self {
            kind: plan.kind,
            shape: plan.shape,
            sequence: 0,
            whole: String::new(),
            frames: String::new(),
        }
    }

    /// What was written since the last call.
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.frames)
    }

    pub fn open(&mut self) {
        let response = self.response("in_progress", "");
        self.event("response.created", "", &format!(r#""response":{response}"#));
        self.event(
            "response.in_progress",
            "",
            &format!(r#""response":{response}"#),
        );
        let item = self.item("in_progress");
        let item = format!(r#""item":{item}"#);
        self.event("response.output_item.added", OUTPUT_INDEX, &item);
        if self.kind == Kind::Arguments {
            self.delta(r#"{\"cmd\":\""#);
        } else {
            let part = format!(r#"{ID},"part":{}"#, self.part());
            self.event("response.content_part.added", BOTH_INDEXES, &part);
        }
    }

    /// `text` must need no escape in JSON, or bring it.
    pub fn delta(&mut self, text: &str) {
        self.whole.push_str(text);
        let logprobs = match (self.kind, self.shape) {
            (Kind::Text, Shape::Native) => r#","logprobs":[]"#,
            _ => "",
        };
        let (name, indexes) = match self.kind {
            Kind::Reasoning => ("response.reasoning_text.delta", BOTH_INDEXES),
            Kind::Text => ("response.output_text.delta", BOTH_INDEXES),
            Kind::Arguments => ("response.function_call_arguments.delta", OUTPUT_INDEX),
        };
        let rest = format!(r#"{ID},"delta":"{text}"{logprobs}"#);
        self.event(name, indexes, &rest);
    }

    pub fn close(&mut self) {
        if self.kind == Kind::Arguments {
            self.delta(r#"\"}"#);
            let rest = format!(r#"{ID},"name":"exec_command","arguments":"{}""#, self.whole);
            self.event("response.function_call_arguments.done", OUTPUT_INDEX, &rest);
        } else {
            let (name, logprobs) = match self.kind {
                Kind::Text => ("response.output_text.done", r#","logprobs":[]"#),
                _ => ("response.reasoning_text.done", ""),
            };
            let rest = format!(r#"{ID},"text":"{}"{logprobs}"#, self.whole);
            self.event(name, BOTH_INDEXES, &rest);
            let rest = format!(r#"{ID},"part":{}"#, self.part());
            self.event("response.content_part.done", BOTH_INDEXES, &rest);
        }
        let item = self.item("completed");
        self.event(
            "response.output_item.done",
            OUTPUT_INDEX,
            &format!(r#""item":{item}"#),
        );
        let response = self.response("completed", &item);
        self.event(
            "response.completed",
            "",
            &format!(r#""response":{response}"#),
        );
    }

    fn event(&mut self, name: &str, indexes: &str, rest: &str) {
        let frames = &mut self.frames;
        // Writing to a string cannot fail.
        let _ = match self.shape {
            Shape::Native => write!(
                frames,
                "event: {name}\ndata: {{\"type\":\"{name}\",\"sequence_number\":{}{indexes},{rest}}}\n\n",
                self.sequence
            ),
            Shape::Llama => write!(
                frames,
                "event: {name}\ndata: {{\"type\":\"{name}\",{rest}}}\n\n"
            ),
        };
        self.sequence += 1;
    }

    fn part(&self) -> String {
        match self.kind {
            Kind::Text => format!(
                r#"{{"type":"output_text","text":"{}","annotations":[],"logprobs":[]}}"#,
                self.whole
            ),
            _ => format!(r#"{{"type":"reasoning_text","text":"{}"}}"#, self.whole),
        }
    }

    fn item(&self, status: &str) -> String {
        let content = if self.whole.is_empty() {
            String::new()
        } else {
            self.part()
        };
        match self.kind {
            Kind::Reasoning => format!(
                r#"{{"id":"item_0123456789abcdef0123","type":"reasoning","status":"{status}","summary":[],"content":[{content}]}}"#
            ),
            Kind::Text => format!(
                r#"{{"id":"item_0123456789abcdef0123","type":"message","status":"{status}","role":"assistant","content":[{content}]}}"#
            ),
            Kind::Arguments => format!(
                r#"{{"id":"item_0123456789abcdef0123","type":"function_call","status":"{status}","call_id":"call_1","name":"exec_command","arguments":"{}"}}"#,
                self.whole
            ),
        }
    }

    fn response(&self, status: &str, output: &str) -> String {
        response(status, output)
    }
}

const ID: &str = r#""item_id":"item_0123456789abcdef0123""#;
const OUTPUT_INDEX: &str = r#","output_index":0"#;
const BOTH_INDEXES: &str = r#","output_index":0,"content_index":0"#;

/// A complete response object.
fn response(status: &str, output: &str) -> String {
    let usage = match status {
        "completed" => {
            r#"{"input_tokens":37,"input_tokens_details":{"cached_tokens":0},"output_tokens":14,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":51}"#
        }
        _ => "null",
    };
    format!(
        concat!(
            r#"{{"id":"resp_0123456789abcdef0123","object":"response","created_at":1795999079,"status":"{status}","#,
            r#""background":false,"error":null,"incomplete_details":null,"instructions":null,"max_output_tokens":null,"#,
            r#""model":"bench","output":[{output}],"parallel_tool_calls":true,"previous_response_id":null,"#,
            r#""reasoning":{{"effort":null,"summary":null}},"store":false,"temperature":1.0,"text":{{"format":{{"type":"text"}}}},"#,
            r#""tool_choice":"auto","tools":[],"top_p":1.0,"truncation":"disabled","usage":{usage},"metadata":{{}}}}"#
        ),
        status = status,
        output = output,
        usage = usage
    )
}

/// The answer to a request without a stream.
pub fn json() -> String {
    let item = r#"{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Hello.","annotations":[],"logprobs":[]}]}"#;
    response("completed", item)
}

#[cfg(test)]
mod tests {
    use anyhow::Result;
    use serde_json::Value;

    use super::{
        super::plan::{Pace, Plan},
        *,
    };

    #[test]
    fn every_frame_holds_a_json_object_and_numbers_have_no_gap() -> Result<()> {
        for kind in [Kind::Reasoning, Kind::Text, Kind::Arguments] {
            let mut writer = Writer::new(&Plan::native(kind, 1, Pace::Batched));
            writer.open();
            writer.delta(&stamp(5));
            writer.close();
            let frames = writer.take();
            for (number, frame) in frames.trim_end().split("\n\n").enumerate() {
                let data = frame.split_once("\ndata: ").map_or("", |(_, data)| data);
                let event: Value = serde_json::from_str(data)?;
                assert_eq!(event["sequence_number"], number);
                if event["type"] == "response.function_call_arguments.done" {
                    let arguments = event["arguments"].as_str().unwrap_or_default();
                    assert_eq!(
                        serde_json::from_str::<Value>(arguments)?["cmd"],
                        "@@0000000000000005"
                    );
                }
            }
        }
        serde_json::from_str::<Value>(&json())?;
        Ok(())
    }
}
