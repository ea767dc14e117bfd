//! A search problem at one resolution: the states that its variables can have, and tables of what pairs of them cost.
//!
//! Tables are made for the states that a search wants, and once for all pairs that are alike: layers repeat.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use soybean_minsum::{Edge, Interner, PairwiseProblem};

use super::{
    counts::Counts,
    dominance::known_everywhere,
    forms::enumerate,
    problem::{Choice, Meaning, Pair, Plan, Problem},
    resolution::Resolution,
    space::Space,
};
use crate::{graph::Value, signature::Form};

/// A problem with the states that a resolution tells apart.
pub(super) struct View<'a> {
    pub(super) problem: &'a Problem<'a>,
    pub(super) resolution: Resolution,
    /// For each kind of tensors.
    spaces: Vec<Space>,
    /// For each work, its forms.
    forms: Vec<Vec<Form>>,
    /// For each use and each form of its operator, the position of the tiling that it needs or gives.
    positions: Vec<Rc<[usize]>>,
    /// What the forms of each task and work cost besides conversions, found once.
    kernels: RefCell<BTreeMap<(usize, usize), Vec<i64>>>,
}

impl<'a> View<'a> {
    pub(super) fn new(problem: &'a Problem<'a>, resolution: Resolution) -> Self {
        let mesh = &problem.mesh;
        let counts = resolution
            .is_counts()
            .then(|| Rc::new(Counts::new(mesh, resolution.classes(), &problem.pricing)));
        let space = |kind| Space::new(kind, &resolution, counts.as_ref(), &problem.pricing);
        let spaces: Vec<Space> = problem.kinds.iter().map(space).collect();
        let forms: Vec<Vec<Form>> = problem
            .works
            .iter()
            .map(|it| enumerate(&it.splittable, &resolution, mesh, it.repeating))
            .collect();
        let mut known: BTreeMap<(usize, usize, Option<usize>), Rc<[usize]>> = BTreeMap::new();
        let mut positions = Vec::with_capacity(problem.uses.len());
        for usage in &problem.uses {
            let position = |form: &Form| {
                let tiling = problem.tiling_of_use(usage, form);
                spaces[usage.kind].position(&tiling).expect("what forms need is legal")
            };
            let all = || forms[usage.work].iter().map(position).collect();
            let of_use = known.entry((usage.kind, usage.work, usage.operand)).or_insert_with(all);
            positions.push(Rc::clone(of_use));
        }
        let kernels = RefCell::default();
        Self { problem, resolution, spaces, forms, positions, kernels }
    }

    /// The number of states of a variable.
    pub(super) fn n_states(&self, variable: usize) -> usize {
        match self.problem.meanings[variable] {
            Meaning::Tensor { kind, .. } => self.spaces[kind].stored().len(),
            Meaning::Operator { work, .. } => self.forms[work].len(),
        }
    }

    /// What a state of a variable stands for.
    pub(super) fn choice(&self, variable: usize, state: usize) -> Choice {
        match self.problem.meanings[variable] {
            Meaning::Tensor { kind, .. } => Choice::Tensor(self.spaces[kind].stored()[state]),
            Meaning::Operator { work, .. } => Choice::Operator(self.forms[work][state].clone()),
        }
    }

    /// The plan of one state for each variable.
    pub(super) fn plan(&self, states: &[usize]) -> Plan {
        states.iter().enumerate().map(|(variable, &state)| self.choice(variable, state)).collect()
    }

    /// The states of a plan, or those that stand for them; none if this resolution has none.
    pub(super) fn states(&self, plan: &[Choice]) -> Option<Vec<usize>> {
        plan.iter().enumerate().map(|(variable, choice)| self.state(variable, choice)).collect()
    }

    /// Where the states of a plan stand among these; none if one of them is not there.
    pub(super) fn positions(&self, kept: &[Vec<usize>], plan: &[Choice]) -> Option<Vec<usize>> {
        let states = self.states(plan)?;
        kept.iter().zip(states).map(|(kept, state)| kept.binary_search(&state).ok()).collect()
    }

