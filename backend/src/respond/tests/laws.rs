//! Answers of all kinds make lawful streams.

use proptest::prelude::*;
use serde_json::json;

use super::Case;
use crate::{
    call_syntax::CallSyntax,
    engine::request::{Finish, Output},
    parse::tests::cases,
};

const BITS: [&str; 22] = [
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    "\u{1}<|python_tag|>\u{2}",
    "\u{1}<tool_call>\u{2}",
    "\u{1}<|eom_id|>\u{2}",
    "{\"name\": \"find\", \"parameters\": {\"q\": \"x\"}}",
    "{\"name\":\"g\",\"arguments\":{}}",
    "{\"name\": \"rm\"}",
    "{\"name\": \"light\", \"parameters\": {\"on",
    "[find(q='x'), g()]",
    "[",
    "]",
    "\n",
    " ",
    "; ",
    "I look.",
    "zażółć 😀",
    "END",
    "EN",
    "}",
];

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn any_answer_makes_a_lawful_stream(
        bits in prop::collection::vec(prop::sample::select(&BITS[..]), 0..10), syntax in prop::sample::select(&[
            CallSyntax::LlamaJson, CallSyntax::LlamaPythonic, CallSyntax::Hermes, CallSyntax::SmolLm2][..]),
        reason in prop::sample::select(&[Finish::Stop(None), Finish::Length, Finish::Stopped][..]), parallel: bool, logprobs: bool, only_answers: bool,
    ) {
        let include = if logprobs { json!(["message.output_text.logprobs"]) } else { json!([]) };
        let request = json!({"stop": ["END"], "parallel_tool_calls": parallel, "include": include});
        let mut case = Case::new(request, syntax)
            .gives(Output::Progress { cached: 0, done: 30, total: 30 })
            .says(&bits.concat())
            .ends(reason);
        case.only_answers = only_answers;
        // Nothing of these waits for anything.
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(case.events());
    }
}
