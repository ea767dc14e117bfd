//! Scaled dot-product attention and its gradients.

use std::fmt;

use super::KernelDescriptor;
use crate::{KernelCategory, WorkKind, descriptor::descriptor};

descriptor! {
    /// Scaled dot-product attention of each head: `softmax(scale * query key^T) value`.
    ///
    /// Reads queries `[heads, group, queries, features]`, keys `[heads, keys, features]` and
    /// values `[heads, keys, width]`. The `group` heads of queries of a head of keys share its keys
    /// and values. Forms with gradients then read the gradient of the result. Further inputs are
    /// there if they are asked for, in this order: the segments of queries `[rows, queries]` and of
    /// keys `[rows, keys]` as `i32`, the bias `[matrices, rows, keys]`, and, for causal attention,
    /// the positions of the queries in the whole sequence, increasing, as `i32`, which matter if
    /// [`Self::is_part`].
    ///
    /// All are dense and row-major. The computation is in `f32`, and the matrix of scores is never
    /// in memory as a whole. A query that sees no key has a result and gradients of 0.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Attention {
        /// The computation.
        pub form: AttentionForm,
        /// The number of heads of keys and values: batch times heads.
        pub heads: usize,
        /// The number of heads of queries for each head of keys and values.
        pub group: usize,
        /// The number of queries.
        pub queries: usize,
        /// The number of keys.
        pub keys: usize,
        /// The elements of a query and of a key.
        pub features: usize,
        /// The elements of a value.
        pub width: usize,
        /// True if a query at position `i` sees only keys `0..=i`.
        pub is_causal: bool,
        /// The number of keys that a query of causal attention sees at most: itself and those just
        /// before it. All if `None`.
        pub window: Option<usize>,
        /// True if the queries are only some of the sequence. Otherwise their positions are
        /// `0..queries`, and need not be read.
        pub is_part: bool,
        /// The number of rows of segments; each row is that of equally many heads of keys. A query
        /// sees only the keys of its own segment. All keys if `None`.
        pub segments: Option<usize>,
        /// The numbers that are added to scaled scores. A key whose number is minus infinity is
        /// not seen.
        pub bias: Option<AttentionBias>,
        /// The pairs of a query and a key that it sees, of each head of queries. If ranks have
        /// different numbers, the largest.
        pub pairs: usize,
        /// The factor of the scores.
        pub scale: f64,
    }
}

descriptor! {
    /// The bias of an [`Attention`]: matrices that heads of queries take in turn, each for several
    /// heads in a row.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AttentionBias {
        /// The number of matrices.
        pub matrices: usize,
        /// The number of heads of queries in a row that share a matrix.
        pub repeats: usize,
        /// The rows of a matrix: as many as queries, or one for all queries.
        pub rows: usize,
    }
}

impl AttentionBias {
    /// Returns the number of the matrix of a head of queries.
    #[must_use]
    pub const fn matrix(&self, head: usize) -> usize {
        head / self.repeats % self.matrices
    }
}

descriptor! {
    /// The computation of an [`Attention`].
    pub enum AttentionForm {
        /// `[heads, queries, width]` from queries, keys and values.
        Forward = "attention",
        /// The gradients of queries, keys and values, from them and the gradient of the result:
        /// three results, each like its operand.
        Gradient = "attention-gradient",
        /// The gradient of queries alone.
        QueryGradient = "attention-query-gradient",
        /// The gradient of keys alone.
        KeyGradient = "attention-key-gradient",
        /// The gradient of values alone.
        ValueGradient = "attention-value-gradient",
    }
}

impl AttentionForm {
    /// Returns whether the gradient of queries is a result.
    #[must_use]
    pub const fn has_query_gradient(self) -> bool {
        matches!(self, Self::Gradient | Self::QueryGradient)
    }

    /// Returns whether the gradient of keys is a result.
    #[must_use]
    pub const fn has_key_gradient(self) -> bool {
        matches!(self, Self::Gradient | Self::KeyGradient)
    }

