//! Min-sum problems over a few candidate labels of each variable: axis assignments of an orbit, the
//! neighborhood of a plan, or mixtures of plans.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use soybean_minsum::PairwiseProblem;
use soybean_plan::Tiling;

use super::{
    cost_model::ConversionCost,
    instance::AccessTable,
    problem::{
        AccessEdge, Label, Plan, TableKey, TilingProblem,
        halo_edge::{HaloEdge, HaloTable},
    },
};

/// Candidate labels of each variable. Equal variables share a list, and equal edges a table.
pub(super) struct Candidates<'a> {
    problem: &'a TilingProblem<'a>,
    lists: Vec<Vec<Label>>,
    /// The list of each variable.
    list_of: Vec<usize>,
}

/// The costs of conversions between the tilings of a list and another one. The key has the kind of
/// the tensor, the number of the list, whether the tensor is read, and the other tiling.
type KnownConversions = BTreeMap<(usize, usize, bool, Tiling), Vec<ConversionCost>>;

impl<'a> Candidates<'a> {
    /// Makes a list for each variable from the labels that some plans give it, once for all equal
    /// variables. Returns `None` if a list is empty.
    pub(super) fn new(
        problem: &'a TilingProblem<'a>,
        plans: &[&[Label]],
        list: impl Fn(usize, &[&Label]) -> Vec<Label>,
    ) -> Option<Self> {
        let mut numbers = BTreeMap::new();
        let mut lists: Vec<Vec<Label>> = Vec::new();
        let mut number = |variable: usize| {
            let chosen: Vec<&Label> = plans.iter().map(|it| &it[variable]).collect();
            let kind = problem.variables[variable].kind();
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
        let list_of = (0..problem.variables.len()).map(&mut number).collect::<Option<_>>()?;
        Some(Self { problem, lists, list_of })
    }

    fn list(&self, variable: usize) -> &[Label] {
        &self.lists[self.list_of[variable]]
    }

    /// Returns the positions of a plan's labels; `None` if one of them is not a candidate.
    pub(super) fn positions(&self, plan: &[Label]) -> Option<Vec<usize>> {
        let position = |(variable, label)| self.list(variable).binary_search(label).ok();
        plan.iter().enumerate().map(position).collect()
    }

    /// Returns the plan of the labels at these positions.
    pub(super) fn plan(&self, positions: &[usize]) -> Plan {
        let label = |(variable, &at): (usize, &usize)| self.list(variable)[at].clone();
        positions.iter().enumerate().map(label).collect()
    }

    /// Returns the number of entries of all distinct tables.
    pub(super) fn n_entries(&self) -> usize {
        let mut keys: BTreeSet<TableKey> = BTreeSet::new();
        let edges = self.problem.edges.iter().filter(|it| keys.insert(self.key(it)));
        let edges = edges.map(|it| [it.tensor, it.operator]);
        let mut keys = BTreeSet::new();
        let of_halos = self.problem.halo_edges.iter().filter(|it| keys.insert(self.halo_key(it)));
        let of_halos = of_halos.map(|it| [it.earlier, it.later]);
        edges.chain(of_halos).map(|it| self.list(it[0]).len() * self.list(it[1]).len()).sum()
    }

    /// Returns what the table of a halo edge depends on.
    fn halo_key<'e>(&self, edge: &'e HaloEdge) -> (&'e [usize], [usize; 2]) {
        (&edge.accesses, [edge.earlier, edge.later].map(|it| self.list_of[it]))
    }

    fn key(&self, edge: &AccessEdge) -> TableKey {
        let lists = [self.list_of[edge.tensor], self.list_of[edge.operator]];
        TableKey::new(edge, lists, self.problem.multiplier_key(edge))
    }

    /// Returns the min-sum problem over the candidates.
    pub(super) fn costs(&self) -> PairwiseProblem {
        let problem = self.problem;
        let of_label = |variable: usize, label: &Label| {
            problem.cost_of_label(&problem.cost_model, variable, label)
        };
        let of_variable =
            |variable: usize| self.list(variable).iter().map(|it| of_label(variable, it)).collect();
        let mut known: BTreeMap<TableKey, Rc<[i64]>> = BTreeMap::new();
        let mut conversions = KnownConversions::new();
        let mut edge = |edge: &AccessEdge| {
            let table = known.entry(self.key(edge));
            edge.edge(Rc::clone(table.or_insert_with(|| self.table(edge, &mut conversions))))
        };
        let mut known = BTreeMap::new();
        let mut halo_edge = |edge: &'a HaloEdge| {
            let table = known.entry(self.halo_key(edge)).or_insert_with(|| self.halo_table(edge));
            edge.edge(Rc::clone(table))
        };
        PairwiseProblem {
            unary: (0..self.list_of.len()).map(of_variable).collect(),
            edges: problem
                .edges
                .iter()
                .map(&mut edge)
                .chain(problem.halo_edges.iter().map(&mut halo_edge))
                .collect(),
        }
    }

    fn halo_table(&self, edge: &HaloEdge) -> Rc<[i64]> {
        let problem = self.problem;
        let of_access = |&at: &usize| {
            let access = &problem.accesses[at];
            let needed = |access, it: &Label| problem.accessed_tiling(access, it.partitioning());
            let source = problem.halo_source(access);
            let later = |it: &Label| {
                let tiling = needed(access, it);
                (tiling, problem.costs_of_shared_halo(&problem.cost_model, at, tiling))
            };
            HaloTable {
                earlier: self.list(edge.earlier).iter().map(|it| needed(source, it)).collect(),
                later: self.list(edge.later).iter().map(later).collect(),
            }
        };
        let accesses: Vec<HaloTable<Tiling>> = edge.accesses.iter().map(of_access).collect();
        HaloTable::sum(&accesses)
    }

    fn table(&self, edge: &AccessEdge, known: &mut KnownConversions) -> Rc<[i64]> {
        let (problem, list) = (self.problem, self.list_of[edge.tensor]);
        let (tilings, partitionings) = (self.list(edge.tensor), self.list(edge.operator));
        let of_access = |&access: &usize| {
            let access = &problem.accesses[access];
            let needed = partitionings.iter().map(|it| {
                let tiling = problem.accessed_tiling(access, it.partitioning());
                (tiling, problem.cost_of_own_halo(&problem.cost_model, access, tiling))
            });
            AccessTable::new(tilings.len(), needed, |(needed, of_halo), costs| {
                let key = (access.tensor_kind, list, access.operand.is_some(), needed);
                let conversions = known.entry(key).or_insert_with(|| {
                    let to_other = |it: &Label| {
                        problem.conversion_cost(&problem.cost_model, access, it.tiling(), needed)
                    };
                    tilings.iter().map(to_other).collect()
                });
                for (tiling, &conversion) in tilings.iter().zip(&conversions[..]) {
                    costs.push(
                        problem.cost_of_access(access, conversion)
                            + problem.replica_tie_break_of(access, tiling.tiling(), needed)
                            + of_halo,
                    );
                }
            })
        };
        let mut terms: Vec<AccessTable> = edge.accesses.iter().map(of_access).collect();
        if problem.multiplier_key(edge) > 0 {
            let prices = |at: usize, prices: &mut Vec<i64>| {
                let partitioning = partitionings[at].partitioning();
                let price =
                    |it: &Label| problem.memory_price_of_labels(edge, it.tiling(), partitioning);
                prices.extend(tilings.iter().map(price));
            };
            terms.push(AccessTable::new(tilings.len(), 0..partitionings.len(), prices));
        }
        edge.table(&terms)
    }
}
