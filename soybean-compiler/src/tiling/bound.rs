//! Lower bounds on a sum of tables, and the states that they rule out.
//!
//! Costs are moved between the tables of pairs and those of single variables without changing any sum; then the sum of all tables' minima is a bound. Each
//! pass walks the variables in order: a variable collects what its pairs must cost at least, state by state, and hands it on to the pairs
//! with variables still to come. The bound never falls. Source: sequential reweighted message passing, Kolmogorov 2015, for pairs.

use super::pairwise::Pairwise;

/// Costs on the move.
pub(super) struct Bound<'a> {
    problem: &'a Pairwise,
    /// For each variable what each state costs now.
    unary: Vec<Vec<f64>>,
    /// For each edge what has moved from it to the states of its first and its second variable.
    moved: Vec<[Vec<f64>; 2]>,
    tables: Vec<Vec<f64>>,
    /// For each variable, its edges: the number, and whether it is the first (0) or second (1) variable.
    edges_of: Vec<Vec<(usize, usize)>>,
}

impl<'a> Bound<'a> {
    pub(super) fn new(problem: &'a Pairwise) -> Self {
        let floats = |costs: &Vec<u64>| costs.iter().map(|&cost| cost as f64).collect::<Vec<f64>>();
        let mut edges_of = vec![Vec::new(); problem.unary.len()];
        let mut moved = Vec::new();
        for (number, edge) in problem.edges.iter().enumerate() {
            edges_of[edge.first].push((number, 0));
            edges_of[edge.second].push((number, 1));
            moved.push([edge.first, edge.second].map(|it| vec![0.0; problem.unary[it].len()]));
        }
        let unary = problem.unary.iter().map(floats).collect();
        let tables = problem.edges.iter().map(|edge| floats(&edge.table)).collect();
        Self { problem, unary, moved, tables, edges_of }
    }

    /// One pass forward and one backward.
    pub(super) fn improve(&mut self) {
        for variable in 0..self.unary.len() {
            self.collect_and_hand_on(variable, 0);
        }
        for variable in (0..self.unary.len()).rev() {
            self.collect_and_hand_on(variable, 1);
        }
    }

    /// Collects from all pairs, then hands equal shares to the pairs in which the variable stands at `side`.
    fn collect_and_hand_on(&mut self, variable: usize, side: usize) {
        let edges = std::mem::take(&mut self.edges_of[variable]);
        for &(edge, position) in &edges {
            let least = self.least_of_edge(edge, position);
            let (unary, moved) = (&mut self.unary[variable], &mut self.moved[edge][position]);
            for (state, least) in least.into_iter().enumerate() {
                unary[state] += least;
                moved[state] += least;
            }
        }
        let n_ahead = edges.iter().filter(|(_, position)| *position == side).count();
        let n_shares = n_ahead.max(edges.len() - n_ahead).max(1);
        let share: Vec<f64> =
            self.unary[variable].iter().map(|cost| cost / n_shares as f64).collect();
        for &(edge, position) in edges.iter().filter(|(_, position)| *position == side) {
            let (unary, moved) = (&mut self.unary[variable], &mut self.moved[edge][position]);
            for (state, share) in share.iter().enumerate() {
                unary[state] -= share;
                moved[state] -= share;
            }
        }
        self.edges_of[variable] = edges;
    }

    /// For each state of one variable of an edge, the least that the edge costs now.
    fn least_of_edge(&self, edge: usize, position: usize) -> Vec<f64> {
        let [of_first, of_second] = &self.moved[edge];
        let (of_first, of_second, table) = (&of_first[..], &of_second[..], &self.tables[edge][..]);
        let (n_first, n_second) = (of_first.len(), of_second.len());
        if position == 0 {
            return least_of_rows(table, of_first, of_second);
        }
        let mut least = vec![f64::INFINITY; n_second];
        let mut first = 0;
        while first < n_first {
            let (row, moved) = (&table[first * n_second..(first + 1) * n_second], of_first[first]);
            let mut second = 0;
            while second < n_second {
                let cost = row[second] - moved;
                if cost < least[second] {
                    least[second] = cost;
                }
                second += 1;
            }
            first += 1;
        }
        least.iter().zip(of_second).map(|(least, moved)| least - moved).collect()
    }

    /// The bound.
    pub(super) fn value(&self) -> f64 {
        let of_variables: f64 = self.unary.iter().map(|costs| minimum(costs)).sum();
        let of_edges: f64 =
            (0..self.tables.len()).map(|edge| minimum(&self.least_of_edge(edge, 0))).sum();
        of_variables + of_edges
    }

    /// For each variable the states with which the whole need not cost more than `limit`.
    pub(super) fn states_within(&self, limit: f64) -> Vec<Vec<usize>> {
        let value = self.value();
        let within = |variable: usize| {
            let mut costs = self.unary[variable].clone();
            let mut least = minimum(&costs);
            for &(edge, position) in &self.edges_of[variable] {
                let of_edge = self.least_of_edge(edge, position);
                least += minimum(&of_edge);
                costs.iter_mut().zip(of_edge).for_each(|(cost, share)| *cost += share);
            }
            (0..costs.len()).filter(|&state| value - least + costs[state] <= limit).collect()
        };
        (0..self.problem.unary.len()).map(within).collect()
    }
}

fn least_of_rows(table: &[f64], of_first: &[f64], of_second: &[f64]) -> Vec<f64> {
    let n_second = of_second.len();
    let mut least = Vec::with_capacity(of_first.len());
    let mut first = 0;
    while first < of_first.len() {
        let row = &table[first * n_second..(first + 1) * n_second];
        let (mut best, mut second) = (f64::INFINITY, 0);
        while second < n_second {
            let cost = row[second] - of_second[second];
            if cost < best {
                best = cost;
            }
            second += 1;
        }
        least.push(best - of_first[first]);
        first += 1;
    }
    least
}

fn minimum(costs: &[f64]) -> f64 {
    costs.iter().copied().fold(f64::INFINITY, f64::min)
}
