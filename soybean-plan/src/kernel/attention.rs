//! Scaled dot-product attention and its gradients.

mod reference;

use std::fmt;

use super::KernelDescriptor;
use crate::{KernelCategory, ScalarProgram, WorkKind, descriptor::descriptor};

descriptor! {
    /// Scaled dot-product attention of each head: `softmax(scale * query key^T) value`.
    ///
    /// Reads queries `[heads, group, queries, features]`, keys `[heads, keys, features]` and
    /// values `[heads, keys, width]`. The `group` heads of queries of a head of keys share its keys
    /// and values. Forms with gradients then read the gradient of the result. Further inputs are
    /// there if they are asked for, in this order: the segments of queries `[rows, queries]` and of
    /// keys `[rows, keys]` as `i32`, the bias `[matrices, rows, keys]`, the numbers of heads of
    /// queries that a [`ScoreFunction`] reads, as `i32`, and, if [`Self::has_positions`], the
    /// positions of the queries in the whole sequence, increasing, as `i32`, which matter if
    /// [`Self::is_part`]. With a [`Self::halo`], only the position of the first query is read.
    /// [`Self::saves_logarithms`] adds the last inputs.
    ///
    /// All are dense and row-major, except that the rows of some heads may alternate
    /// ([`AttentionLayout`]). The computation is in `f32`, and the matrix of scores is never in
    /// memory as a whole. A query that sees no key has a result and gradients of 0.
    #[derive(Clone, Debug, PartialEq)]
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
        /// The number of keys before the first query, if a part of a causal sequence has only the
        /// keys around it: query `i` is at the position of key `halo + i`. Keys before the sequence
        /// are not seen. All keys of the sequence if `None`. A function of scores would count
        /// positions from the first key, so there is none.
        pub halo: Option<usize>,
        /// The number of rows of segments; each row is that of equally many heads of keys. A query
        /// sees only the keys of its own segment. All keys if `None`.
        pub segments: Option<usize>,
        /// The function of scaled products that scores are; the products themselves if `None`.
        pub score: Option<ScoreFunction>,
        /// The numbers that are added to scores. A key whose number is minus infinity is
        /// not seen.
        pub bias: Option<AttentionBias>,
        /// The pairs of a query and a key that it sees, of each head of queries. If ranks have
        /// different numbers, the largest.
        pub pairs: usize,
        /// The factor of the scores.
        pub scale: f64,
        /// The order of heads and rows in memory.
        pub layout: AttentionLayout,
        /// True if the logarithms of the rows are saved: the forward form has the second result
        /// `[heads, group, queries]` in `f32`, the natural logarithm of the sum of the exponentials
        /// of each query's scores, or minus infinity if the query sees no key. Gradients then read
        /// the result, in the layout of its gradient, and these. Only GPUs have this form.
        pub saves_logarithms: bool,
    }
}

descriptor! {
    /// The order of heads and rows in the tensors of an [`Attention`].
    ///
    /// A tensor has a number `n` of heads whose rows alternate: it is `[heads / n, rows, n,
    /// columns]`. With 1, one head follows another. Heads of queries are those of all groups, and
    /// whole groups alternate.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AttentionLayout {
        /// The numbers of queries, keys, values and the gradient of the result.
        pub operands: [usize; 4],
        /// The numbers of the results. There are fewer results in some forms.
        pub results: [usize; 3],
    }
}

impl AttentionLayout {
    /// One head after another.
    pub const HEADS_FIRST: Self = Self { operands: [1; 4], results: [1; 3] };

