//! One generation on its way: `tokens[..done]` have their keys and values in `pages`, the rest is still to be run. A prompt, forced tokens, the token drawn
//! last and what a preemption threw away are all the same: tokens not yet run. After the last of them the next one is drawn.

use std::{sync::Arc, time::Duration};

use tokio::sync::mpsc;

use super::{
    constraint::{Constraint, ConstraintError, Next},
    draft::Drafter,
    handle::Slot,
    masks::{Answer, Job},
    request::{Finish, Output, Usage},
    shared::{ROOM_FOR_STEP, Submitted},
};
use crate::{
    device::{PAGE_TOKENS, SampleRow, Span, TokenMask},
    kv::PageList,
    sample::{Sampled, SamplingParams},
};

/// A sequence with this many tokens to run still counts as a stream: it is never made to wait for a share of the prompts' time.
const STREAM_PENDING: usize = 64;

#[derive(Debug)]
pub(super) struct Sequence {
    /// Ascending in the order of arrival.
    pub(super) id: u64,
    /// Prompt and output. While a step runs, also the draft it checks.
    pub(super) tokens: Vec<u32>,
    pub(super) prompt: usize,
    pub(super) done: usize,
    pub(super) pages: PageList,
    /// The cache has been asked for a prefix since the start, or since the last preemption.
    pub(super) looked_up: bool,
    /// It has been asked before: what it knew then is what the client is told.
    pub(super) was_looked_up: bool,
    pub(super) stable_prefix: usize,
    /// The disk has been asked for its prefix.
    pub(super) asked_disk: bool,
    /// Its stable prefix has been offered to the disk.
    pub(super) offered_disk: bool,
    pub(super) sampling: SamplingParams,
    pub(super) top_logprobs: usize,
    pub(super) grammar: Grammar,
    /// Guess at the tokens after the first `draft_at`.
    pub(super) draft: Vec<u32>,
    draft_at: usize,
    pub(super) drafter: Option<Drafter>,
    pub(super) share: StepShare,
    pub(super) usage: Usage,
    pub(super) arrived: Duration,
    max_tokens: usize,
    end_tokens: Arc<[u32]>,
    /// Generated and not yet sent.
    fresh: Vec<Sampled>,
    /// Prompt tokens of the last progress that was sent.
    reported: Option<usize>,
    has_sent_tokens: bool,
    outputs: mpsc::Sender<Output>,
    slot: Option<Slot>,
}

/// What a sequence does of one step.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct StepShare {
    /// Tokens it runs of those it has; 0: it sits the step out.
    pub(super) take: usize,
    /// Guessed tokens it runs after them.
    pub(super) draft: usize,
    /// Rows of logits wanted: 0 inside of a prompt, else one and one for each guess.
    pub(super) rows: usize,
    /// Rows of the step before these.
    pub(super) first_row: usize,
}

/// Where the constraint is.
#[derive(Debug)]
pub(super) enum Grammar {
    /// There is none: every token may come.
    Off,
    /// With the mask threads.
    Away,
    /// Here, with what may come next.
    Ready(Box<dyn Constraint>, Answer),
    /// The constraint knows of a token and must be asked what comes after it.
    Ask(Box<dyn Constraint>),
}

impl Sequence {
    pub(super) fn new(id: u64, submitted: Submitted, context: usize, now: Duration) -> Sequence {
        let Submitted {
            request,
            outputs,
            slot,
        } = submitted;
        let prompt = request.prompt.len();
        Sequence {
            id,
            prompt,
            done: 0,
            pages: PageList::default(),
            looked_up: false,
            was_looked_up: false,
            stable_prefix: request.stable_prefix.min(prompt),
            asked_disk: false,
            offered_disk: false,
            sampling: request.sampling,
            top_logprobs: request.top_logprobs,
            grammar: request.constraint.map_or(Grammar::Off, Grammar::Ask),
            draft: Vec::new(),
            draft_at: 0,
            drafter: None,
            share: StepShare::default(),
            usage: Usage {
                prompt,
                ..Usage::default()
            },
            arrived: now,
            max_tokens: request.max_tokens.min(context - prompt),
            end_tokens: request.end_tokens,
            fresh: Vec::new(),
            reported: None,
            has_sent_tokens: false,
            outputs,
            tokens: request.prompt,
            slot: Some(slot),
        }
    }

    /// The client is gone.
    pub(super) fn is_cancelled(&self) -> bool {
        self.outputs.is_closed()
    }

