//! The matrix product.

use super::{Tensor, arena::Value, arithmetic::broadcast_shape};

impl Tensor {
    /// Multiplies matrices over the last two dims: `[m, k]` with `[k, n]` gives `[m, n]`. Leading
    /// dims are broadcast.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    /// let y = Tensor::new([3, 2], &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
    /// assert_eq!(x.matmul(y).to_vec(), [4.0, 5.0, 10.0, 11.0]);
    /// // Weights are `[out, in]`, as in PyTorch. A batch shares one weight.
    /// let (batch, weight) = (Tensor::new([4, 2, 3], &[1.0; 24]), Tensor::new([5, 3], &[1.0; 15]));
    /// assert_eq!(batch.matmul(weight.transpose()).shape(), [4, 2, 5]);
    /// // Leading dims broadcast: one matrix of keys for each pair of heads.
    /// let heads = Tensor::new([3, 2, 4, 6], &[1.0; 144]);
    /// let keys = Tensor::new([3, 1, 6, 5], &[1.0; 90]);
    /// assert_eq!(heads.matmul(keys).shape(), [3, 2, 4, 5]);
    /// // A vector is a row on the left and a column on the right; the result lacks this dim.
    /// let v = Tensor::new([3], &[1.0, 0.0, 2.0]);
    /// assert_eq!(x.matmul(v).to_vec(), [7.0, 16.0]);
    /// assert_eq!(v.matmul(v).item(), 5.0);
    /// ```
    ///
    /// # Panics
    /// If an operand has no dims, inner dims differ, or leading dims do not broadcast.
    #[must_use]
    pub fn matmul(self, right: Self) -> Self {
        if self.shape().len() == 1 {
            return self.unsqueeze(0).matmul(right).squeeze(if right.shape().len() == 1 {
                -1
            } else {
                -2
            });
        }
        if right.shape().len() == 1 {
            return self.matmul(right.unsqueeze(1)).squeeze(-1);
        }
        let operands = [self, right];
        let (left, right) = (self.value(), right.value());
        let both = format!("{:?} and {:?}", left.shape, right.shape);
        let [left_batch @ .., rows, depth] = left.shape.as_slice() else {
            panic!("`matmul`: operands of at least 2 dims are needed, found {both}")
        };
        let [right_batch @ .., inner, columns] = right.shape.as_slice() else {
            panic!("`matmul`: operands of at least 2 dims are needed, found {both}")
        };
        assert!(depth == inner, "`matmul`: inner dims differ: {depth} and {inner} in {both}");
        let is_shared = right_batch.is_empty();
        if !is_shared && left_batch != right_batch {
            let batch = broadcast_shape(left_batch, right_batch)
                .unwrap_or_else(|| panic!("`matmul`: leading dims differ in {both}"));
            let expanded =
                |it: Self, matrix: [usize; 2]| it.expanded(&[&batch, &matrix[..]].concat());
            let [left, right] = operands;
            return expanded(left, [*rows, *depth]).matmul(expanded(right, [*inner, *columns]));
        }
        let mut data = Vec::with_capacity(left_batch.iter().product::<usize>() * rows * columns);
        for batch in 0..left_batch.iter().product() {
            let right_start = if is_shared { 0 } else { batch * depth * columns };
            for row in 0..*rows {
                let left_start = (batch * rows + row) * depth;
                let left_row = &left.data[left_start..left_start + depth];
                data.extend(row_product(left_row, &right.data[right_start..], *columns));
            }
        }
        Self::from_value(Value { shape: [left_batch, &[*rows, *columns]].concat(), data })
    }
}

/// Multiplies a row by a matrix.
fn row_product(row: &[f64], matrix: &[f64], n_columns: usize) -> Vec<f64> {
    let mut result = vec![0.0; n_columns];
    for (k, factor) in row.iter().enumerate() {
        let matrix_row = &matrix[k * n_columns..(k + 1) * n_columns];
        for (sum, element) in result.iter_mut().zip(matrix_row) {
            *sum += factor * element;
        }
    }
    result
}
