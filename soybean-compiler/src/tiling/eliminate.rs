//! Exact minimisation of a sum of tables by variable elimination.
//!
//! Eliminating a variable replaces the tables that mention it by one over its neighbours: for each of their states the best that the variable
//! can do.

use std::{collections::BTreeMap, ops::Range, rc::Rc};

use super::{
    minimum::{Table, minimum},
    order::Order,
    pairwise::{Edge, Pairwise},
};

/// The entries of a table.
type Costs = Rc<[i64]>;

/// One of the tables that are added up: where its variables stand among [`Elimination::scopes`], and its entries.
#[derive(Debug)]
struct Term {
    scope: Range<usize>,
    costs: Costs,
}

/// A variable that is gone: its best state for each combination of its neighbours' states.
#[derive(Debug)]
struct Eliminated {
    variable: usize,
    neighbors: Range<usize>,
    best: Rc<[u16]>,
}

/// An elimination in progress.
#[derive(Debug)]
pub(super) struct Elimination {
    sizes: Vec<usize>,
    /// The variables of all tables that there ever were, one table after the other.
    scopes: Vec<usize>,
    /// The tables; those that mentioned a variable that is gone are gone too.
    tables: Vec<Option<Term>>,
    /// For each variable, the numbers of the tables that mention it.
    tables_of: Vec<Vec<usize>>,
    is_left: Vec<bool>,
    eliminated: Vec<Eliminated>,
    known: Known,
    /// The largest table made so far.
    pub(super) largest_table: usize,
}

impl Elimination {
    pub(super) fn new(problem: &Pairwise) -> Self {
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
            is_left: vec![true; n],
            eliminated: Vec::with_capacity(n),
            known: Known::default(),
            largest_table: 0,
        };
        let mut known: BTreeMap<&[i64], Costs> = BTreeMap::new();
        let unary = problem.unary.iter().enumerate();
        for (variable, costs) in unary.filter(|(_, costs)| costs.iter().any(|it| *it != 0)) {
            let costs = known.entry(costs).or_insert_with(|| costs.as_slice().into());
            let scope = this.scope_of([variable]);
            this.add(scope, Rc::clone(costs));
        }
        // A variable with one state is no variable: it would only make neighbours of all that depend on it.
        let is_free = |variable: &usize| problem.unary[*variable].len() > 1;
        for edge in &problem.edges {
            let scope = this.scope_of([edge.first, edge.second].into_iter().filter(is_free));
            this.add(scope, Rc::clone(&edge.table));
        }
        this
    }

    /// A new scope of these variables.
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
    pub(super) fn run(&mut self, order: &Order) {
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
        let Minimum { costs, best } =
            self.known.minimum(&self.sizes, &self.scopes, variable, neighbors, tables);
        self.largest_table = self.largest_table.max(costs.len());
        self.is_left[variable] = false;
        self.eliminated.push(Eliminated { variable, neighbors: scope.clone(), best });
        self.add_or_merge(scope, costs);
    }

    /// A new scope of the variables that share one of these tables with this one, in increasing order.
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

    /// Adds a table, or adds its costs to one over the same variables, so that pairs stay pairs.
    fn add_or_merge(&mut self, scope: Range<usize>, costs: Costs) {
        let variables = &self.scopes[scope.clone()];
        let of_first = variables.first().map_or(&[][..], |first| &self.tables_of[*first]);
        let is_twin = |it: &&usize| {
            let table = self.tables[**it].as_ref();
            table.is_some_and(|it| self.scopes[it.scope.clone()] == *variables)
        };
        match of_first.iter().find(is_twin).and_then(|it| self.tables[*it].as_mut()) {
            Some(twin) => twin.costs = self.known.sum(&twin.costs, &costs),
            None => self.add(scope, costs),
        }
    }

    /// What is left, if all tables are of one or two variables: its variables, renumbered, and their former numbers.
    pub(super) fn left(&self) -> (Pairwise, Vec<usize>) {
        let numbers: Vec<usize> = (0..self.sizes.len()).filter(|&it| self.is_left[it]).collect();
        let mut renumbered = vec![0; self.sizes.len()];
        for (new, &old) in numbers.iter().enumerate() {
            renumbered[old] = new;
        }
        let unary = numbers.iter().map(|&it| vec![0; self.sizes[it]]).collect();
        let mut problem = Pairwise { unary, edges: Vec::new() };
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
                        "only small neighbourhoods were eliminated"
                    );
                }
            }
        }
        (problem, numbers)
    }

    /// The cost of what is gone whatever the others do.
    pub(super) fn constant(&self) -> i64 {
        let is_constant = |it: &&Term| it.scope.is_empty();
        self.tables.iter().flatten().filter(is_constant).flat_map(|it| &*it.costs).sum()
    }

    /// The best states of the variables that are gone, given those that are left.
    pub(super) fn complete(&self, states: &mut [usize]) {
        for gone in self.eliminated.iter().rev() {
            let neighbors = &self.scopes[gone.neighbors.clone()];
            let at = neighbors.iter().fold(0, |at, &it| at * self.sizes[it] + states[it]);
            states[gone.variable] = gone.best[at] as usize;
        }
    }
}

/// The least sum of tables, and the state that reaches it, for each combination of the neighbours' states.
#[derive(Clone, Debug)]
struct Minimum {
    costs: Costs,
    best: Rc<[u16]>,
}

/// What was found for some tables is found for all that are alike: layers repeat.
#[derive(Debug, Default)]
struct Known {
    /// For the addresses of tables and the positions of their variables. The tables are kept, so that no others come to lie there.
    minima: BTreeMap<Vec<usize>, (Minimum, Vec<Term>)>,
    sums: BTreeMap<[usize; 2], (Costs, [Costs; 2])>,
    key: Vec<usize>,
}

impl Known {
    fn minimum(
        &mut self,
        sizes: &[usize],
        scopes: &[usize],
        variable: usize,
        neighbors: &[usize],
        tables: Vec<Term>,
    ) -> Minimum {
        self.key.clear();
        for table in &tables {
            self.key.push(table.costs.as_ptr().addr());
            let position = |it| neighbors.iter().position(|other| other == it);
            let positions = scopes[table.scope.clone()].iter().map(position);
            self.key.extend(positions.map(|it| it.unwrap_or(neighbors.len())));
        }
        if let Some((known, _)) = self.minima.get(&self.key) {
            return known.clone();
        }
        let all = tables.iter().map(|Term { scope, costs }| {
            let variables = &scopes[scope.clone()];
            Table { variables, costs }
        });
        let all: Vec<Table<'_>> = all.collect();
        let (costs, best) = minimum(sizes, variable, neighbors, &all);
        let found = Minimum { costs: costs.into(), best: best.into() };
        self.minima.insert(self.key.clone(), (found.clone(), tables));
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

/// The states of least cost, found in this order of all variables; and the size of the largest table.
pub(super) fn minimise(problem: &Pairwise, order: &Order) -> (Vec<usize>, usize) {
    let mut elimination = Elimination::new(problem);
    elimination.run(order);
    let mut states = vec![0; problem.unary.len()];
    elimination.complete(&mut states);
    (states, elimination.largest_table)
}
