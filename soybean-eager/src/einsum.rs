//! Products in index notation.

use super::{
    Tensor,
    arena::Value,
    strides::{dense_strides, offsets},
};

impl Tensor {
    /// Computes the product of two tensors in index notation, `"ij,jk->ik"`: the sum of the
    /// products over all indices that are not in the result. An index that occurs twice in one
    /// operand is its diagonal. The result is always written, and there is no `...`.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2, 2], &[1.0, 2.0, 3.0, 4.0]);
    /// let y = Tensor::new([2, 2], &[5.0, 6.0, 7.0, 8.0]);
    /// // The matrix product.
    /// assert_eq!(x.einsum("ij,jk->ik", y).to_vec(), [19.0, 22.0, 43.0, 50.0]);
    /// // The inner product of each pair of rows.
    /// assert_eq!(x.einsum("ij,ij->i", y).to_vec(), [17.0, 53.0]);
    /// ```
    ///
    /// # Panics
    /// If the equation does not have this form, or does not fit the shapes.
    #[must_use]
    pub fn einsum(self, equation: &str, right: Self) -> Self {
        let (left, right) = (self.value(), right.value());
        let spaceless: String = equation.chars().filter(|it| !it.is_whitespace()).collect();
        let parts = spaceless.split_once("->").and_then(|(operands, result)| {
            let (left_letters, right_letters) = operands.split_once(',')?;
            Some((left_letters, right_letters, result))
        });
        let Some((left_letters, right_letters, result)) = parts else {
            panic!("`einsum`: \"{equation}\" is not of the form \"ij,jk->ik\"")
        };
        let shapes = [(left_letters, &left.shape[..]), (right_letters, &right.shape[..])];
        let space = index_space(result, shapes).unwrap_or_else(|| {
            panic!("`einsum`: \"{equation}\" does not fit {:?} and {:?}", left.shape, right.shape)
        });
        let extents: Vec<usize> = space.iter().map(|it| it.1).collect();
        let shape = extents[..result.len()].to_vec();
        let walk = |letters: &str, shape: &[usize]| -> Vec<usize> {
            offsets(&extents, &strides(&space, letters, shape)).collect()
        };
        let (of_left, of_right) =
            (walk(left_letters, &left.shape), walk(right_letters, &right.shape));
        let mut data = vec![0.0; shape.iter().product()];
        for ((here, left_at), right_at) in walk(result, &shape).iter().zip(of_left).zip(of_right) {
            data[*here] += left.data[left_at] * right.data[right_at];
        }
        Self::from_value(Value { shape, data })
    }
}

/// Returns the indices, those of the result first, with their extents; `None` if they do not fit
/// the shapes.
fn index_space(result: &str, operands: [(&str, &[usize]); 2]) -> Option<Vec<(char, usize)>> {
    let is_ranked = operands.iter().all(|(letters, shape)| letters.len() == shape.len());
    let dims: Vec<(char, usize)> = operands
        .iter()
        .flat_map(|(letters, shape)| letters.chars().zip(shape.iter().copied()))
        .collect();
    let extent = |letter: char| dims.iter().find(|it| it.0 == letter).copied();
    let mut space = result.chars().map(extent).collect::<Option<Vec<_>>>()?;
    let is_twice = space.iter().enumerate().any(|(at, dim)| space[..at].contains(dim));
    for dim in &dims {
        if space.iter().all(|it| it.0 != dim.0) {
            space.push(*dim);
        }
    }
    let is_consistent = dims.iter().all(|dim| space.contains(dim));
    (is_ranked && is_consistent && !is_twice).then_some(space)
}

/// Returns the strides of a tensor with these indices along each dim of the index space.
fn strides(space: &[(char, usize)], letters: &str, shape: &[usize]) -> Vec<usize> {
    let dense = dense_strides(shape);
    let stride =
        |letter: char| letters.chars().zip(&dense).filter(|it| it.0 == letter).map(|it| it.1).sum();
    space.iter().map(|it| stride(it.0)).collect()
}
