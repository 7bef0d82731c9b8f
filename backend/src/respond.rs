//! One response: what the engine generates becomes native Responses events.
//!
//! ```text
//! Output (engine) → text (tokenizer) → Segment (parse) → stop strings → Event (emitter)
//! ```
//!
//! Invariants: events come in the order of the Responses API with `sequence_number` 0, 1, 2, …; there is exactly one terminal event, the last; its
//! `output` is the list of the items whose `item.done` was sent; nothing is generated for a [`Responding`] that was dropped or has ended.

pub(crate) mod counters;
mod emitter;
mod logprobs;
mod repetition;
pub(crate) mod request;
mod resource;
mod stops;
#[cfg(test)]
mod tests;
mod usage;

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
    time::SystemTime,
};

use protocol::{ApiError, ErrorKind, Ids, Object, Phase, error, event::Event};
use serde_json::Value;

use self::{
    counters::{Counters, count},
    emitter::{Emitter, Ending},
    logprobs::Logprobs,
    repetition::Repetition,
    request::Settings,
    stops::{Certain, Stops},
    usage::Counts,
};
use crate::{
    engine::{
        Generation,
        request::{Finish, Output},
    },
    parse::{End, Parser, ParserOptions, Piece, Segment},
    sample::Sampled,
    tokenizer::{Detokenizer, Tokenizer},
};

/// Where tokens come from: the engine, or a script of a test.
pub(crate) trait Outputs: fmt::Debug + Send {
    fn poll_output(&mut self, context: &mut Context<'_>) -> Poll<Option<Output>>;
}

impl Outputs for Generation {
    fn poll_output(&mut self, context: &mut Context<'_>) -> Poll<Option<Output>> {
        self.poll_next(context)
    }
}

/// Looks at a finished call: the tool's name and the arguments. May do so later.
pub(crate) type Check = Box<dyn Fn(&str, &str) + Send>;

/// Everything a response is made of beside the tokens.
pub(crate) struct Script {
    pub(crate) settings: Settings,
    pub(crate) parser: ParserOptions,
    /// Text can only be the answer: no call may come, or the answer's form was asked for.
    pub(crate) only_answers: bool,
    /// Text that only repeats itself is ended, where nothing else says when it ends.
    pub(crate) end_loops: bool,
    pub(crate) prompt_tokens: usize,
    pub(crate) check: Option<Check>,
    pub(crate) relaxed: Vec<String>,
    pub(crate) ids: Ids,
    pub(crate) clock: fn() -> u64,
}

/// A response being made. Dropping it cancels the generation at the engine's next step.
pub struct Responding {
    /// `None` once the response has ended.
    outputs: Option<Box<dyn Outputs>>,
    tokenizer: Tokenizer,
    detokenizer: Detokenizer,
    parser: Parser,
    segments: Vec<Segment>,
    stops: Stops,
    logprobs: Option<Logprobs>,
    /// Ends text that is in a loop. `None` where that is off, or where a limit of the client or the form it asked for says when text ends.
    repetition: Option<Repetition>,
    /// The first call is the last.
    single: bool,
    emitter: Emitter,
    counts: Counts,
    check: Option<Check>,
    counters: Arc<Counters>,
    relaxed: Vec<String>,
    id: String,
    clock: fn() -> u64,
}

impl Responding {
    /// `model` is named where `request` names none.
    pub(crate) fn new(
        outputs: Box<dyn Outputs>,
        request: &Object,
        model: &str,
        tokenizer: &Tokenizer,
        counters: Arc<Counters>,
        mut script: Script,
    ) -> Responding {
        let id = script.ids.make("resp");
        let settings = script.settings;
        let now = (script.clock)();
        let base = resource::resource(request, &settings, &id, model, now);
        let phase = script.only_answers.then_some(Phase::FinalAnswer);
        let is_unlimited = settings.max_output_tokens.is_none() && !script.parser.json_answer;
        let ends_loops = script.end_loops && is_unlimited;
        Responding {
            outputs: Some(outputs),
            tokenizer: tokenizer.clone(),
            detokenizer: Detokenizer::new(tokenizer),
            parser: Parser::new(script.parser),
            segments: Vec::new(),
            stops: Stops::new(settings.stops),
            logprobs: settings.logprobs.map(Logprobs::new),
            repetition: ends_loops.then(Repetition::new),
            single: !settings.parallel,
            emitter: Emitter::new(script.ids, base, phase),
            counts: Counts {
                prompt: script.prompt_tokens,
                ..Counts::default()
            },
            check: script.check,
            counters,
            relaxed: script.relaxed,
            id,
            clock: script.clock,
        }
    }

    /// What grammar compilation had to leave out of tools' schemas, one sentence each. Empty: nothing.
    pub fn relaxed(&self) -> &[String] {
        &self.relaxed
    }

