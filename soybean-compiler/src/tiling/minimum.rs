//! The least sum of some tables over the states of one variable, for each combination of states of the others.
//!
//! This file and [`super::bound`] hold the search's inner loops; they are flat tables and index arithmetic because the macro that runs them is compiled without
//! optimisation.

/// A table over several variables, the last of which changes fastest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table<'a> {
    pub(super) variables: &'a [usize],
    pub(super) costs: &'a [i64],
}

/// The least sum of the tables over the states of `variable`, for each combination of states of its neighbours, and the state that reaches it.
pub(super) fn minimum(
    sizes: &[usize],
    variable: usize,
    neighbors: &[usize],
    tables: &[Table<'_>],
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
        .map(|&it| View::new(sizes, it, variable, inner, outer))
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
        table: Table<'a>,
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
            costs: table.costs,
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
