//! A tiling problem at one resolution: the labels of its variables, and the min-sum problem over
//! some of them.
//!
//! Tables are made only for the labels that a search asks for. Equal edges share a table, because
//! layers repeat.

mod halos;

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use soybean_minsum::{Edge, Interner, PairwiseProblem};

use halos::halo_costs;

use super::{
    dominance::is_known,
    orbits::OrbitCosts,
    problem::{AccessEdge, Label, Plan, TableKey, TilingProblem, Variable},
    resolution::Resolution,
    splittable::enumerate_partitionings,
    tiling_space::TilingSpace,
};
use crate::{signature::Partitioning, value::Value};

/// A problem with the labels that a resolution distinguishes.
pub(super) struct Instance<'a> {
    pub(super) problem: &'a TilingProblem<'a>,
    pub(super) resolution: Resolution,
    /// The tilings of each kind of tensor.
    spaces: Vec<TilingSpace>,
    /// The partitionings of each kind of operator.
    partitionings: Vec<Vec<Partitioning>>,
    /// For each access and each partitioning of its operator, the position of the tiling that it
    /// needs or gives.
    positions: Vec<Rc<[usize]>>,
    /// For each access and each partitioning of its operator, the cost of the halo; empty without
    /// halos, and where it is a cost of a halo edge.
    halos: Vec<Rc<[i64]>>,
    /// The kernel costs of the partitionings of each task and operator kind, computed once.
    kernels: RefCell<BTreeMap<(usize, usize), Vec<i64>>>,
}

impl<'a> Instance<'a> {
    pub(super) fn new(problem: &'a TilingProblem<'a>, resolution: Resolution) -> Self {
        let mesh = &problem.mesh;
        let orbits = resolution
            .is_by_orbits()
            .then(|| Rc::new(OrbitCosts::new(mesh, resolution.classes(), &problem.cost_model)));
        let space = |tensor_kind| {
            TilingSpace::new(tensor_kind, &resolution, orbits.as_ref(), &problem.cost_model)
        };
        let spaces: Vec<TilingSpace> = problem.tensor_kinds.iter().map(space).collect();
        let partitionings: Vec<Vec<Partitioning>> = problem
            .operator_kinds
            .iter()
            .map(|it| enumerate_partitionings(&it.splittable, &resolution, mesh, it.redundancy))
            .collect();
        let mut known: BTreeMap<(usize, usize, Option<usize>), Rc<[usize]>> = BTreeMap::new();
        let mut positions = Vec::with_capacity(problem.accesses.len());
        let mut halos = Vec::with_capacity(problem.accesses.len());
        for access in &problem.accesses {
            halos.push(halo_costs(problem, access, &partitionings[access.operator_kind]));
            let position = |partitioning: &Partitioning| {
                let tiling = problem.accessed_tiling(access, partitioning);
                spaces[access.tensor_kind]
                    .position(&tiling)
                    .expect("partitionings need legal tilings")
            };
            let all = || partitionings[access.operator_kind].iter().map(position).collect();
            let of_access = known
                .entry((access.tensor_kind, access.operator_kind, access.operand))
                .or_insert_with(all);
            positions.push(Rc::clone(of_access));
        }
        let kernels = RefCell::default();
        Self { problem, resolution, spaces, partitionings, positions, halos, kernels }
    }

    /// Returns the number of labels of a variable.
    pub(super) fn n_labels(&self, variable: usize) -> usize {
        match self.problem.variables[variable] {
            Variable::Tensor { tensor_kind, .. } => self.spaces[tensor_kind].stored().len(),
            Variable::Operator { operator_kind, .. } => self.partitionings[operator_kind].len(),
        }
    }

    /// Returns a label of a variable.
    pub(super) fn label(&self, variable: usize, index: usize) -> Label {
        match self.problem.variables[variable] {
            Variable::Tensor { tensor_kind, .. } => {
                Label::Tensor(self.spaces[tensor_kind].stored()[index])
            }
            Variable::Operator { operator_kind, .. } => {
                Label::Operator(self.partitionings[operator_kind][index].clone())
            }
        }
    }

