//! Searches among few choices for each variable, whatever they are: layouts of what is known by counts, neighbours of a plan, mixtures of plans.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use soybean_minsum::{Interner, PairwiseProblem};
use soybean_plan::Tiling;

use super::problem::{Choice, Meaning, Pair, Plan, Problem};

/// Some choices for each variable. Variables that are alike share a list, and pairs that are alike a table.
pub(super) struct Choices<'a> {
    problem: &'a Problem<'a>,
    lists: Vec<Vec<Choice>>,
    /// For each variable the number of its list.
    list_of: Vec<usize>,
}

/// What a table follows from: the uses of a tensor by an operator, the numbers of their lists, and what memory costs there.
type Key<'a> = (&'a [usize], [usize; 3]);

impl<'a> Choices<'a> {
    /// A list for each variable, made from what these plans choose for it; once for all variables that are alike. None if a list is empty.
    pub(super) fn new(
        problem: &'a Problem<'a>,
        plans: &[&[Choice]],
        list: impl Fn(usize, &[&Choice]) -> Vec<Choice>,
    ) -> Option<Self> {
        let mut numbers = BTreeMap::new();
        let mut lists: Vec<Vec<Choice>> = Vec::new();
        let mut number = |variable: usize| {
            let chosen: Vec<&Choice> = plans.iter().map(|it| &it[variable]).collect();
            let kind = match problem.meanings[variable] {
                Meaning::Tensor { kind, .. } => kind,
                Meaning::Operator { work, .. } => work,
            };
            let key = (chosen, kind, problem.pin(variable).is_some());
            if let Some(number) = numbers.get(&key) {
                return Some(*number);
            }
            let mut list = list(variable, &key.0);
            list.sort_unstable();
            list.dedup();
            let is_some = !list.is_empty();
            lists.push(list);
            numbers.insert(key, lists.len() - 1);
            is_some.then_some(lists.len() - 1)
        };
        let list_of = (0..problem.meanings.len()).map(&mut number).collect::<Option<_>>()?;
        Some(Self { problem, lists, list_of })
    }

    fn list(&self, variable: usize) -> &[Choice] {
        &self.lists[self.list_of[variable]]
    }

    /// Where the choices of a plan stand among these; none if one of them is not there.
    pub(super) fn positions(&self, plan: &[Choice]) -> Option<Vec<usize>> {
        let position = |(variable, choice)| self.list(variable).binary_search(choice).ok();
        plan.iter().enumerate().map(position).collect()
    }

    /// The plan of one position for each variable.
    pub(super) fn plan(&self, positions: &[usize]) -> Plan {
        let choice = |(variable, &at): (usize, &usize)| self.list(variable)[at].clone();
        positions.iter().enumerate().map(choice).collect()
    }

    /// The entries of all tables that are not alike.
    pub(super) fn n_entries(&self) -> usize {
        let keys: BTreeSet<Key<'_>> = self.problem.pairs.iter().map(|it| self.key(it)).collect();
        let n_entries =
            |(_, [tilings, forms, _]): Key<'_>| self.lists[tilings].len() * self.lists[forms].len();
        keys.into_iter().map(n_entries).sum()
    }

    fn key(&self, pair: &'a Pair) -> Key<'a> {
        let [tilings, forms] = [pair.tensor, pair.operator].map(|it| self.list_of[it]);
        (&pair.uses, [tilings, forms, self.problem.charge_number(pair)])
    }

    /// The costs of all combinations.
    pub(super) fn costs(&self) -> PairwiseProblem {
        let problem = self.problem;
        let of_choice = |variable: usize, choice: &Choice| {
            problem.cost_of_choice(&problem.pricing, variable, choice)
        };
        let of_variable = |variable: usize| {
            self.list(variable).iter().map(|it| of_choice(variable, it)).collect()
        };
        let mut known: BTreeMap<Key<'_>, Rc<[i64]>> = BTreeMap::new();
        let mut edge = |pair: &'a Pair| {
            let key @ (_, [tilings, forms, _]) = self.key(pair);
            let table = known
                .entry(key)
                .or_insert_with(|| self.table(pair, &self.lists[tilings], &self.lists[forms]));
            pair.edge(Rc::clone(table))
        };
        PairwiseProblem {
            unary: (0..self.list_of.len()).map(of_variable).collect(),
            edges: problem.pairs.iter().map(&mut edge).collect(),
        }
    }

    fn table(&self, pair: &Pair, tilings: &[Choice], forms: &[Choice]) -> Rc<[i64]> {
        let problem = self.problem;
        // Many forms need a tensor in the same tiling.
        let of_use = |&usage: &usize| {
            let usage = &problem.uses[usage];
            let mut known = Interner::default();
            let mut needed = Vec::new();
            let number = |form: &Choice| {
                let tiling = problem.tiling_of_use(usage, form.form());
                let number = known.number(tiling);
                if number == needed.len() {
                    needed.push(tiling);
                }
                number
            };
            let numbers: Vec<usize> = forms.iter().map(number).collect();
            let cost = |tiling: &Choice, needed: &Tiling| {
                problem.cost_of_conversion(&problem.pricing, usage, tiling.tiling(), *needed)
            };
            let of_tiling = |tiling| needed.iter().map(|it| cost(tiling, it)).collect();
            let costs: Vec<Vec<i64>> = tilings.iter().map(of_tiling).collect();
            (numbers, costs)
        };
        let uses: Vec<(Vec<usize>, Vec<Vec<i64>>)> = pair.uses.iter().map(of_use).collect();
        let is_charged = problem.charge_number(pair) > 0;
        let rows: Vec<usize> = (0..tilings.len()).collect();
        let columns: Vec<usize> = (0..forms.len()).collect();
        pair.table(&rows, &columns, |&row, &column| {
            let of_use =
                |(numbers, costs): &(Vec<usize>, Vec<Vec<i64>>)| costs[row][numbers[column]];
            let charge =
                || problem.charge_of_choices(pair, tilings[row].tiling(), forms[column].form());
            uses.iter().map(of_use).sum::<i64>() + if is_charged { charge() } else { 0 }
        })
    }
}
