//! Exact minimization by bucket elimination (Dechter 1999).
//!
//! Eliminating a variable replaces the tables that mention it by one table over its neighbors. For
//! each combination of their labels it has the least cost over the labels of the variable.

use std::{collections::BTreeMap, ops::Range, rc::Rc};

use super::{
    elimination_order::EliminationOrder,
    problem::{Edge, PairwiseProblem},
    projection::{Table, project_out},
};

/// The entries of a table.
type Costs = Rc<[i64]>;

/// A summand: its variables, as a range of [`Elimination::scopes`], and its entries.
#[derive(Debug)]
struct Term {
    scope: Range<usize>,
    costs: Costs,
}

/// An eliminated variable, with its best label for each combination of its neighbors' labels.
#[derive(Debug)]
struct Eliminated {
    variable: usize,
    neighbors: Range<usize>,
    best: Rc<[u16]>,
}

/// An elimination in progress.
#[derive(Debug)]
pub(crate) struct Elimination {
    sizes: Vec<usize>,
    /// The variables of all tables ever made, one table after the other.
    scopes: Vec<usize>,
    /// The tables; `None` for those that mentioned an eliminated variable.
    tables: Vec<Option<Term>>,
    /// For each variable, the numbers of the tables that mention it.
    tables_of: Vec<Vec<usize>>,
    is_remaining: Vec<bool>,
    eliminated: Vec<Eliminated>,
    cache: Cache,
    /// The number of entries of the largest table made so far.
    pub(crate) largest_table: usize,
    /// The number of label combinations compared so far. Equal tables are compared once.
    pub(crate) n_combinations: u64,
}

impl Elimination {
    pub(crate) fn new(problem: &PairwiseProblem) -> Self {
        let n = problem.unary.len();
        let sizes = problem.unary.iter().map(Vec::len).collect();
        let mut n_tables = vec![1; n];
        for edge in &problem.edges {
            n_tables[edge.first] += 1;
            n_tables[edge.second] += 1;
        }
        let mut this = Self {
            sizes,
            scopes: Vec::with_capacity(4 * n + 2 * problem.edges.len()),
            tables: Vec::with_capacity(2 * n + problem.edges.len()),
            tables_of: n_tables.into_iter().map(Vec::with_capacity).collect(),
            is_remaining: vec![true; n],
            eliminated: Vec::with_capacity(n),
            cache: Cache::default(),
            largest_table: 0,
            n_combinations: 0,
        };
        let mut known: BTreeMap<&[i64], Costs> = BTreeMap::new();
        let unary = problem.unary.iter().enumerate();
        for (variable, costs) in unary.filter(|(_, costs)| costs.iter().any(|it| *it != 0)) {
            let costs = known.entry(costs).or_insert_with(|| costs.as_slice().into());
            let scope = this.scope_of([variable]);
            this.add(scope, Rc::clone(costs));
        }
        // A variable with one label is a constant. As a variable it would only connect its
        // neighbors with each other.
        let is_free = |variable: &usize| problem.unary[*variable].len() > 1;
        for edge in &problem.edges {
            let scope = this.scope_of([edge.first, edge.second].into_iter().filter(is_free));
            this.add(scope, Rc::clone(&edge.table));
        }
        this
    }

    /// Adds a scope of these variables.
    fn scope_of(&mut self, variables: impl IntoIterator<Item = usize>) -> Range<usize> {
        let start = self.scopes.len();
        self.scopes.extend(variables);
        start..self.scopes.len()
    }

    fn add(&mut self, scope: Range<usize>, costs: Costs) {
        for &variable in &self.scopes[scope.clone()] {
            self.tables_of[variable].push(self.tables.len());
        }
        self.tables.push(Some(Term { scope, costs }));
    }

    /// Eliminates variables in this order.
    pub(crate) fn run(&mut self, order: &EliminationOrder) {
        order.variables.iter().for_each(|&it| self.eliminate(it));
    }

    fn eliminate(&mut self, variable: usize) {
        let numbers = std::mem::take(&mut self.tables_of[variable]);
        let tables: Vec<Term> = numbers.iter().filter_map(|&it| self.tables[it].take()).collect();
        let scope = self.scope_around(variable, &tables);
        for &neighbor in &self.scopes[scope.clone()] {
            self.tables_of[neighbor].retain(|it| !numbers.contains(it));
        }
        let neighbors = &self.scopes[scope.clone()];
        let n_known = self.cache.projections.len();
        let Projection { costs, best } =
            self.cache.projection(&self.sizes, &self.scopes, variable, neighbors, tables);
        self.largest_table = self.largest_table.max(costs.len());
        if self.cache.projections.len() > n_known {
            self.n_combinations += (costs.len() * self.sizes[variable]) as u64;
        }
        self.is_remaining[variable] = false;
        self.eliminated.push(Eliminated { variable, neighbors: scope.clone(), best });
        self.add_or_merge(scope, costs);
    }

    /// Adds a scope of the variables that share one of the tables with `variable`, in increasing
    /// order.
    fn scope_around(&mut self, variable: usize, tables: &[Term]) -> Range<usize> {
        let start = self.scopes.len();
        for at in tables.iter().flat_map(|it| it.scope.clone()) {
            let other = self.scopes[at];
            if other != variable && !self.scopes[start..].contains(&other) {
                self.scopes.push(other);
            }
        }
        self.scopes[start..].sort_unstable();
        start..self.scopes.len()
    }

