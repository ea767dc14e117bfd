//! Pairwise min-sum problems: unary and pairwise cost tables.

use std::rc::Rc;

/// Variables with unary costs, and costs of pairs of variables.
#[derive(Clone, Debug, Default)]
pub struct PairwiseProblem {
    /// The cost of each label, for each variable.
    pub unary: Vec<Vec<i64>>,
    /// The pairwise tables, at most one for each pair of variables.
    pub edges: Vec<Edge>,
}

/// The costs of the labels of two variables together.
#[derive(Clone, Debug)]
pub struct Edge {
    /// The variable with the smaller number.
    pub first: usize,
    /// The variable with the larger number.
    pub second: usize,
    /// The costs in row-major order: `table[label of first * n_labels of second + label of
    /// second]`. Equal tables should share one allocation.
    pub table: Rc<[i64]>,
}

impl PairwiseProblem {
    /// Returns the cost of an assignment.
    ///
    /// # Panics
    /// If `labels` has no entry for a variable, or one that is not a label of its variable.
    #[must_use]
    pub fn cost(&self, labels: &[usize]) -> i64 {
        let unary: i64 = self.unary.iter().zip(labels).map(|(costs, &label)| costs[label]).sum();
        let pair = |edge: &Edge| {
            edge.table[labels[edge.first] * self.unary[edge.second].len() + labels[edge.second]]
        };
        unary + self.edges.iter().map(pair).sum::<i64>()
    }

    /// Panics if a variable has no label, or if an edge does not fit its variables.
    pub(crate) fn assert_valid(&self) {
        assert!(self.unary.iter().all(|it| !it.is_empty()), "every variable has a label");
        for Edge { first, second, table } in &self.edges {
            assert!(first < second, "an edge leads from the smaller variable to the larger one");
            let n_pairs = self.unary[*first].len() * self.unary[*second].len();
            assert_eq!(table.len(), n_pairs, "the table of ({first}, {second}) has all pairs");
        }
    }
}

/// Returns the entries of a table in column-major order, for `n_second` columns.
pub(crate) fn transposed(table: &[i64], n_second: usize) -> Vec<i64> {
    let mut entries = Vec::with_capacity(table.len());
    let mut column = 0;
    while column < n_second {
        let mut at = column;
        while at < table.len() {
            entries.push(table[at]);
            at += n_second;
        }
        column += 1;
    }
    entries
}