    /// Returns the place of the first row of a head among the rows of all heads, which have
    /// `n_rows` each. The next ones are `alternating` rows apart.
    #[must_use]
    pub const fn first_row(alternating: usize, head: usize, n_rows: usize) -> usize {
        head / alternating * alternating * n_rows + head % alternating
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

descriptor! {
    /// The scores of an [`Attention`] as a function of products and positions.
    ///
    /// Programs read the scaled product of a query and a key as input 0. Integers are the position
    /// of the query, [`Self::QUERY`], that of the key, [`Self::KEY`], and the number of the head of
    /// queries, [`Self::HEAD`]. A key whose score is minus infinity is not seen.
    #[derive(Clone, Debug, PartialEq)]
    pub struct ScoreFunction {
        /// The score.
        pub score: ScalarProgram,
        /// The derivative of the score by the product, which gradients read; 1 if `None`.
        pub slope: Option<ScalarProgram>,
        /// The number of different heads, which heads of queries are in turn. None are read if
        /// `None`.
        pub heads: Option<usize>,
    }
}

impl ScoreFunction {
    /// The input that is the position of the query.
    pub const QUERY: u8 = 1;
    /// The input that is the position of the key.
    pub const KEY: u8 = 2;
    /// The input that is the number of the head.
    pub const HEAD: u8 = 3;
    /// The number of inputs.
    pub const N_INPUTS: usize = 4;
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
    /// Returns attention of heads with these numbers of queries and keys, and of elements of a
    /// query and of a value. Each head of queries has keys of its own and sees all of them, and
    /// scores are the products.
    #[must_use]
    pub const fn new(
        form: AttentionForm,
        heads: usize,
        [queries, keys]: [usize; 2],
        [features, width]: [usize; 2],
    ) -> Self {
        Self {
            form,
            heads,
            group: 1,
            queries,
            keys,
            features,
            width,
            is_causal: false,
            window: None,
            is_part: false,
            halo: None,
            segments: None,
            score: None,
            bias: None,
            pairs: queries * keys,
            scale: 1.0,
            layout: AttentionLayout::HEADS_FIRST,
            saves_logarithms: false,
        }
    }

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

    /// Returns the sizes of each operand: the heads for each head of keys, the rows of a head and
    /// the elements of a row.
    #[must_use]
    pub fn operand_sizes(&self) -> Vec<[usize; 3]> {
        let Self { group, queries, keys, features, width, .. } = *self;
        let operands = [[group, queries, features], [1, keys, features], [1, keys, width]];
        let is_gradient = self.form != AttentionForm::Forward;
        let gradient = is_gradient.then_some([group, queries, width]);
        operands.into_iter().chain(gradient).collect()
    }

    /// Returns the sizes of each result, as [`Self::operand_sizes`].
    #[must_use]
    pub fn result_sizes(&self) -> Vec<[usize; 3]> {
        let Self { form, group, queries, keys, features, width, .. } = *self;
        if form == AttentionForm::Forward {
            let logarithms = self.saves_logarithms.then_some([group, queries, 1]);
            return [[group, queries, width]].into_iter().chain(logarithms).collect();
        }
        let results = [
            form.has_query_gradient().then_some([group, queries, features]),
            form.has_key_gradient().then_some([1, keys, features]),
            form.has_value_gradient().then_some([1, keys, width]),
        ];
        results.into_iter().flatten().collect()
    }

    /// Returns the elements that a head of keys, with its heads of queries, has in each operand:
    /// the inputs before those of
    /// [`Self::mask_lengths`].
    #[must_use]
    pub fn input_lengths(&self) -> Vec<usize> {
        self.operand_sizes().into_iter().map(|it| it.into_iter().product()).collect()
    }

    /// Returns the elements of each input after the operands: segments, bias, numbers of heads and
    /// positions.
    #[must_use]
    pub fn mask_lengths(&self) -> Vec<usize> {
        let Self { queries, keys, .. } = *self;
        let segments = self.segments.into_iter().flat_map(|it| [it * queries, it * keys]);
        let bias = self.bias.map(|it| it.matrices * it.rows * keys);
        let positions =
            self.has_positions().then_some(if self.halo.is_some() { 1 } else { queries });
        segments.chain(bias).chain(self.n_head_numbers()).chain(positions).collect()
    }

    /// Returns the numbers of the last two inputs of gradients: the result and the logarithms, if
    /// they are saved.
    #[must_use]
    pub fn saved_inputs(&self) -> Option<[usize; 2]> {
        let is_reader = self.saves_logarithms && self.form != AttentionForm::Forward;
        let first = self.n_operands() + self.mask_lengths().len();
        is_reader.then_some([first, first + 1])
    }

    /// Returns whether the positions of queries are an input.
    #[must_use]
    pub fn has_positions(&self) -> bool {
        let reads = |it: &ScoreFunction| it.score.reads_integers(ScoreFunction::QUERY.into());
        self.is_causal || self.score.as_ref().is_some_and(reads)
    }

    /// Returns the number of the numbers of heads, which are an input if there are any.
    #[must_use]
    pub fn n_head_numbers(&self) -> Option<usize> {
        self.score.as_ref().and_then(|it| it.heads)
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

    /// Returns the number of the input that has the numbers of heads.
    #[must_use]
    pub fn heads_input(&self) -> Option<usize> {
        let n_biases = usize::from(self.bias.is_some());
        let at = self.n_operands() + self.n_segment_inputs() + n_biases;
        self.n_head_numbers().map(|_| at)
    }

    /// Returns the number of the input that has the positions of queries, unless these are those of
    /// the whole sequence.
    #[must_use]
    pub fn positions_input(&self) -> Option<usize> {
        let n_before = [self.bias.is_some(), self.n_head_numbers().is_some()]
            .map(usize::from)
            .iter()
            .sum::<usize>();
        let last = self.n_operands() + self.n_segment_inputs() + n_before;
        (self.has_positions() && self.is_part).then_some(last)
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
        self.result_sizes().into_iter().map(|it| it.into_iter().product()).collect()
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
        self.reference(inputs)
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
        self.halo.map_or(Ok(()), |it| write!(f, " halo {it}"))?;
        self.segments.map_or(Ok(()), |_| f.write_str(" segments"))?;
        if let Some(it) = &self.score {
            write!(f, " score {{{}}}", it.score)?;
        }
        self.bias.map_or(Ok(()), |_| f.write_str(" bias"))?;
        if self.saves_logarithms {
            f.write_str(" saved logarithms")?;
        }
        match self.layout {
            AttentionLayout::HEADS_FIRST => Ok(()),
            AttentionLayout { operands, results } => write!(
                f,
                " alternating {:?} -> {:?}",
                &operands[..self.n_operands()],
                &results[..self.result_lengths().len()]
            ),
        }
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