    /// Adds a table, or adds its costs to a table over the same variables. So there is at most one
    /// table for each pair of variables.
    fn add_or_merge(&mut self, scope: Range<usize>, costs: Costs) {
        let variables = &self.scopes[scope.clone()];
        let of_first = variables.first().map_or(&[][..], |first| &self.tables_of[*first]);
        let has_same_scope = |it: &&usize| {
            let table = self.tables[**it].as_ref();
            table.is_some_and(|it| self.scopes[it.scope.clone()] == *variables)
        };
        match of_first.iter().find(has_same_scope).and_then(|it| self.tables[*it].as_mut()) {
            Some(twin) => twin.costs = self.cache.sum(&twin.costs, &costs),
            None => self.add(scope, costs),
        }
    }

    /// Returns the problem over the remaining variables, renumbered, and their former numbers. All
    /// remaining tables must have one or two variables.
    pub(crate) fn remaining(&self) -> (PairwiseProblem, Vec<usize>) {
        let numbers: Vec<usize> =
            (0..self.sizes.len()).filter(|&it| self.is_remaining[it]).collect();
        let mut renumbered = vec![0; self.sizes.len()];
        for (new, &old) in numbers.iter().enumerate() {
            renumbered[old] = new;
        }
        let unary = numbers.iter().map(|&it| vec![0; self.sizes[it]]).collect();
        let mut problem = PairwiseProblem { unary, edges: Vec::new() };
        for Term { scope, costs } in self.tables.iter().flatten() {
            match self.scopes[scope.clone()] {
                [variable] => {
                    let sums = &mut problem.unary[renumbered[variable]];
                    sums.iter_mut().zip(&**costs).for_each(|(sum, cost)| *sum += cost);
                }
                [first, second] => {
                    let (first, second) = (renumbered[first], renumbered[second]);
                    problem.edges.push(Edge { first, second, table: Rc::clone(costs) });
                }
                ref variables => {
                    debug_assert!(
                        variables.is_empty(),
                        "only variables with at most two neighbors were eliminated"
                    );
                }
            }
        }
        (problem, numbers)
    }

    /// Returns the part of the cost that depends on no remaining variable.
    pub(crate) fn constant(&self) -> i64 {
        let is_constant = |it: &&Term| it.scope.is_empty();
        self.tables.iter().flatten().filter(is_constant).flat_map(|it| &*it.costs).sum()
    }

    /// Sets the best labels of the eliminated variables, given the labels of the remaining ones.
    pub(crate) fn complete(&self, labels: &mut [usize]) {
        for it in self.eliminated.iter().rev() {
            let neighbors = &self.scopes[it.neighbors.clone()];
            let at = neighbors.iter().fold(0, |at, &it| at * self.sizes[it] + labels[it]);
            labels[it.variable] = it.best[at] as usize;
        }
    }
}

/// The result of [`project_out`].
#[derive(Clone, Debug)]
struct Projection {
    costs: Costs,
    best: Rc<[u16]>,
}

/// Projections and sums found so far. Equal tables share an allocation, so that an address
/// identifies a table.
#[derive(Debug, Default)]
struct Cache {
    /// The key has the addresses of the tables and the positions of their variables. The tables are
    /// kept alive, so that no other table gets the same address.
    projections: BTreeMap<Vec<usize>, (Projection, Vec<Term>)>,
    sums: BTreeMap<[usize; 2], (Costs, [Costs; 2])>,
    key: Vec<usize>,
}

impl Cache {
    fn projection(
        &mut self,
        sizes: &[usize],
        scopes: &[usize],
        variable: usize,
        neighbors: &[usize],
        tables: Vec<Term>,
    ) -> Projection {
        self.key.clear();
        for table in &tables {
            self.key.push(table.costs.as_ptr().addr());
            let position = |it| neighbors.iter().position(|other| other == it);
            let positions = scopes[table.scope.clone()].iter().map(position);
            self.key.extend(positions.map(|it| it.unwrap_or(neighbors.len())));
        }
        if let Some((known, _)) = self.projections.get(&self.key) {
            return known.clone();
        }
        let all = tables.iter().map(|Term { scope, costs }| {
            let variables = &scopes[scope.clone()];
            Table { variables, costs }
        });
        let all: Vec<Table<'_>> = all.collect();
        let (costs, best) = project_out(sizes, variable, neighbors, &all);
        let found = Projection { costs: costs.into(), best: best.into() };
        self.projections.insert(self.key.clone(), (found.clone(), tables));
        found
    }

    fn sum(&mut self, one: &Costs, other: &Costs) -> Costs {
        let sum = || {
            let sum = one.iter().zip(&**other).map(|(one, other)| one + other).collect();
            (sum, [one, other].map(Rc::clone))
        };
        let key = [one, other].map(|it| it.as_ptr().addr());
        Rc::clone(&self.sums.entry(key).or_insert_with(sum).0)
    }
}

/// Eliminates all variables in this order. Returns the optimal labels, and the elimination.
pub(crate) fn minimize(
    problem: &PairwiseProblem,
    order: &EliminationOrder,
) -> (Vec<usize>, Elimination) {
    let mut elimination = Elimination::new(problem);
    elimination.run(order);
    let mut labels = vec![0; problem.unary.len()];
    elimination.complete(&mut labels);
    (labels, elimination)
}
