//! Lower bounds on a sum of tables, the states that they rule out, and good states to start from.
//!
//! Costs are moved between the tables of pairs and those of single variables without changing any sum; then the sum of all tables' minima is a bound. Each
//! pass walks the variables in order: a variable collects what its pairs with variables before it must cost at least, state by state, and
//! hands shares of it on to the pairs with variables still to come. The bound never falls. Source: sequential tree-reweighted message
//! passing, Kolmogorov 2006.

use std::rc::Rc;

use super::pairwise::{Edge, Pairwise};

/// What a table costs in a pass besides its entries.
const ENTRIES_OF_TABLE: u64 = 256;

/// The entries of a pass.
pub(super) fn work(problem: &Pairwise) -> u64 {
    problem.edges.iter().map(|it| it.table.len() as u64 + ENTRIES_OF_TABLE).sum()
}

/// Costs on the move.
#[derive(Clone)]
pub(super) struct Bound {
    problem: Pairwise,
    /// For each edge what has moved from it to the states of its first and its second variable.
    moved: Vec<[Vec<i64>; 2]>,
    /// For each variable, the edges in which it is the second and those in which it is the first.
    edges_of: Vec<[Vec<usize>; 2]>,
    /// The least of what each variable keeps.
    kept: Vec<i64>,
    /// The least of what was handed to each edge and is not collected yet.
    handed: Vec<i64>,
    /// That of the next pass.
    direction: Direction,
    scratch: Scratch,
    /// The bound.
    pub(super) value: i64,
}

/// Room for the costs of a variable's states, kept from visit to visit.
#[derive(Clone, Default)]
struct Scratch {
    costs: Vec<i64>,
    scores: Vec<i64>,
    shares: Vec<i64>,
}

/// What a pass finds.
pub(super) struct Pass {
    /// For each variable the states with which the whole need not cost more than the limit.
    pub(super) within: Vec<Vec<usize>>,
    /// States that are good together: each the best for what the pass has chosen before it and what it expects.
    pub(super) decoded: Vec<usize>,
}

/// The order in which a pass visits variables.
#[derive(Clone, Copy)]
enum Direction {
    Forward,
    Backward,
}

impl Direction {
    /// Where a variable stands in its pairs with those that the pass has visited before it: second, or first.
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

impl Bound {
    /// The bound after one pass forward.
    pub(super) fn new(problem: Pairwise) -> Self {
        let n = problem.unary.len();
        let mut edges_of = vec![[Vec::new(), Vec::new()]; n];
        let mut moved = Vec::with_capacity(problem.edges.len());
        for (number, edge) in problem.edges.iter().enumerate() {
            edges_of[edge.first][1].push(number);
            edges_of[edge.second][0].push(number);
            moved.push([edge.first, edge.second].map(|it| vec![0; problem.unary[it].len()]));
        }
        let (kept, handed) = (vec![0; n], vec![0; moved.len()]);
        let direction = Direction::Forward;
        let scratch = Scratch::default();
        let mut this =
            Self { problem, moved, edges_of, kept, handed, direction, scratch, value: 0 };
        this.pass(0);
        this.value = this.kept.iter().sum();
        this
    }

    /// One pass, in the direction opposite to the last one's.
    pub(super) fn pass(&mut self, limit: i64) -> Pass {
        let (n, direction) = (self.kept.len(), self.direction);
        self.direction = direction.reversed();
        let mut pass = Pass { within: vec![Vec::new(); n], decoded: vec![0; n] };
        for at in 0..n {
            let variable = match direction {
                Direction::Forward => at,
                Direction::Backward => n - 1 - at,
            };
            self.visit(variable, direction, limit, &mut pass);
        }
        pass
    }

