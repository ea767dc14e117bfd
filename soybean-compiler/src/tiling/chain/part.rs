//! Pieces of one kind between joints of the same kinds: what holds for one of them holds for all.

use std::{collections::BTreeMap, rc::Rc};

use super::{
    cases::{Case, Change, Kind, Marginals},
    table::{CaseTable, Row, TooMuch},
};
use crate::tiling::solve::NO_LIMIT;

/// What is known of such pieces.
pub(super) struct Part {
    pub(super) kind: usize,
    /// The joints before and behind.
    pub(super) joints: [usize; 2],
    pub(super) n_pieces: i64,
    cases: Vec<Case>,
    /// A piece costs no less, at the present potentials.
    pub(super) least: i64,
}

/// What costs little in any case, with the number of the case.
pub(super) struct PartTable {
    pub(super) rows: Vec<(usize, Row)>,
    cases: Vec<Option<CaseTable>>,
}

impl Part {
    pub(super) fn new(number: usize, kind: &Kind, joints: [usize; 2]) -> Self {
        let cases = vec![Case::whole(kind)];
        Self { kind: number, joints, n_pieces: 0, cases, least: -NO_LIMIT }
    }

    /// Raises the bounds of the cases that cost least, and of those that cost little more; gives marginals of all cases, and how many were visited.
    pub(super) fn visit(
        &mut self,
        kind: &Kind,
        tables: &[Rc<[i64]>; 2],
        margin: i64,
    ) -> (Marginals, u64) {
        let mut order: Vec<usize> = (0..self.cases.len()).collect();
        order.sort_by_key(|&it| self.cases[it].value);
        let mut all: Marginals = [0, 1].map(|it| vec![NO_LIMIT; tables[it].len()]);
        self.least = NO_LIMIT;
        let mut n_visited = 0;
        for number in order {
            let case = &mut self.cases[number];
            if case.value <= self.least.saturating_add(margin) {
                case.visit(kind, tables);
                n_visited += 1;
                self.least = self.least.min(case.value);
            }
            for (all, costs) in all.iter_mut().zip(&case.marginals) {
                all.iter_mut().zip(costs).for_each(|(all, it)| *all = *it.min(all));
            }
        }
        (all, n_visited)
    }

    /// Takes changes of the potentials into account.
    pub(super) fn shift(&mut self, changes: &[Change]) {
        let around = self.joints.map(|it| &changes[it]);
        self.cases.iter_mut().for_each(|it| it.shift(around));
    }

    /// Tells cases apart.
    pub(super) fn split(&mut self, kind: &Kind) {
        let cases = std::mem::take(&mut self.cases);
        self.cases = cases.into_iter().flat_map(|it| it.split(kind)).collect();
    }

    /// What costs no more than the least and a slack.
    pub(super) fn table(
        &mut self,
        kind: &Kind,
        tables: &[Rc<[i64]>; 2],
        slack: i64,
        work: &mut u64,
    ) -> Result<PartTable, TooMuch> {
        let limit = self.least + slack;
        let mut rows: BTreeMap<[usize; 2], (usize, Row)> = BTreeMap::new();
        let mut cases = Vec::with_capacity(self.cases.len());
        for (number, case) in self.cases.iter_mut().enumerate() {
            let mut found = None;
            if case.value <= limit {
                case.visit(kind, tables);
                found = CaseTable::new(kind, case, limit, work)?;
            }
            for row in found.iter().flat_map(|it| &it.rows) {
                let known = rows.entry(row.joints).or_insert((number, *row));
                if row.cost < known.1.cost {
                    *known = (number, *row);
                }
            }
            cases.push(found);
        }
        Ok(PartTable { rows: rows.into_values().collect(), cases })
    }

    /// The states of a piece that are best with the states of joints in a row.
    pub(super) fn states(
        &self,
        kind: &Kind,
        table: &PartTable,
        (case, row): &(usize, Row),
    ) -> Vec<usize> {
        let of_case = table.cases[*case].as_ref().expect("the row is of this case");
        kind.complete(&self.cases[*case].states(kind, of_case.states(row)))
    }
}
