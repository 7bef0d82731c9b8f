//! What a constraint allows is all that comes.

use std::sync::Arc;

use pretty_assertions::assert_eq;

use crate::{
    device::TokenMask,
    engine::{
        EngineOptions,
        constraint::{Constraint, ConstraintError, Next},
        request::{Finish, GenerateRequest},
        testing::*,
    },
};

fn constrained(places: Vec<Allow>) -> GenerateRequest {
    let mut request = request(prompt(1, 40), 100);
    request.constraint = Script::boxed(places);
    request
}

#[test]
fn every_token_is_one_the_grammar_allows_and_the_end_of_the_grammar_ends_the_text() {
    for mask_workers in [0, 1, 2] {
        let engine = Fake::new(100).start(EngineOptions {
            mask_workers,
            ..EngineOptions::default()
        });
        let places = vec![
            Allow::OneOf(vec![1, 2, 3]),
            Allow::OneOf(vec![40]),
            Allow::OneOf(vec![41]),
            Allow::Any,
            Allow::OneOf(vec![7, 9]),
            Allow::OneOf(vec![42]),
        ];
        let whole = read(engine.submit(constrained(places.clone())).unwrap());
        assert_eq!(whole.reason, Finish::Stop(None));
        let text = whole.text();
        assert_eq!(text.len(), 6);
        for (token, place) in text.iter().zip(&places) {
            assert!(
                matches!(place, Allow::Any)
                    || matches!(place, Allow::OneOf(t) if t.contains(token))
            );
        }
        // Three were forced: not drawn, so certain.
        assert_eq!((whole.usage.drafted, whole.usage.generated), (3, 6));
        assert_eq!(whole.tokens[1].logprob, 0.0);
        assert_eq!(engine.status().forced_tokens, 3);
    }
}

#[test]
fn forced_tokens_take_no_steps_of_their_own() {
    let engine = Fake::new(100).start(EngineOptions {
        mask_workers: 0,
        ..EngineOptions::default()
    });
    let mut places = vec![Allow::Any];
    places.extend((0..50).map(|t| Allow::OneOf(vec![t])));
    places.push(Allow::Any);
    let whole = read(engine.submit(constrained(places)).unwrap());
    assert_eq!(whole.usage.generated, 52);
    assert_eq!(whole.text()[1..51], (0..50).collect::<Vec<u32>>());
    // The prompt with the first token, and all the rest at once.
    assert_eq!(engine.status().steps, 2);
}

#[test]
fn a_forced_end_token_ends_the_text() {
    let engine = Fake::new(100).start(EngineOptions::default());
    let places = vec![
        Allow::Any,
        Allow::OneOf(vec![3]),
        Allow::OneOf(vec![END]),
        Allow::Any,
    ];
    let whole = read(engine.submit(constrained(places)).unwrap());
    assert_eq!(
        (whole.tokens.len(), whole.reason),
        (2, Finish::Stop(Some(END)))
    );
}

#[test]
fn max_tokens_cuts_forced_tokens_too() {
    let engine = Fake::new(100).start(EngineOptions::default());
    let mut request = constrained((0..50).map(|t| Allow::OneOf(vec![t])).collect());
    request.max_tokens = 20;
    let whole = read(engine.submit(request).unwrap());
    assert_eq!((whole.tokens.len(), whole.reason), (20, Finish::Length));
}

/// Fails in the way its name says at the third place.
#[derive(Clone, Copy, Debug)]
enum Broken {
    Next,
    Accept,
    Panic,
    EmptyMask,
}

#[derive(Debug)]
struct BreaksAtThree(Broken, usize);

impl Constraint for BreaksAtThree {
    fn next(&mut self) -> Result<Next, ConstraintError> {
        match self.0 {
            Broken::Next if self.1 == 3 => Err(ConstraintError("too large".to_owned())),
            Broken::Panic if self.1 == 3 => panic!("a bug in the grammar"),
            Broken::EmptyMask if self.1 == 3 => Ok(Next::Mask(TokenMask(Arc::from([0; 2])))),
            _ => Ok(Next::Free),
        }
    }
    fn accept(&mut self, _: u32) -> Result<(), ConstraintError> {
        self.1 += 1;
        match self.0 {
            Broken::Accept if self.1 == 4 => Err(ConstraintError("not this one".to_owned())),
            _ => Ok(()),
        }
    }
    fn would_accept(&mut self, _: &[u32]) -> usize {
        0
    }
    fn masks_along(&mut self, _: &[u32]) -> Result<Vec<Option<TokenMask>>, ConstraintError> {
        Ok(Vec::new())
    }
}

#[test]
fn a_grammar_that_cannot_go_on_fails_its_own_generation_only() {
    for mask_workers in [0, 2] {
        let engine = Fake::new(100).start(EngineOptions {
            mask_workers,
            ..EngineOptions::default()
        });
        let other = engine.submit(request(prompt(9, 20), 60)).unwrap();
        for (broken, why) in [
            (Broken::Next, "too large"),
            (Broken::Accept, "not this one"),
            (Broken::Panic, "it panicked"),
            (Broken::EmptyMask, "it allows no token here"),
        ] {
            let mut request = request(prompt(1, 20), 50);
            request.constraint = Some(Box::new(BreaksAtThree(broken, 0)));
            let whole = read(engine.submit(request).unwrap());
            let why = ConstraintError(why.to_owned());
            assert_eq!(whole.reason, Finish::Constraint(why));
            assert_eq!(whole.tokens.len(), 3);
        }
        assert_eq!(read(other).usage.generated, 60);
        assert!(engine.status().healthy);
    }
}