    /// `resp_…`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The next event; `None` after the terminal one.
    pub async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// [`Responding::next`] for a caller that implements `Stream` itself.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        loop {
            if let Some(event) = self.emitter.take() {
                return Poll::Ready(Some(event));
            }
            let Some(outputs) = &mut self.outputs else {
                return Poll::Ready(None);
            };
            match std::task::ready!(outputs.poll_output(context)) {
                Some(output) => self.take(output),
                None => self.fail("the engine ended without a word", error::SERVER_ERROR),
            }
        }
    }

    /// Runs to the end and gives the response resource of the terminal event, whatever its status.
    pub async fn collect(mut self) -> Object {
        let mut last = Object::new();
        while let Some(event) = self.next().await {
            last = event;
        }
        match last.shift_remove("response") {
            Some(Value::Object(response)) => response,
            _ => Object::new(),
        }
    }

    fn take(&mut self, output: Output) {
        match output {
            Output::Progress {
                cached,
                done,
                total,
            } => {
                self.counts.cached = cached;
                self.emitter.progress(cached, done, total);
            }
            Output::Tokens(tokens) => {
                for token in &tokens {
                    self.token(token);
                    if self.outputs.is_none() {
                        return;
                    }
                }
            }
            Output::Finished { reason, usage } => {
                self.counts.prompt = usage.prompt;
                self.counts.cached = usage.cached;
                self.counts.generated = usage.generated;
                match reason {
                    Finish::Stop(_) => self.finish(End::Stop),
                    Finish::Length => self.finish(End::Cut),
                    Finish::Stopped => {
                        self.fail("the engine is shutting down", error::SERVER_ERROR);
                    }
                    // A grammar that went wrong goes wrong again; a client must not repeat that.
                    Finish::Constraint(problem) => {
                        self.fail(&problem.to_string(), error::INVALID_PROMPT);
                    }
                    // A device may come back with the next process.
                    Finish::Device(message) => self.fail(&message, error::SERVER_ERROR),
                }
            }
        }
    }

    fn token(&mut self, sampled: &Sampled) {
        self.counts.generated += 1;
        let was_thinking = self.parser.is_thinking();
        if self.tokenizer.is_control(sampled.token) {
            let name = self
                .tokenizer
                .control_text(sampled.token)
                .unwrap_or_default();
            self.parser.push(Piece::Control(name), &mut self.segments);
        } else {
            if let Some(logprobs) = &mut self.logprobs {
                logprobs.push(sampled, self.parser.position(), &self.tokenizer);
            }
            let text = self.detokenizer.push(sampled.token);
            self.parser.push(Piece::Text(&text), &mut self.segments);
        }
        if was_thinking || self.parser.is_thinking() {
            self.counts.reasoning += 1;
        }
        self.segments();
        self.end_loop(sampled.token);
    }

    /// Ends text that has fallen into a loop as if the model had. Calls are left alone: half a call must not look like a whole one.
    fn end_loop(&mut self, token: u32) {
        let Some(repetition) = &mut self.repetition else {
            return;
        };
        if self.emitter.is_in_call() {
            repetition.clear();
        } else if repetition.push(token) && self.outputs.is_some() {
            count(&self.counters.looped);
            let tokens = self.counts.generated;
            tracing::warn!(
                response = self.id,
                tokens,
                "text that only repeated itself was ended"
            );
            self.finish(End::Stop);
        }
    }

    /// Turns the segments at hand into events.
    fn segments(&mut self) {
        for segment in std::mem::take(&mut self.segments) {
            if let Segment::Text { text, at } = segment {
                let certain = self.stops.push(text, at);
                self.say(&certain);
                if certain.stopped {
                    return self.end(&Ending::Completed);
                }
                continue;
            }
            let certain = self.stops.release();
            self.say(&certain);
            match segment {
                Segment::Text { .. } => {}
                Segment::Reasoning(delta) => self.emitter.reasoning(&delta),
                Segment::CallStart { name } => self.emitter.call_start(&name),
                Segment::CallArguments(delta) => self.emitter.arguments(&delta),
                Segment::CallEnd => {
                    self.call_end();
                    if self.single {
                        return self.end(&Ending::Completed);
                    }
                }
            }
        }
    }

    fn say(&mut self, certain: &Certain) {
        if certain.text.is_empty() {
            return;
        }
        let logprobs = match &mut self.logprobs {
            Some(logprobs) => logprobs.take(certain.at, certain.at + certain.text.len()),
            None => Vec::new(),
        };
        self.emitter.text(&certain.text, logprobs);
    }

    fn call_end(&mut self) {
        let Some((name, arguments)) = self.emitter.call_end() else {
            return;
        };
        count(&self.counters.calls);
        if let Some(check) = &self.check {
            check(&name, &arguments);
        }
    }

    /// The engine said its last word.
    fn finish(&mut self, end: End) {
        self.parser.finish(end, &mut self.segments);
        self.segments();
        if self.outputs.is_none() {
            return;
        }
        let certain = self.stops.release();
        self.say(&certain);
        self.end(&match end {
            End::Stop => Ending::Completed,
            End::Cut => Ending::Incomplete,
        });
    }

    fn fail(&mut self, message: &str, code: &str) {
        let error = ApiError::new(ErrorKind::Server, message).with_code(code);
        self.end(&Ending::Failed(error));
    }

    fn end(&mut self, ending: &Ending) {
        self.outputs = None;
        count(match ending {
            Ending::Completed => &self.counters.completed,
            Ending::Incomplete => &self.counters.incomplete,
            Ending::Failed(_) => &self.counters.failed,
        });
        self.emitter.end(ending, self.counts, (self.clock)());
    }
}

impl Drop for Responding {
    fn drop(&mut self) {
        if self.outputs.is_some() {
            count(&self.counters.cancelled);
        }
    }
}

impl fmt::Debug for Responding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responding")
            .field("id", &self.id)
            .field("ended", &self.outputs.is_none())
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
