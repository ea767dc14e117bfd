//! `attend`: scaled dot-product attention in one kernel, and its gradients.
//!
//! Each gradient is an operator, so that each can be split: that of queries along the queries, and
//! those of keys and values as sums over them. All three compute the same scores, so one kernel
//! computes them ([`Attend::joined`]): they have one partitioning, and read what the gradient of
//! queries converts.

pub(crate) mod bias;
pub(crate) mod score;

use std::{collections::BTreeSet, fmt};

use soybean_plan::{
    Attention, AttentionForm, AttentionLayout, Combine, Kernel, Mesh, ScalarProgram, ScoreFunction,
    Shape, Tile,
};

use crate::{
    graph::Graph,
    operator::{GradientBuilder, Operator, OperatorCall, Rounding, Rules},
    signature::{Dim, FactorId, Signature, factor_id},
    value::Value,
};

/// `softmax(scale * query key^T) value` for queries `[.., n, d]`, keys `[.., m, d]` and values
/// `[.., m, e]`. The leading dims can be split, and so can the queries; keys and values are whole.
/// Queries of grouped heads have one more dim before `n`: the heads that share keys and values.
/// Where it is split, ranks read the same keys, and their gradients are partial sums.
///
/// With a halo ([`Attend::reads_halo`]), keys and values are split like the queries. A rank also
/// reads the keys before its own that its first queries see. For gradients it reads the queries
/// after its own that see its last keys, and all that these see. It computes their gradients, too,
/// and drops those of other ranks' queries and keys.
///
/// Gradients read the result's gradient `[.., n, e]` as fourth operand. Then follow the segments of
/// queries `[.., n]` and of keys `[.., m]`, which have the first of the leading dims, and the bias
/// `[.., n, m]`, whose dims but the last may be 1 instead. A function of scores that reads heads is
/// followed by their numbers, in the last leading dims. Causal attention, and a function that reads
/// positions, have the positions `[n]` of the queries as last operand. A query sees the keys of its
/// own segment.
///
/// The gradient of the bias is made of other operators ([`bias`]), without a function of scores.
#[derive(Clone, Debug, PartialEq)]
pub struct Attend {
    /// Forward, or one of the gradients.
    pub form: AttentionForm,
    /// The number of queries, `n`.
    pub queries: usize,
    /// The number of keys, `m`.
    pub keys: usize,
    /// The elements of a query and of a key, `d`.
    pub features: usize,
    /// The elements of a value, `e`.
    pub width: usize,
    /// True if the query at position `i` attends to keys `0..=i` only.
    pub is_causal: bool,
    /// The most keys that a query of causal attention attends to: the last ones; all if `None`.
    pub window: Option<usize>,
    /// The factor of the scores.
    pub scale: f64,
    /// True if queries and keys have segments.
    pub has_segments: bool,
    /// The score of a key, from the inputs of a [`ScoreFunction`]; the scaled product if `None`.
    pub score: Option<ScalarProgram>,
    /// True if a bias is added to the scores.
    pub has_bias: bool,
    /// True if a rank that has some of the queries reads only the keys in their windows, not all.
    /// The queries are those of the keys' positions.
    pub reads_halo: bool,
}

impl Attend {
    /// Returns the gradients of queries, keys and values of the attention whose gradient this is,
    /// if all three are computed.
    pub(crate) fn gradients(graph: &Graph, value: Value) -> Option<[Value; 3]> {
        let this: &Self = graph.operator_as(value)?;
        if this.form == AttentionForm::Forward {
            return None;
        }
        let operands = graph.operands(value);
        let users = graph.users(operands[0]);
        let of_form = |form| {
            let wanted = Self { form, ..this.clone() };
            let is_wanted = |it: &&Value| {
                graph.operator_as(**it) == Some(&wanted) && graph.operands(**it) == operands
            };
            users.iter().find(is_wanted).copied()
        };
        Some([
            of_form(AttentionForm::QueryGradient)?,
            of_form(AttentionForm::KeyGradient)?,
            of_form(AttentionForm::ValueGradient)?,
        ])
    }

