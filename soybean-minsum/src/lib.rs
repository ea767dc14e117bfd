//! A solver for pairwise min-sum problems: it finds labels of low cost and proves a lower bound.
//!
//! A problem has variables. Each takes one of a finite list of labels. A *unary* table gives the
//! cost of each label of a variable; a *pairwise* table gives the cost of each pair of labels of
//! two variables. The solver looks for one label per variable so that the sum of all costs is
//! least. This is MAP inference in a pairwise graphical model, or a weighted constraint problem
//! with binary constraints. Costs are integers, so bounds are exact and results are the same on
//! every machine.
//!
//! ```
//! use soybean_minsum::{Edge, Options, PairwiseProblem, solve};
//!
//! // Three variables with two labels each, on a path; equal neighbors cost 5.
//! let equal_costs_5: std::rc::Rc<[i64]> = [5, 0, 0, 5].into();
//! let edge = |first, second| Edge { first, second, table: equal_costs_5.clone() };
//! let problem = PairwiseProblem {
//!     unary: vec![vec![0, 3], vec![0, 0], vec![0, 1]],
//!     edges: vec![edge(0, 1), edge(1, 2)],
//! };
//! let solution = solve(&problem, None, Options::with_work(1 << 20));
//! assert_eq!(solution.labels, [0, 1, 0]);
//! assert_eq!((solution.cost, solution.lower_bound), (0, 0));
//! ```
//!
//! # Methods
//!
//! - **Bucket elimination** (Dechter 1999) removes variables exactly where that is cheap:
//!   `elimination`, in a greedy least-work order: `elimination_order`.
//! - **Reparametrization by sequential message passing** (TRW-S: Kolmogorov 2006; max-sum
//!   diffusion: Werner 2007) raises a lower bound, rules out labels and decodes assignments:
//!   `reparametrization`.
//! - **Mini-bucket elimination** (Dechter and Rish 2003, with the cost shifting of Ihler et al.
//!   2012) bounds what message passing cannot: `mini_buckets`.
//! - **Local search** gives all variables of a forest their best labels at once, forest after
//!   forest: `local_search`.
//! - **Color refinement** (Weisfeiler and Leman 1968; for lifted inference, Kersting et al. 2014)
//!   finds variables with equal neighborhoods; the quotient problem gives a first assignment:
//!   `quotient`.
//! - **Dual decomposition** (Komodakis, Paragios and Tziritas 2007, 2011) splits a long problem at
//!   separators of two variables and proves its subproblems one class at a time: `decomposition`.
//! - **Lagrangian relaxation** prices a usage over time that has a limit; local search by trees
//!   (Hamze and de Freitas 2004) keeps within it: [`solve_within_usage`].
//!
//! # Shared tables
//!
//! Real problems repeat: layers of a network have equal tables. Tables are `Rc<[i64]>`. Equal
//! tables should be one allocation: the solver then computes their minima once, and finds
//! subproblems that are equal. [`Interner`] helps to share them. Sharing never changes a result,
//! only the time.
//!
//! # Limits
//!
//! - A forbidden label or pair gets a large finite cost. The sum of the greatest absolute entries
//!   of all tables must stay below 2^61, so that no sum overflows.
//! - A variable has at most 65,536 labels.

mod decomposition;
mod elimination;
mod elimination_order;
mod format;
mod interner;
mod local_search;
mod mini_buckets;
mod minima;
mod problem;
mod progress;
mod projection;
mod quotient;
mod reparametrization;
mod round;
mod solve;
mod usage;

#[cfg(test)]
mod tests;

pub use format::FormatError;
pub use interner::Interner;
pub use problem::{Edge, PairwiseProblem};
pub use solve::{
    Improvement, NO_LIMIT, Options, Search, Solution, labels_at, labels_within, solve, solve_below,
};
pub use usage::{Effort, UsageProblem, UsageProgress, UsageSolution, solve_within_usage};