    /// Returns the plan of these labels, one per variable.
    pub(super) fn plan(&self, labels: &[usize]) -> Plan {
        labels.iter().enumerate().map(|(variable, &label)| self.label(variable, label)).collect()
    }

    /// Returns the labels of a plan, or the representatives of their orbits; `None` if this
    /// resolution lacks one.
    pub(super) fn indices(&self, plan: &[Label]) -> Option<Vec<usize>> {
        plan.iter().enumerate().map(|(variable, label)| self.index(variable, label)).collect()
    }

    /// Returns the positions of a plan's labels among the kept ones; `None` if one of them is not
    /// kept.
    pub(super) fn positions(&self, kept: &[Vec<usize>], plan: &[Label]) -> Option<Vec<usize>> {
        let indices = self.indices(plan)?;
        kept.iter().zip(indices).map(|(kept, index)| kept.binary_search(&index).ok()).collect()
    }

    /// Returns the index of a label, or of the representative of its orbit; `None` if this
    /// resolution lacks it.
    pub(super) fn index(&self, variable: usize, label: &Label) -> Option<usize> {
        match (self.problem.variables[variable], label) {
            (Variable::Tensor { tensor_kind, .. }, Label::Tensor(tiling)) => {
                self.spaces[tensor_kind].position(tiling)
            }
            (Variable::Operator { operator_kind, .. }, Label::Operator(partitioning)) => {
                let partitioning = self.resolution.sorted(partitioning);
                self.partitionings[operator_kind].iter().position(|it| *it == partitioning)
            }
            _ => unreachable!("a label is of the kind of its variable"),
        }
    }

    /// Returns the labels from which a search chooses. A pinned tensor has one.
    pub(super) fn all_labels(&self) -> Vec<Vec<usize>> {
        let problem = self.problem;
        let mut is_known_everywhere = vec![false; problem.network.graph.n_values()];
        for of_variable in &problem.variables {
            if let &Variable::Operator { value, operator_kind } = of_variable {
                let kind = &problem.operator_kinds[operator_kind];
                is_known_everywhere[value.index()] =
                    is_known(&kind.signature, kind.splittable.terms());
            }
        }
        let pinned = |variable: usize, tensor_kind: usize| {
            let position = self.spaces[tensor_kind].position(&problem.pin(variable)?);
            Some(vec![position.expect("pins are equal along symmetric axes")])
        };
        let of_variable = |variable: usize| {
            let all = || (0..self.n_labels(variable)).collect();
            match problem.variables[variable] {
                Variable::Tensor { tensor_kind, value } => match pinned(variable, tensor_kind) {
                    Some(label) => label,
                    None if is_known_everywhere[value.index()] => vec![0],
                    None => all(),
                },
                Variable::Operator { .. } => all(),
            }
        };
        (0..self.problem.variables.len()).map(of_variable).collect()
    }

    /// Returns for each variable the labels whose coarse label is wanted. If there are none, it
    /// returns those whose coarse label is allowed, or else all labels.
    pub(super) fn refining(
        &self,
        coarse: &Instance<'_>,
        wanted: &[Vec<usize>],
        allowed: &[Vec<usize>],
    ) -> Vec<Vec<usize>> {
        let of_kinds = self.spaces.iter().zip(&coarse.spaces);
        let place_of_tilings: Vec<Vec<Option<usize>>> = of_kinds
            .map(|(fine, coarse)| fine.stored().iter().map(|it| coarse.position(it)).collect())
            .collect();
        let place = |partitionings: &[Partitioning], partitioning: &Partitioning| {
            let partitioning = coarse.resolution.sorted(partitioning);
            partitionings.iter().position(|it| *it == partitioning)
        };
        let of_works = self.partitionings.iter().zip(&coarse.partitionings);
        let place_of_forms: Vec<Vec<Option<usize>>> = of_works
            .map(|(fine, coarse)| fine.iter().map(|it| place(coarse, it)).collect())
            .collect();
        let of_variable = |variable: usize| {
            let places = match self.problem.variables[variable] {
                Variable::Tensor { tensor_kind, .. } => &place_of_tilings[tensor_kind],
                Variable::Operator { operator_kind, .. } => &place_of_forms[operator_kind],
            };
            let among = |labels: &[usize]| -> Vec<usize> {
                let is_among = |it: &usize| {
                    places[*it].is_some_and(|place| labels.binary_search(&place).is_ok())
                };
                (0..places.len()).filter(is_among).collect()
            };
            let some = [&wanted[variable], &allowed[variable]].map(|it| among(it));
            let some = some.into_iter().find(|it| !it.is_empty());
            some.unwrap_or_else(|| (0..places.len()).collect())
        };
        (0..wanted.len()).map(of_variable).collect()
    }

