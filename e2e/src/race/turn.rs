//! The requests, as Codex asks: long standing instructions, then turns. All greedy and streamed.

use serde_json::{Value, json};

use super::prose;

/// Tokens that the model's template puts around instructions and one turn.
const AROUND: usize = 21;

/// A prompt of about `tokens` tokens that begins like no other seed's.
pub(super) fn cold(seed: u64, tokens: usize, answer: u32) -> Value {
    let question = "Tell me what this is about.";
    let instructions = prose::text(seed, tokens.saturating_sub(AROUND));
    request(&instructions, &json!([user(question)]), answer)
}

/// The next turn after `cold`, with `tokens` more tokens of the user's: text, and then a question that has nothing to do
/// with it, so that the answer does not repeat the prompt and no draft can be taken from there.
pub(super) fn next(cold: &Value, topic: usize, tokens: usize, answer: u32) -> Value {
    let mut next = cold.clone();
    next["max_output_tokens"] = answer.into();
    let (question, around) = (essay(topic), 75);
    let text = prose::text(1000 + topic as u64, tokens.saturating_sub(around));
    let text = format!("{text}\n\nThat was all of it. Forget it now. {question}");
    if let Some(input) = next["input"].as_array_mut() {
        input.push(json!({"type": "message", "role": "assistant",
            "content": [{"type": "output_text", "text": "It is about work on software.", "annotations": []}]}));
        input.push(user(&text));
    }
    next
}

/// Questions that the model answers at length.
const TOPICS: [&str; 8] = [
    "the history of printing, from wood blocks to the newspapers of today",
    "how a letter travels from a village in the mountains to a city by the sea",
    "how bread is made, from the field of wheat to the table",
    "the work of a lighthouse keeper over the four seasons of a year",
    "how a small town builds a bridge over its river, and what goes wrong",
    "the life of a honey bee, from the egg to its last flight",
    "how a ship of wood was built two hundred years ago",
    "a long journey by train through five countries and their food",
];

/// A question of about 95 tokens with a long answer.
pub(super) fn question(topic: usize, answer: u32) -> Value {
    let instructions =
        "You are a patient writer. You answer in long paragraphs of plain English, without lists.";
    request(instructions, &json!([user(&essay(topic))]), answer)
}

fn essay(topic: usize) -> String {
    let topic = TOPICS[topic % TOPICS.len()];
    format!(
        "Write a long and detailed essay about {topic}. Take your time, begin with the early days, describe the people and \
         their tools, give examples, and explain the reasons behind each step in full sentences."
    )
}

fn request(instructions: &str, input: &Value, answer: u32) -> Value {
    json!({
        "model": "smollm2",
        "instructions": instructions,
        "input": input,
        "max_output_tokens": answer,
        "temperature": 0,
        "store": false,
        "stream": true,
    })
}

fn user(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
}
