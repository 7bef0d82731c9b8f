//! From named tensors to [`Weights`]: every tensor a Llama of this configuration has, in the shape it must have, and no tensor besides.

use std::{collections::HashMap, sync::Arc};

use super::{
    config::LlamaConfig,
    error::Fault,
    file::Mapped,
    names::{self, Name, Naming},
    weights::{Format, Layer, Tensor, Weights},
};

/// The tensors of all files, by name.
#[derive(Debug)]
pub(super) struct Tensors {
    naming: Naming,
    found: HashMap<String, Found>,
}

/// A tensor as its file's table has it: it lies in the file, and `dims` (slowest first) times `format` is its range.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) format: Format,
    pub(super) dims: Vec<usize>,
    pub(super) file: Arc<Mapped>,
    pub(super) range: std::ops::Range<usize>,
}

impl Tensors {
    pub(super) fn new(naming: Naming) -> Tensors {
        Tensors {
            naming,
            found: HashMap::new(),
        }
    }

    pub(super) fn insert(&mut self, name: &str, found: Found) -> Result<(), Fault> {
        match self.found.insert(name.to_owned(), found) {
            None => Ok(()),
            Some(_) => Err(Fault::new(name, "this tensor twice", "every tensor once")),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.found.len()
    }

    pub(super) fn has(&self, name: Name) -> bool {
        self.found.contains_key(&self.naming.global(name))
    }

    /// Forgets tensors that change nothing.
    pub(super) fn ignore(&mut self, ignored: impl Fn(&str) -> bool) {
        self.found.retain(|name, _| !ignored(name));
    }

    /// Takes a vector of `cols` numbers out, if there is one of this name.
    pub(super) fn take_vector(&mut self, name: &str, cols: usize) -> Result<Option<Tensor>, Fault> {
        if !self.found.contains_key(name) {
            return Ok(None);
        }
        self.vector(name.to_owned(), cols).map(Some)
    }

    pub(super) fn bind(mut self, config: &LlamaConfig) -> Result<Weights, Fault> {
        let (d, ffn) = (config.hidden, config.ffn);
        let (q, kv) = (
            config.heads * config.head_dim,
            config.kv_heads * config.head_dim,
        );
        let naming = self.naming;
        let embedding = self.matrix(naming.global(names::EMBEDDING), config.vocab, d)?;
        let final_norm = self.vector(naming.global(names::FINAL_NORM), d)?;
        let output = if config.tied_embeddings {
            embedding.clone()
        } else {
            self.matrix(naming.global(names::OUTPUT), config.vocab, d)?
        };
        let mut layers = Vec::new();
        for layer in 0..config.layers {
            let name = |name| naming.layer(layer, name);
            layers.push(Layer {
                attention_norm: self.vector(name(names::ATTENTION_NORM), d)?,
                q: self.matrix(name(names::Q), q, d)?,
                k: self.matrix(name(names::K), kv, d)?,
                v: self.matrix(name(names::V), kv, d)?,
                attention_output: self.matrix(name(names::ATTENTION_OUTPUT), d, q)?,
                ffn_norm: self.vector(name(names::FFN_NORM), d)?,
                gate: self.matrix(name(names::GATE), ffn, d)?,
                up: self.matrix(name(names::UP), ffn, d)?,
                down: self.matrix(name(names::DOWN), d, ffn)?,
            });
        }
        self.nothing_left()?;
        Ok(Weights {
            embedding,
            layers,
            final_norm,
            output,
        })
    }

    fn matrix(&mut self, name: String, rows: usize, cols: usize) -> Result<Tensor, Fault> {
        let found = self.take(&name, &[rows, cols])?;
        Ok(Tensor::new(
            name,
            found.format,
            rows,
            cols,
            found.file,
            found.range,
        ))
    }

    fn vector(&mut self, name: String, cols: usize) -> Result<Tensor, Fault> {
        let found = self.take(&name, &[cols])?;
        if ![Format::F32, Format::F16, Format::Bf16].contains(&found.format) {
            return Err(Fault::new(
                format_args!("type of {name}"),
                found.format,
                "F32, F16 and BF16 for vectors",
            ));
        }
        Ok(Tensor::new(
            name,
            found.format,
            1,
            cols,
            found.file,
            found.range,
        ))
    }

    fn take(&mut self, name: &str, dims: &[usize]) -> Result<Found, Fault> {
        let Some(found) = self.found.remove(name) else {
            return Err(Fault::new(
                name,
                "no such tensor",
                format_args!("a tensor of shape {dims:?}"),
            ));
        };
        if found.dims == dims {
            return Ok(found);
        }
        Err(Fault::new(
            format_args!("shape of {name}"),
            format_args!("{:?}", found.dims),
            format_args!("{dims:?}, by the configuration (rows, columns)"),
        ))
    }

    /// A tensor nobody asked for would change what the model says: leaving it out is not an option.
    fn nothing_left(&self) -> Result<(), Fault> {
        let Some(name) = self.found.keys().min() else {
            return Ok(());
        };
        let what = if name.ends_with(".bias") {
            "a bias"
        } else if ["_exps", "_shexp", "gate_inp", "experts"]
            .iter()
            .any(|part| name.contains(part))
        {
            "a mixture of experts"
        } else {
            "a tensor that no plain Llama has"
        };
        Err(Fault::new(
            name,
            what,
            "the tensors of dense Llama models without biases",
        ))
    }
}
