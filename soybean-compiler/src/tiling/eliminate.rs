//! Exact minimisation of a sum of tables by variable elimination.
//!
//! Eliminating a variable replaces the tables that mention it by one over its neighbours: for each of their states the best that the variable
//! can do. This file and [`super::bound`] hold the search's inner loops; they are
//! flat tables and index arithmetic because the macro that runs them is compiled without optimisation.

use std::{collections::BTreeMap, rc::Rc};

use super::{
    order::Order,
    pairwise::{Edge, Pairwise},
};

/// The entries of a table.
type Costs = Rc<[i64]>;

/// A table over several variables, the last of which changes fastest.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) variables: Vec<usize>,
    pub(super) costs: Costs,
}

/// A variable that is gone: its best state for each combination of its neighbours' states.
#[derive(Debug)]
struct Eliminated {
    variable: usize,
    neighbors: Vec<usize>,
    best: Rc<[u16]>,
}

/// An elimination in progress.
#[derive(Debug)]
pub(super) struct Elimination {
    sizes: Vec<usize>,
    tables: Vec<Table>,
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
            tables: Vec::with_capacity(2 * n + problem.edges.len()),
            tables_of: n_tables.into_iter().map(Vec::with_capacity).collect(),
            is_left: vec![true; n],
            eliminated: Vec::with_capacity(n),
            known: Known::default(),
            largest_table: 0,
        };
        let mut known: BTreeMap<&[i64], Costs> = BTreeMap::new();
        for (variable, costs) in problem.unary.iter().enumerate() {
            let costs = known.entry(costs).or_insert_with(|| costs.as_slice().into());
            this.add(Table { variables: vec![variable], costs: Rc::clone(costs) });
        }
        // A variable with one state is no variable: it would only make neighbours of all that depend on it.
        let is_free = |variable: &usize| problem.unary[*variable].len() > 1;
        for edge in &problem.edges {
            let variables = [edge.first, edge.second].into_iter().filter(is_free).collect();
            this.add(Table { variables, costs: Rc::clone(&edge.table) });
        }
        this
    }

    fn add(&mut self, table: Table) {
        for &variable in &table.variables {
            self.tables_of[variable].push(self.tables.len());
        }
        self.tables.push(table);
    }

    /// Eliminates variables in this order.
    pub(super) fn run(&mut self, order: &Order) {
        order.variables.iter().for_each(|&it| self.eliminate(it));
    }

    fn eliminate(&mut self, variable: usize) {
        let numbers = std::mem::take(&mut self.tables_of[variable]);
        let tables: Vec<Table> =
            numbers.iter().map(|&it| std::mem::take(&mut self.tables[it])).collect();
        let neighbors = neighbors(variable, &tables);
        for &neighbor in &neighbors {
            self.tables_of[neighbor].retain(|it| !numbers.contains(it));
        }
        let Minimum { costs, best } = self.known.minimum(&self.sizes, variable, &neighbors, tables);
        self.largest_table = self.largest_table.max(costs.len());
        self.is_left[variable] = false;
        self.eliminated.push(Eliminated { variable, neighbors: neighbors.clone(), best });
        self.add_or_merge(Table { variables: neighbors, costs });
    }

    /// Adds a table, or adds its costs to one over the same variables, so that pairs stay pairs.
    fn add_or_merge(&mut self, table: Table) {
        let Some(&first) = table.variables.first() else {
            self.add(table);
            return;
        };
        let twin = self.tables_of[first]
            .iter()
            .copied()
            .find(|&it| self.tables[it].variables == table.variables);
        match twin {
            Some(twin) => {
                let costs = &mut self.tables[twin].costs;
                *costs = self.known.sum(costs, &table.costs);
            }
            None => self.add(table),
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
        for table in &self.tables {
            match table.variables[..] {
                [variable] => {
                    for (sum, cost) in
                        problem.unary[renumbered[variable]].iter_mut().zip(&*table.costs)
                    {
                        *sum += cost;
                    }
                }
                [first, second] => {
                    let (first, second) = (renumbered[first], renumbered[second]);
                    problem.edges.push(Edge { first, second, table: Rc::clone(&table.costs) });
                }
                _ => debug_assert!(
                    table.variables.is_empty(),
                    "only small neighbourhoods were eliminated"
                ),
            }
        }
        (problem, numbers)
    }

    /// The cost of what is gone whatever the others do.
    pub(super) fn constant(&self) -> i64 {
        self.tables.iter().filter(|it| it.variables.is_empty()).flat_map(|it| &*it.costs).sum()
    }

    /// The best states of the variables that are gone, given those that are left.
    pub(super) fn complete(&self, states: &mut [usize]) {
        for gone in self.eliminated.iter().rev() {
            let at = gone.neighbors.iter().fold(0, |at, &it| at * self.sizes[it] + states[it]);
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
    minima: BTreeMap<Vec<usize>, (Minimum, Vec<Table>)>,
    sums: BTreeMap<[usize; 2], (Costs, [Costs; 2])>,
    key: Vec<usize>,
}

impl Known {
    fn minimum(
        &mut self,
        sizes: &[usize],
        variable: usize,
        neighbors: &[usize],
        tables: Vec<Table>,
    ) -> Minimum {
        self.key.clear();
        for table in &tables {
            self.key.push(table.costs.as_ptr().addr());
            let position = |it| neighbors.iter().position(|other| other == it);
            let positions = table.variables.iter().map(position);
            self.key.extend(positions.map(|it| it.unwrap_or(neighbors.len())));
        }
        if let Some((known, _)) = self.minima.get(&self.key) {
            return known.clone();
        }
        let (costs, best) = minimum(sizes, variable, neighbors, &tables);
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

/// The variables that share one of these tables with this one, in increasing order.
pub(super) fn neighbors(variable: usize, tables: &[Table]) -> Vec<usize> {
    let all = tables.iter().flat_map(|table| table.variables.iter().copied());
    let mut neighbors: Vec<usize> = all.filter(|&it| it != variable).collect();
    neighbors.sort_unstable();
    neighbors.dedup();
    neighbors
}

/// The least sum of the tables over the states of `variable`, for each combination of states of its neighbours, and the state that reaches it.
pub(super) fn minimum(
    sizes: &[usize],
    variable: usize,
    neighbors: &[usize],
    tables: &[Table],
) -> (Vec<i64>, Vec<u16>) {
    let (inner, outer) = match neighbors.split_last() {
        Some((&inner, outer)) => (Some(inner), outer),
        None => (None, neighbors),
    };
    let n_inner = inner.map_or(1, |it| sizes[it]);
    let n_outer: usize = outer.iter().map(|&it| sizes[it]).product();
    // What does not depend on the last neighbour is summed once for all its states.
    let (mut fixed, mut varying): (Vec<View<'_>>, Vec<View<'_>>) = tables
        .iter()
        .map(|it| View::new(sizes, it, variable, inner, outer))
        .partition(|it| it.inner_stride == 0);
    let mut last = varying.pop();
    let mut counters = vec![0; outer.len()];
    let n_combinations = n_outer * n_inner;
    let mut best = Best {
        costs: Vec::with_capacity(n_combinations),
        states: Vec::with_capacity(n_combinations),
    };
    let mut sums = vec![0; sizes[variable]];
    let mut row = sums.clone();
    for _ in 0..n_outer {
        sums.fill(0);
        fixed.iter().for_each(|it| it.add_to(&mut sums, 0));
        for state in 0..n_inner {
            if varying.is_empty() {
                best.push(&sums, last.as_ref(), state);
                continue;
            }
            row.copy_from_slice(&sums);
            varying.iter().for_each(|it| it.add_to(&mut row, state));
            best.push(&row, last.as_ref(), state);
        }
        if let Some(position) = advance(&mut counters, sizes, outer) {
            fixed.iter_mut().for_each(|it| it.step(position));
            varying.iter_mut().for_each(|it| it.step(position));
            last.iter_mut().for_each(|it| it.step(position));
        }
    }
    (best.costs, best.states)
}

/// A table as an elimination walks it.
struct View<'a> {
    costs: &'a [i64],
    /// Where the present combination of the outer neighbours' states begins.
    offset: usize,
    /// Its strides along the variable that is eliminated, and along the last neighbour.
    stride: usize,
    inner_stride: usize,
    /// How far a step of each of the other neighbours leads, while those after it begin anew.
    steps: Vec<isize>,
}

impl<'a> View<'a> {
    fn new(
        sizes: &[usize],
        table: &'a Table,
        variable: usize,
        inner: Option<usize>,
        outer: &[usize],
    ) -> Self {
        let stride = |wanted: usize| match table.variables.iter().position(|&it| it == wanted) {
            Some(position) => table.variables[position + 1..].iter().map(|&it| sizes[it]).product(),
            None => 0,
        };
        let mut steps = vec![0; outer.len()];
        let mut begun = 0;
        for (step, &neighbor) in steps.iter_mut().zip(outer).rev() {
            let stride = stride(neighbor).cast_signed();
            *step = stride - begun;
            begun += stride * (sizes[neighbor].cast_signed() - 1);
        }
        Self {
            costs: &table.costs,
            offset: 0,
            stride: stride(variable),
            inner_stride: inner.map_or(0, stride),
            steps,
        }
    }

    /// Goes to the next combination of the outer neighbours' states, where this is the first whose state changes.
    fn step(&mut self, position: usize) {
        self.offset = self.offset.wrapping_add_signed(self.steps[position]);
    }

    /// Adds the entries for each state of the variable, with this state of the last neighbour.
    fn add_to(&self, sums: &mut [i64], inner_state: usize) {
        let (costs, stride) = (self.costs, self.stride);
        let mut at = self.offset + inner_state * self.inner_stride;
        let mut state = 0;
        while state < sums.len() {
            sums[state] += costs[at];
            at += stride;
            state += 1;
        }
    }
}

/// The least costs, and the states that reach them.
struct Best {
    costs: Vec<i64>,
    states: Vec<u16>,
}

impl Best {
    /// Adds the least of the sums, plus the last table's entries if there is one.
    fn push(&mut self, sums: &[i64], last: Option<&View<'_>>, inner_state: usize) {
        let (costs, mut at, stride) = match last {
            Some(it) => (it.costs, it.offset + inner_state * it.inner_stride, it.stride),
            None => (&[0][..], 0, 0),
        };
        let (mut best, mut least, mut state) = (0, i64::MAX, 0);
        while state < sums.len() {
            let cost = sums[state] + costs[at];
            if cost < least {
                best = state;
                least = cost;
            }
            at += stride;
            state += 1;
        }
        self.costs.push(least);
        self.states.push(u16::try_from(best).expect("the search is not asked for more states"));
    }
}

/// Steps to the next combination of the neighbours' states, the last fastest; gives the first neighbour whose state changes, if there is another combination.
fn advance(counters: &mut [usize], sizes: &[usize], neighbors: &[usize]) -> Option<usize> {
    let mut position = counters.len();
    while position > 0 {
        position -= 1;
        counters[position] += 1;
        if counters[position] < sizes[neighbors[position]] {
            return Some(position);
        }
        counters[position] = 0;
    }
    None
}

/// The states of least cost, found in this order of all variables; and the size of the largest table.
pub(super) fn minimise(problem: &Pairwise, order: &Order) -> (Vec<usize>, usize) {
    let mut elimination = Elimination::new(problem);
    elimination.run(order);
    let mut states = vec![0; problem.unary.len()];
    elimination.complete(&mut states);
    (states, elimination.largest_table)
}
