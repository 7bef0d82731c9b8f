//! A matrix product shared among the team: stripes of sixteen columns of the result, each a tile of weights times all tokens.

use super::{
    activation::Activations,
    buffers::Member,
    matmul::TileProduct,
    pack::Matrix,
    simd::{LANES, Level},
    threads::Team,
};

/// What a matrix product does with its result.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Epilogue {
    Store,
    Accumulate,
}

/// How many tiles a member takes at once: about 16 KiB of weights, and several turns for every member.
pub(crate) fn tiles_per_chunk(threads: usize, matrix: &Matrix) -> usize {
    let few = (matrix.tiles() / (8 * threads)).max(1);
    (16 * 1024 / matrix.tile(0).len()).clamp(1, few)
}

/// `out[token] (+)= [matrices] × x[token]`, the matrices' rows side by side in `columns` columns.
#[expect(
    clippy::too_many_arguments,
    reason = "where to work, on what, and where to put it"
)]
pub(crate) fn product(
    level: Level,
    team: &mut Team,
    members: &mut [Member],
    matrices: &[&Matrix],
    x: Activations<'_>,
    out: &mut [f32],
    columns: usize,
    epilogue: Epilogue,
) {
    let tokens = out.len() / columns;
    let mut first = 0;
    // Stripes are tiles: side by side only when all but the last end on a tile.
    let aligned = matrices[..matrices.len() - 1]
        .iter()
        .all(|matrix| matrix.rows % LANES == 0);
    let runs: Vec<&[&Matrix]> = if aligned {
        vec![matrices]
    } else {
        matrices.chunks(1).collect()
    };
    for run in runs {
        let width: usize = run.iter().map(|matrix| matrix.rows).sum();
        let per_chunk = tiles_per_chunk(team.threads(), run[0]);
        team.stripes(
            out,
            columns,
            first..first + width,
            per_chunk,
            members,
            |member, mut stripe| {
                let mut tile = stripe.index;
                let mut matrix = run[0];
                for next in run {
                    matrix = next;
                    if tile < next.tiles() {
                        break;
                    }
                    tile -= next.tiles();
                }
                let sums = &mut member.tiles[0][..tokens];
                level.run(TileProduct {
                    matrix,
                    tile,
                    x,
                    out: sums,
                });
                for (token, sums) in sums.iter().enumerate() {
                    put(stripe.row(token), sums, epilogue);
                }
            },
        );
        first += width;
    }
}

#[inline]
pub(crate) fn put(row: &mut [f32], sums: &[f32; LANES], epilogue: Epilogue) {
    // All but the last stripe of a matrix are whole, and a whole one takes a register.
    if let Some(row) = row.first_chunk_mut::<LANES>() {
        match epilogue {
            Epilogue::Store => *row = *sums,
            Epilogue::Accumulate => add(row, sums),
        }
        return;
    }
    match epilogue {
        Epilogue::Store => row.copy_from_slice(&sums[..row.len()]),
        Epilogue::Accumulate => add(row, sums),
    }
}

#[inline]
fn add(row: &mut [f32], sums: &[f32]) {
    row.iter_mut().zip(sums).for_each(|(x, sum)| *x += sum);
}