    /// Returns whether the gradient of values is a result.
    #[must_use]
    pub const fn has_value_gradient(self) -> bool {
        matches!(self, Self::Gradient | Self::ValueGradient)
    }
}

impl Attention {
    /// Returns the number of pairs of a whole sequence of causal queries and the keys that they
    /// see.
    #[must_use]
    pub const fn causal_pairs(queries: usize, keys: usize) -> usize {
        let growing = if queries < keys { queries } else { keys };
        growing * (growing + 1) / 2 + (queries - growing) * keys
    }

    /// Returns the number of pairs of a whole sequence of causal queries and the keys that they see
    /// in a window, or without one.
    #[must_use]
    pub const fn seen_pairs(queries: usize, keys: usize, window: Option<usize>) -> usize {
        // Query i lacks the keys before its window: those that query i - window sees.
        let n_hidden = match window {
            Some(window) => Self::causal_pairs(queries.saturating_sub(window), keys),
            None => 0,
        };
        Self::causal_pairs(queries, keys) - n_hidden
    }

    /// Returns the elements that a head of keys, with its heads of queries, has in each operand:
    /// the inputs before segments, bias and positions.
    #[must_use]
    pub fn input_lengths(&self) -> Vec<usize> {
        let Self { group, queries, keys, features, width, .. } = *self;
        let operands = [group * queries * features, keys * features, keys * width];
        let gradient = (self.form != AttentionForm::Forward).then_some(group * queries * width);
        operands.into_iter().chain(gradient).collect()
    }

    /// Returns the elements of each input after the operands: segments, bias and positions.
    #[must_use]
    pub fn mask_lengths(&self) -> Vec<usize> {
        let Self { queries, keys, .. } = *self;
        let segments = self.segments.into_iter().flat_map(|it| [it * queries, it * keys]);
        let bias = self.bias.map(|it| it.matrices * it.rows * keys);
        segments.chain(bias).chain(self.is_causal.then_some(queries)).collect()
    }

    /// Returns the numbers of the inputs that are segments of queries and of keys.
    #[must_use]
    pub fn segment_inputs(&self) -> Option<[usize; 2]> {
        let first = self.n_operands();
        self.segments.map(|_| [first, first + 1])
    }

    /// Returns the number of the input that is the bias.
    #[must_use]
    pub fn bias_input(&self) -> Option<usize> {
        self.bias.map(|_| self.n_operands() + self.n_segment_inputs())
    }

    /// Returns the number of the input that has the positions of queries, unless these are those of
    /// the whole sequence.
    #[must_use]
    pub fn positions_input(&self) -> Option<usize> {
        let n_biases = usize::from(self.bias.is_some());
        let last = self.n_operands() + self.n_segment_inputs() + n_biases;
        (self.is_causal && self.is_part).then_some(last)
    }

    /// Returns the number of operands: queries, keys, values, and for gradients that of the result.
    fn n_operands(&self) -> usize {
        if self.form == AttentionForm::Forward { 3 } else { 4 }
    }

    const fn n_segment_inputs(&self) -> usize {
        if self.segments.is_some() { 2 } else { 0 }
    }

    /// Returns the elements that a head of keys, with its heads of queries, has in each result.
    #[must_use]
    pub fn result_lengths(&self) -> Vec<usize> {
        let Self { group, queries, keys, features, width, .. } = *self;
        let rows = group * queries;
        match self.form {
            AttentionForm::Forward => vec![rows * width],
            AttentionForm::Gradient => vec![rows * features, keys * features, keys * width],
            AttentionForm::QueryGradient => vec![rows * features],
            AttentionForm::KeyGradient => vec![keys * features],
            AttentionForm::ValueGradient => vec![keys * width],
        }
    }
}

