//! Enumeration of the costs of a conditioned subproblem near its lower bound.

use super::{
    conditioning::{Conditioned, Marginals},
    template::Template,
};
use crate::{
    elimination::Elimination,
    elimination_order::{EliminationOrder, Limits},
    problem::{Edge, PairwiseProblem},
    round::ENTRIES_OF_COMBINATION,
    solve::labels_at,
};

/// The number of passes that rule out labels, half of them forward. Each costs little compared with
/// the elimination work that it saves.
const N_PASSES: u64 = 32;

/// A conditioned subproblem with all variables eliminated except those of the separators.
pub(super) struct ConditionedTable {
    /// The labels of each variable that are within the limit.
    kept: Vec<Vec<usize>>,
    merged: MergedSeparators,
    elimination: Elimination,
    pub(super) rows: Vec<Row>,
}

/// A label pair of the left and of the right separator, and the least cost with them.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) separators: [usize; 2],
    pub(super) cost: i64,
}

/// The error that an enumeration would take more work than it may.
pub(super) struct WorkExceeded;

impl ConditionedTable {
    /// Enumerates all rows that cost at most the limit; `None` if there are none.
    pub(super) fn new(
        template: &Template,
        conditioned: &mut Conditioned,
        limit: i64,
        work: &mut u64,
    ) -> Result<Option<Self>, WorkExceeded> {
        *work = work.saturating_sub(N_PASSES * template.pass_work());
        let Some((kept, marginals)) = prune(template, conditioned, limit) else { return Ok(None) };
        let n_labels = template.n_labels();
        let last = kept.len() - 2;
        let pairs = [0, 1].map(|side| {
            let [rows, columns] = [0, 1].map(|it| &kept[side * last + it]);
            let all = (0..rows.len()).flat_map(|row| (0..columns.len()).map(move |it| [row, it]));
            let number =
                |[row, column]: [usize; 2]| rows[row] * n_labels[side][1] + columns[column];
            let is_within = |it: &[usize; 2]| marginals[side][number(*it)] <= limit;
            all.filter(is_within).map(|it| (it, number(it))).collect()
        });
        let merged = MergedSeparators { pairs };
        if merged.pairs.iter().any(Vec::is_empty) {
            return Ok(None);
        }
        let problem = merged.problem(&conditioned.reparametrization.restricted(&kept));
        let n = problem.unary.len();
        let mut keep = vec![false; n];
        (keep[0], keep[n - 1]) = (true, true);
        let limits = Limits { work: *work / ENTRIES_OF_COMBINATION, ..Limits::NONE };
        let order = EliminationOrder::keeping(&problem, limits, &keep);
        if !order.is_complete {
            return Err(WorkExceeded);
        }
        *work -= order.work * ENTRIES_OF_COMBINATION;
        let mut elimination = Elimination::new(&problem);
        elimination.run(&order);
        let rows = rows(&elimination, &merged, limit);
        Ok(Some(Self { kept, merged, elimination, rows }))
    }

    /// Returns the best labels with the separators' labels of a row.
    pub(super) fn labels(&self, row: &Row) -> Vec<usize> {
        let at = |side: usize| {
            let is_wanted = |it: &([usize; 2], usize)| it.1 == row.separators[side];
            self.merged.pairs[side].iter().position(is_wanted).expect("rows are of these pairs")
        };
        let n = self.kept.len() - 2;
        let mut merged = vec![0; n];
        (merged[0], merged[n - 1]) = (at(0), at(1));
        self.elimination.complete(&mut merged);
        let [left, right] =
            [(0, 0), (1, n - 1)].map(|(side, it)| self.merged.pairs[side][merged[it]].0);
        let positions = [&left[..], &merged[1..n - 1], &right].concat();
        labels_at(&self.kept, &positions)
    }
}

/// Returns the labels of each variable that are within the limit, and the marginals of the
/// separators; `None` if a variable has no label left.
fn prune(
    template: &Template,
    conditioned: &mut Conditioned,
    limit: i64,
) -> Option<(Vec<Vec<usize>>, Marginals)> {
    let mut kept: Vec<Vec<usize>> = conditioned.reparametrization.pass(limit).within;
    for _ in 0..N_PASSES - 3 {
        conditioned.reparametrization.prune(limit, &mut kept);
    }
    // The first pass went backward, and there were as many forward. So the next one is backward and
    // ends at the left separator.
    let marginals = template.separators.map(|separator| {
        conditioned.reparametrization.prune(limit, &mut kept);
        conditioned.reparametrization.edge_min_marginals(separator)
    });
    kept.iter().all(|it| !it.is_empty()).then_some((kept, marginals))
}

/// Returns the cost of each two label pairs of the separators, with all else eliminated.
fn rows(elimination: &Elimination, merged: &MergedSeparators, limit: i64) -> Vec<Row> {
    let (remaining, _) = elimination.remaining();
    let n_columns = remaining.unary[1].len();
    let mut rows = Vec::new();
    for (first, (_, left)) in merged.pairs[0].iter().enumerate() {
        for (second, (_, right)) in merged.pairs[1].iter().enumerate() {
            let of_edges = remaining.edges.iter().map(|it| it.table[first * n_columns + second]);
            let cost = elimination.constant()
                + remaining.unary[0][first]
                + remaining.unary[1][second]
                + of_edges.sum::<i64>();
            if cost <= limit {
                rows.push(Row { separators: [*left, *right], cost });
            }
        }
    }
    rows
}

/// The separators, each as one variable whose labels are pairs.
struct MergedSeparators {
    /// For each separator its labels: two positions among the kept labels, and the number of the
    /// pair.
    pairs: [Vec<([usize; 2], usize)>; 2],
}

impl MergedSeparators {
    /// Returns the problem with one variable for each separator, the first and the last one.
    fn problem(&self, problem: &PairwiseProblem) -> PairwiseProblem {
        let n = problem.unary.len();
        let last = n - 2;
        let new = |variable: usize| match variable {
            0 | 1 => 0,
            it if it >= last => last - 1,
            it => it - 1,
        };
        // For each label of the new variable, the label of the old one.
        let labels = |variable: usize| -> Vec<usize> {
            let of = |side: usize, at: usize| self.pairs[side].iter().map(|it| it.0[at]).collect();
            match variable {
                0 | 1 => of(0, variable),
                it if it >= last => of(1, it - last),
                it => (0..problem.unary[it].len()).collect(),
            }
        };
        let mut unary: Vec<Vec<i64>> = vec![Vec::new(); last];
        for (variable, costs) in problem.unary.iter().enumerate() {
            let (sums, labels) = (&mut unary[new(variable)], labels(variable));
            sums.resize(labels.len(), 0);
            sums.iter_mut().zip(labels).for_each(|(sum, label)| *sum += costs[label]);
        }
        let mut edges = Vec::new();
        for Edge { first, second, table } in &problem.edges {
            let n_columns = problem.unary[*second].len();
            let (rows, columns) = (labels(*first), labels(*second));
            let (first, second) = (new(*first), new(*second));
            if first == second {
                let all = unary[first].iter_mut().zip(rows.iter().zip(columns));
                all.for_each(|(sum, (row, column))| *sum += table[row * n_columns + column]);
                continue;
            }
            let row = |row: usize| columns.iter().map(move |it| row * n_columns + it);
            let table = rows.iter().flat_map(|&it| row(it)).map(|it| table[it]).collect();
            edges.push(Edge { first, second, table });
        }
        PairwiseProblem { unary, edges }
    }
}