    /// Collects from the pairs behind, then hands equal shares to the pairs ahead.
    fn visit(&mut self, variable: usize, direction: Direction, limit: i64, pass: &mut Pass) {
        let side = direction.side();
        let edges = std::mem::take(&mut self.edges_of[variable]);
        let (behind, ahead) = (&edges[1 - side][..], &edges[side][..]);
        let mut elsewhere = self.value - self.kept[variable];
        let Scratch { mut costs, mut scores, mut shares } = std::mem::take(&mut self.scratch);
        costs.clone_from(&self.problem.unary[variable]);
        scores.clone_from(&costs);
        for &edge in behind {
            elsewhere -= std::mem::take(&mut self.handed[edge]);
            self.collect(edge, side);
            add(&mut costs, &self.moved[edge][side]);
            self.add_chosen(edge, side, &pass.decoded, &mut scores);
        }
        for &edge in ahead {
            add(&mut costs, &self.moved[edge][1 - side]);
            add(&mut scores, &self.moved[edge][1 - side]);
        }
        pass.decoded[variable] = least_state(&scores);
        pass.within[variable] = states_within(&costs, limit - elsewhere);
        share_out(&costs, behind.len().max(ahead.len()), &mut shares);
        let least_share = least(&shares);
        for &edge in ahead {
            subtract(&mut self.moved[edge][1 - side], &shares);
            subtract(&mut costs, &shares);
            self.handed[edge] = least_share;
            elsewhere += least_share;
        }
        self.kept[variable] = least(&costs);
        self.value = elsewhere + self.kept[variable];
        self.edges_of[variable] = edges;
        self.scratch = Scratch { costs, scores, shares };
    }

    /// Moves to each state of the variable at this side of an edge the least that the edge costs of what has not moved to the other side.
    fn collect(&mut self, edge: usize, side: usize) {
        let [of_first, of_second] = &mut self.moved[edge];
        let table = &self.problem.edges[edge].table[..];
        match side {
            0 => least_of_rows(table, of_second, of_first),
            _ => least_of_columns(table, of_first, of_second),
        }
    }

    /// Adds to each state of the variable at this side what the edge costs with the other variable's chosen state.
    fn add_chosen(&self, edge: usize, side: usize, chosen: &[usize], costs: &mut [i64]) {
        let Edge { first, second, table } = &self.problem.edges[edge];
        let table = &table[..];
        let n_second = self.problem.unary[*second].len();
        let (mut at, stride) = match side {
            0 => (chosen[*second], n_second),
            _ => (chosen[*first] * n_second, 1),
        };
        let mut state = 0;
        while state < costs.len() {
            costs[state] += table[at];
            at += stride;
            state += 1;
        }
    }

    /// The bound with one state of a variable alone.
    pub(super) fn given(&self, variable: usize, state: usize) -> Self {
        let cost = self.costs(variable)[state];
        let mut this = self.clone();
        this.value += cost - this.kept[variable];
        this.kept[variable] = cost;
        this.problem.unary[variable] = vec![this.problem.unary[variable][state]];
        for (side, edges) in [1, 0].into_iter().zip(&self.edges_of[variable]) {
            for &edge in edges {
                let n_second = self.moved[edge][1].len();
                let table = &mut this.problem.edges[edge].table;
                *table = match side {
                    0 => table[state * n_second..][..n_second].into(),
                    _ => table[state..].iter().copied().step_by(n_second).collect(),
                };
                this.moved[edge][side] = vec![self.moved[edge][side][state]];
            }
        }
        this
    }

    /// One pass, which leaves of these states those with which the whole need not cost more than the limit.
    pub(super) fn narrow(&mut self, limit: i64, kept: &mut [Vec<usize>]) {
        for (kept, found) in kept.iter_mut().zip(self.pass(limit).within) {
            kept.retain(|it| found.binary_search(it).is_ok());
        }
    }

    /// Gives an edge another table; the bound is right again after the next pass.
    pub(super) fn replace(&mut self, edge: usize, table: Rc<[i64]>) {
        self.problem.edges[edge].table = table;
    }

    /// What all costs at least with each two states of an edge's variables, after a pass.
    pub(super) fn joint(&self, edge: usize) -> Vec<i64> {
        let Edge { first, second, table } = &self.problem.edges[edge];
        let [of_first, of_second] = [*first, *second].map(|it| self.costs(it));
        let elsewhere = self.value - self.kept[*first] - self.kept[*second];
        let moved = &self.moved[edge];
        let n_columns = of_second.len();
        let mut joint = Vec::with_capacity(table.len());
        let mut row = 0;
        while row < of_first.len() {
            let of_row = elsewhere + of_first[row] - moved[0][row];
            let mut column = 0;
            while column < n_columns {
                let of_column = of_second[column] - moved[1][column];
                joint.push(table[row * n_columns + column] + of_row + of_column);
                column += 1;
            }
            row += 1;
        }
        joint
    }

