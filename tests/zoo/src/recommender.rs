//! DLRM: embeddings of categories, their products in pairs, and perceptrons. Source: Naumov et al.
//! 2019.

use soybean_compiler::Argument;
use soybean_plan::DType;

use crate::{Layers, Model, layers::integer};

/// The categories of each feature of the Criteo Kaggle data set, as counted by the scripts of
/// `facebookresearch/dlrm`.
const CATEGORIES: [usize; 26] = [
    1460, 583, 10_131_227, 2_202_608, 305, 24, 12_517, 633, 3, 93_145, 5683, 8_351_593, 3194, 27,
    14_992, 5_461_306, 10, 5652, 2173, 4, 7_046_547, 18, 15, 286_181, 105, 142_572,
];
/// The features of each embedding. Source: MLPerf Training, DLRM, for this and the perceptrons.
const WIDTH: usize = 128;

/// DLRM with the perceptrons of MLPerf.
pub(crate) fn dlrm(batch: usize) -> Model {
    let mut it =
        [512, 256, WIDTH].iter().fold(Layers::new(DType::F32, &[batch, 13], true), |it, &width| {
            it.dense(width).apply("relu", &[])
        });
    let dense = Argument::Tensor(it.here());
    let mut vectors = vec![dense.clone()];
    for (number, &rows) in CATEGORIES.iter().enumerate() {
        vectors.push(it.looked_up(number, batch, rows));
    }
    let n_vectors = vectors.len();
    let it = it.call("stack", &[Argument::List(vectors), integer(1)]);
    let stacked = it.here();
    let mut it = it.apply("transpose", &[]);
    let columns = Argument::Tensor(it.here());
    it = it.at(stacked).apply("matmul", &[columns]).apply("flatten", &[]);
    debug_assert_eq!(it.shape(), [batch, n_vectors * n_vectors], "products of all pairs");
    let pairs = Argument::List(vec![dense, Argument::Tensor(it.here())]);
    it = it.call("concat", &[pairs, integer(1)]);
    it = [1024, 1024, 512, 256]
        .iter()
        .fold(it, |it, &width| it.dense(width).apply("relu", &[]))
        .dense(1);
    let (output, clicks) = (it.here(), it.input("y", DType::F32, &[batch, 1]));
    it.apply("binary_cross_entropy_with_logits", &[clicks]).finished(output)
}

impl Layers {
    /// Returns the rows of a new table for a new input.
    fn looked_up(&mut self, number: usize, batch: usize, rows: usize) -> Argument {
        let categories = self.input(&format!("categories_{number}"), DType::I32, &[batch]);
        let table = self.parameter(&format!("table_{number}"), &[rows, WIDTH]);
        if let Argument::Tensor(value) = table {
            self.landmarks().local.push(value);
        }
        let vectors = self.value("embedding", &[categories, table]);
        self.landmarks().switched.push(vectors);
        Argument::Tensor(vectors)
    }
}
