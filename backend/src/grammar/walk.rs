//! [`Walk`]: the path of one answer through its grammar, token by token; what the engine sees of a grammar.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use llguidance::Matcher;
use toktrie::{SimpleVob, TokEnv};

use super::{
    digits::Digits,
    lazy::{Watch, WatchFor},
    relax::first_line,
    vocabulary::Vocabulary,
};
use crate::{
    device::TokenMask,
    engine::constraint::{Constraint, ConstraintError, Next},
};

/// What a request's answer may be, compiled. Shared by all answers to it and to requests like it.
pub(crate) struct Plan {
    pub(crate) vocabulary: Arc<Vocabulary>,
    pub(crate) env: TokEnv,
    /// Tokens that begin with a digit.
    pub(crate) digits: Arc<[u32]>,
    /// Free text comes first, with an eye on it.
    pub(crate) watch: Option<WatchFor>,
    /// At the start of the whole answer, or of what follows the start of a call. None where there is only text and no call may come.
    pub(crate) start: Option<Mutex<Matcher>>,
}

impl Plan {
    fn start(&self) -> Result<Matcher, ConstraintError> {
        let start = self.start.as_ref();
        let start = start.ok_or_else(|| failed("a call began where none is allowed"))?;
        // Nothing is ever changed under the lock, so a panic under it leaves nothing half done.
        let start = start.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(start.deep_clone())
    }
}

/// An answer so far.
#[derive(Clone)]
pub(crate) struct Walk {
    plan: Arc<Plan>,
    state: State,
}

#[derive(Clone)]
enum State {
    Text(Watch),
    Grammar(Box<Matcher>, Digits),
    Ended,
}

impl Walk {
    pub(crate) fn new(plan: Arc<Plan>) -> Result<Self, ConstraintError> {
        let state = match &plan.watch {
            Some(_) => State::Text(Watch::START),
            None => State::Grammar(Box::new(plan.start()?), Digits::default()),
        };
        Ok(Walk { plan, state })
    }

    /// One that goes its own way.
    fn copy(&self) -> Walk {
        let mut copy = self.clone();
        if let State::Grammar(matcher, _) = &mut copy.state {
            **matcher = matcher.deep_clone();
        }
        copy
    }

    fn is_end(&self, token: u32) -> bool {
        self.plan.vocabulary.end_tokens.contains(&token)
    }

    /// Free text goes on, ends, or turns into a call.
    fn accept_text(
        &self,
        watch: &WatchFor,
        mut at: Watch,
        token: u32,
    ) -> Result<State, ConstraintError> {
        if self.is_end(token) {
            return Ok(State::Ended);
        }
        match watch.call_token() {
            Some((call, true)) if call == token => {
                let start = Box::new(self.plan.start()?);
                return Ok(State::Grammar(start, Digits::default()));
            }
            Some((call, false)) if call == token => {
                return Err(failed("a call began where none is allowed"));
            }
            _ => {}
        }
        let vocabulary = &self.plan.vocabulary;
        let Some(bytes) = vocabulary.bytes.get(token as usize) else {
            return Err(failed(&format!("token {token} is outside the vocabulary")));
        };
        if vocabulary.control[token as usize] {
            return Ok(State::Text(at));
        }
        let Some((begun, rest)) = watch.read(&mut at, bytes) else {
            return Ok(State::Text(at));
        };
        if !begun.allowed {
            return Err(failed("a call began that is not allowed"));
        }
        let mut matcher = self.plan.start()?;
        // However the model has laid it out, the grammar is told the one way it knows; from there on both are at the same place.
        let mut text = Vec::new();
        if let Some(tool) = begun.tool {
            text.extend_from_slice(b"{\"name\": \"");
            text.extend_from_slice(watch.name(tool));
            text.push(b'"');
        }
        text.extend_from_slice(rest);
        if !text.is_empty() {
            let tokens = self.plan.env.tok_trie().greedy_tokenize(&text);
            matcher.consume_tokens(&tokens).map_err(error)?;
        }
        let mut digits = Digits::default();
        digits.read(&text);
        Ok(State::Grammar(Box::new(matcher), digits))
    }

    /// What free text may go on with; none: with anything.
    fn text_mask(&self, watch: &WatchFor, at: &Watch) -> Option<TokenMask> {
        let forbidden = watch.forbidden(at, &self.plan.vocabulary);
        if forbidden.is_empty() {
            return None;
        }
        let size = self.plan.vocabulary.bytes.len();
        let mut words = vec![u32::MAX; size.div_ceil(32)];
        for token in forbidden {
            words[token as usize / 32] &= !(1 << (token % 32));
        }
        clear_beyond(&mut words, size);
        Some(TokenMask(words.into()))
    }

    fn mask(&self, set: &SimpleVob, digits: Digits) -> TokenMask {
        let size = self.plan.vocabulary.bytes.len();
        let mut words = set.as_slice().to_vec();
        words.resize(size.div_ceil(32), 0);
        clear_beyond(&mut words, size);
        let mut ends = words.clone();
        for token in &*self.plan.digits {
            if digits.are_too_many(&self.plan.vocabulary.bytes[*token as usize]) {
                ends[*token as usize / 32] &= !(1 << (token % 32));
            }
        }
        // Where the schema wants more digits it gets them.
        if ends.iter().any(|word| *word != 0) {
            words = ends;
        }
        TokenMask(words.into())
    }

