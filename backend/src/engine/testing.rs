//! A device whose next token is a hash of everything the page table leads to, so that a wrong table, a stale page or a wrong position changes the text;
//! with gates at which a test stops the engine between two steps, and a clock that only the device moves.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
    mpsc::{Receiver, SyncSender, sync_channel},
};

use super::{
    Engine, EngineOptions, Generation,
    constraint::{Constraint, ConstraintError, Next},
    request::{Finish, GenerateRequest, Output, Usage},
    shared::Clock,
};
use crate::{
    device::{Caps, Device, DeviceError, PAGE_TOKENS, PageId, SampleRow, Span, TokenMask},
    sample::{self, Sampled, SamplingParams, Scratch},
};

pub(crate) const VOCAB: usize = 64;
/// Comes when the hash says so.
pub(crate) const END: u32 = 63;

/// What one token left in the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Slot {
    token: u32,
    /// Hash of all tokens up to this one, as read from the cache when it was written.
    chain: u64,
}

const SLOT_BYTES: usize = 12;

/// A span as the device saw it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) tokens: Vec<u32>,
    pub(crate) past: usize,
    pub(crate) pages: Vec<PageId>,
    pub(crate) rows: usize,
}

/// The test's side of the gate.
#[derive(Debug)]
pub(crate) struct Gate {
    arrivals: Receiver<Vec<Seen>>,
    open: SyncSender<()>,
}

impl Gate {
    /// Waits for the next forward, and holds it. All before it has been sent, and the status is of that moment.
    pub(crate) fn arrive(&self) -> Vec<Seen> {
        self.arrivals.recv().unwrap()
    }

    pub(crate) fn open(&self) {
        self.open.send(()).unwrap();
    }

    /// Lets a forward pass if one is there or comes soon.
    pub(crate) fn try_pass(&self) -> Option<Vec<Seen>> {
        let soon = std::time::Duration::from_millis(1);
        let seen = self.arrivals.recv_timeout(soon).ok()?;
        self.open();
        Some(seen)
    }

    pub(crate) fn pass(&self) -> Vec<Seen> {
        let seen = self.arrive();
        self.open();
        seen
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Breakdown {
    #[default]
    Never,
    Error(u64),
    Panic(u64),
    NotANumber(u64),
}

/// Nanoseconds of a step: `start + each · tokens + pair · Σ tokens · past`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Speed {
    pub(crate) start: u64,
    pub(crate) each: u64,
    pub(crate) pair: u64,
}

#[derive(Debug)]
pub(crate) struct Fake {
    caps: Caps,
    slots: Vec<[Slot; PAGE_TOKENS]>,
    /// How many of the last tokens decide the next one; few make text that repeats.
    memory: usize,
    /// One hash in so many ends the text; 0: none.
    end_every: u64,
    speed: Speed,
    clock: Arc<AtomicU64>,
    gate: Option<(SyncSender<Vec<Seen>>, Receiver<()>)>,
    breakdown: Breakdown,
    steps: u64,
    rows: Vec<Vec<f32>>,
    scratch: Scratch,
}

impl Fake {
    pub(crate) fn new(pages: usize) -> Fake {
        Fake {
            caps: Caps {
                name: "fake".to_owned(),
                pages,
                page_bytes: PAGE_TOKENS * SLOT_BYTES,
                page_layout: "fake-1".to_owned(),
                max_batch_tokens: 512,
                max_rows: 256,
                vocab: VOCAB,
            },
            slots: vec![[Slot::default(); PAGE_TOKENS]; pages],
            memory: usize::MAX,
            end_every: 0,
            speed: Speed::default(),
            clock: Arc::default(),
            gate: None,
            breakdown: Breakdown::Never,
            steps: 0,
            rows: Vec::new(),
            scratch: Scratch::default(),
        }
    }

    pub(crate) fn memory(mut self, tokens: usize) -> Fake {
        self.memory = tokens;
        self
    }

