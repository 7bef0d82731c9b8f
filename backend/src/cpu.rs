//! The CPU device: the forward pass on this machine's own cores, from weights that stay quantised, with keys and values in pages.
//!
//! ```text
//! network     packed weights              step        a batch, checked and laid out      buffers     working memory
//! forward     the order of operations     product     matrices shared among the team     threads     the team
//! pack        tiles of sixteen rows       blocks      formats in registers               matmul      tile × tokens
//! activation  int8, bf16, f32 rows        rope        positions                          attention   queries × pages
//! kv          pages as tiles              few         matrices times few tokens          simd        sixteen lanes on four instruction sets
//! ```
//!
//! Invariant: the logits of a token are the same bits whatever batch, chunk or draft it was computed in and however many threads there are. Weights,
//! pages and working memory are allocated by [`Cpu::new`], a step adds its own lists of tokens and pieces; pages that are never used are not resident.

mod activation;
mod attention;
mod blocks;
mod buffers;
mod few;
mod forward;
mod kv;
mod matmul;
mod network;
mod pack;
mod product;
mod rope;
mod simd;
mod step;
mod threads;

pub use simd::Isa;

use std::sync::Arc;

use buffers::Buffers;
use few::Few;
use forward::Forward;
use kv::{PageLayout, Pool};
use network::Network;
use simd::Level;
use step::Step;
use threads::Team;

use crate::{
    device::{Caps, Device, DeviceError, PageId, SampleRow, Span},
    model::{
        Model,
        config::LlamaConfig,
        plan::{KvFormat, MemoryPlan, PlanOptions},
        weights::Format,
    },
    sample::{self, Sampled},
};

/// How the device is made.
#[derive(Clone, Debug)]
pub struct CpuOptions {
    /// Threads of the team, the engine's own among them. 0: one for each hardware thread this process may use.
    pub threads: usize,
    /// Pages of the KV pool.
    pub pages: usize,
    pub kv: KvFormat,
    /// Most tokens of a step.
    pub max_batch_tokens: usize,
    /// Most rows of logits a step leaves.
    pub max_rows: usize,
    /// Only this instruction set, for tests. `None`: the fastest that the processor has.
    pub force: Option<Isa>,
}

impl Default for CpuOptions {
    fn default() -> Self {
        CpuOptions {
            threads: 0,
            pages: 64,
            kv: KvFormat::default(),
            max_batch_tokens: 512,
            max_rows: 64,
            force: None,
        }
    }
}

/// Why the device could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CpuError {
    #[error(
        "keys and values as q8_0 need heads of a multiple of 32 numbers, at most {most}; this model's have {head_dim}"
    )]
    Kv { head_dim: usize, most: usize },
    #[error("this processor has no {isa}; it has {available}")]
    Isa { isa: Isa, available: String },
    #[error("{field} is 0; at least 1 is needed")]
    Zero { field: &'static str },
    #[error("{tensor} has {cols} columns; {format:?} needs a multiple of {block}")]
    Columns {
        tensor: String,
        cols: usize,
        format: Format,
        block: usize,
    },
    #[error("no memory for {what}: {source}")]
    Memory {
        what: &'static str,
        source: std::io::Error,
    },
    #[error("cannot start {threads} threads: {source}")]
    Threads {
        threads: usize,
        source: std::io::Error,
    },
}

/// Largest heads that Q8_0 can hold.
const MOST_EIGHT: usize = 32 * kv::MOST_BLOCKS;

/// See the module.
#[derive(Debug)]
pub struct Cpu {
    caps: Caps,
    level: Level,
    network: Arc<Network>,
    team: Team,
    few: Few,
    pool: Pool,
    buffers: Buffers,
    sampling: sample::Scratch,
    /// Rows of logits of the last forward.
    rows: usize,
}

impl Cpu {
    /// How keys and values are kept unless something else is asked for: as Q8_0, which attention reads and multiplies fastest and which loses as little as
    /// F16 beside what activations of 8 bits cost; as F16 where heads are not made of whole blocks.
    pub fn usual_kv(config: &LlamaConfig) -> KvFormat {
        if Cpu::has_blocks(config) {
            KvFormat::Q8_0
        } else {
            KvFormat::F16
        }
    }

    fn has_blocks(config: &LlamaConfig) -> bool {
        config.head_dim.is_multiple_of(32) && config.head_dim <= MOST_EIGHT
    }

    /// The memory that [`Cpu::new`] will take, with a pool of as many pages as the plan has.
    pub fn plan(model: &Model, options: PlanOptions) -> MemoryPlan {
        let config = &model.config;
        let page = PageLayout::new(config, options.kv).page_bytes();
        MemoryPlan::new(config, network::bytes(model), page as u64, options)
    }

