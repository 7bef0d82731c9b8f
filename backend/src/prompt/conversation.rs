//! The request's `instructions` and `input` as turns.

use protocol::Object;
use serde_json::Value;

use super::PromptError;

/// What was said so far, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversation {
    pub turns: Vec<Turn>,
}

/// One turn. Text is the request's own, unchanged.
#[derive(Clone, Debug, PartialEq)]
pub enum Turn {
    /// Instructions, `developer` and `system` messages. Leading ones are merged into one; later ones stay where they are.
    System(String),
    User(String),
    Assistant {
        /// Raw reasoning, where the request carries it.
        reasoning: String,
        text: String,
        /// Each with its result: Llama's templates know no call without one.
        calls: Vec<Call>,
    },
}

/// A call and its result.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub id: String,
    pub name: String,
    /// Parsed arguments; a string where the model's text was not JSON.
    pub arguments: Value,
    /// What the client answered; `None`: it never did.
    pub output: Option<String>,
}

impl Conversation {
    /// Reads `instructions` and `input` of a request as the bridge sends it: function calls only.
    pub fn from_request(request: &Object) -> Result<Conversation, PromptError> {
        todo!()
    }
}