    pub(crate) fn end_every(mut self, hashes: u64) -> Fake {
        self.end_every = hashes;
        self
    }

    pub(crate) fn speed(mut self, speed: Speed) -> Fake {
        self.speed = speed;
        self
    }

    pub(crate) fn breakdown(mut self, breakdown: Breakdown) -> Fake {
        self.breakdown = breakdown;
        self
    }

    pub(crate) fn batch_tokens(mut self, tokens: usize) -> Fake {
        self.caps.max_batch_tokens = tokens;
        self
    }

    pub(crate) fn gate(mut self) -> (Fake, Gate) {
        let (arrive, arrivals) = sync_channel(0);
        let (open, opened) = sync_channel(1);
        self.gate = Some((arrive, opened));
        (self, Gate { arrivals, open })
    }

    /// The engine's clock, which only this device moves.
    pub(crate) fn clock(&self) -> Arc<AtomicU64> {
        self.clock.clone()
    }

    pub(crate) fn start(self, options: EngineOptions) -> Engine {
        let clock = Clock::Manual(self.clock());
        Engine::start_with_clock(Box::new(self), options, clock)
    }

    fn slot(&self, pages: &[PageId], position: usize) -> Slot {
        self.slots[pages[position / PAGE_TOKENS].0 as usize][position % PAGE_TOKENS]
    }

    /// Reads the whole past through the page table, as attention would.
    fn logits_after(&self, pages: &[PageId], position: usize) -> Vec<f32> {
        let mut chain = 0;
        let mut hash = 0;
        for at in 0..=position {
            let slot = self.slot(pages, at);
            chain = mix(chain, slot.token, at);
            if position - at < self.memory {
                hash = mix(hash, slot.token, 0);
            }
            if slot.chain != chain {
                // A value that was computed from another past.
                hash = mix(hash, slot.token, 1 << 40);
            }
        }
        let mut logits: Vec<f32> = (0..VOCAB as u32)
            .map(|token| (mix(hash, token, 1) >> 40) as f32 / (1u64 << 21) as f32 - 4.0)
            .collect();
        let ends = self.end_every > 0 && hash.is_multiple_of(self.end_every);
        logits[END as usize] = if ends { 20.0 } else { -20.0 };
        logits
    }

