//! Extents and strides of the tensors of attention, as cuDNN knows them.

use soybean_plan::{Attention, AttentionForm, AttentionLayout};

/// The tensors of attention without masks, or with the causal one: batch, heads, rows, columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AttentionShape {
    /// Queries, keys, values and the result.
    pub(super) tensors: [StridedTensor; 4],
    /// The logarithms of the rows, with one column, if they are saved.
    pub(super) logarithms: Option<StridedTensor>,
    /// True if a query at position `i` sees only keys `0..=i`.
    pub(super) is_causal: bool,
}

/// Extents of a tensor and the elements between neighbors along each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StridedTensor {
    pub(super) extents: [usize; 4],
    pub(super) strides: [usize; 4],
}

impl AttentionShape {
    /// Returns the shape of a forward form without functions of scores, biases, segments and
    /// windows. `None` for others, and if heads cannot be divided into a batch.
    pub(super) fn new(attention: &Attention) -> Option<Self> {
        let Attention { form, heads, group, queries, keys, features, width, .. } = *attention;
        let Attention { is_causal, is_part, layout, .. } = *attention;
        let is_masked = attention.window.is_some()
            || attention.segments.is_some()
            || attention.score.is_some()
            || attention.bias.is_some()
            || (is_causal && is_part);
        let is_empty = [heads, group, queries, keys, features, width].contains(&0);
        if form != AttentionForm::Forward || is_masked || is_empty {
            return None;
        }
        let AttentionLayout { operands: [of_queries, of_keys, of_values, _], results } = layout;
        // The heads of keys and values in a row of the batch follow from each tensor whose heads
        // alternate.
        let alternating = [(of_queries, group), (of_keys, 1), (of_values, 1), (results[0], group)];
        let mut alternating = alternating.into_iter().filter(|(n, _)| *n > 1);
        let (n, per_head) = alternating.clone().next().unwrap_or((heads, 1));
        let n_heads = n / per_head;
        let is_divided = n_heads > 0
            && heads.is_multiple_of(n_heads)
            && alternating.all(|(n, per_head)| n == n_heads * per_head);
        let batch = heads / n_heads.max(1);
        let tensor = |n_heads: usize, [rows, columns]: [usize; 2], alternating: usize| {
            let [of_head, of_row] = match alternating {
                1 => [rows * columns, columns],
                _ => [columns, n_heads * columns],
            };
            StridedTensor {
                extents: [batch, n_heads, rows, columns],
                strides: [n_heads * rows * columns, of_head, of_row, 1],
            }
        };
        let tensors = [
            tensor(n_heads * group, [queries, features], of_queries),
            tensor(n_heads, [keys, features], of_keys),
            tensor(n_heads, [keys, width], of_values),
            tensor(n_heads * group, [queries, width], results[0]),
        ];
        let logarithms =
            attention.saves_logarithms.then(|| tensor(n_heads * group, [queries, 1], 1));
        is_divided.then_some(Self { tensors, logarithms, is_causal })
    }
}
