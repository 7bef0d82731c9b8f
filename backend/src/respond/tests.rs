//! Whole responses over scripted engine output, and the laws of their event streams.

mod laws;
mod streams;

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use protocol::{Ids, Object, event::Event};
use serde_json::{Value, json};

use super::{Check, Outputs, Responding, Script, counters::Counters, request};
use crate::{
    call_syntax::CallSyntax,
    engine::request::{Finish, Output, Usage},
    model::{GgufVocabulary, TokenizerSource},
    parse::ParserOptions,
    sample::{Sampled, SamplingParams},
    testing::{Kind, Vocabulary, events::keeps_the_laws},
    tokenizer::Tokenizer,
};

/// Control tokens after the bytes of [`Vocabulary`].
const CONTROLS: [&str; 3] = ["<|python_tag|>", "<|eom_id|>", "<tool_call>"];

pub(super) fn tokenizer() -> Tokenizer {
    let mut vocabulary = Vocabulary::new(&[]);
    for control in CONTROLS {
        vocabulary.push(control.to_owned(), Kind::Control);
    }
    let source = GgufVocabulary {
        model: "gpt2".to_owned(),
        pre: Some("gpt-2".to_owned()),
        tokens: vocabulary
            .tokens
            .iter()
            .map(|(text, _)| text.clone())
            .collect(),
        token_types: vocabulary
            .tokens
            .iter()
            .map(|(_, kind)| *kind as i32)
            .collect(),
        eos: Some(Vocabulary::IM_END),
        ..GgufVocabulary::default()
    };
    Tokenizer::new(&TokenizerSource::Gguf(source)).unwrap()
}

/// Engine output that was written down; after it, nothing comes for ever.
#[derive(Debug)]
pub(super) struct Written {
    outputs: VecDeque<Output>,
    /// Set when the response lets go of it.
    dropped: Arc<AtomicBool>,
    /// After the last output the channel is closed.
    closed: bool,
}

impl Outputs for Written {
    fn poll_output(&mut self, _context: &mut Context<'_>) -> Poll<Option<Output>> {
        match self.outputs.pop_front() {
            Some(output) => Poll::Ready(Some(output)),
            None if self.closed => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        self.dropped.store(true, Ordering::Release);
    }
}

/// A test's response before it is read.
pub(super) struct Case {
    request: Object,
    syntax: CallSyntax,
    outputs: Vec<Output>,
    only_answers: bool,
    end_loops: bool,
    thinking: bool,
    check: Option<Check>,
    closed: bool,
}

/// Tokens of one byte each, in one output; `\u{1}name\u{2}` is a control token.
pub(super) fn tokens(text: &str) -> Vec<Output> {
    let sampled = |token| Sampled {
        token,
        logprob: -0.5,
        top: vec![(token, -0.5), (Vocabulary::IM_END, f32::NEG_INFINITY)],
    };
    let mut all = Vec::new();
    for part in text.split_inclusive('\u{2}') {
        let control = part
            .strip_suffix('\u{2}')
            .and_then(|part| part.split_once('\u{1}'));
        let (text, control) = control.map_or((part, None), |(text, name)| (text, Some(name)));
        all.extend(
            text.bytes()
                .map(|byte| Vocabulary::FIRST_BYTE + u32::from(byte)),
        );
        all.extend(control.map(|name| {
            let at = CONTROLS
                .iter()
                .position(|control| *control == name)
                .unwrap();
            Vocabulary::FIRST_BYTE + 256 + at as u32
        }));
    }
    vec![Output::Tokens(all.into_iter().map(sampled).collect())]
}

pub(super) fn finished(reason: Finish) -> Output {
    Output::Finished {
        reason,
        usage: Usage {
            prompt: 30,
            cached: 16,
            generated: 12,
            drafted: 0,
        },
    }
}

impl Case {
    pub(super) fn new(request: Value, syntax: CallSyntax) -> Case {
        let Value::Object(request) = request else {
            panic!("{request}");
        };
        Case {
            request,
            syntax,
            outputs: Vec::new(),
            only_answers: false,
            end_loops: true,
            thinking: false,
            check: None,
            closed: false,
        }
    }

    /// An answer that the model ended.
    pub(super) fn answered(text: &str, syntax: CallSyntax) -> Case {
        Case::new(json!({"model": "m"}), syntax)
            .says(text)
            .ends(Finish::Stop(Some(Vocabulary::IM_END)))
    }

    pub(super) fn says(mut self, text: &str) -> Case {
        self.outputs.extend(tokens(text));
        self
    }

    pub(super) fn gives(mut self, output: Output) -> Case {
        self.outputs.push(output);
        self
    }

    pub(super) fn ends(self, reason: Finish) -> Case {
        self.gives(finished(reason))
    }

    pub(super) fn start(self) -> (Responding, Arc<Counters>, Arc<AtomicBool>) {
        let dropped = Arc::new(AtomicBool::new(false));
        let counters = Arc::new(Counters::default());
        let written = Written {
            outputs: self.outputs.into(),
            dropped: dropped.clone(),
            closed: self.closed,
        };
        let defaults = SamplingParams {
            temperature: 0.6,
            ..SamplingParams::default()
        };
        let script = Script {
            settings: request::read(&self.request, &defaults, 7).unwrap(),
            parser: ParserOptions {
                syntax: self.syntax,
                tools: ["exec_command", "light", "fan", "find", "g"]
                    .map(str::to_owned)
                    .into_iter()
                    .collect(),
                json_answer: false,
                thinking: self.thinking,
            },
            only_answers: self.only_answers,
            end_loops: self.end_loops,
            prompt_tokens: 30,
            check: self.check,
            relaxed: Vec::new(),
            ids: Ids::seeded(1),
            clock: || 1_700_000_000,
        };
        let responding = Responding::new(
            Box::new(written),
            &self.request,
            "served",
            &tokenizer(),
            counters.clone(),
            script,
        );
        (responding, counters, dropped)
    }

    /// All events, which keep the laws.
    pub(super) async fn events(self) -> Vec<Event> {
        let mut responding = self.start().0;
        let mut events = Vec::new();
        while let Some(event) = responding.next().await {
            events.push(event);
        }
        keeps_the_laws(&events);
        events
    }
}