    /// Returns the number of entries of all tables over the kept labels.
    pub(super) fn n_entries(&self, kept: &[Vec<usize>]) -> usize {
        let edges = self.problem.edges.iter().map(|it| [it.tensor, it.operator]);
        let of_halos = self.problem.halo_edges.iter().map(|it| [it.earlier, it.later]);
        edges.chain(of_halos).map(|it| kept[it[0]].len() * kept[it[1]].len()).sum()
    }

    fn unary_cost(&self, variable: usize, label: usize) -> i64 {
        match self.problem.variables[variable] {
            Variable::Tensor { value, tensor_kind } => {
                let n_parts = self.spaces[tensor_kind].n_parts(label);
                self.problem.storage_tie_break(value, n_parts)
                    + self.problem.memory_price_of_storage(value, n_parts)
            }
            Variable::Operator { value, operator_kind } => {
                self.kernel_cost(value, operator_kind, label)
                    + self.problem.memory_price_of_partitioning(
                        value,
                        operator_kind,
                        &self.partitionings[operator_kind][label],
                    )
            }
        }
    }

    /// Returns the cost of computing a tensor in this partitioning, without conversions and memory.
    fn kernel_cost(&self, value: Value, operator_kind: usize, partitioning: usize) -> i64 {
        let Some(task) = self.problem.cost_model.task(value) else { return 0 };
        let cost = |partitioning: &Partitioning| {
            self.problem.cost_model.kernel(self.problem.network, value, partitioning)
        };
        let of_all = || self.partitionings[operator_kind].iter().map(cost).collect();
        let cost = self.kernels.borrow_mut().entry((task, operator_kind)).or_insert_with(of_all)
            [partitioning];
        self.problem.unit() * cost
    }

    /// Returns the memory price of an edge.
    fn memory_price_of_edge(&self, edge: &AccessEdge, tiling: usize, partitioning: usize) -> i64 {
        let n_parts = |access: usize| {
            let other = self.positions[access][partitioning];
            let access = &self.problem.accesses[access];
            let to = if access.operand.is_some() { other } else { tiling };
            (other != tiling).then(|| self.spaces[access.tensor_kind].n_parts(to))
        };
        self.problem.memory_price_of_edge(edge, n_parts)
    }

    /// Returns the cost of converting between a tensor's tiling and another one that an access
    /// needs or gives.
    fn cost_of_conversion(&self, access: usize, tiling: usize, other: usize) -> i64 {
        if tiling == other {
            return 0;
        }
        let access = &self.problem.accesses[access];
        let (from, to) = if access.operand.is_some() { (tiling, other) } else { (other, tiling) };
        let space = &self.spaces[access.tensor_kind];
        self.problem.cost_of_access(access, space.cost(from, to))
            + self.problem.replica_tie_break(access, space.n_parts(to))
    }

    /// Returns the min-sum problem over the kept labels.
    pub(super) fn restricted(&self, kept: &[Vec<usize>]) -> PairwiseProblem {
        let unary = |(variable, kept): (usize, &Vec<usize>)| {
            kept.iter().map(|&it| self.unary_cost(variable, it)).collect()
        };
        let unary = kept.iter().enumerate().map(unary).collect();
        let mut numbers = Interner::default();
        let of_kept: Vec<usize> = kept.iter().map(|it| numbers.number(&it[..])).collect();
        let mut known: BTreeMap<TableKey, Rc<[i64]>> = BTreeMap::new();
        let mut edges = Vec::with_capacity(self.problem.edges.len());
        for edge in &self.problem.edges {
            let labels = [of_kept[edge.tensor], of_kept[edge.operator]];
            let key = TableKey::new(edge, labels, self.problem.multiplier_key(edge));
            let (rows, columns) = (&kept[edge.tensor][..], &kept[edge.operator][..]);
            let table = known.entry(key).or_insert_with(|| self.table(edge, rows, columns));
            edges.push(edge.edge(Rc::clone(table)));
        }
        edges.extend(self.halo_edges(kept, &of_kept));
        PairwiseProblem { unary, edges }
    }

