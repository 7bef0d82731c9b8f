//! What a grammar tells the engine about a sequence's next token. The engine knows no grammar: `grammar` implements this.

use std::fmt::Debug;

use crate::device::TokenMask;

/// The state of a grammar after the tokens generated so far. Moves to a worker thread while the forward pass runs, hence `Send`.
pub trait Constraint: Debug + Send {
    /// What may come next. May take milliseconds: called beside the forward pass.
    fn next(&mut self) -> Result<Next, ConstraintError>;

    /// Takes a token of the output, drawn or forced. End tokens are taken too.
    fn accept(&mut self, token: u32) -> Result<(), ConstraintError>;

    /// How many tokens of `draft` the grammar would take one after the other, without taking them.
    fn would_accept(&mut self, draft: &[u32]) -> usize;

    /// Masks for the positions after each of the first `draft.len()` tokens of a draft that [`Constraint::would_accept`] took: entry `i` is for the
    /// token after `draft[..=i]`. State is unchanged afterwards.
    fn masks_along(&mut self, draft: &[u32]) -> Result<Vec<Option<TokenMask>>, ConstraintError>;
}

/// What may come next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Any token: no grammar is active here.
    Free,
    /// One of these.
    Mask(TokenMask),
    /// Exactly these, one after the other: no need to draw. Never empty.
    Forced(Vec<u32>),
    /// Nothing: the output is complete and the sequence ends here.
    End,
}

/// The grammar cannot go on: a limit was reached, or a token came that it does not allow. The generation fails with this message.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("grammar: {0}")]
pub struct ConstraintError(pub String);