impl KernelDescriptor for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn form(&self) -> &'static str {
        self.form.name()
    }

    fn category(&self) -> KernelCategory {
        KernelCategory::Attention
    }

    fn work_kind(&self) -> WorkKind {
        WorkKind::Product
    }

    // Counts the products of queries, keys and values, without the softmax between them. Gradients
    // compute the scores again. The products of values are theirs with the result's gradient; one
    // for each gradient follows.
    fn n_operations(&self) -> u64 {
        let (features, width) = (self.features as u64, self.width as u64);
        let per_pair = match self.form {
            AttentionForm::Forward | AttentionForm::ValueGradient => features + width,
            AttentionForm::Gradient => 3 * features + 2 * width,
            AttentionForm::QueryGradient | AttentionForm::KeyGradient => 2 * features + width,
        };
        let heads = (self.heads as u64).saturating_mul(self.group as u64);
        heads.saturating_mul(self.pairs as u64).saturating_mul(2 * per_pair)
    }

    fn evaluate(&self, inputs: &[&[f64]], _scalars: &[f64]) -> Vec<Vec<f64>> {
        let (rows, keys) = (self.group * self.queries, self.keys);
        let mut results = vec![Vec::new(); self.result_lengths().len()];
        for head in 0..self.heads {
            let matrix = |input: usize, rows: usize, columns: usize| {
                let elements = &inputs[input][head * rows * columns..][..rows * columns];
                Matrix { elements: elements.to_vec(), rows, columns }
            };
            let query = matrix(0, rows, self.features);
            let key = matrix(1, keys, self.features);
            let value = matrix(2, keys, self.width);
            let weights = self.weights(&query, &key, head, inputs);
            if self.form == AttentionForm::Forward {
                results[0].extend(weights.times(&value).elements);
                continue;
            }
            // d scores = scale * weights * (d weights - their mean by the weights of the row)
            let gradient = matrix(3, rows, self.width);
            let by_weight = gradient.times(&value.transposed());
            let mean = |row: usize| -> f64 {
                (0..keys).map(|it| weights.at(row, it) * by_weight.at(row, it)).sum()
            };
            let means: Vec<f64> = (0..rows).map(mean).collect();
            let by_score = Matrix::new(rows, keys, |row, column| {
                self.scale * weights.at(row, column) * (by_weight.at(row, column) - means[row])
            });
            let mut gradients = Vec::new();
            if self.form.has_query_gradient() {
                gradients.push(by_score.times(&key));
            }
            if self.form.has_key_gradient() {
                gradients.push(by_score.transposed().times(&query));
            }
            if self.form.has_value_gradient() {
                gradients.push(weights.transposed().times(&gradient));
            }
            for (result, gradient) in results.iter_mut().zip(gradients) {
                result.extend(gradient.elements);
            }
        }
        results
    }
}

impl Attention {
    /// Returns the softmax of the scores of each query of the group of a head of keys; keys that a
    /// query does not see weigh 0.
    fn weights(&self, query: &Matrix, key: &Matrix, head: usize, inputs: &[&[f64]]) -> Matrix {
        let products = query.times(&key.transposed());
        let n_rows = query.rows;
        let scores = Matrix::new(n_rows, self.keys, |row, column| {
            match self.is_seen(head, row % self.queries, column, inputs) {
                true => {
                    self.scale * products.at(row, column) + self.added(head, row, column, inputs)
                }
                false => f64::NEG_INFINITY,
            }
        });
        let scores = &scores;
        let row_scores = |row: usize| (0..self.keys).map(move |it| scores.at(row, it));
        let max = |row: usize| row_scores(row).fold(f64::NEG_INFINITY, f64::max);
        let maxima: Vec<f64> = (0..n_rows).map(max).collect();
        // Without any visible key, all weights are 0.
        let exponential = |row: usize, score: f64| match maxima[row] {
            f64::NEG_INFINITY => 0.0,
            max => (score - max).exp(),
        };
        let total = |row: usize| row_scores(row).map(|it| exponential(row, it)).sum();
        let totals: Vec<f64> = (0..n_rows).map(total).collect();
        Matrix::new(n_rows, self.keys, |row, column| {
            let weight = exponential(row, scores.at(row, column));
            if totals[row] == 0.0 { 0.0 } else { weight / totals[row] }
        })
    }