    fn table(&self, edge: &AccessEdge, rows: &[usize], columns: &[usize]) -> Rc<[i64]> {
        let of_access = |&access: &usize| {
            let needed = |&partitioning: &usize| {
                let of_halo = self.halos[access].get(partitioning).copied().unwrap_or(0);
                (self.positions[access][partitioning], of_halo)
            };
            AccessTable::new(rows.len(), columns.iter().map(needed), |(other, of_halo), costs| {
                for &tiling in rows {
                    costs.push(self.cost_of_conversion(access, tiling, other) + of_halo);
                }
            })
        };
        let mut terms: Vec<AccessTable> = edge.accesses.iter().map(of_access).collect();
        if self.problem.multiplier_key(edge) > 0 {
            let prices = |partitioning: usize, prices: &mut Vec<i64>| {
                let price = |&tiling: &usize| self.memory_price_of_edge(edge, tiling, partitioning);
                prices.extend(rows.iter().map(price));
            };
            terms.push(AccessTable::new(rows.len(), columns.iter().copied(), prices));
        }
        edge.table(&terms)
    }
}

/// The costs of an access for some tilings and partitionings, or the memory prices of its edge.
/// Many partitionings need a tensor in the same tiling, whose costs are computed once.
pub(super) struct AccessTable {
    n_tilings: usize,
    /// For each partitioning, the position in `costs` of the costs of all tilings with what it
    /// needs.
    starts: Vec<usize>,
    costs: Vec<i64>,
}

impl AccessTable {
    /// Returns the costs of all tilings with what each partitioning needs. `push_costs` appends
    /// those of all tilings with a need.
    pub(super) fn new<N: Ord + Copy>(
        n_tilings: usize,
        needed: impl Iterator<Item = N>,
        mut push_costs: impl FnMut(N, &mut Vec<i64>),
    ) -> Self {
        let (mut known, mut costs) = (Interner::default(), Vec::new());
        let start = |needed: N| {
            let start = known.number(needed) * n_tilings;
            if start == costs.len() {
                push_costs(needed, &mut costs);
            }
            start
        };
        let starts = needed.map(start).collect();
        Self { n_tilings, starts, costs }
    }

    /// Adds the costs to a table, in which the entries of the next tiling and of the next
    /// partitioning are so many entries further.
    fn add_to(&self, table: &mut [i64], [to_tiling, to_partitioning]: [usize; 2]) {
        let mut partitioning = 0;
        while partitioning < self.starts.len() {
            let costs = &self.costs[self.starts[partitioning]..][..self.n_tilings];
            let (mut at, mut tiling) = (partitioning * to_partitioning, 0);
            while tiling < costs.len() {
                table[at] += costs[tiling];
                at += to_tiling;
                tiling += 1;
            }
            partitioning += 1;
        }
    }
}

impl AccessEdge {
    /// Returns the sum of these costs as a table.
    pub(super) fn table(&self, terms: &[AccessTable]) -> Rc<[i64]> {
        let (n_tilings, n_partitionings) = (terms[0].n_tilings, terms[0].starts.len());
        let steps = if self.tensor < self.operator { [n_partitionings, 1] } else { [1, n_tilings] };
        let mut table = vec![0; n_tilings * n_partitionings];
        terms.iter().for_each(|it| it.add_to(&mut table, steps));
        table.into()
    }

    /// Returns the edge with this table. Edges with the same accesses have their variables in the
    /// same order.
    pub(super) fn edge(&self, table: Rc<[i64]>) -> Edge {
        let (first, second) = (self.tensor.min(self.operator), self.tensor.max(self.operator));
        Edge { first, second, table }
    }
}
