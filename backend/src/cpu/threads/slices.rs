//! A matrix or slice shared among the team: every member writes parts that nobody else has.

use std::ops::Range;

use super::{
    Team,
    parts::{Parts, Stripe},
};
use crate::cpu::simd::LANES;

impl Team {
    /// Calls `job(row, part)` for the first `rows` rows of a matrix of `stride` numbers a row.
    pub(crate) fn rows<T: Send>(
        &mut self,
        matrix: &mut [T],
        stride: usize,
        rows: usize,
        per_chunk: usize,
        job: impl Fn(usize, &mut [T]) + Sync,
    ) {
        let mut none = vec![(); self.threads()];
        self.rows_with(
            matrix,
            stride,
            rows,
            per_chunk,
            &mut none,
            |(), row, part| job(row, part),
        );
    }

    /// As [`Team::rows`], and every member has a scratch of its own.
    pub(crate) fn rows_with<T: Send, S: Send>(
        &mut self,
        matrix: &mut [T],
        stride: usize,
        rows: usize,
        per_chunk: usize,
        scratch: &mut [S],
        job: impl Fn(&mut S, usize, &mut [T]) + Sync,
    ) {
        assert!(scratch.len() >= self.threads(), "a scratch for each member");
        assert!(rows * stride <= matrix.len(), "rows lie in the matrix");
        let per_chunk = per_chunk.max(1);
        let parts = Parts::new(matrix);
        let scratch = Parts::new(scratch);
        self.run(rows.div_ceil(per_chunk), &|member, chunk| {
            // SAFETY: `run` never runs two calls with the same member at the same time.
            let own = unsafe { &mut scratch.range(member, 1)[0] };
            for row in chunk * per_chunk..rows.min((chunk + 1) * per_chunk) {
                // SAFETY: row ranges are disjoint and every row belongs to one chunk, which `run` hands out once.
                job(own, row, unsafe { parts.range(row * stride, stride) });
            }
        });
    }

    /// Calls `job(row, part, other)` for the first `rows` rows of two matrices.
    #[expect(clippy::too_many_arguments, reason = "two matrices with their strides")]
    pub(crate) fn rows_two<T: Send, U: Send>(
        &mut self,
        matrix: &mut [T],
        stride: usize,
        other: &mut [U],
        other_stride: usize,
        rows: usize,
        per_chunk: usize,
        job: impl Fn(usize, &mut [T], &mut [U]) + Sync,
    ) {
        assert!(rows * other_stride <= other.len(), "rows lie in the matrix");
        let other = Parts::new(other);
        self.rows(matrix, stride, rows, per_chunk, |row, part| {
            // SAFETY: `rows` hands every row out once, and row ranges are disjoint.
            job(row, part, unsafe {
                other.range(row * other_stride, other_stride)
            });
        });
    }

    /// Calls `job(scratch, stripe)` for all stripes of [`LANES`] columns in `range`, of a row-major matrix of `columns` columns; the last may be narrower.
    /// Every member has a scratch of its own.
    pub(crate) fn stripes<T: Send, S: Send>(
        &mut self,
        matrix: &mut [T],
        columns: usize,
        range: Range<usize>,
        per_chunk: usize,
        scratch: &mut [S],
        job: impl Fn(&mut S, Stripe<'_, T>) + Sync,
    ) {
        assert!(scratch.len() >= self.threads(), "a scratch for each member");
        assert!(range.end <= columns, "stripes lie in the matrix");
        let rows = matrix.len() / columns;
        let stripes = range.len().div_ceil(LANES);
        let per_chunk = per_chunk.max(1);
        let parts = Parts::new(matrix);
        let scratch = Parts::new(scratch);
        self.run(stripes.div_ceil(per_chunk), &|member, chunk| {
            // SAFETY: `run` never runs two calls with the same member at the same time.
            let own = unsafe { &mut scratch.range(member, 1)[0] };
            for index in chunk * per_chunk..stripes.min((chunk + 1) * per_chunk) {
                let start = range.start + index * LANES;
                let stripe = Stripe {
                    index,
                    start,
                    width: LANES.min(range.end - start),
                    columns,
                    rows,
                    parts: &parts,
                };
                job(own, stripe);
            }
        });
    }

    /// Calls `job(scratch, item, part)` for parts `[start, start + len)` of a slice, which must not overlap and come in ascending order.
    pub(crate) fn parts<T: Send, S: Send>(
        &mut self,
        slice: &mut [T],
        ranges: &[(usize, usize)],
        scratch: &mut [S],
        job: impl Fn(&mut S, usize, &mut [T]) + Sync,
    ) {
        assert!(scratch.len() >= self.threads(), "a scratch for each member");
        let mut end = 0;
        for &(start, len) in ranges {
            assert!(
                start >= end && start + len <= slice.len(),
                "parts are disjoint and inside the slice"
            );
            end = start + len;
        }
        let parts = Parts::new(slice);
        let scratch = Parts::new(scratch);
        self.run(ranges.len(), &|member, item| {
            // SAFETY: `run` never runs two calls with the same member at the same time.
            let own = unsafe { &mut scratch.range(member, 1)[0] };
            let (start, len) = ranges[item];
            // SAFETY: the ranges were checked to be disjoint, and each is handed out once.
            job(own, item, unsafe { parts.range(start, len) });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_cover_a_matrix_whose_width_is_no_multiple() {
        let mut team = Team::new(3).unwrap();
        let mut matrix = vec![0usize; 5 * 37];
        team.stripes(
            &mut matrix,
            37,
            0..37,
            1,
            &mut [(), (), ()],
            |(), mut stripe| {
                for row in 0..5 {
                    let start = stripe.index * 16;
                    for (i, value) in stripe.row(row).iter_mut().enumerate() {
                        *value += row * 37 + start + i;
                    }
                }
            },
        );
        assert_eq!(matrix, (0..5 * 37).collect::<Vec<_>>());
    }
}
