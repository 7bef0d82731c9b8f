//! A random matrix, packed and as numbers.

use kernels::pack::{Format, Packed};

use super::{
    random::Random,
    rows::{numbers_of, random_row},
};

/// A matrix as the file has it.
pub(super) struct Matrix {
    pub(super) shape: Packed,
    pub(super) rows: Vec<Vec<u8>>,
}

impl Matrix {
    pub(super) fn random(
        random: &mut Random,
        format: Format,
        rows: usize,
        columns: usize,
    ) -> Matrix {
        Matrix {
            shape: Packed::new(format, rows, columns).unwrap(),
            rows: (0..rows)
                .map(|_| random_row(random, format, columns))
                .collect(),
        }
    }

    pub(super) fn packed(&self) -> Vec<u8> {
        self.shape
            .pack_ordered(|row| self.rows.get(row).map(Vec::as_slice))
    }

    pub(super) fn numbers(&self, row: usize) -> Vec<f64> {
        numbers_of(self.shape.format, self.shape.columns, &self.rows[row])
    }

    /// `[tokens][rows]`
    pub(super) fn times(&self, x: &[f64]) -> Vec<f64> {
        let rows: Vec<Vec<f64>> = (0..self.rows.len()).map(|r| self.numbers(r)).collect();
        x.chunks_exact(self.shape.columns)
            .flat_map(|x| {
                rows.iter()
                    .map(move |row| row.iter().zip(x).map(|(a, b)| a * b).sum())
            })
            .collect()
    }
}

/// Every format with column counts that are no multiples of its records, where it has such.
pub(super) fn shapes() -> Vec<(Format, usize)> {
    Format::ALL
        .into_iter()
        .flat_map(|format| match format.block_columns() {
            1 => vec![(format, 576), (format, 80)],
            32 => vec![(format, 576), (format, 96)],
            _ => vec![(format, 768)],
        })
        .collect()
}
