//! Lower bounds by reparametrization, the labels that they rule out, and decoded assignments.
//!
//! A reparametrization moves costs between pairwise and unary tables without changing the cost of
//! any assignment. The sum of the minima of all tables is then a lower bound. A pass visits the
//! variables in order. Each variable collects the min-marginals of its edges to earlier variables,
//! and passes equal shares of its costs on to its edges to later variables. The bound never falls.
//! This is sequential tree-reweighted message passing with edges as trees (TRW-S, Kolmogorov 2006);
//! max-sum diffusion (Werner 2007) has the same fixed points.

use std::rc::Rc;

use super::{
    minima::{column_minima, row_minima},
    problem::{Edge, PairwiseProblem},
};

/// The work of visiting a table, in entries, besides its entries.
const ENTRIES_OF_TABLE: u64 = 256;

/// Returns the work of one pass, in table entries.
pub(crate) fn pass_work(problem: &PairwiseProblem) -> u64 {
    problem.edges.iter().map(|it| it.table.len() as u64 + ENTRIES_OF_TABLE).sum()
}

/// A problem with messages, and the lower bound that they prove.
#[derive(Clone)]
pub(crate) struct Reparametrization {
    problem: PairwiseProblem,
    /// For each edge, the messages to its first and to its second variable. The reduced cost of a
    /// pair of labels is its cost less both messages.
    messages: Vec<[Vec<i64>; 2]>,
    /// For each variable, the edges in which it is the second and those in which it is the first.
    edges_of: Vec<[Vec<usize>; 2]>,
    /// The least reduced cost of each variable.
    variable_minima: Vec<i64>,
    /// The least share that each edge got and that is not collected yet.
    edge_minima: Vec<i64>,
    /// The direction of the next pass.
    direction: Direction,
    scratch: Scratch,
    /// No assignment costs less.
    pub(crate) lower_bound: i64,
}

/// Buffers for the costs of a variable's labels, reused from visit to visit.
#[derive(Clone, Default)]
struct Scratch {
    costs: Vec<i64>,
    scores: Vec<i64>,
    shares: Vec<i64>,
}

/// The results of a pass.
pub(crate) struct Pass {
    /// For each variable, the labels whose lower bound does not exceed the limit.
    pub(crate) within: Vec<Vec<usize>>,
    /// An assignment, decoded greedily: each label is the best one given the labels chosen before
    /// and the messages of the edges to come.
    pub(crate) decoded: Vec<usize>,
}

/// The order in which a pass visits the variables.
#[derive(Clone, Copy)]
enum Direction {
    Forward,
    Backward,
}

impl Direction {
    /// Returns the side of a variable in its edges to variables that the pass has visited.
    fn side(self) -> usize {
        match self {
            Self::Forward => 1,
            Self::Backward => 0,
        }
    }

    fn reversed(self) -> Self {
        match self {
            Self::Forward => Self::Backward,
            Self::Backward => Self::Forward,
        }
    }
}

impl Reparametrization {
    /// Returns the reparametrization after one forward pass.
    pub(crate) fn new(problem: PairwiseProblem) -> Self {
        let none =
            |edge: &Edge| [edge.first, edge.second].map(|it| vec![0; problem.unary[it].len()]);
        let messages = problem.edges.iter().map(none).collect();
        Self::from_messages(problem, messages)
    }

    /// Returns the reparametrization after one forward pass that starts from these messages. The
    /// bound is valid for any messages.
    pub(crate) fn from_messages(problem: PairwiseProblem, messages: Vec<[Vec<i64>; 2]>) -> Self {
        let n = problem.unary.len();
        let mut edges_of = vec![[Vec::new(), Vec::new()]; n];
        for (number, edge) in problem.edges.iter().enumerate() {
            edges_of[edge.first][1].push(number);
            edges_of[edge.second][0].push(number);
        }
        let mut this = Self {
            variable_minima: vec![0; n],
            edge_minima: vec![0; messages.len()],
            direction: Direction::Forward,
            scratch: Scratch::default(),
            lower_bound: 0,
            problem,
            messages,
            edges_of,
        };
        this.raise_bound();
        this.lower_bound = this.variable_minima.iter().sum();
        this
    }

    /// Runs a pass in the direction opposite to the last one.
    pub(crate) fn pass(&mut self, limit: i64) -> Pass {
        let n = self.variable_minima.len();
        let mut pass = Pass { within: vec![Vec::new(); n], decoded: vec![0; n] };
        self.visit_all(Some((&mut pass, limit)));
        pass
    }

    /// Runs a pass for its messages and its bound alone.
    pub(crate) fn raise_bound(&mut self) {
        self.visit_all(None);
    }

