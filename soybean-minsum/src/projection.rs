//! Minimizes one variable out of a sum of tables.
//!
//! This file, [`super::minima`] and [`super::reparametrization`] hold the inner loops of the
//! solver. They use flat tables, index arithmetic and `while` loops, because procedural macros run
//! them without optimization.

/// A table over several variables; the last one changes fastest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table<'a> {
    pub(crate) variables: &'a [usize],
    pub(crate) costs: &'a [i64],
}

/// Minimizes the sum of the tables over the labels of `variable`, for each combination of labels of
/// its neighbors. Returns the least costs and the labels that reach them.
pub(crate) fn project_out(
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
    // Tables without the last neighbor are summed once for all its labels.
    let (mut fixed, mut varying): (Vec<Cursor<'_>>, Vec<Cursor<'_>>) = tables
        .iter()
        .map(|&it| Cursor::new(sizes, it, variable, inner, outer))
        .partition(|it| it.inner_stride == 0);
    let mut last = varying.pop();
    let mut counters = vec![0; outer.len()];
    let n_combinations = n_outer * n_inner;
    let mut best = Best {
        costs: Vec::with_capacity(n_combinations),
        labels: Vec::with_capacity(n_combinations),
    };
    let mut sums = vec![0; sizes[variable]];
    let mut row = sums.clone();
    for _ in 0..n_outer {
        sums.fill(0);
        fixed.iter().for_each(|it| it.add_to(&mut sums, 0));
        for label in 0..n_inner {
            if varying.is_empty() {
                best.push(&sums, last.as_ref(), label);
                continue;
            }
            row.copy_from_slice(&sums);
            varying.iter().for_each(|it| it.add_to(&mut row, label));
            best.push(&row, last.as_ref(), label);
        }
        if let Some(position) = advance(&mut counters, sizes, outer) {
            fixed.iter_mut().for_each(|it| it.step(position));
            varying.iter_mut().for_each(|it| it.step(position));
            last.iter_mut().for_each(|it| it.step(position));
        }
    }
    (best.costs, best.labels)
}

/// A position in a table during a projection.
struct Cursor<'a> {
    costs: &'a [i64],
    /// The first entry of the present combination of labels of the outer neighbors.
    offset: usize,
    /// The stride of the variable that is projected out.
    stride: usize,
    /// The stride of the last neighbor.
    inner_stride: usize,
    /// For each outer neighbor, the change of `offset` when its label advances and the labels of
    /// the neighbors after it start again.
    steps: Vec<isize>,
}

impl<'a> Cursor<'a> {
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
        let mut rewind = 0;
        for (step, &neighbor) in steps.iter_mut().zip(outer).rev() {
            let stride = stride(neighbor).cast_signed();
            *step = stride - rewind;
            rewind += stride * (sizes[neighbor].cast_signed() - 1);
        }
        Self {
            costs: table.costs,
            offset: 0,
            stride: stride(variable),
            inner_stride: inner.map_or(0, stride),
            steps,
        }
    }

    /// Moves to the next combination of labels of the outer neighbors; `position` is the first
    /// neighbor whose label changes.
    fn step(&mut self, position: usize) {
        self.offset = self.offset.wrapping_add_signed(self.steps[position]);
    }

    /// Adds the entries of all labels of the variable, for one label of the last neighbor.
    fn add_to(&self, sums: &mut [i64], inner_label: usize) {
        let (costs, stride) = (self.costs, self.stride);
        let mut at = self.offset + inner_label * self.inner_stride;
        let mut label = 0;
        while label < sums.len() {
            sums[label] += costs[at];
            at += stride;
            label += 1;
        }
    }
}

/// The least costs, and the labels that reach them.
struct Best {
    costs: Vec<i64>,
    labels: Vec<u16>,
}

impl Best {
    /// Appends the minimum of the sums plus the entries of the last table, if there is one.
    fn push(&mut self, sums: &[i64], last: Option<&Cursor<'_>>, inner_label: usize) {
        let (costs, mut at, stride) = match last {
            Some(it) => (it.costs, it.offset + inner_label * it.inner_stride, it.stride),
            None => (&[0][..], 0, 0),
        };
        let (mut best, mut least, mut label) = (0, i64::MAX, 0);
        while label < sums.len() {
            let cost = sums[label] + costs[at];
            if cost < least {
                best = label;
                least = cost;
            }
            at += stride;
            label += 1;
        }
        self.costs.push(least);
        self.labels.push(u16::try_from(best).expect("variables have at most 65,536 labels"));
    }
}

/// Advances to the next combination of labels of the neighbors; the last neighbor changes
/// fastest. Returns the first neighbor whose label changes, or `None` after the last combination.
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
