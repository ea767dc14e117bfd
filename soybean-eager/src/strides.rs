//! Strides and offsets of row-major elements.

/// Returns the strides of row-major elements.
pub(super) fn dense_strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for dim in (1..shape.len()).rev() {
        strides[dim - 1] = strides[dim] * shape[dim];
    }
    strides
}

/// Returns the offsets of all points of an index space in row-major order.
pub(super) fn offsets(shape: &[usize], strides: &[usize]) -> impl Iterator<Item = usize> {
    let n_points: usize = shape.iter().product();
    let mut index = vec![0; shape.len()];
    let mut offset = 0;
    (0..n_points).map(move |_| {
        let here = offset;
        for dim in (0..shape.len()).rev() {
            index[dim] += 1;
            offset += strides[dim];
            if index[dim] < shape[dim] {
                break;
            }
            offset -= strides[dim] * shape[dim];
            index[dim] = 0;
        }
        here
    })
}
