//! A model's weights, packed for the kernels.

use super::{
    CpuError,
    activation::Layout,
    pack::{self, HeadRows, Matrix, Source},
    rope,
    threads::Team,
};
use crate::model::{
    Model,
    config::{LlamaConfig, RopeLayout},
    quant,
    weights::Tensor,
};

/// Packed weights of a layer.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) attention_norm: Vec<f32>,
    /// Q, K, V.
    pub(crate) qkv: [Matrix; 3],
    pub(crate) attention_output: Matrix,
    pub(crate) ffn_norm: Vec<f32>,
    pub(crate) gate: Matrix,
    pub(crate) up: Matrix,
    pub(crate) down: Matrix,
}

#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) config: LlamaConfig,
    pub(crate) embedding: Matrix,
    pub(crate) layers: Vec<Layer>,
    pub(crate) final_norm: Vec<f32>,
    pub(crate) output: Matrix,
    pub(crate) frequencies: Vec<f32>,
    /// Encodings of the inputs of Q, K, V; of the attention output; of gate and up; of down; of the output matrix.
    pub(crate) encodings: Encodings,
}

#[derive(Debug)]
pub(crate) struct Encodings {
    pub(crate) qkv: Layout,
    pub(crate) attention_output: Layout,
    pub(crate) gate_up: Layout,
    pub(crate) down: Layout,
    pub(crate) output: Layout,
}

/// Every matrix that is packed, in the order in which [`network`] takes them up.
fn sources(model: &Model) -> Vec<Source<'_>> {
    let config = &model.config;
    let weights = &model.weights;
    let heads = (config.rope.layout == RopeLayout::Interleaved).then_some(HeadRows {
        head_dim: config.head_dim,
        rope_dim: config.rope.dim,
    });
    let plain = |tensor| Source {
        tensor,
        heads: None,
    };
    let turned = |tensor| Source { tensor, heads };
    let mut sources = Vec::new();
    for layer in &weights.layers {
        sources.extend([
            turned(&layer.q),
            turned(&layer.k),
            plain(&layer.v),
            plain(&layer.attention_output),
            plain(&layer.gate),
            plain(&layer.up),
            plain(&layer.down),
        ]);
    }
    sources.push(plain(&weights.output));
    if !config.tied_embeddings {
        sources.push(plain(&weights.embedding));
    }
    sources
}

/// Bytes that [`network`] will take.
pub(crate) fn bytes(model: &Model) -> u64 {
    let matrices: u64 = sources(model)
        .iter()
        .map(|Source { tensor, .. }| {
            pack::matrix_bytes(tensor.format, tensor.rows, tensor.cols) as u64
        })
        .sum();
    let norms = 2 * model.weights.layers.len() + 1;
    matrices + (norms * model.config.hidden * size_of::<f32>()) as u64
}

/// Packs all matrices and brings the norms to f32.
pub(crate) fn network(model: &Model, team: &mut Team) -> Result<Network, CpuError> {
    let config = &model.config;
    let weights = &model.weights;
    let sources = sources(model);
    for Source { tensor, .. } in &sources {
        let block = tensor.format.block_len();
        if tensor.cols % block != 0 {
            return Err(CpuError::Columns {
                tensor: tensor.name.clone(),
                cols: tensor.cols,
                format: tensor.format,
                block,
            });
        }
    }
    let matrices =
        pack::pack(team, &sources, Tensor::release).map_err(|source| CpuError::Memory {
            what: "the weights",
            source,
        })?;
    // One for each of the sources, in their order.
    let mut taken = 0;
    let mut next = || {
        taken += 1;
        matrices[taken - 1].clone()
    };
    let layers: Vec<Layer> = weights
        .layers
        .iter()
        .map(|layer| Layer {
            attention_norm: vector(&layer.attention_norm),
            qkv: [next(), next(), next()],
            attention_output: next(),
            ffn_norm: vector(&layer.ffn_norm),
            gate: next(),
            up: next(),
            down: next(),
        })
        .collect();
    let output = next();
    let embedding = if config.tied_embeddings {
        output.clone()
    } else {
        next()
    };
    let encodings = encodings(config, &layers, &output);
    Ok(Network {
        frequencies: rope::frequencies(&config.rope),
        config: config.clone(),
        embedding,
        layers,
        final_norm: vector(&weights.final_norm),
        output,
        encodings,
    })
}

fn encodings(config: &LlamaConfig, layers: &[Layer], output: &Matrix) -> Encodings {
    let of = |cols: usize, matrices: fn(&Layer) -> Vec<&Matrix>| {
        Layout::new(
            cols,
            layers.iter().flat_map(matrices).map(|matrix| matrix.format),
        )
    };
    Encodings {
        qkv: of(config.hidden, |layer| layer.qkv.iter().collect()),
        attention_output: of(config.heads * config.head_dim, |layer| {
            vec![&layer.attention_output]
        }),
        gate_up: of(config.hidden, |layer| vec![&layer.gate, &layer.up]),
        down: of(config.ffn, |layer| vec![&layer.down]),
        output: Layout::new(config.hidden, std::iter::once(output.format)),
    }
}

fn vector(tensor: &Tensor) -> Vec<f32> {
    let mut out = vec![0.0; tensor.cols];
    quant::dequantize_row(tensor.format, tensor.bytes(), &mut out);
    out
}