    /// Returns the gradient of queries whose kernel computes this gradient of keys or values, too.
    pub(crate) fn computed_with(graph: &Graph, value: Value) -> Option<Value> {
        Self::gradients(graph, value).map(|it| it[0]).filter(|it| *it != value)
    }

    /// Returns the operator whose kernel computes all three gradients.
    pub(crate) fn joined(&self) -> Self {
        Self { form: AttentionForm::Gradient, ..self.clone() }
    }

    /// Returns whether halos move at most as much as keys and values of all positions, where
    /// `group` heads of queries share keys.
    ///
    /// Between two neighbors, a halo of `w` rows moves keys and values once forward. For gradients,
    /// it moves them twice if ranks keep no halos, and the queries and gradients of each head once:
    /// `(6 + 2 group) w` rows. To gather `n` keys and values moves `2 n`, and to add up their
    /// gradients perhaps more.
    pub(crate) fn has_short_window(&self, group: usize) -> bool {
        let is_plain = !self.has_segments && !self.has_bias && self.score.is_none();
        let is_short = |window: usize| (window - 1).saturating_mul(3 + group) <= self.queries;
        is_plain && self.queries == self.keys && self.window.is_some_and(is_short)
    }

    /// Returns the lengths of the sequences of a graph whose causal attention reads no halos. The
    /// search balances them: each rank has ranges from all over them.
    pub(crate) fn balanced_sequences(graph: &Graph) -> BTreeSet<usize> {
        let attentions = graph.values().filter_map(|it| graph.operator_as::<Self>(it));
        attentions.filter(|it| it.is_causal && !it.reads_halo).map(|it| it.queries).collect()
    }

    /// Returns the number of keys before a query that it sees, if ranks have them as a halo.
    fn halo(&self) -> Option<usize> {
        self.window.filter(|_| self.reads_halo).map(|it| it - 1)
    }

    /// Returns the number of queries after its own that a rank has as a halo.
    fn queries_after(&self) -> usize {
        match self.form {
            AttentionForm::Forward => 0,
            AttentionForm::Gradient
            | AttentionForm::QueryGradient
            | AttentionForm::KeyGradient
            | AttentionForm::ValueGradient => self.halo().unwrap_or(0),
        }
    }

    /// Returns the dims of queries and of keys, given the factor of the queries.
    fn rows(&self, factor: FactorId) -> [Dim; 2] {
        let queries = Dim::new(self.queries, Some(factor));
        let Some(before) = self.halo() else { return [queries, Dim::new(self.keys, None)] };
        let with = |before| Dim { halo: Some([before, self.queries_after()]), ..queries };
        [with(0), with(before)]
    }

    /// Returns the number of pairs of the first queries of a sequence and the keys that they see. A
    /// halo after the sequence has keys, too.
    fn seen_pairs(&self, queries: usize) -> usize {
        Attention::seen_pairs(queries, self.keys + self.queries_after(), self.window)
    }

    /// Returns the position of the first operand after those that are multiplied.
    fn n_products(&self) -> usize {
        if self.form == AttentionForm::Forward { 3 } else { 4 }
    }

    /// Returns the position of the segments of queries, which those of keys follow.
    fn segments_at(&self) -> Option<usize> {
        self.has_segments.then(|| self.n_products())
    }

    /// Returns the position of the bias.
    fn bias_at(&self) -> Option<usize> {
        self.has_bias.then(|| self.n_products() + if self.has_segments { 2 } else { 0 })
    }

    /// Returns the position of the numbers of heads.
    fn heads_at(&self) -> Option<usize> {
        let n_before =
            self.n_products() + if self.has_segments { 2 } else { 0 } + usize::from(self.has_bias);
        self.reads_integer(ScoreFunction::HEAD).then_some(n_before)
    }

    /// Returns whether the positions of queries are the last operand.
    pub(crate) fn has_positions(&self) -> bool {
        self.is_causal || self.reads_integer(ScoreFunction::QUERY)
    }

    /// Returns whether the function of scores reads this integer.
    fn reads_integer(&self, input: u8) -> bool {
        self.score.as_ref().is_some_and(|it| it.reads_integers(input.into()))
    }

