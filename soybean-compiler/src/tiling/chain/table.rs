//! What a piece costs with any states of its joints, as far as that is little.

use super::cases::{Case, Kind, Marginals};
use crate::tiling::{
    eliminate::Elimination,
    order::{Limits, Order},
    pairwise::{Edge, Pairwise},
    solve::{ENTRIES_OF_STATE, chosen},
};

/// Passes that rule out states, as many forward as backward: each costs little beside what elimination saves.
const N_PASSES: u64 = 32;

/// A case of a piece with all variables but those of joints eliminated.
pub(super) struct CaseTable {
    /// For each variable the states that are left.
    kept: Vec<Vec<usize>>,
    joined: Joined,
    elimination: Elimination,
    pub(super) rows: Vec<Row>,
}

/// States of the joints before and behind, by number, and the least that the piece costs with them.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) joints: [usize; 2],
    pub(super) cost: i64,
}

/// The list would take more work than it may.
pub(super) struct TooMuch;

impl CaseTable {
    /// All that costs no more than the limit, if anything does.
    pub(super) fn new(
        kind: &Kind,
        case: &mut Case,
        limit: i64,
        work: &mut u64,
    ) -> Result<Option<Self>, TooMuch> {
        *work = work.saturating_sub(N_PASSES * kind.work());
        let Some((kept, marginals)) = within(kind, case, limit) else { return Ok(None) };
        let n_states = kind.n_states();
        let last = kept.len() - 2;
        let pairs = [0, 1].map(|side| {
            let [rows, columns] = [0, 1].map(|it| &kept[side * last + it]);
            let all = (0..rows.len()).flat_map(|row| (0..columns.len()).map(move |it| [row, it]));
            let number =
                |[row, column]: [usize; 2]| rows[row] * n_states[side][1] + columns[column];
            let is_within = |it: &[usize; 2]| marginals[side][number(*it)] <= limit;
            all.filter(is_within).map(|it| (it, number(it))).collect()
        });
        let joined = Joined { pairs };
        if joined.pairs.iter().any(Vec::is_empty) {
            return Ok(None);
        }
        let problem = joined.problem(&case.bound.restricted(&kept));
        let n = problem.unary.len();
        let mut stays = vec![false; n];
        (stays[0], stays[n - 1]) = (true, true);
        let limits = Limits { work: *work / ENTRIES_OF_STATE, ..Limits::NONE };
        let order = Order::without(&problem, limits, &stays);
        if !order.is_complete {
            return Err(TooMuch);
        }
        *work -= order.work * ENTRIES_OF_STATE;
        let mut elimination = Elimination::new(&problem);
        elimination.run(&order);
        let rows = rows(&elimination, &joined, limit);
        Ok(Some(Self { kept, joined, elimination, rows }))
    }

    /// The states of the case with those of a row.
    pub(super) fn states(&self, row: &Row) -> Vec<usize> {
        let at = |side: usize| {
            let is_wanted = |it: &([usize; 2], usize)| it.1 == row.joints[side];
            self.joined.pairs[side].iter().position(is_wanted).expect("rows are of these pairs")
        };
        let n = self.kept.len() - 2;
        let mut joined = vec![0; n];
        (joined[0], joined[n - 1]) = (at(0), at(1));
        self.elimination.complete(&mut joined);
        let [before, behind] =
            [(0, 0), (1, n - 1)].map(|(side, it)| self.joined.pairs[side][joined[it]].0);
        let positions = [&before[..], &joined[1..n - 1], &behind].concat();
        chosen(&self.kept, &positions)
    }
}

/// For each variable the states with which the case need not cost more than the limit, and what it costs at least with each two states of joints.
fn within(kind: &Kind, case: &mut Case, limit: i64) -> Option<(Vec<Vec<usize>>, Marginals)> {
    let mut kept: Vec<Vec<usize>> = case.bound.pass(limit).within;
    for _ in 0..N_PASSES - 3 {
        case.bound.narrow(limit, &mut kept);
    }
    // Passes went backward first, and as often forward: the joint before is the last that the next one comes to.
    let marginals = kind.joints.map(|joint| {
        case.bound.narrow(limit, &mut kept);
        case.bound.joint(joint)
    });
    kept.iter().all(|it| !it.is_empty()).then_some((kept, marginals))
}

/// What each two states of the joints cost, where all else is eliminated.
fn rows(elimination: &Elimination, joined: &Joined, limit: i64) -> Vec<Row> {
    let (left, _) = elimination.left();
    let n_columns = left.unary[1].len();
    let mut rows = Vec::new();
    for (first, (_, before)) in joined.pairs[0].iter().enumerate() {
        for (second, (_, behind)) in joined.pairs[1].iter().enumerate() {
            let of_edges = left.edges.iter().map(|it| it.table[first * n_columns + second]);
            let cost = elimination.constant()
                + left.unary[0][first]
                + left.unary[1][second]
                + of_edges.sum::<i64>();
            if cost <= limit {
                rows.push(Row { joints: [*before, *behind], cost });
            }
        }
    }
    rows
}

/// The joints as one variable each.
struct Joined {
    /// For each joint the pairs that are its states: positions among the states left, and the number of both.
    pairs: [Vec<([usize; 2], usize)>; 2],
}

impl Joined {
    /// The problem with one variable for each joint, the first and the last.
    fn problem(&self, problem: &Pairwise) -> Pairwise {
        let n = problem.unary.len();
        let last = n - 2;
        let new = |variable: usize| match variable {
            0 | 1 => 0,
            it if it >= last => last - 1,
            it => it - 1,
        };
        // For each state of the new variable that of the old one.
        let states = |variable: usize| -> Vec<usize> {
            let of = |side: usize, at: usize| self.pairs[side].iter().map(|it| it.0[at]).collect();
            match variable {
                0 | 1 => of(0, variable),
                it if it >= last => of(1, it - last),
                it => (0..problem.unary[it].len()).collect(),
            }
        };
        let mut unary: Vec<Vec<i64>> = vec![Vec::new(); last];
        for (variable, costs) in problem.unary.iter().enumerate() {
            let (sums, states) = (&mut unary[new(variable)], states(variable));
            sums.resize(states.len(), 0);
            sums.iter_mut().zip(states).for_each(|(sum, state)| *sum += costs[state]);
        }
        let mut edges = Vec::new();
        for Edge { first, second, table } in &problem.edges {
            let n_columns = problem.unary[*second].len();
            let (rows, columns) = (states(*first), states(*second));
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
        Pairwise { unary, edges }
    }
}