    /// Visits all variables. Sets the results of the pass, if they are wanted, for a limit.
    fn visit_all(&mut self, mut wanted: Option<(&mut Pass, i64)>) {
        let (n, direction) = (self.variable_minima.len(), self.direction);
        self.direction = direction.reversed();
        for at in 0..n {
            let variable = match direction {
                Direction::Forward => at,
                Direction::Backward => n - 1 - at,
            };
            self.visit(variable, direction.side(), wanted.as_mut());
        }
    }

    /// Collects the messages of the edges behind, then passes equal shares on to the edges ahead.
    fn visit(&mut self, variable: usize, side: usize, wanted: Option<&mut (&mut Pass, i64)>) {
        let edges = std::mem::take(&mut self.edges_of[variable]);
        let (behind, ahead) = (&edges[1 - side][..], &edges[side][..]);
        let mut elsewhere = self.lower_bound - self.variable_minima[variable];
        let Scratch { mut costs, mut scores, mut shares } = std::mem::take(&mut self.scratch);
        costs.clone_from(&self.problem.unary[variable]);
        for &edge in behind {
            elsewhere -= std::mem::take(&mut self.edge_minima[edge]);
            self.send(edge, side);
            add(&mut costs, &self.messages[edge][side]);
        }
        for &edge in ahead {
            add(&mut costs, &self.messages[edge][1 - side]);
        }
        if let Some((pass, limit)) = wanted {
            scores.clone_from(&self.problem.unary[variable]);
            for &edge in behind {
                self.add_decoded(edge, side, &pass.decoded, &mut scores);
            }
            for &edge in ahead {
                add(&mut scores, &self.messages[edge][1 - side]);
            }
            pass.decoded[variable] = least_label(&scores);
            pass.within[variable] = positions_within(&costs, *limit - elsewhere);
        }
        divide(&costs, behind.len().max(ahead.len()), &mut shares);
        let least_share = least(&shares);
        for &edge in ahead {
            subtract(&mut self.messages[edge][1 - side], &shares);
            subtract(&mut costs, &shares);
            self.edge_minima[edge] = least_share;
            elsewhere += least_share;
        }
        self.variable_minima[variable] = least(&costs);
        self.lower_bound = elsewhere + self.variable_minima[variable];
        self.edges_of[variable] = edges;
        self.scratch = Scratch { costs, scores, shares };
    }

    /// Sends the min-marginal message from the edge to the variable on this side.
    fn send(&mut self, edge: usize, side: usize) {
        let [to_first, to_second] = &mut self.messages[edge];
        let table = &self.problem.edges[edge].table[..];
        match side {
            0 => row_minima(table, to_second, to_first),
            _ => column_minima(table, to_first, to_second),
        }
    }

    /// Adds the edge costs of the variable on this side, given the decoded label of the other one.
    fn add_decoded(&self, edge: usize, side: usize, decoded: &[usize], costs: &mut [i64]) {
        let Edge { first, second, table } = &self.problem.edges[edge];
        let n_second = self.problem.unary[*second].len();
        let (start, stride) = match side {
            0 => (decoded[*second], n_second),
            _ => (decoded[*first] * n_second, 1),
        };
        add_entries(costs, table, start, stride);
    }

    /// Returns the reparametrization with one label of a variable fixed.
    pub(crate) fn conditioned(&self, variable: usize, label: usize) -> Self {
        let cost = self.reduced_unary(variable)[label];
        let mut this = self.clone();
        this.lower_bound += cost - this.variable_minima[variable];
        this.variable_minima[variable] = cost;
        this.problem.unary[variable] = vec![this.problem.unary[variable][label]];
        for (side, edges) in [1, 0].into_iter().zip(&self.edges_of[variable]) {
            for &edge in edges {
                let n_second = self.messages[edge][1].len();
                let table = &mut this.problem.edges[edge].table;
                *table = match side {
                    0 => table[label * n_second..][..n_second].into(),
                    _ => table[label..].iter().copied().step_by(n_second).collect(),
                };
                this.messages[edge][side] = vec![self.messages[edge][side][label]];
            }
        }
        this
    }

    /// Runs a pass and removes the labels whose lower bound exceeds the limit from `kept`.
    pub(crate) fn prune(&mut self, limit: i64, kept: &mut [Vec<usize>]) {
        for (kept, found) in kept.iter_mut().zip(self.pass(limit).within) {
            kept.retain(|it| found.binary_search(it).is_ok());
        }
    }

    /// Replaces the table of an edge. The bound is valid again after the next pass.
    pub(crate) fn set_table(&mut self, edge: usize, table: Rc<[i64]>) {
        self.problem.edges[edge].table = table;
    }

    /// Returns the messages of an edge to its first and to its second variable.
    pub(crate) fn messages(&self, edge: usize) -> &[Vec<i64>; 2] {
        &self.messages[edge]
    }

