#![allow(
    clippy::needless_pass_by_value,
    reason = "helpers of tests take what the test has just made"
)]

mod batch;
mod cancel;
mod drafts;
mod fairness;
mod grammar;
mod limits;
mod warm;