    /// Returns the function of scores of a kernel, given the shape of the numbers of heads.
    fn score_function(&self, heads: Option<&Shape>) -> Option<ScoreFunction> {
        let score = self.score.clone()?;
        let slope = match self.form {
            AttentionForm::Forward => None,
            AttentionForm::Gradient
            | AttentionForm::QueryGradient
            | AttentionForm::KeyGradient
            | AttentionForm::ValueGradient => score::slope(&score),
        };
        let heads = heads.map(|it| it.iter().product());
        Some(ScoreFunction { score, slope, heads })
    }

    /// Returns the kernel, given the shapes of a rank's parts of the operands.
    fn attention(&self, operands: &[Shape]) -> Attention {
        let query = &operands[0];
        let (n_leading, n_shared) = (query.len() - 2, operands[1].len() - 2);
        let heads = query[..n_shared].iter().product();
        let group = query[n_shared..n_leading].iter().product();
        let (queries, keys) = (query[n_leading], operands[1][n_shared]);
        let n_rows = |at: usize| operands[at].iter().take(operands[at].len() - 1).product();
        let all = self.queries;
        // Positions have no halo.
        let is_part = self.has_positions() && operands.last().is_some_and(|it| it[0] < all);
        let pairs = match self.is_causal {
            // On average over the parts of a sequence.
            true if all > 0 => self.seen_pairs(all) * queries / all,
            true | false => queries * keys,
        };
        Attention {
            form: self.form,
            heads,
            group,
            queries,
            keys,
            features: self.features,
            width: self.width,
            is_causal: self.is_causal,
            window: self.window,
            is_part,
            halo: self.halo().filter(|_| is_part),
            segments: self.segments_at().map(n_rows),
            score: self.score_function(self.heads_at().map(|it| &operands[it])),
            bias: self.bias_at().map(|it| bias::matrices(&operands[it], query)),
            pairs,
            scale: self.scale,
            layout: AttentionLayout::HEADS_FIRST,
            saves_logarithms: false,
        }
    }
}

impl Rules for Attend {
    fn signature(&self, operands: &[Shape]) -> Signature {
        // Those of keys, and perhaps the heads of queries that share them.
        let leading = &operands[0][..operands[0].len() - 2];
        let of_keys = &leading[..operands[1].len() - 2];
        let [of_queries, rows_of_keys] = self.rows(factor_id(leading.len()));
        let whole = |extent| Dim::new(extent, None);
        let dims = |leading: &[usize], rows: Dim, columns: usize| -> Vec<Dim> {
            let leading = leading.iter().enumerate();
            let leading = leading.map(|(dim, &extent)| Dim::new(extent, Some(factor_id(dim))));
            leading.chain([rows, whole(columns)]).collect()
        };
        let query = dims(leading, of_queries, self.features);
        let key = dims(of_keys, rows_of_keys, self.features);
        let value = dims(of_keys, rows_of_keys, self.width);
        let attended = dims(leading, of_queries, self.width);
        let mut read = vec![query.clone(), key.clone(), value.clone()];
        if self.form != AttentionForm::Forward {
            read.push(attended.clone());
        }
        if let Some(at) = self.segments_at() {
            let n_rows = operands[at].len() - 1;
            let rows = |last| dims(&leading[..n_rows], last, 0)[..=n_rows].to_vec();
            read.extend([rows(of_queries), rows(rows_of_keys)]);
        }
        if let Some(at) = self.bias_at() {
            let all = dims(leading, of_queries, self.keys).into_iter().zip(&operands[at][..]);
            let dim = |(dim, extent): (Dim, &usize)| match dim.extent == *extent {
                true => dim,
                false => whole(*extent),
            };
            read.push(all.map(dim).collect());
        }
        if let Some(at) = self.heads_at() {
            let first = leading.len() - operands[at].len();
            read.push(query[first..leading.len()].to_vec());
        }
        if self.has_positions() {
            // Those of a rank's own queries tell all others.
            read.push(vec![Dim { halo: None, ..of_queries }]);
        }
        let result = match self.form {
            AttentionForm::Forward => attended,
            AttentionForm::QueryGradient | AttentionForm::Gradient => query,
            AttentionForm::KeyGradient => key,
            AttentionForm::ValueGradient => value,
        };
        let factors = leading.iter().copied().chain([self.queries]).collect();
        Signature::new(factors, read, result, Combine::Sum)
    }

