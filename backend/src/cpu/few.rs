//! Matrix products for few tokens, in pieces that may be done twice ([`super::threads`]): decode goes on while another process has the core of a member.
//!
//! A work owns all it reads that ever changes: it has a copy of the encoded rows, and the weights are never written. Its results are its own too, so a member
//! that comes back late disturbs nobody.

use std::{
    array,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::{
    activation::{Activations, Layout},
    matmul::{SiluMul, TileProduct},
    network::Network,
    pack::Matrix,
    product::{Epilogue, tiles_per_chunk},
    simd::{LANES, Level},
    threads::{Board, Pieces, Team},
};

/// Most tokens that go this way. With more a piece is long, and the results are worth sharing out too.
pub(crate) const MOST_TOKENS: usize = 8;

/// Turns that a member has to put down a work when its last piece is done.
const LEAVE_SPINS: u32 = 50;

/// Which product of the forward pass.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Factor {
    Qkv(usize),
    AttentionOutput(usize),
    /// `silu(gate) * up`.
    GateUp(usize),
    Down(usize),
    Output,
}

/// The works of a team: one for each member that may be late, and one that is free.
#[derive(Debug)]
pub(crate) struct Few {
    network: Arc<Network>,
    works: Vec<Arc<Work>>,
}

#[derive(Debug)]
struct Work {
    board: Board,
    level: Level,
    network: Arc<Network>,
    factor: Factor,
    tokens: usize,
    /// Tiles of a piece.
    per_piece: usize,
    /// Encoded rows.
    words: Vec<u32>,
    /// `[tiles, tokens]`, two f32 in each: both of two members that do the same piece store the same bits.
    sums: Vec<[AtomicU64; LANES / 2]>,
}

impl Factor {
    /// The matrices whose rows lie side by side in the result, and the encoding of the input.
    pub(super) fn of(self, network: &Network) -> (&[Matrix], &Layout) {
        let encodings = &network.encodings;
        let layer = |index: usize| &network.layers[index];
        match self {
            Factor::Qkv(index) => (&layer(index).qkv, &encodings.qkv),
            Factor::AttentionOutput(index) => (
                array::from_ref(&layer(index).attention_output),
                &encodings.attention_output,
            ),
            Factor::GateUp(index) => (array::from_ref(&layer(index).gate), &encodings.gate_up),
            Factor::Down(index) => (array::from_ref(&layer(index).down), &encodings.down),
            Factor::Output => (array::from_ref(&network.output), &encodings.output),
        }
    }
}

impl Few {
    pub(crate) fn new(network: &Arc<Network>, level: Level, members: usize) -> Few {
        let layers = (0..network.layers.len()).flat_map(|index| {
            [
                Factor::Qkv(index),
                Factor::AttentionOutput(index),
                Factor::GateUp(index),
                Factor::Down(index),
            ]
        });
        let (mut tiles, mut words) = (0_usize, 0_usize);
        for factor in layers.chain([Factor::Output]) {
            let (matrices, layout) = factor.of(network);
            tiles = tiles.max(matrices.iter().map(Matrix::tiles).sum::<usize>());
            words = words.max(layout.words(MOST_TOKENS));
        }
        // All that they will ever need; what is never used is not resident.
        let work = || Work {
            board: Board::new(members, tiles),
            level,
            network: Arc::clone(network),
            factor: Factor::Output,
            tokens: 0,
            per_piece: 1,
            words: Vec::with_capacity(words),
            sums: Vec::with_capacity(MOST_TOKENS * tiles),
        };
        Few {
            network: Arc::clone(network),
            works: (0..members).map(|_| Arc::new(work())).collect(),
        }
    }

    /// `out[token] (+)= factor × x[token]`, for the first rows of `words`, encoded as the factor wants them; a row of the factor is a column of `out`.
    pub(crate) fn product(
        &mut self,
        team: &mut Team,
        factor: Factor,
        words: &[u32],
        out: &mut [f32],
        columns: usize,
        epilogue: Epilogue,
    ) {
        let network = &self.network;
        let tokens = out.len() / columns;
        // There is one more than members that can be late, so one is free, or will be in a moment: its last piece is done, and it only has to be put down.
        let work = loop {
            let mut works = self.works.iter_mut();
            if let Some(work) = works.find_map(|work| {
                Arc::get_mut(work)?.fill(team.threads(), factor, tokens, words);
                Some(work)
            }) {
                break work;
            }
            std::hint::spin_loop();
        };
        team.pieces(work);
        let matrices = factor.of(network).0;
        // Nearly always the last member has gone, or is about to; then the results can be read as what they are, many at once.
        for _ in 0..LEAVE_SPINS {
            if Arc::strong_count(work) == 1 {
                break;
            }
            std::hint::spin_loop();
        }
        match Arc::get_mut(work) {
            Some(work) => {
                let sums = work.sums.iter_mut();
                let sums = sums.map(|pairs| pairs.each_mut().map(|pair| *pair.get_mut()));
                unpack(matrices, sums, out, columns, epilogue);
            }
            None => {
                let sums = work.sums.iter();
                let sums = sums.map(|pairs| pairs.each_ref().map(|pair| pair.load(Relaxed)));
                unpack(matrices, sums, out, columns, epilogue);
            }
        }
    }
}