    /// Packs the weights of `model` and allocates everything a step needs.
    pub fn new(model: &Model, options: &CpuOptions) -> Result<Cpu, CpuError> {
        let config = &model.config;
        if options.kv == KvFormat::Q8_0 && !Cpu::has_blocks(config) {
            return Err(CpuError::Kv {
                head_dim: config.head_dim,
                most: MOST_EIGHT,
            });
        }
        for (field, value) in [
            ("pages", options.pages),
            ("max_batch_tokens", options.max_batch_tokens),
            ("max_rows", options.max_rows),
        ] {
            if value == 0 {
                return Err(CpuError::Zero { field });
            }
        }
        let available = Isa::available();
        let isa = options.force.unwrap_or(available[0]);
        let level = Level::new(isa).ok_or_else(|| CpuError::Isa {
            isa,
            available: available
                .iter()
                .map(Isa::to_string)
                .collect::<Vec<_>>()
                .join(", "),
        })?;
        let threads = if options.threads > 0 {
            options.threads
        } else {
            std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
        };
        let mut team =
            Team::new(threads).map_err(|source| CpuError::Threads { threads, source })?;
        let network = Arc::new(network::network(model, &mut team)?);
        let layout = PageLayout::new(config, options.kv);
        let pool = Pool::new(layout, options.pages).map_err(|source| CpuError::Memory {
            what: "the KV pool",
            source,
        })?;
        let buffers = Buffers::new(
            &network,
            &layout,
            options.max_batch_tokens,
            options.max_rows,
            team.threads(),
        );
        Ok(Cpu {
            caps: Caps {
                name: format!("cpu ({isa}, {} threads)", team.threads()),
                pages: options.pages,
                page_bytes: layout.page_bytes(),
                page_layout: layout.name(),
                max_batch_tokens: options.max_batch_tokens,
                max_rows: options.max_rows,
                vocab: config.vocab,
            },
            level,
            few: Few::new(&network, level, team.threads()),
            network,
            team,
            pool,
            buffers,
            sampling: sample::Scratch::default(),
            rows: 0,
        })
    }

    fn fail(&self, message: String) -> DeviceError {
        DeviceError {
            device: self.caps.name.clone(),
            message,
        }
    }

    fn logits_row(&self, row: usize) -> Result<&[f32], DeviceError> {
        if row >= self.rows {
            return Err(self.fail(format!(
                "row {row}; the last step left {} rows of logits, from 0",
                self.rows
            )));
        }
        let vocab = self.caps.vocab;
        Ok(&self.buffers.logits[row * vocab..(row + 1) * vocab])
    }

    fn check_page(&self, page: PageId) -> Result<usize, DeviceError> {
        let index = page.0 as usize;
        if index < self.caps.pages {
            Ok(index)
        } else {
            Err(self.fail(format!(
                "page {index}; the pool has {}, from 0",
                self.caps.pages
            )))
        }
    }

    fn check_bytes(&self, bytes: usize) -> Result<(), DeviceError> {
        if bytes == self.caps.page_bytes {
            Ok(())
        } else {
            Err(self.fail(format!(
                "{bytes} bytes for a page of {}",
                self.caps.page_bytes
            )))
        }
    }
}

impl Device for Cpu {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn forward(&mut self, spans: &[Span<'_>]) -> Result<(), DeviceError> {
        let config = &self.network.config;
        let group = config.heads / config.kv_heads;
        self.rows = 0;
        let step = Step::new(
            &self.caps,
            &self.pool,
            group,
            self.team.threads(),
            buffers::SPLIT_STATES,
            spans,
        )?;
        Forward {
            level: self.level,
            network: &self.network,
            team: &mut self.team,
            few: &mut self.few,
            pool: &mut self.pool,
            buffers: &mut self.buffers,
            step: &step,
            spans,
        }
        .run();
        self.rows = step.rows.len();
        Ok(())
    }

    fn sample(
        &mut self,
        rows: &[SampleRow<'_>],
        out: &mut Vec<Sampled>,
    ) -> Result<(), DeviceError> {
        out.clear();
        for row in rows {
            self.logits_row(row.row)?;
            let logits = &mut self.buffers.logits[row.row * self.caps.vocab..][..self.caps.vocab];
            let drawn = sample::pick(logits, row, &mut self.sampling);
            out.push(drawn.map_err(|error| self.fail(error.to_string()))?);
        }
        Ok(())
    }

    fn logits(&mut self, row: usize, out: &mut [f32]) -> Result<(), DeviceError> {
        let logits = self.logits_row(row)?;
        if out.len() != logits.len() {
            return Err(self.fail(format!(
                "{} numbers for a row of {}",
                out.len(),
                logits.len()
            )));
        }
        out.copy_from_slice(logits);
        Ok(())
    }

    fn copy_page(&mut self, from: PageId, to: PageId, tokens: usize) -> Result<(), DeviceError> {
        let (from, to) = (self.check_page(from)?, self.check_page(to)?);
        if from == to || tokens > crate::device::PAGE_TOKENS {
            return Err(self.fail(format!(
                "copy of {tokens} tokens from page {from} to page {to}"
            )));
        }
        let layout = self.pool.layout;
        let (from, to) = self.pool.pair(from, to);
        layout.copy(from, to, tokens);
        Ok(())
    }

    fn read_page(&mut self, page: PageId, out: &mut [u8]) -> Result<(), DeviceError> {
        let page = self.check_page(page)?;
        self.check_bytes(out.len())?;
        out.copy_from_slice(self.pool.page(page));
        Ok(())
    }

    fn write_page(&mut self, page: PageId, bytes: &[u8]) -> Result<(), DeviceError> {
        let page = self.check_page(page)?;
        self.check_bytes(bytes.len())?;
        self.pool.page_mut(page).copy_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
