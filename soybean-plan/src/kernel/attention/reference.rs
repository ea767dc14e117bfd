//! The meaning of attention, in double precision.

use super::{Attention, AttentionForm, AttentionLayout, ScoreFunction};

impl Attention {
    /// Returns the results for these inputs.
    pub(super) fn reference(&self, inputs: &[&[f64]]) -> Vec<Vec<f64>> {
        let Self { features, width, .. } = *self;
        let (of_queries, of_keys) = ([self.group, self.queries], [1, self.keys]);
        let lengths = self.result_lengths().into_iter();
        let mut results: Vec<Vec<f64>> = lengths.map(|it| vec![0.0; self.heads * it]).collect();
        for head in 0..self.heads {
            let matrix = |input: usize, rows: [usize; 2], columns: usize| {
                let alternating = self.layout.operands[input];
                let start = |row| row_start(alternating, head, rows, row) * columns;
                let n_rows = rows[0] * rows[1];
                Matrix::new(n_rows, columns, |row, column| inputs[input][start(row) + column])
            };
            let mut put = |result: usize, rows: [usize; 2], from: &Matrix| {
                for (row, elements) in from.elements.chunks(from.columns.max(1)).enumerate() {
                    let alternating = self.layout.results[result];
                    let start = row_start(alternating, head, rows, row) * from.columns;
                    results[result][start..][..from.columns].copy_from_slice(elements);
                }
            };
            let query = matrix(0, of_queries, features);
            let key = matrix(1, of_keys, features);
            let value = matrix(2, of_keys, width);
            let products = query.times(&key.transposed());
            let (weights, logarithms) = self.weights(&products, head, inputs);
            if self.form == AttentionForm::Forward {
                put(0, of_queries, &weights.times(&value));
                if let Some(saved) = results.get_mut(1) {
                    saved[head * query.rows..][..query.rows].copy_from_slice(&logarithms);
                }
                continue;
            }
            // d products = scale * slope * weights * (d weights - their mean by the weights of the
            // row)
            let gradient = matrix(3, of_queries, width);
            let by_weight = gradient.times(&value.transposed());
            let means = self.means(&weights.times(&value), &gradient, head, inputs);
            let by_product = Matrix::new(query.rows, self.keys, |row, column| {
                let weight = weights.at(row, column);
                if weight == 0.0 {
                    return 0.0;
                }
                let by_score = weight * (by_weight.at(row, column) - means[row]);
                let product = self.scale * products.at(row, column);
                self.scale * by_score * self.slope(product, [head, row, column], inputs)
            });
            let gradients = [
                self.form.has_query_gradient().then(|| (of_queries, by_product.times(&key))),
                self.form
                    .has_key_gradient()
                    .then(|| (of_keys, by_product.transposed().times(&query))),
                self.form
                    .has_value_gradient()
                    .then(|| (of_keys, weights.transposed().times(&gradient))),
            ];
            for (result, (rows, gradient)) in gradients.into_iter().flatten().enumerate() {
                put(result, rows, &gradient);
            }
        }
        results
    }

    /// Returns the scores of each query of the group of a head of keys: minus infinity for keys
    /// that it does not see.
    fn scores(&self, products: &Matrix, head: usize, inputs: &[&[f64]]) -> Matrix {
        Matrix::new(products.rows, self.keys, |row, column| {
            match self.is_seen(head, row % self.queries, column, inputs) {
                true => {
                    let product = self.scale * products.at(row, column);
                    let score = self.score(product, [head, row, column], inputs);
                    score + self.added(head, row, column, inputs)
                }
                false => f64::NEG_INFINITY,
            }
        })
    }

    /// Returns the softmax of the scores of each query of the group of a head of keys, and the
    /// logarithms of the sums of their exponentials. Keys that a query does not see weigh 0.
    fn weights(&self, products: &Matrix, head: usize, inputs: &[&[f64]]) -> (Matrix, Vec<f64>) {
        let (scores, n_rows) = (self.scores(products, head, inputs), products.rows);
        let logarithms: Vec<f64> = match self.saved_inputs() {
            Some([_, input]) => inputs[input][head * n_rows..][..n_rows].to_vec(),
            None => (0..n_rows).map(|it| scores.logarithm(it)).collect(),
        };
        let weights = Matrix::new(n_rows, self.keys, |row, column| match scores.at(row, column) {
            f64::NEG_INFINITY => 0.0,
            score => (score - logarithms[row]).exp(),
        });
        (weights, logarithms)
    }