    fn gradient(
        &self,
        call: &OperatorCall<'_>,
        builder: &mut dyn GradientBuilder,
    ) -> Vec<Option<Value>> {
        if self.form != AttentionForm::Forward {
            // Only gradients are made of it, and those are not differentiated again.
            return vec![None; call.operands.len()];
        }
        let (operands, masks) = call.operands.split_at(self.n_products());
        let read = [operands, &[call.gradient], masks].concat();
        let forms = [
            AttentionForm::QueryGradient,
            AttentionForm::KeyGradient,
            AttentionForm::ValueGradient,
        ];
        let mut gradient = |(form, &operand): (AttentionForm, &Value)| {
            let operator = Self { form, ..self.clone() };
            builder.needs_gradient(operand).then(|| builder.add(operator.into(), &read))
        };
        let mut gradients: Vec<Option<Value>> =
            forms.into_iter().zip(operands).map(&mut gradient).collect();
        gradients.resize(call.operands.len(), None);
        if let Some(at) = self.bias_at().filter(|it| builder.needs_gradient(call.operands[*it])) {
            gradients[at] = Some(bias::gradient(self, call, builder));
        }
        gradients
    }

    // Of a query: two products with its keys forward, five backward. The scores and the gradients
    // of weights, which all gradients need, count for queries. They count nowhere if queries have
    // no gradient.
    fn flops_per_point(&self) -> u64 {
        let of_features = match self.form {
            AttentionForm::Forward => self.features + self.width,
            AttentionForm::Gradient => 3 * self.features + 2 * self.width,
            AttentionForm::QueryGradient => 2 * self.features + self.width,
            AttentionForm::KeyGradient => self.features,
            AttentionForm::ValueGradient => self.width,
        };
        let products = match self.window {
            // On average over the queries.
            Some(_) => 2 * self.seen_pairs(self.queries) * of_features / self.queries.max(1),
            None if self.is_causal => self.keys * of_features,
            None => 2 * self.keys * of_features,
        };
        products as u64
    }

    fn rounding(&self) -> Rounding {
        Rounding::Product
    }

    fn kernel(&self, operands: &[Shape], _result: &Shape) -> Option<Kernel> {
        Some(self.attention(operands).into())
    }

    fn on_busiest_rank(&self, kernel: Kernel, operands: &[Tile], mesh: &Mesh) -> Kernel {
        let (Kernel::Attend(attention), Some(positions)) = (&kernel, operands.last()) else {
            return kernel;
        };
        if !attention.is_causal || !attention.is_part {
            return kernel;
        }
        let tile = Tile { shape: positions.padded, ..*positions };
        let after = self.queries_after();
        let mut pairs = vec![0; mesh.group_size(tile.tiling.axes_of(0))];
        for (part, range) in tile.ranges_of_parts(0, mesh) {
            pairs[part] += self.seen_pairs(range.end + after) - self.seen_pairs(range.start);
        }
        let pairs = pairs.into_iter().max().expect("a tensor has a part");
        Attention { pairs, ..attention.clone() }.into()
    }

    fn resized(&self, factors: &[usize], _result: Shape) -> Option<Operator> {
        let queries = factors.last().copied().unwrap_or(self.queries);
        Some(Self { queries, ..self.clone() }.into())
    }

    // Segments and positions are no terms of a sum. The bias of padding is, and so are the numbers
    // of heads, so that its sums are numbers.
    fn adds_up(&self, position: usize) -> bool {
        position < self.n_products() || [self.bias_at(), self.heads_at()].contains(&Some(position))
    }
}

impl fmt::Display for Attend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.form.name())?;
        if self.is_causal {
            f.write_str(" causal")?;
        }
        self.window.map_or(Ok(()), |it| write!(f, " window {it}"))?;
        if self.reads_halo {
            f.write_str(" halo")?;
        }
        if self.has_segments {
            f.write_str(" segments")?;
        }
        if let Some(score) = &self.score {
            write!(f, " score {{{score}}}")?;
        }
        if self.has_bias { f.write_str(" bias") } else { Ok(()) }
    }
}