    /// Returns whether a query of a head of keys sees a key.
    fn is_seen(&self, head: usize, query: usize, key: usize, inputs: &[&[f64]]) -> bool {
        let position = self.positions_input().map_or(query as f64, |it| inputs[it][query]);
        let before = position - key as f64;
        let is_before =
            !self.is_causal || before >= 0.0 && self.window.is_none_or(|it| before < it as f64);
        let Some((rows, of)) = self.segments.zip(self.segment_inputs()) else { return is_before };
        let row = head * rows / self.heads;
        is_before
            && inputs[of[0]][row * self.queries + query] == inputs[of[1]][row * self.keys + key]
    }

    /// Returns what is added to a score of the group of a head of keys.
    fn added(&self, head: usize, row: usize, key: usize, inputs: &[&[f64]]) -> f64 {
        let Some((bias, input)) = self.bias.zip(self.bias_input()) else { return 0.0 };
        let matrix = bias.matrix(head * self.group + row / self.queries);
        let of_matrix = row % self.queries % bias.rows;
        inputs[input][(matrix * bias.rows + of_matrix) * self.keys + key]
    }
}

/// A dense row-major matrix.
struct Matrix {
    elements: Vec<f64>,
    rows: usize,
    columns: usize,
}

impl Matrix {
    fn new(rows: usize, columns: usize, element: impl Fn(usize, usize) -> f64) -> Self {
        let elements = (0..rows * columns).map(|it| element(it / columns, it % columns)).collect();
        Self { elements, rows, columns }
    }

    fn at(&self, row: usize, column: usize) -> f64 {
        self.elements[row * self.columns + column]
    }

    fn transposed(&self) -> Self {
        Self::new(self.columns, self.rows, |row, column| self.at(column, row))
    }

    fn times(&self, other: &Self) -> Self {
        Self::new(self.rows, other.columns, |row, column| {
            (0..self.columns).map(|it| self.at(row, it) * other.at(it, column)).sum()
        })
    }
}

impl fmt::Display for Attention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (queries, keys, features) = (self.queries, self.keys, self.features);
        write!(f, "{} {} x ", self.form.name(), self.heads)?;
        if self.group != 1 {
            write!(f, "{} x ", self.group)?;
        }
        write!(f, "{queries}x{keys}x{features}")?;
        self.window.map_or(Ok(()), |it| write!(f, " window {it}"))?;
        self.segments.map_or(Ok(()), |_| f.write_str(" segments"))?;
        self.bias.map_or(Ok(()), |_| f.write_str(" bias"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_of_causal_attention_sees_the_keys_up_to_its_own() {
        for (queries, keys) in [(1, 1), (3, 3), (2, 5), (5, 2)] {
            let seen: usize = (0..queries).map(|query| (query + 1).min(keys)).sum();
            assert_eq!(Attention::causal_pairs(queries, keys), seen, "{queries} {keys}");
        }
    }

    #[test]
    fn a_query_sees_the_keys_of_its_window() {
        for (queries, keys, window) in [(1, 1, 1), (5, 5, 2), (5, 9, 3), (9, 3, 2), (4, 4, 7)] {
            let is_seen = |query: usize, key: usize| key <= query && key + window > query;
            let n_seen = |query: usize| (0..keys).filter(|key| is_seen(query, *key)).count();
            let seen: usize = (0..queries).map(n_seen).sum();
            let found = Attention::seen_pairs(queries, keys, Some(window));
            assert_eq!(found, seen, "{queries} {keys} {window}");
        }
    }
}