    /// Returns the dot product of each row of the result and its gradient, of the saved result if
    /// there is one.
    fn means(
        &self,
        result: &Matrix,
        gradient: &Matrix,
        head: usize,
        inputs: &[&[f64]],
    ) -> Vec<f64> {
        let element = |row: usize, column: usize| match self.saved_inputs() {
            Some([input, _]) => {
                let rows = [self.group, self.queries];
                let start = row_start(self.layout.operands[3], head, rows, row) * self.width;
                inputs[input][start + column]
            }
            None => result.at(row, column),
        };
        let mean =
            |row: usize| (0..self.width).map(|it| element(row, it) * gradient.at(row, it)).sum();
        (0..gradient.rows).map(mean).collect()
    }

    /// Returns whether a query of a head of keys sees a key.
    fn is_seen(&self, head: usize, query: usize, key: usize, inputs: &[&[f64]]) -> bool {
        let before = self.position(query, inputs) - key as f64;
        let is_before = !self.is_causal
            || before >= 0.0
                && self.window.is_none_or(|it| before < it as f64)
                && key as f64 >= self.first_key(inputs);
        let Some((rows, of)) = self.segments.zip(self.segment_inputs()) else { return is_before };
        let row = head * rows / self.heads;
        is_before
            && inputs[of[0]][row * self.queries + query] == inputs[of[1]][row * self.keys + key]
    }

    /// Returns the position of a query among the keys.
    fn position(&self, query: usize, inputs: &[&[f64]]) -> f64 {
        match (self.halo, self.positions_input()) {
            (Some(halo), _) => (halo + query) as f64,
            (None, Some(input)) => inputs[input][query],
            (None, None) => query as f64,
        }
    }

    /// Returns the number of keys of the halo that lie before the sequence.
    fn first_key(&self, inputs: &[&[f64]]) -> f64 {
        let of_halo = self.halo.zip(self.positions_input());
        of_halo.map_or(0.0, |(halo, input)| halo as f64 - inputs[input][0])
    }

    /// Returns the score of a row of the group of a head of keys and of a key, from the scaled
    /// product.
    fn score(&self, product: f64, at: [usize; 3], inputs: &[&[f64]]) -> f64 {
        let Some(ScoreFunction { score, .. }) = &self.score else { return product };
        score.evaluate(&self.score_inputs(product, at, inputs), &[])[0]
    }

    /// Returns the derivative of [`Self::score`] by the scaled product.
    fn slope(&self, product: f64, at: [usize; 3], inputs: &[&[f64]]) -> f64 {
        let slope = self.score.as_ref().and_then(|it| it.slope.as_ref());
        slope.map_or(1.0, |it| it.evaluate(&self.score_inputs(product, at, inputs), &[])[0])
    }

    fn score_inputs(
        &self,
        product: f64,
        [head, row, key]: [usize; 3],
        inputs: &[&[f64]],
    ) -> [f64; 4] {
        let position = self.position(row % self.queries, inputs);
        let head = head * self.group + row / self.queries;
        let number = self.heads_input().zip(self.n_head_numbers());
        let head = number.map_or(0.0, |(input, n)| inputs[input][head % n]);
        [product, position, key as f64, head]
    }

    /// Returns what is added to a score of the group of a head of keys.
    fn added(&self, head: usize, row: usize, key: usize, inputs: &[&[f64]]) -> f64 {
        let Some((bias, input)) = self.bias.zip(self.bias_input()) else { return 0.0 };
        let matrix = bias.matrix(head * self.group + row / self.queries);
        let of_matrix = row % self.queries % bias.rows;
        inputs[input][(matrix * bias.rows + of_matrix) * self.keys + key]
    }
}

/// Returns the place of a row of a head of keys, or of the group of heads of queries that share it,
/// among the rows of all heads.
const fn row_start(
    alternating: usize,
    head: usize,
    [group, n_rows]: [usize; 2],
    row: usize,
) -> usize {
    let first = AttentionLayout::first_row(alternating, head * group + row / n_rows, n_rows);
    first + row % n_rows * alternating
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

    /// Returns the logarithm of the sum of the exponentials of a row.
    fn logarithm(&self, row: usize) -> f64 {
        let row = &self.elements[row * self.columns..][..self.columns];
        match row.iter().copied().fold(f64::NEG_INFINITY, f64::max) {
            f64::NEG_INFINITY => f64::NEG_INFINITY,
            most => most + row.iter().map(|it| (it - most).exp()).sum::<f64>().ln(),
        }
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