    fn error(&self, message: String) -> DeviceError {
        DeviceError {
            device: self.caps.name.clone(),
            message,
        }
    }
}

fn mix(state: u64, token: u32, position: usize) -> u64 {
    let mut x = state ^ (u64::from(token) << 32) ^ position as u64 ^ 0x9E37_79B9_7F4A_7C15;
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

impl Device for Fake {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn forward(&mut self, spans: &[Span<'_>]) -> Result<(), DeviceError> {
        let seen: Vec<Seen> = spans
            .iter()
            .map(|span| Seen {
                tokens: span.tokens.to_vec(),
                past: span.past,
                pages: span.pages.to_vec(),
                rows: span.rows,
            })
            .collect();
        if let Some((arrive, opened)) = &self.gate {
            // A test that is over lets the rest run.
            let _ = arrive.send(seen).map(|()| opened.recv());
        }
        self.steps += 1;
        match self.breakdown {
            Breakdown::Error(step) if step == self.steps => {
                return Err(self.error("it broke".to_owned()));
            }
            Breakdown::Panic(step) if step == self.steps => panic!("the device fell over"),
            _ => {}
        }
        let tokens: usize = spans.iter().map(|s| s.tokens.len()).sum();
        let rows: usize = spans.iter().map(|s| s.rows).sum();
        assert!(tokens <= self.caps.max_batch_tokens && rows <= self.caps.max_rows);
        let mut nanos = self.speed.start + self.speed.each * tokens as u64;
        let mut writers = std::collections::HashMap::new();
        for (index, span) in spans.iter().enumerate() {
            assert!(!span.tokens.is_empty() && span.rows <= span.tokens.len());
            let end = span.past + span.tokens.len();
            nanos += self.speed.pair * (span.tokens.len() * (span.past + end) / 2) as u64;
            for page in &span.pages[span.past / PAGE_TOKENS..end.div_ceil(PAGE_TOKENS)] {
                assert_eq!(
                    writers.insert(*page, index),
                    None,
                    "a page is written by two"
                );
            }
        }
        for (index, span) in spans.iter().enumerate() {
            for page in &span.pages[..span.past.div_ceil(PAGE_TOKENS)] {
                let writer = writers.get(page).copied().unwrap_or(index);
                assert_eq!(writer, index, "a page is read while another writes it");
            }
        }
        self.rows.clear();
        for span in spans {
            for (index, &token) in span.tokens.iter().enumerate() {
                let position = span.past + index;
                let before = match position {
                    0 => 0,
                    _ => self.slot(span.pages, position - 1).chain,
                };
                let page = span.pages[position / PAGE_TOKENS].0 as usize;
                self.slots[page][position % PAGE_TOKENS] = Slot {
                    token,
                    chain: mix(before, token, position),
                };
                if span.tokens.len() - index <= span.rows {
                    let mut logits = self.logits_after(span.pages, position);
                    if self.breakdown == Breakdown::NotANumber(self.steps) {
                        logits[3] = f32::NAN;
                    }
                    self.rows.push(logits);
                }
            }
        }
        self.clock.fetch_add(nanos, Ordering::SeqCst);
        Ok(())
    }

    fn sample(
        &mut self,
        rows: &[SampleRow<'_>],
        out: &mut Vec<Sampled>,
    ) -> Result<(), DeviceError> {
        out.clear();
        for row in rows {
            let picked = sample::pick(&mut self.rows[row.row], row, &mut self.scratch);
            out.push(picked.map_err(|error| self.error(error.to_string()))?);
        }
        Ok(())
    }

    fn logits(&mut self, row: usize, out: &mut [f32]) -> Result<(), DeviceError> {
        out.copy_from_slice(&self.rows[row]);
        Ok(())
    }

    fn copy_page(&mut self, from: PageId, to: PageId, tokens: usize) -> Result<(), DeviceError> {
        let source = self.slots[from.0 as usize];
        self.slots[to.0 as usize][..tokens].copy_from_slice(&source[..tokens]);
        Ok(())
    }

    fn read_page(&mut self, page: PageId, out: &mut [u8]) -> Result<(), DeviceError> {
        for (slot, bytes) in self.slots[page.0 as usize]
            .iter()
            .zip(out.chunks_exact_mut(SLOT_BYTES))
        {
            bytes[..4].copy_from_slice(&slot.token.to_le_bytes());
            bytes[4..].copy_from_slice(&slot.chain.to_le_bytes());
        }
        Ok(())
    }

    fn write_page(&mut self, page: PageId, bytes: &[u8]) -> Result<(), DeviceError> {
        for (slot, bytes) in self.slots[page.0 as usize]
            .iter_mut()
            .zip(bytes.chunks_exact(SLOT_BYTES))
        {
            slot.token = u32::from_le_bytes(bytes[..4].try_into().unwrap());
            slot.chain = u64::from_le_bytes(bytes[4..].try_into().unwrap());
        }
        Ok(())
    }
}

/// Greedy, without end tokens.
pub(crate) fn request(prompt: Vec<u32>, max_tokens: usize) -> GenerateRequest {
    GenerateRequest {
        prompt,
        stable_prefix: 0,
        sampling: SamplingParams {
            temperature: 0.0,
            ..SamplingParams::default()
        },
        max_tokens,
        end_tokens: Arc::from([END]),
        constraint: None,
        top_logprobs: 0,
    }
}

/// A prompt of its own for each seed.
pub(crate) fn prompt(seed: u64, length: usize) -> Vec<u32> {
    (0..length)
        .map(|at| (mix(seed, 7, at) % (VOCAB as u64 - 1)) as u32)
        .collect()
}

/// Everything one generation yielded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Whole {
    pub(crate) tokens: Vec<Sampled>,
    pub(crate) progress: Vec<(usize, usize, usize)>,
    pub(crate) reason: Finish,
    pub(crate) usage: Usage,
}

impl Whole {
    pub(crate) fn text(&self) -> Vec<u32> {
        self.tokens.iter().map(|sampled| sampled.token).collect()
    }
}

/// Reads to the end.
pub(crate) fn read(mut generation: Generation) -> Whole {
    let mut tokens = Vec::new();
    let mut progress = Vec::new();
    loop {
        match generation.blocking_next().unwrap() {
            Output::Progress {
                cached,
                done,
                total,
            } => {
                assert!(tokens.is_empty(), "progress after tokens");
                progress.push((cached, done, total));
            }
            Output::Tokens(more) => tokens.extend(more),
            Output::Finished { reason, usage } => {
                assert_eq!(generation.blocking_next(), None);
                return Whole {
                    tokens,
                    progress,
                    reason,
                    usage,
                };
            }
        }
    }
}

/// Waits for the first tokens.
pub(crate) fn read_first(generation: &mut Generation) -> Vec<u32> {
    loop {
        match generation.blocking_next().unwrap() {
            Output::Progress { .. } => {}
            Output::Tokens(tokens) => return tokens.iter().map(|s| s.token).collect(),
            other @ Output::Finished { .. } => panic!("{other:?}"),
        }
    }
}

/// What a place of a [`Script`] allows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Allow {
    Any,
    OneOf(Vec<u32>),
}

/// A grammar that says for each place which tokens may come there, and ends after the last.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) places: Vec<Allow>,
    pub(crate) at: usize,
}

impl Script {
    pub(crate) fn boxed(places: Vec<Allow>) -> Option<Box<dyn Constraint>> {
        Some(Box::new(Script { places, at: 0 }))
    }

