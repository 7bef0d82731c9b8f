//! A Llama model file, opened: configuration, weights as they lie in the file, and the raw parts that tokenizer and chat template are made of.

pub mod config;
pub mod file;
pub mod weights;