    /// Can its client's channel take what a step may yield? Without room the sequence pauses.
    pub(super) fn has_room(&self) -> bool {
        self.outputs.capacity() >= ROOM_FOR_STEP
    }

    /// Tokens known and not run.
    pub(super) fn pending(&self) -> usize {
        self.tokens.len() - self.done
    }

    /// A client waits for its next token, as opposed to its first, or to what a preemption threw away.
    pub(super) fn is_stream(&self) -> bool {
        self.usage.generated > 0 && self.looked_up && self.pending() <= STREAM_PENDING
    }

    /// Pages for all tokens known and the one that is drawn after them.
    pub(super) fn pages_wanted(&self) -> usize {
        (self.tokens.len() + 1).div_ceil(PAGE_TOKENS)
    }

    /// Tokens that may still be generated.
    pub(super) fn left(&self) -> usize {
        self.max_tokens - self.usage.generated
    }

    /// Guesses what follows the tokens known, if that isn't done yet.
    pub(super) fn guess(&mut self) {
        if self.usage.generated == 0 || self.draft_at == self.tokens.len() {
            return;
        }
        let drafter = self.drafter.get_or_insert_with(Drafter::new);
        self.draft = drafter.propose(&self.tokens);
        self.draft_at = self.tokens.len();
    }

    /// Appends the guessed tokens of its share, so that they run behind the known ones.
    pub(super) fn append_draft(&mut self) {
        self.tokens
            .extend_from_slice(&self.draft[..self.share.draft]);
    }

