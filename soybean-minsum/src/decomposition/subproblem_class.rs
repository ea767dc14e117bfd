//! Classes of equal subproblems between separators of the same classes. They share bounds,
//! marginals and tables.

use std::{collections::BTreeMap, rc::Rc};

use super::{
    conditioning::{Conditioned, Marginals, MultiplierUpdate},
    enumeration::{ConditionedTable, Row, WorkExceeded},
    template::Template,
};
use crate::solve::NO_LIMIT;

/// The state of a class of subproblems.
pub(super) struct SubproblemClass {
    pub(super) template: usize,
    /// The classes of the left and the right separator.
    pub(super) separators: [usize; 2],
    pub(super) n_subproblems: i64,
    /// The subproblem for each label of the conditioning variable, once it is conditioned.
    conditioned: Vec<Conditioned>,
    /// A lower bound of each subproblem at the present multipliers.
    pub(super) lower_bound: i64,
}

/// The rows of a class, each with the number of its conditioned subproblem.
pub(super) struct ClassTable {
    pub(super) rows: Vec<(usize, Row)>,
    tables: Vec<Option<ConditionedTable>>,
}

impl SubproblemClass {
    pub(super) fn new(number: usize, template: &Template, separators: [usize; 2]) -> Self {
        let conditioned = vec![Conditioned::free(template)];
        Self { template: number, separators, n_subproblems: 0, conditioned, lower_bound: -NO_LIMIT }
    }

    /// Raises the bounds of the conditioned subproblems with the least bounds, and of those within
    /// `margin` of them. Returns the marginals over all of them, and how many were visited.
    pub(super) fn visit(
        &mut self,
        template: &Template,
        tables: &[Rc<[i64]>; 2],
        margin: i64,
    ) -> (Marginals, u64) {
        let mut order: Vec<usize> = (0..self.conditioned.len()).collect();
        order.sort_by_key(|&it| self.conditioned[it].lower_bound);
        let mut all: Marginals = [0, 1].map(|it| vec![NO_LIMIT; tables[it].len()]);
        self.lower_bound = NO_LIMIT;
        let mut n_visited = 0;
        for number in order {
            let conditioned = &mut self.conditioned[number];
            if conditioned.lower_bound <= self.lower_bound.saturating_add(margin) {
                conditioned.visit(template, tables);
                n_visited += 1;
                self.lower_bound = self.lower_bound.min(conditioned.lower_bound);
            }
            for (all, costs) in all.iter_mut().zip(&conditioned.marginals) {
                all.iter_mut().zip(costs).for_each(|(all, it)| *all = *it.min(all));
            }
        }
        (all, n_visited)
    }

    /// Corrects the bounds after an update of the multipliers.
    pub(super) fn update(&mut self, updates: &[MultiplierUpdate]) {
        let around = self.separators.map(|it| &updates[it]);
        self.conditioned.iter_mut().for_each(|it| it.update(around));
    }

    /// Conditions the subproblem on the labels of one variable.
    pub(super) fn condition(&mut self, template: &Template) {
        let conditioned = std::mem::take(&mut self.conditioned);
        self.conditioned =
            conditioned.into_iter().flat_map(|it| it.conditioned(template)).collect();
    }

    /// Enumerates the label pairs of the separators with which a subproblem costs at most `slack`
    /// more than the bound.
    pub(super) fn table(
        &mut self,
        template: &Template,
        tables: &[Rc<[i64]>; 2],
        slack: i64,
        work: &mut u64,
    ) -> Result<ClassTable, WorkExceeded> {
        let limit = self.lower_bound + slack;
        let mut rows: BTreeMap<[usize; 2], (usize, Row)> = BTreeMap::new();
        let mut of_conditioned = Vec::with_capacity(self.conditioned.len());
        for (number, conditioned) in self.conditioned.iter_mut().enumerate() {
            let mut found = None;
            if conditioned.lower_bound <= limit {
                conditioned.visit(template, tables);
                found = ConditionedTable::new(template, conditioned, limit, work)?;
            }
            for row in found.iter().flat_map(|it| &it.rows) {
                let known = rows.entry(row.separators).or_insert((number, *row));
                if row.cost < known.1.cost {
                    *known = (number, *row);
                }
            }
            of_conditioned.push(found);
        }
        Ok(ClassTable { rows: rows.into_values().collect(), tables: of_conditioned })
    }

    /// Returns the best labels of a subproblem, given the separators' labels in a row.
    pub(super) fn labels(
        &self,
        template: &Template,
        table: &ClassTable,
        (number, row): &(usize, Row),
    ) -> Vec<usize> {
        let of_row = table.tables[*number].as_ref().expect("the row is of this table").labels(row);
        template.complete(&self.conditioned[*number].with_fixed_label(template, of_row))
    }
}
