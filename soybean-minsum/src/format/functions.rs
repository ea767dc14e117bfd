//! Cost functions in any order and number, which become the tables of a problem.

use std::{collections::BTreeMap, rc::Rc};

use super::{FormatError, Words};
use crate::problem::{Edge, PairwiseProblem, transposed};

/// The most labels of a variable.
const MOST_LABELS: usize = 1 << 16;
/// The most entries of all tables together: 2 GiB.
const MOST_ENTRIES: usize = 1 << 28;
/// The greatest sum of the greatest absolute entries of all tables.
const MOST_COST: u64 = 1 << 61;

/// The sums of the functions of each variable, and of each pair of variables.
pub(super) struct Functions {
    unary: Vec<Vec<i64>>,
    pairs: BTreeMap<(usize, usize), Vec<i64>>,
    n_entries: usize,
}

impl Functions {
    /// Reads the number of labels of each variable.
    pub(super) fn of_sizes(n: usize, words: &mut Words<'_>) -> Result<Self, FormatError> {
        let mut all = Self { unary: Vec::new(), pairs: BTreeMap::new(), n_entries: 0 };
        for _ in 0..n {
            let n_labels: usize = words.number("number of labels")?;
            if !(1..=MOST_LABELS).contains(&n_labels) {
                let message = format!("a variable has 1 to {MOST_LABELS} labels, found {n_labels}");
                return Err(FormatError(message));
            }
            all.count(n_labels)?;
            all.unary.push(vec![0; n_labels]);
        }
        if n == 0 {
            return Err(FormatError("a problem has at least one variable".to_owned()));
        }
        Ok(all)
    }

    fn count(&mut self, n_entries: usize) -> Result<(), FormatError> {
        self.n_entries += n_entries;
        match self.n_entries <= MOST_ENTRIES {
            true => Ok(()),
            false => Err(FormatError(format!("the tables have more than {MOST_ENTRIES} entries"))),
        }
    }

    /// Reads the variables of a function: at most two.
    pub(super) fn scope(&self, words: &mut Words<'_>) -> Result<Vec<usize>, FormatError> {
        let arity: i64 = words.number("number of variables of a function")?;
        if !(0..=2).contains(&arity) {
            let message = format!("functions of at most 2 variables are read, found {arity}");
            return Err(FormatError(message));
        }
        let scope: Vec<usize> =
            (0..arity).map(|_| words.number("variable")).collect::<Result<_, _>>()?;
        if scope.iter().any(|it| *it >= self.unary.len()) || arity == 2 && scope[0] == scope[1] {
            let n = self.unary.len();
            let message = format!("a function of the variables {scope:?} of {n}");
            return Err(FormatError(message));
        }
        match self.n_entries(&scope) <= MOST_ENTRIES {
            true => Ok(scope),
            false => Err(FormatError(format!("a table has more than {MOST_ENTRIES} entries"))),
        }
    }

    /// Returns the number of entries of a function of these variables.
    pub(super) fn n_entries(&self, scope: &[usize]) -> usize {
        scope.iter().map(|it| self.unary[*it].len()).product()
    }

    /// Returns the place in a function's table of labels of its variables.
    pub(super) fn place(&self, scope: &[usize], labels: &[usize]) -> Result<usize, FormatError> {
        let mut place = 0;
        for (variable, label) in scope.iter().zip(labels) {
            let n_labels = self.unary[*variable].len();
            if *label >= n_labels {
                let message = format!("label {label} of variable {variable}, which has {n_labels}");
                return Err(FormatError(message));
            }
            place = place * n_labels + label;
        }
        Ok(place)
    }

    /// Adds a function: the costs of its variables' labels, in row-major order.
    pub(super) fn add(
        &mut self,
        scope: &[usize],
        costs: impl Iterator<Item = i64>,
    ) -> Result<(), FormatError> {
        match *scope {
            [first, second] => {
                let (n_rows, n_columns) = (self.unary[first].len(), self.unary[second].len());
                let pair = (first.min(second), first.max(second));
                if !self.pairs.contains_key(&pair) {
                    self.count(n_rows * n_columns)?;
                }
                let table = self.pairs.entry(pair).or_insert_with(|| vec![0; n_rows * n_columns]);
                if first < second {
                    return sum(table, costs);
                }
                let costs: Vec<i64> = costs.collect();
                sum(table, transposed(&costs, n_columns).into_iter())
            }
            [variable] => sum(&mut self.unary[variable], costs),
            // A constant is part of the cost of any label.
            _ => sum(&mut self.unary[0], std::iter::repeat(costs.sum())),
        }
    }

    /// Returns the problem; equal tables are shared.
    pub(super) fn problem(self) -> Result<PairwiseProblem, FormatError> {
        let greatest = |it: &[i64]| it.iter().map(|it| it.unsigned_abs()).max().unwrap_or(0);
        let tables = self.unary.iter().chain(self.pairs.values());
        let total = tables.map(|it| u128::from(greatest(it))).sum::<u128>();
        if total >= u128::from(MOST_COST) {
            let message = format!("the greatest costs add up to {total}, which is 2^61 or more");
            return Err(FormatError(message));
        }
        let mut known: BTreeMap<Rc<[i64]>, Rc<[i64]>> = BTreeMap::new();
        let edge = |((first, second), table): ((usize, usize), Vec<i64>)| {
            let table: Rc<[i64]> = table.into();
            Edge { first, second, table: known.entry(table.clone()).or_insert(table).clone() }
        };
        let edges = self.pairs.into_iter().map(edge).collect();
        Ok(PairwiseProblem { unary: self.unary, edges })
    }
}

fn sum(table: &mut [i64], costs: impl Iterator<Item = i64>) -> Result<(), FormatError> {
    for (entry, cost) in table.iter_mut().zip(costs) {
        *entry = entry
            .checked_add(cost)
            .ok_or_else(|| FormatError("costs add up to more than 64 bits".to_owned()))?;
    }
    Ok(())
}