    /// What the sequence runs in this step; its draft has been appended to `tokens`.
    pub(super) fn span(&self) -> Span<'_> {
        Span {
            tokens: &self.tokens[self.done..][..self.share.take + self.share.draft],
            past: self.done,
            pages: self.pages.ids(),
            rows: self.share.rows,
        }
    }

    /// The question to the grammar, if one is to be asked.
    pub(super) fn take_job(&mut self) -> Option<Job> {
        let away = std::mem::replace(&mut self.grammar, Grammar::Away);
        let Grammar::Ask(constraint) = away else {
            self.grammar = away;
            return None;
        };
        Some(Job {
            id: self.id,
            constraint,
            draft: self.draft.clone(),
        })
    }

    /// The grammar left no choice, or none at all: takes what it said. `Ok(true)`: it did, and the question for the next place is open.
    pub(super) fn take_forced(&mut self) -> Result<bool, Finish> {
        let Grammar::Ready(_, answer) = &self.grammar else {
            return Ok(false);
        };
        match &answer.next {
            Next::End => return Err(Finish::Stop(None)),
            Next::Mask(mask) if mask.0.iter().all(|&word| word == 0) => {
                let why = "it allows no token here";
                return Err(Finish::Constraint(ConstraintError(why.to_owned())));
            }
            Next::Free | Next::Mask(_) => return Ok(false),
            Next::Forced(_) => {}
        }
        let ready = std::mem::replace(&mut self.grammar, Grammar::Away);
        if let Grammar::Ready(constraint, answer) = ready {
            self.grammar = Grammar::Ask(constraint);
            if let Next::Forced(tokens) = answer.next {
                for token in tokens {
                    self.usage.drafted += 1;
                    self.push(Sampled {
                        token,
                        logprob: 0.0,
                        top: Vec::new(),
                    })?;
                }
            }
        }
        Ok(true)
    }

    /// How many rows are drawn from: the first, and one after each guess that the grammar would take. None if it says by itself what comes next.
    pub(super) fn rows_to_draw(&self) -> usize {
        if self.share.rows == 0 {
            return 0;
        }
        let can_draw = |mask: &TokenMask| mask.0.iter().any(|&word| word != 0);
        match &self.grammar {
            Grammar::Off => self.share.rows,
            Grammar::Away | Grammar::Ask(_) => 0,
            Grammar::Ready(_, answer) => match &answer.next {
                Next::Mask(mask) if !can_draw(mask) => 0,
                Next::Free | Next::Mask(_) => {
                    let along = answer.along.iter();
                    let taken = along.take_while(|mask| mask.as_ref().is_none_or(can_draw));
                    self.share.rows.min(1 + taken.count())
                }
                Next::Forced(_) | Next::End => 0,
            },
        }
    }

    /// The rows to draw from, while the draft is appended.
    pub(super) fn sample_rows(&self) -> impl Iterator<Item = SampleRow<'_>> {
        let known = self.tokens.len() - self.share.draft;
        (0..self.rows_to_draw()).map(move |index| {
            let mask = match (&self.grammar, index) {
                (Grammar::Ready(_, answer), 0) => match &answer.next {
                    Next::Mask(mask) => Some(mask),
                    _ => None,
                },
                (Grammar::Ready(_, answer), _) => answer.along[index - 1].as_ref(),
                _ => None,
            };
            SampleRow {
                row: self.share.first_row + index,
                params: &self.sampling,
                history: &self.tokens[..known + index],
                prompt: self.prompt,
                mask,
                position: (known + index) as u64,
                top_logprobs: self.top_logprobs,
            }
        })
    }

    /// Takes up what its share of the step ran and drew. Each drawn token counts up to the first that isn't the one guessed at its place, which counts too: what was
    /// before it is what would have been drawn without guessing.
    pub(super) fn take_up(&mut self, drawn: Vec<Sampled>) -> Result<(), Finish> {
        let share = self.share;
        let draft = std::mem::take(&mut self.draft);
        self.draft_at = 0;
        self.tokens.truncate(self.tokens.len() - share.draft);
        self.done += share.take;
        let mut right = 0;
        let guesses = drawn.len().saturating_sub(1);
        let mut result = Ok(());
        for (index, sampled) in drawn.into_iter().enumerate() {
            let is_right = index < guesses && draft[index] == sampled.token;
            right += usize::from(is_right);
            result = self.push(sampled);
            if !is_right || result.is_err() {
                break;
            }
            // It ran as part of the draft.
            self.done += 1;
        }
        self.usage.drafted += right;
        if let Some(drafter) = &mut self.drafter
            && share.draft > 0
        {
            drafter.learn(share.draft, right);
        }
        result
    }

    /// Takes up a generated token; `Err` when it was the last.
    pub(super) fn push(&mut self, sampled: Sampled) -> Result<(), Finish> {
        let token = sampled.token;
        self.usage.generated += 1;
        self.accept(token)?;
        if self.end_tokens.contains(&token) {
            return Err(Finish::Stop(Some(token)));
        }
        self.tokens.push(token);
        self.fresh.push(sampled);
        if self.left() == 0 {
            return Err(Finish::Length);
        }
        Ok(())
    }

    /// Tells the constraint of a token; what it said of the place before is then out of date.
    fn accept(&mut self, token: u32) -> Result<(), Finish> {
        let grammar = std::mem::replace(&mut self.grammar, Grammar::Away);
        let (Grammar::Ready(mut constraint, _) | Grammar::Ask(mut constraint)) = grammar else {
            self.grammar = grammar;
            return Ok(());
        };
        let accepted = constraint.accept(token);
        self.grammar = Grammar::Ask(constraint);
        accepted.map_err(Finish::Constraint)
    }

    /// Throws away what was computed. What was generated stays, as a longer prompt.
    pub(super) fn forget_pages(&mut self) {
        self.pages.clear();
        self.done = 0;
        self.looked_up = false;
        self.share = StepShare::default();
    }

    /// Tells how far the prompt is, if there is room beside what a step may yield.
    pub(super) fn send_progress(&mut self) {
        let done = self.done.min(self.prompt);
        let news = self.reported.is_none_or(|reported| reported < done);
        if self.has_sent_tokens || !news || self.outputs.capacity() <= ROOM_FOR_STEP {
            return;
        }
        self.reported = Some(done);
        self.send(Output::Progress {
            cached: self.usage.cached,
            done,
            total: self.prompt,
        });
    }

    /// Sends the tokens of this step.
    pub(super) fn flush(&mut self) {
        if !self.fresh.is_empty() {
            let tokens = std::mem::take(&mut self.fresh);
            self.has_sent_tokens = true;
            self.send(Output::Tokens(tokens));
        }
    }

    /// Gives its place to the next, before the client hears that it ended and may submit another.
    pub(super) fn give_up_slot(&mut self) {
        self.slot = None;
    }

    pub(super) fn finish(mut self, reason: Finish) {
        self.give_up_slot();
        self.send_progress();
        self.flush();
        self.send(Output::Finished {
            reason,
            usage: self.usage,
        });
    }

    /// There is room: [`ROOM_FOR_STEP`] is kept for tokens and end. The client may be gone, which the next step sees.
    fn send(&self, output: Output) {
        let _ = self.outputs.try_send(output);
    }
}