    /// The state of a choice, or the one that stands for it; none if this resolution has none.
    pub(super) fn state(&self, variable: usize, choice: &Choice) -> Option<usize> {
        match (self.problem.meanings[variable], choice) {
            (Meaning::Tensor { kind, .. }, Choice::Tensor(tiling)) => {
                self.spaces[kind].position(tiling)
            }
            (Meaning::Operator { work, .. }, Choice::Operator(form)) => {
                let form = self.resolution.sorted(form);
                self.forms[work].iter().position(|it| *it == form)
            }
            _ => unreachable!("a choice is of the kind of its variable"),
        }
    }

    /// The states from which a search chooses; of pinned tensors, the one that they are pinned to.
    pub(super) fn all_states(&self) -> Vec<Vec<usize>> {
        let problem = self.problem;
        let operators = problem.meanings.iter().filter_map(|meaning| match *meaning {
            Meaning::Operator { value, work } => Some((value, &problem.works[work].signature)),
            Meaning::Tensor { .. } => None,
        });
        let is_known_everywhere = known_everywhere(problem.network, &operators.collect::<Vec<_>>());
        let of_variable = |variable: usize| match self.problem.meanings[variable] {
            Meaning::Tensor { kind, .. } if let Some(pin) = self.problem.pin(variable) => {
                let state = self.spaces[kind].position(&pin);
                vec![state.expect("pins are uniform along axes that are not told apart")]
            }
            Meaning::Tensor { value, .. } if is_known_everywhere[value.index()] => vec![0],
            _ => (0..self.n_states(variable)).collect(),
        };
        (0..self.problem.meanings.len()).map(of_variable).collect()
    }

    /// The states whose place in a coarser view is one of these, for those variables that have any; for the others those whose place is allowed.
    pub(super) fn standing_for(
        &self,
        coarse: &View<'_>,
        wanted: &[Vec<usize>],
        allowed: &[Vec<usize>],
    ) -> Vec<Vec<usize>> {
        let of_kinds = self.spaces.iter().zip(&coarse.spaces);
        let place_of_tilings: Vec<Vec<Option<usize>>> = of_kinds
            .map(|(fine, coarse)| fine.stored().iter().map(|it| coarse.position(it)).collect())
            .collect();
        let place = |forms: &[Form], form: &Form| {
            let form = coarse.resolution.sorted(form);
            forms.iter().position(|it| *it == form)
        };
        let of_works = self.forms.iter().zip(&coarse.forms);
        let place_of_forms: Vec<Vec<Option<usize>>> = of_works
            .map(|(fine, coarse)| fine.iter().map(|it| place(coarse, it)).collect())
            .collect();
        let of_variable = |variable: usize| {
            let places = match self.problem.meanings[variable] {
                Meaning::Tensor { kind, .. } => &place_of_tilings[kind],
                Meaning::Operator { work, .. } => &place_of_forms[work],
            };
            let among = |states: &[usize]| -> Vec<usize> {
                let is_among = |it: &usize| {
                    places[*it].is_some_and(|place| states.binary_search(&place).is_ok())
                };
                (0..places.len()).filter(is_among).collect()
            };
            let some = [&wanted[variable], &allowed[variable]].map(|it| among(it));
            let some = some.into_iter().find(|it| !it.is_empty());
            some.unwrap_or_else(|| (0..places.len()).collect())
        };
        (0..wanted.len()).map(of_variable).collect()
    }

    /// The entries of all tables over some of each variable's states.
    pub(super) fn n_entries(&self, kept: &[Vec<usize>]) -> usize {
        let pairs = self.problem.pairs.iter();
        pairs.map(|it| kept[it.tensor].len() * kept[it.operator].len()).sum()
    }

    fn cost_of_state(&self, variable: usize, state: usize) -> i64 {
        match self.problem.meanings[variable] {
            Meaning::Tensor { value, kind } => {
                let n_parts = self.spaces[kind].n_parts(state);
                self.problem.cost_of_storage(value, n_parts)
                    + self.problem.charge_of_storage(value, n_parts)
            }
            Meaning::Operator { value, work } => {
                self.cost_of_form(value, work, state)
                    + self.problem.charge_of_form(value, work, &self.forms[work][state])
            }
        }
    }

