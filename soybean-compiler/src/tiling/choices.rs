//! Searches among few choices for each variable, whatever they are: layouts of what is known by counts, neighbours of a plan, mixtures of plans.

use std::{collections::BTreeMap, rc::Rc};

use super::{
    pairwise::Pairwise,
    problem::{Choice, Meaning, Pair, Plan, Problem},
};

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

    /// The costs of all combinations.
    pub(super) fn costs(&self) -> Pairwise {
        let problem = self.problem;
        let of_choice = |variable: usize, choice: &Choice| {
            problem.cost_of_choice(&problem.pricing, variable, choice)
        };
        let of_variable = |variable: usize| {
            self.list(variable).iter().map(|it| of_choice(variable, it)).collect()
        };
        let mut known: BTreeMap<Key<'_>, Rc<[i64]>> = BTreeMap::new();
        let mut edge = |pair: &'a Pair| {
            let [tilings, forms] = [pair.tensor, pair.operator].map(|it| self.list_of[it]);
            let key = (&pair.uses[..], [tilings, forms, problem.charge_number(pair)]);
            let table = known
                .entry(key)
                .or_insert_with(|| self.table(pair, &self.lists[tilings], &self.lists[forms]));
            pair.edge(Rc::clone(table))
        };
        Pairwise {
            unary: (0..self.list_of.len()).map(of_variable).collect(),
            edges: problem.pairs.iter().map(&mut edge).collect(),
        }
    }

    fn table(&self, pair: &Pair, tilings: &[Choice], forms: &[Choice]) -> Rc<[i64]> {
        pair.table(tilings, forms, |tiling, form| {
            let (tiling, form) = (tiling.tiling(), form.form());
            self.problem.cost_of_pair(&self.problem.pricing, pair, tiling, form)
        })
    }
}
