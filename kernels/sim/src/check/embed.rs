//! Rows of the embedding.

use kernels::ops::Embed;

use super::{
    On, distance, get, launch,
    matrix::{Matrix, shapes},
    put,
    random::Random,
};

pub fn embeddings_are_the_numbers_of_the_file(on: &mut On<'_>) {
    for (format, columns) in shapes() {
        let mut random = Random(26);
        let matrix = Matrix::random(&mut random, format, 37, columns);
        let ids = [36u32, 0, 9, 17, 36, 24];
        let got = on.run(|sim| {
            let weights = put(sim, &matrix.packed());
            let x = sim.alloc(ids.len() * columns * 4).unwrap();
            let op = Embed {
                shape: matrix.shape,
                weights,
                ids: put(sim, &ids),
                tokens: ids.len(),
                x,
            };
            launch(sim, &op.launch().unwrap());
            get::<f32>(sim, x, ids.len() * columns)
        });
        let want: Vec<f64> = ids
            .iter()
            .flat_map(|id| matrix.numbers(*id as usize))
            .collect();
        let apart = distance(&got, &want);
        assert!(apart < 1e-6, "{format:?} x {columns}: {apart}");
    }
}
