//! Walks through grammars: tokens drawn at random from what the masks allow must always make what was asked for.

mod calls;
mod custom;
mod hostile;
mod lazy;
mod measure;
mod schemas;
mod support;