    /// Returns a lower bound for each pair of labels of an edge, after a pass.
    pub(crate) fn edge_min_marginals(&self, edge: usize) -> Vec<i64> {
        let Edge { first, second, table } = &self.problem.edges[edge];
        let [of_first, of_second] = [*first, *second].map(|it| self.reduced_unary(it));
        let elsewhere =
            self.lower_bound - self.variable_minima[*first] - self.variable_minima[*second];
        let messages = &self.messages[edge];
        let n_columns = of_second.len();
        let mut marginals = Vec::with_capacity(table.len());
        let mut row = 0;
        while row < of_first.len() {
            let of_row = elsewhere + of_first[row] - messages[0][row];
            let mut column = 0;
            while column < n_columns {
                let of_column = of_second[column] - messages[1][column];
                marginals.push(table[row * n_columns + column] + of_row + of_column);
                column += 1;
            }
            row += 1;
        }
        marginals
    }

    /// Returns the reduced unary costs of a variable: its own costs plus all messages to it.
    fn reduced_unary(&self, variable: usize) -> Vec<i64> {
        let [behind, ahead] = &self.edges_of[variable];
        let mut costs = self.problem.unary[variable].clone();
        behind.iter().for_each(|&edge| add(&mut costs, &self.messages[edge][1]));
        ahead.iter().for_each(|&edge| add(&mut costs, &self.messages[edge][0]));
        costs
    }

    /// Returns the problem over the kept labels with its reduced costs. Assignments cost the same
    /// as in the original problem.
    pub(crate) fn restricted(&self, kept: &[Vec<usize>]) -> PairwiseProblem {
        let unary = (0..kept.len()).map(|variable| {
            let costs = self.reduced_unary(variable);
            kept[variable].iter().map(|&it| costs[it]).collect()
        });
        let edges = self.problem.edges.iter().zip(&self.messages).map(|(edge, messages)| {
            let (rows, columns) = (&kept[edge.first], &kept[edge.second]);
            let n_second = messages[1].len();
            let mut table = Vec::with_capacity(rows.len() * columns.len());
            let columns = &columns[..];
            let of_columns = &messages[1][..];
            for &row in rows {
                let (costs, of_row) = (&edge.table[row * n_second..], messages[0][row]);
                let mut at = 0;
                while at < columns.len() {
                    let column = columns[at];
                    table.push(costs[column] - of_row - of_columns[column]);
                    at += 1;
                }
            }
            Edge { first: edge.first, second: edge.second, table: Rc::from(table) }
        });
        PairwiseProblem { unary: unary.collect(), edges: edges.collect() }
    }
}

pub(crate) fn add(sums: &mut [i64], others: &[i64]) {
    let mut at = 0;
    while at < sums.len() {
        sums[at] += others[at];
        at += 1;
    }
}

/// Adds a row or a column of a table, whose entries are `stride` apart from `start` on.
pub(crate) fn add_entries(sums: &mut [i64], table: &[i64], start: usize, stride: usize) {
    let (mut at, mut label) = (start, 0);
    while label < sums.len() {
        sums[label] += table[at];
        at += stride;
        label += 1;
    }
}

/// Adds a multiple of each other number.
pub(crate) fn add_multiple(sums: &mut [i64], others: &[i64], factor: i64) {
    let mut at = 0;
    while at < sums.len() {
        sums[at] += factor * others[at];
        at += 1;
    }
}

pub(crate) fn subtract(sums: &mut [i64], others: &[i64]) {
    let mut at = 0;
    while at < sums.len() {
        sums[at] -= others[at];
        at += 1;
    }
}

/// Returns the positions of the costs that do not exceed the limit.
fn positions_within(costs: &[i64], limit: i64) -> Vec<usize> {
    let mut positions = Vec::with_capacity(costs.len());
    let mut at = 0;
    while at < costs.len() {
        if costs[at] <= limit {
            positions.push(at);
        }
        at += 1;
    }
    positions
}

/// Divides each cost by `n`, the number of edges that get a share.
fn divide(costs: &[i64], n: usize, shares: &mut Vec<i64>) {
    let n = i64::try_from(n.max(1)).expect("a variable has few edges");
    shares.clear();
    shares.extend_from_slice(costs);
    if n > 1 {
        let shares = &mut shares[..];
        let mut at = 0;
        while at < shares.len() {
            shares[at] /= n;
            at += 1;
        }
    }
}

/// Returns the least of the costs.
pub(crate) fn least(costs: &[i64]) -> i64 {
    costs[least_label(costs)]
}

/// Returns the first label of the least cost.
pub(crate) fn least_label(costs: &[i64]) -> usize {
    let (mut best, mut at) = (0, 1);
    while at < costs.len() {
        if costs[at] < costs[best] {
            best = at;
        }
        at += 1;
    }
    best
}