    fn mask(&self, at: usize) -> Option<TokenMask> {
        let mut words = [0u32; VOCAB / 32];
        match self.places.get(at) {
            Some(Allow::Any) => return None,
            Some(Allow::OneOf(tokens)) => {
                for token in tokens {
                    words[*token as usize / 32] |= 1 << (token % 32);
                }
            }
            None => {}
        }
        Some(TokenMask(Arc::from(words)))
    }
}

impl Constraint for Script {
    fn next(&mut self) -> Result<Next, ConstraintError> {
        let rest = &self.places[self.at.min(self.places.len())..];
        let only = rest.iter().map_while(|place| match place {
            Allow::OneOf(tokens) if tokens.len() == 1 => Some(tokens[0]),
            _ => None,
        });
        let forced: Vec<u32> = only.collect();
        Ok(match self.mask(self.at) {
            _ if rest.is_empty() => Next::End,
            _ if !forced.is_empty() => Next::Forced(forced),
            None => Next::Free,
            Some(mask) => Next::Mask(mask),
        })
    }

    fn accept(&mut self, token: u32) -> Result<(), ConstraintError> {
        if self.mask(self.at).is_some_and(|mask| !mask.allows(token)) {
            return Err(ConstraintError(format!("{token} cannot come here")));
        }
        self.at += 1;
        Ok(())
    }

    fn would_accept(&mut self, draft: &[u32]) -> usize {
        let allowed = |(index, &token): (usize, &u32)| {
            self.mask(self.at + index)
                .is_none_or(|mask| mask.allows(token))
        };
        draft
            .iter()
            .enumerate()
            .take_while(|&place| allowed(place))
            .count()
    }

    fn masks_along(&mut self, draft: &[u32]) -> Result<Vec<Option<TokenMask>>, ConstraintError> {
        Ok((1..=draft.len())
            .map(|index| self.mask(self.at + index))
            .collect())
    }
}
