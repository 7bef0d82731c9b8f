//! Walks through grammars: tokens drawn at random from what the masks allow must always make what was asked for.

#![allow(
    clippy::needless_pass_by_value,
    reason = "helpers of tests take what the test has just made"
)]

mod calls;
mod custom;
mod hostile;
mod lazy;
mod measure;
mod numbers;
mod relaxed;
mod schemas;
mod support;