impl Work {
    fn fill(&mut self, threads: usize, factor: Factor, tokens: usize, words: &[u32]) {
        let (matrices, layout) = factor.of(&self.network);
        let tiles: usize = matrices.iter().map(Matrix::tiles).sum();
        self.per_piece = tiles_per_chunk(threads, &matrices[0]);
        if matches!(factor, Factor::GateUp(_)) {
            self.per_piece = (self.per_piece / 2).max(1);
        }
        if self.words.len() < layout.words(tokens) {
            self.words.resize(layout.words(tokens), 0);
        }
        layout.copy_rows(tokens, words, &mut self.words);
        if self.sums.len() < tiles * tokens {
            self.sums.resize_with(tiles * tokens, Default::default);
        }
        self.board.reset(tiles.div_ceil(self.per_piece));
        self.factor = factor;
        self.tokens = tokens;
    }

    fn tile(&self, matrix: &Matrix, tile: usize, layout: &Layout, out: &mut [[f32; LANES]]) {
        self.level.run(TileProduct {
            matrix,
            tile,
            x: Activations {
                layout,
                words: &self.words,
            },
            out,
        });
    }
}

/// Brings results to where they belong.
fn unpack(
    matrices: &[Matrix],
    mut sums: impl Iterator<Item = [u64; LANES / 2]>,
    out: &mut [f32],
    columns: usize,
    epilogue: Epilogue,
) {
    let mut column = 0;
    for matrix in matrices {
        for tile in 0..matrix.tiles() {
            let start = column + tile * LANES;
            let width = LANES.min(matrix.rows - tile * LANES);
            for (row, pairs) in out.chunks_exact_mut(columns).zip(&mut sums) {
                let mut sums = [0.0; LANES];
                for (two, pair) in sums.as_chunks_mut::<2>().0.iter_mut().zip(pairs) {
                    *two = [pair as u32, (pair >> 32) as u32].map(f32::from_bits);
                }
                let row = &mut row[start..start + width];
                match epilogue {
                    Epilogue::Store => row.copy_from_slice(&sums[..width]),
                    Epilogue::Accumulate => {
                        row.iter_mut().zip(sums).for_each(|(x, sum)| *x += sum);
                    }
                }
            }
        }
        column += matrix.rows;
    }
}

impl Pieces for Work {
    fn board(&self) -> &Board {
        &self.board
    }

    fn piece(&self, piece: usize) {
        let (matrices, layout) = self.factor.of(&self.network);
        let first = piece * self.per_piece;
        let tiles: usize = matrices.iter().map(Matrix::tiles).sum();
        let mut tile = first;
        let mut matrices = matrices.iter();
        let mut matrix = matrices.next();
        let mut scratch = [[[0.0; LANES]; MOST_TOKENS]; 2];
        let [sums, up] = &mut scratch;
        let (sums, up) = (&mut sums[..self.tokens], &mut up[..self.tokens]);
        for index in first..tiles.min(first + self.per_piece) {
            while let Some(own) = matrix
                && tile >= own.tiles()
            {
                tile -= own.tiles();
                matrix = matrices.next();
            }
            let Some(own) = matrix else { return };
            self.tile(own, tile, layout, sums);
            if let Factor::GateUp(layer) = self.factor {
                self.tile(&self.network.layers[layer].up, tile, layout, up);
                self.level.run(SiluMul { gate: sums, up });
            }
            for (sums, pairs) in sums.iter().zip(&self.sums[index * self.tokens..]) {
                for (two, pair) in sums.as_chunks::<2>().0.iter().zip(pairs) {
                    let [low, high] = two.map(|x| u64::from(x.to_bits()));
                    pair.store(low | high << 32, Relaxed);
                }
            }
            tile += 1;
        }
    }
}