    /// The mask behind the end.
    fn end_mask(&self) -> TokenMask {
        let ends = self.plan.env.tok_trie().eos_token_set();
        self.mask(&ends, Digits::default())
    }

    /// The mask where the walk is; none: any token.
    fn current_mask(&mut self) -> Result<Option<TokenMask>, ConstraintError> {
        if let (State::Text(at), Some(watch)) = (&self.state, &self.plan.watch) {
            return Ok(self.text_mask(watch, at));
        }
        let (set, digits) = match &mut self.state {
            State::Grammar(matcher, digits) => {
                (matcher.compute_mask_or_eos().map_err(error)?, *digits)
            }
            State::Text(_) => return Ok(None),
            State::Ended => return Ok(Some(self.end_mask())),
        };
        Ok(Some(self.mask(&set, digits)))
    }
}

impl Constraint for Walk {
    fn next(&mut self) -> Result<Next, ConstraintError> {
        match &mut self.state {
            State::Ended => return Ok(Next::End),
            State::Grammar(matcher, _) => {
                if matcher.is_stopped() {
                    return match matcher.get_error() {
                        None => Ok(Next::End),
                        Some(problem) => Err(failed(&problem)),
                    };
                }
                let forced = matcher.compute_ff_tokens();
                if !forced.is_empty() {
                    return Ok(Next::Forced(forced));
                }
            }
            State::Text(_) => {}
        }
        Ok(self.current_mask()?.map_or(Next::Free, Next::Mask))
    }

    fn accept(&mut self, token: u32) -> Result<(), ConstraintError> {
        if let (State::Text(at), Some(watch)) = (&self.state, &self.plan.watch) {
            self.state = self.accept_text(watch, *at, token)?;
            return Ok(());
        }
        let is_end = self.is_end(token);
        match &mut self.state {
            State::Grammar(matcher, _) if is_end && matcher.is_stopped() => {
                self.state = State::Ended;
                Ok(())
            }
            State::Grammar(matcher, digits) => {
                matcher.consume_token(token).map_err(error)?;
                digits.read(self.plan.vocabulary.text(token));
                Ok(())
            }
            State::Ended if is_end => Ok(()),
            State::Ended | State::Text(_) => Err(failed("a token came after the end")),
        }
    }

    fn would_accept(&mut self, draft: &[u32]) -> usize {
        if let State::Grammar(matcher, digits) = &mut self.state {
            let mut digits = *digits;
            let is_one_too_many = |token: &u32| {
                let text = self.plan.vocabulary.text(*token);
                let is_one = digits.are_too_many(text);
                digits.read(text);
                is_one
            };
            if !draft.iter().any(is_one_too_many) {
                return matcher.validate_tokens(draft).unwrap_or(0);
            }
        }
        let mut walk = self.copy();
        let taken = draft.iter().take_while(|token| {
            let allowed = match walk.current_mask() {
                Ok(mask) => mask.is_none_or(|mask| mask.allows(**token)),
                Err(_) => false,
            };
            allowed && walk.accept(**token).is_ok()
        });
        taken.count()
    }

    fn masks_along(&mut self, draft: &[u32]) -> Result<Vec<Option<TokenMask>>, ConstraintError> {
        let mut masks = Vec::with_capacity(draft.len());
        if let State::Grammar(_, before) = self.state {
            // The end is not taken, since there is no way back from it. Behind it comes nothing else.
            let end = draft.iter().position(|token| self.is_end(*token));
            let (inside, behind) = draft.split_at(end.unwrap_or(draft.len()));
            for token in inside {
                self.accept(*token)?;
                masks.push(self.current_mask()?);
            }
            masks.extend(behind.iter().map(|_| Some(self.end_mask())));
            if let State::Grammar(matcher, digits) = &mut self.state {
                matcher.rollback(inside.len()).map_err(error)?;
                *digits = before;
            }
            return Ok(masks);
        }
        let mut walk = self.clone();
        for token in draft {
            walk.accept(*token)?;
            masks.push(walk.current_mask()?);
        }
        Ok(masks)
    }
}

impl fmt::Debug for Walk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state: &dyn fmt::Debug = match &self.state {
            State::Text(at) => at,
            State::Grammar(..) => &"in the grammar",
            State::Ended => &"ended",
        };
        formatter.debug_tuple("Walk").field(state).finish()
    }
}

/// Bits behind the last token.
fn clear_beyond(words: &mut Vec<u32>, size: usize) {
    words.truncate(size.div_ceil(32));
    if let (Some(last), rest @ 1..) = (words.last_mut(), size % 32) {
        *last &= (1 << rest) - 1;
    }
}

fn error(error: impl fmt::Display) -> ConstraintError {
    failed(&error.to_string())
}

fn failed(problem: &str) -> ConstraintError {
    ConstraintError(first_line(problem))
}