    /// What a variable's states cost with all that has moved there.
    fn costs(&self, variable: usize) -> Vec<i64> {
        let [behind, ahead] = &self.edges_of[variable];
        let mut costs = self.problem.unary[variable].clone();
        behind.iter().for_each(|&edge| add(&mut costs, &self.moved[edge][1]));
        ahead.iter().for_each(|&edge| add(&mut costs, &self.moved[edge][0]));
        costs
    }

    /// The same costs as those of the problem over some of each variable's states, with all that has moved where it is.
    pub(super) fn restricted(&self, kept: &[Vec<usize>]) -> Pairwise {
        let unary = (0..kept.len()).map(|variable| {
            let costs = self.costs(variable);
            kept[variable].iter().map(|&it| costs[it]).collect()
        });
        let edges = self.problem.edges.iter().zip(&self.moved).map(|(edge, moved)| {
            let (rows, columns) = (&kept[edge.first], &kept[edge.second]);
            let n_second = moved[1].len();
            let mut table = Vec::with_capacity(rows.len() * columns.len());
            let columns = &columns[..];
            let of_columns = &moved[1][..];
            for &row in rows {
                let (costs, of_row) = (&edge.table[row * n_second..], moved[0][row]);
                let mut at = 0;
                while at < columns.len() {
                    let column = columns[at];
                    table.push(costs[column] - of_row - of_columns[column]);
                    at += 1;
                }
            }
            Edge { first: edge.first, second: edge.second, table: Rc::from(table) }
        });
        Pairwise { unary: unary.collect(), edges: edges.collect() }
    }
}

fn add(sums: &mut [i64], others: &[i64]) {
    let mut at = 0;
    while at < sums.len() {
        sums[at] += others[at];
        at += 1;
    }
}

fn subtract(sums: &mut [i64], others: &[i64]) {
    let mut at = 0;
    while at < sums.len() {
        sums[at] -= others[at];
        at += 1;
    }
}

/// The states that cost no more than this.
fn states_within(costs: &[i64], limit: i64) -> Vec<usize> {
    let mut states = Vec::with_capacity(costs.len());
    let mut state = 0;
    while state < costs.len() {
        if costs[state] <= limit {
            states.push(state);
        }
        state += 1;
    }
    states
}

/// Each state's cost in equal parts, one for each of `n` edges.
fn share_out(costs: &[i64], n: usize, shares: &mut Vec<i64>) {
    let n = i64::try_from(n.max(1)).expect("a small number");
    shares.clear();
    shares.extend_from_slice(costs);
    if n > 1 {
        let parts = &mut shares[..];
        let mut at = 0;
        while at < parts.len() {
            parts[at] /= n;
            at += 1;
        }
    }
}

/// The least of the costs.
pub(super) fn least(costs: &[i64]) -> i64 {
    costs[least_state(costs)]
}

fn least_state(costs: &[i64]) -> usize {
    let (mut best, mut at) = (0, 1);
    while at < costs.len() {
        if costs[at] < costs[best] {
            best = at;
        }
        at += 1;
    }
    best
}

/// For each row the least of the table's entries less the other variable's.
fn least_of_rows(table: &[i64], of_columns: &[i64], least: &mut [i64]) {
    let n_columns = of_columns.len();
    for (least, row) in least.iter_mut().zip(table.chunks_exact(n_columns)) {
        let (mut best, mut column) = (i64::MAX, 0);
        while column < n_columns {
            let cost = row[column] - of_columns[column];
            if cost < best {
                best = cost;
            }
            column += 1;
        }
        *least = best;
    }
}

/// For each column the least of the table's entries less the other variable's.
fn least_of_columns(table: &[i64], of_rows: &[i64], best: &mut [i64]) {
    let n_columns = best.len();
    best.fill(i64::MAX);
    for (&of_row, row) in of_rows.iter().zip(table.chunks_exact(n_columns)) {
        let mut column = 0;
        while column < n_columns {
            let cost = row[column] - of_row;
            if cost < best[column] {
                best[column] = cost;
            }
            column += 1;
        }
    }
}
