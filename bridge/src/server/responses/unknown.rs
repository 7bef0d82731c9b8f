//! Request fields that are not known here. Codex and SDKs have new ones every few weeks, so they are let through; that they came is counted, and told once a name.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

use protocol::Object;

use crate::metrics::Metrics;

/// Of the Responses API, of Codex, sampling fields under the names of llama.cpp's server, and those of the Chat Completions API, which are refused by name
/// elsewhere.
const KNOWN: [&str; 60] = [
    "access_programs",
    "background",
    "background_options",
    "cache_prompt",
    "client_metadata",
    "context_management",
    "conversation",
    "frequency_penalty",
    "function_call",
    "functions",
    "generate",
    "grammar",
    "id_slot",
    "ignore_eos",
    "image",
    "include",
    "input",
    "instructions",
    "json_schema",
    "logit_bias",
    "max_completion_tokens",
    "max_output_tokens",
    "max_tokens",
    "max_tool_calls",
    "messages",
    "metadata",
    "min_p",
    "model",
    "moderation",
    "parallel_tool_calls",
    "presence_penalty",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning",
    "reasoning_effort",
    "repeat_penalty",
    "repetition_penalty",
    "response_format",
    "return_progress",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_k",
    "top_logprobs",
    "top_p",
    "truncation",
    "typical_p",
    "user",
    "verbosity",
];
/// Names that are told. Later ones are only counted: a client can think of any number.
const MOST_NAMES: usize = 64;
/// Characters of a name that are told.
const LONGEST_NAME: usize = 64;

/// The names that came.
#[derive(Debug, Default)]
pub(in crate::server) struct UnknownFields(Mutex<HashSet<String>>);

impl UnknownFields {
    pub(super) fn note(&self, request: &Object, metrics: &Metrics) {
        for name in request.keys() {
            if KNOWN.binary_search(&name.as_str()).is_ok() {
                continue;
            }
            metrics.unknown_fields.inc();
            if self.is_new(name) {
                tracing::info!(
                    field = short(name),
                    "a request field that is not known here; it is let through, and not told of again"
                );
            }
        }
    }

    fn is_new(&self, name: &str) -> bool {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.len() < MOST_NAMES && names.insert(short(name))
    }
}

fn short(name: &str) -> String {
    name.chars().take(LONGEST_NAME).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn known_names_can_be_searched() {
        assert!(KNOWN.is_sorted());
    }

    #[test]
    fn a_name_is_told_once_and_only_so_many_are_kept() {
        let (fields, metrics) = (UnknownFields::default(), Metrics::new());
        let request = json!({"model": "m", "client_metadata": {}, "brand_new": 1});
        let request = request.as_object().unwrap();
        fields.note(request, &metrics);
        fields.note(request, &metrics);
        assert_eq!(metrics.unknown_fields.get(), 2);
        assert!(!fields.is_new("brand_new"));
        for number in 1..MOST_NAMES {
            assert!(fields.is_new(&format!("{number}{}", "x".repeat(1000))));
        }
        assert!(!fields.is_new("one more"));
        let kept = fields.0.lock().unwrap();
        assert!(kept.iter().all(|name| name.len() <= LONGEST_NAME));
    }
}
