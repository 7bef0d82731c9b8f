//! The forward pass of a Llama in plain f32 loops, token by token, straight from the papers: what every device is checked against. Slow on purpose, for
//! tests only. Weights are dequantised; nothing else is rounded below f32.

use crate::model::{
    Model,
    config::{LlamaConfig, RopeLayout, RopeScaling},
    quant,
    weights::Tensor,
};

/// Logits after each of `tokens`, `[tokens.len()][vocab]`, from an empty context.
pub fn logits(model: &Model, tokens: &[u32]) -> Vec<Vec<f32>> {
    let config = &model.config;
    let weights = &model.weights;
    let width = config.heads * config.head_dim;
    let group = config.heads / config.kv_heads;
    let embedding = Matrix::new(&weights.embedding);
    let mut residual: Vec<Vec<f32>> = tokens
        .iter()
        .map(|&token| embedding.row(token as usize).to_vec())
        .collect();
    for layer in &weights.layers {
        let norm = Matrix::new(&layer.attention_norm);
        let [q, k, v] = [&layer.q, &layer.k, &layer.v].map(Matrix::new);
        let output = Matrix::new(&layer.attention_output);
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for (position, x) in residual.iter_mut().enumerate() {
            let normed = rms_norm(x, &norm.values, config.norm_eps);
            let mut query = q.times(&normed);
            let mut key = k.times(&normed);
            rotate(config, &mut query, position);
            rotate(config, &mut key, position);
            keys.push(key);
            values.push(v.times(&normed));
            let mut attended = vec![0.0; width];
            for head in 0..config.heads {
                let own = head * config.head_dim..(head + 1) * config.head_dim;
                let shared = head / group * config.head_dim..(head / group + 1) * config.head_dim;
                let scores: Vec<f32> = keys
                    .iter()
                    .map(|key| {
                        dot(&query[own.clone()], &key[shared.clone()])
                            / (config.head_dim as f32).sqrt()
                    })
                    .collect();
                for (weight, value) in softmax(&scores).iter().zip(&values) {
                    for (out, v) in attended[own.clone()].iter_mut().zip(&value[shared.clone()]) {
                        *out += weight * v;
                    }
                }
            }
            add(x, &output.times(&attended));
        }
        let norm = Matrix::new(&layer.ffn_norm);
        let [gate, up, down] = [&layer.gate, &layer.up, &layer.down].map(Matrix::new);
        for x in &mut residual {
            let normed = rms_norm(x, &norm.values, config.norm_eps);
            let gated: Vec<f32> = gate
                .times(&normed)
                .iter()
                .zip(up.times(&normed))
                .map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up)
                .collect();
            add(x, &down.times(&gated));
        }
    }
    let norm = Matrix::new(&weights.final_norm);
    let output = Matrix::new(&weights.output);
    residual
        .iter()
        .map(|x| output.times(&rms_norm(x, &norm.values, config.norm_eps)))
        .collect()
}

/// `[rows, cols]`, dequantised.
struct Matrix {
    cols: usize,
    values: Vec<f32>,
}

impl Matrix {
    fn new(tensor: &Tensor) -> Matrix {
        let mut values = vec![0.0; tensor.rows * tensor.cols];
        quant::dequantize_row(tensor.format, tensor.bytes(), &mut values);
        Matrix {
            cols: tensor.cols,
            values,
        }
    }

    fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.cols..(row + 1) * self.cols]
    }

    fn times(&self, x: &[f32]) -> Vec<f32> {
        self.values
            .chunks_exact(self.cols)
            .map(|row| dot(row, x))
            .collect()
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(x: &mut [f32], y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

fn rms_norm(x: &[f32], weight: &[f32], eps: f32) -> Vec<f32> {
    let mean = dot(x, x) / x.len() as f32;
    let scale = 1.0 / (mean + eps).sqrt();
    x.iter().zip(weight).map(|(x, w)| x * scale * w).collect()
}

fn softmax(scores: &[f32]) -> Vec<f32> {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f32> = scores.iter().map(|score| (score - largest).exp()).collect();
    let sum: f32 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}

/// Turns pair `i` of each head by `position * base^(-2 i / dim)`, slowed down by the scaling.
fn rotate(config: &LlamaConfig, heads: &mut [f32], position: usize) {
    let rope = &config.rope;
    let half = rope.dim / 2;
    for head in heads.chunks_exact_mut(config.head_dim) {
        for i in 0..half {
            let frequency = rope.base.powf(-2.0 * i as f32 / rope.dim as f32);
            let frequency = match &rope.scaling {
                RopeScaling::None => frequency,
                RopeScaling::Linear { factor } => frequency / factor,
                RopeScaling::Factors(factors) => frequency / factors[i],
            };
            let (sin, cos) = (position as f32 * frequency).sin_cos();
            let (a, b) = match rope.layout {
                RopeLayout::Interleaved => (2 * i, 2 * i + 1),
                RopeLayout::Halves => (i, i + half),
            };
            let (x, y) = (head[a], head[b]);
            head[a] = x * cos - y * sin;
            head[b] = x * sin + y * cos;
        }
    }
}