    /// What it costs to compute a tensor in this form, besides conversions and memory.
    fn cost_of_form(&self, value: Value, work: usize, form: usize) -> i64 {
        let Some(task) = self.problem.pricing.task(value) else { return 0 };
        let cost = |form: &Form| self.problem.pricing.kernel(self.problem.network, value, form);
        let of_all = || self.forms[work].iter().map(cost).collect();
        let cost = self.kernels.borrow_mut().entry((task, work)).or_insert_with(of_all)[form];
        self.problem.unit() * cost
    }

    /// What a pair costs in memory.
    fn charge_of_pair(&self, pair: &Pair, tiling: usize, form: usize) -> i64 {
        let n_parts = |usage: usize| {
            let other = self.positions[usage][form];
            let usage = &self.problem.uses[usage];
            let to = if usage.operand.is_some() { other } else { tiling };
            (other != tiling).then(|| self.spaces[usage.kind].n_parts(to))
        };
        self.problem.charge_of_pair(pair, n_parts)
    }

    /// The cost of converting between a tensor's tiling and the tiling that an operator's form needs or gives.
    fn cost_of_use(&self, usage: usize, tiling: usize, form: usize) -> i64 {
        let other = self.positions[usage][form];
        if tiling == other {
            return 0;
        }
        let usage = &self.problem.uses[usage];
        let (from, to) = if usage.operand.is_some() { (tiling, other) } else { (other, tiling) };
        let space = &self.spaces[usage.kind];
        self.problem.cost_of_use(usage, space.cost(from, to))
            + self.problem.cost_of_copy(usage, space.n_parts(to))
    }

    /// The costs over some of each variable's states.
    pub(super) fn restricted(&self, kept: &[Vec<usize>]) -> PairwiseProblem {
        let unary = |(variable, kept): (usize, &Vec<usize>)| {
            kept.iter().map(|&it| self.cost_of_state(variable, it)).collect()
        };
        let unary = kept.iter().enumerate().map(unary).collect();
        let mut numbers = Interner::default();
        let of_kept: Vec<usize> = kept.iter().map(|it| numbers.number(&it[..])).collect();
        let mut known: BTreeMap<[usize; 4], Rc<[i64]>> = BTreeMap::new();
        let mut edges = Vec::with_capacity(self.problem.pairs.len());
        for pair in &self.problem.pairs {
            let key = [
                numbers.number(&pair.uses[..]),
                of_kept[pair.tensor],
                of_kept[pair.operator],
                self.problem.charge_number(pair),
            ];
            let (rows, columns) = (&kept[pair.tensor][..], &kept[pair.operator][..]);
            let table = known.entry(key).or_insert_with(|| self.table(pair, rows, columns));
            edges.push(pair.edge(Rc::clone(table)));
        }
        PairwiseProblem { unary, edges }
    }

    fn table(&self, pair: &Pair, rows: &[usize], columns: &[usize]) -> Rc<[i64]> {
        let is_charged = self.problem.charge_number(pair) > 0;
        pair.table(rows, columns, |&tiling, &form| {
            let uses = pair.uses.iter().map(|&usage| self.cost_of_use(usage, tiling, form));
            let charge = if is_charged { self.charge_of_pair(pair, tiling, form) } else { 0 };
            uses.sum::<i64>() + charge
        })
    }
}

impl Pair {
    /// The table of what these states of the tensor cost with these of the operator.
    pub(super) fn table<T, F>(
        &self,
        tilings: &[T],
        forms: &[F],
        cost: impl Fn(&T, &F) -> i64,
    ) -> Rc<[i64]> {
        let mut table = Vec::with_capacity(tilings.len() * forms.len());
        if self.tensor < self.operator {
            for tiling in tilings {
                table.extend(forms.iter().map(|form| cost(tiling, form)));
            }
        } else {
            for form in forms {
                table.extend(tilings.iter().map(|tiling| cost(tiling, form)));
            }
        }
        table.into()
    }

    /// The edge with this table. Pairs with the same uses have their variables in the same order.
    pub(super) fn edge(&self, table: Rc<[i64]>) -> Edge {
        let (first, second) = (self.tensor.min(self.operator), self.tensor.max(self.operator));
        Edge { first, second, table }
    }
}
