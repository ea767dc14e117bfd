//! Times and gaps of the solver on synthetic problems: `cargo bench -p soybean-minsum`.
//!
//! Each row is a problem at one amount of work. The gap is that between the cost of the labels and
//! the lower bound, in percent of the cost; 0 is a proved optimum.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::{rc::Rc, time::Instant};

use soybean_minsum::{Edge, Options, PairwiseProblem, solve};

fn main() {
    let mut costs = Costs(1);
    let problems = [
        ("path, 10000 variables, 8 labels", costs.layers(10_000, 1, 8, Sharing::None)),
        ("the same with one table", costs.layers(10_000, 1, 8, Sharing::All)),
        ("grid 6 x 200, 4 labels", costs.layers(200, 6, 4, Sharing::None)),
        ("grid 40 x 40, 4 labels", costs.layers(40, 40, 4, Sharing::None)),
        ("grid 40 x 40, equal layers", costs.layers(40, 40, 4, Sharing::All)),
        ("complete graph, 16 variables, 8 labels", costs.complete(16, 8)),
    ];
    println!("{:40} {:>6} {:>12} {:>10} {:>8}", "problem", "work", "cost", "gap, %", "ms");
    for (name, problem) in &problems {
        for bits in [20, 24, 27] {
            let start = Instant::now();
            let solution = solve(problem, None, Options::with_work(1 << bits));
            let milliseconds = start.elapsed().as_secs_f64() * 1e3;
            let gap = (solution.cost - solution.lower_bound) as f64 / solution.cost as f64 * 100.0;
            let cost = solution.cost;
            println!(
                "{name:40} {:>6} {cost:>12} {gap:>10.3} {milliseconds:>8.1}",
                format!("2^{bits}")
            );
        }
    }
}

/// Which edges share tables.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    None,
    All,
}

/// A source of costs. Source of the generator: Knuth's MMIX.
struct Costs(u64);

impl Costs {
    fn table(&mut self, n: usize) -> Rc<[i64]> {
        let next = |_| {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 54).cast_signed()
        };
        (0..n).map(next).collect()
    }

    /// Returns a grid of `n` layers with `width` variables each.
    fn layers(
        &mut self,
        n: usize,
        width: usize,
        n_labels: usize,
        sharing: Sharing,
    ) -> PairwiseProblem {
        let shared = [0, 1].map(|_| self.table(n_labels * n_labels));
        let mut table = |side: usize| match sharing {
            Sharing::None => self.table(n_labels * n_labels),
            Sharing::All => Rc::clone(&shared[side]),
        };
        let mut edges = Vec::new();
        for variable in 0..n * width {
            if (variable + 1) % width != 0 {
                edges.push(Edge { first: variable, second: variable + 1, table: table(0) });
            }
            if variable + width < n * width {
                edges.push(Edge { first: variable, second: variable + width, table: table(1) });
            }
        }
        PairwiseProblem { unary: vec![vec![0; n_labels]; n * width], edges }
    }

    /// Returns a complete graph.
    fn complete(&mut self, n: usize, n_labels: usize) -> PairwiseProblem {
        let pairs = (0..n).flat_map(|first| (first + 1..n).map(move |second| (first, second)));
        let edge = |(first, second)| Edge { first, second, table: self.table(n_labels * n_labels) };
        let edges = pairs.map(edge).collect();
        PairwiseProblem { unary: vec![vec![0; n_labels]; n], edges }
    }
}
