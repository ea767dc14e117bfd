//! The format WCSP: a name, the numbers of variables, of labels and of functions and an upper
//! bound; the number of labels of each variable; and for each function its variables, a default
//! cost, and the costs that differ from it. Source: de Givry et al., the documentation of toulbar2.

use std::fmt::Write as _;

use super::{FormatError, Functions, Words};
use crate::problem::PairwiseProblem;

impl PairwiseProblem {
    /// Reads a problem in the format WCSP. Functions of one pair of variables are added. The upper
    /// bound of the file, from which on costs forbid, is not read: such costs stay as they are.
    ///
    /// ```
    /// # use soybean_minsum::PairwiseProblem;
    /// // Two variables of two labels: the first costs 0 or 3, and equal labels cost 5.
    /// let text = "small 2 2 2 9
    ///     2 2
    ///     1 0 0 1  1 3
    ///     2 0 1 0 2  0 0 5  1 1 5";
    /// let problem = PairwiseProblem::from_wcsp(text).unwrap();
    /// assert_eq!(problem.unary, [[0, 3], [0, 0]]);
    /// assert_eq!(*problem.edges[0].table, [5, 0, 0, 5]);
    /// ```
    ///
    /// # Errors
    /// Returns what is wrong: a word that is no number, a function of more than two variables, a
    /// variable or label that does not exist, or costs of 2^61 and more together.
    pub fn from_wcsp(text: &str) -> Result<Self, FormatError> {
        let mut words = Words::new(text);
        words.word("the name of the problem")?;
        let n_variables = words.number("number of variables")?;
        words.number::<u64>("greatest number of labels")?;
        let n_functions: usize = words.number("number of functions")?;
        words.word("the upper bound")?;
        let mut functions = Functions::of_sizes(n_variables, &mut words)?;
        for _ in 0..n_functions {
            let scope = functions.scope(&mut words)?;
            let default: i64 = words.number("cost")?;
            let n_tuples: usize = words.number("number of costs")?;
            let mut costs = vec![default; functions.n_entries(&scope)];
            for _ in 0..n_tuples {
                let label = |_| words.number("label");
                let labels: Vec<usize> = scope.iter().map(label).collect::<Result<_, _>>()?;
                costs[functions.place(&scope, &labels)?] = words.number("cost")?;
            }
            functions.add(&scope, costs.into_iter())?;
        }
        words.end()?;
        functions.problem()
    }

    /// Returns the problem in the format WCSP, with costs from 0, and the cost that is missing:
    /// assignments cost as much as in the file, plus this. `name` is a word without spaces.
    ///
    /// ```
    /// # use soybean_minsum::PairwiseProblem;
    /// let problem = PairwiseProblem { unary: vec![vec![-2, 1, 1]], edges: Vec::new() };
    /// let (text, missing) = problem.to_wcsp("small");
    /// assert_eq!(text, "small 1 3 1 4\n3\n1 0 3 1\n0 0\n");
    /// assert_eq!(missing, -2);
    /// ```
    ///
    /// # Panics
    /// If the problem is malformed, as for [`solve`](crate::solve).
    #[must_use]
    pub fn to_wcsp(&self, name: &str) -> (String, i64) {
        self.assert_valid();
        let least = |table: &[i64]| table.iter().copied().min().unwrap_or(0);
        let range = |table: &[i64]| table.iter().copied().max().unwrap_or(0) - least(table);
        let tables = || {
            let unary = self.unary.iter().map(|it| &it[..]);
            unary.chain(self.edges.iter().map(|it| &*it.table))
        };
        let missing = tables().map(least).sum();
        // Any assignment costs less.
        let bound = tables().map(range).sum::<i64>() + 1;
        let n_functions = tables().filter(|it| range(it) > 0).count();
        let sizes: Vec<String> = self.unary.iter().map(|it| it.len().to_string()).collect();
        let most_labels = self.unary.iter().map(Vec::len).max().unwrap_or(0);
        let mut text = format!("{name} {} {most_labels} {n_functions} {bound}\n", sizes.len());
        let mut line = |it: String| writeln!(text, "{it}").expect("strings take any text");
        line(sizes.join(" "));
        let mut function = |scope: String, table: &[i64], n_columns: Option<usize>| {
            if range(table) == 0 {
                return;
            }
            let (least, default) = (least(table), most_frequent(table));
            let others: Vec<(usize, i64)> =
                table.iter().copied().enumerate().filter(|it| it.1 != default).collect();
            line(format!("{scope} {} {}", default - least, others.len()));
            for (at, cost) in others {
                let labels = match n_columns {
                    Some(n) => format!("{} {}", at / n, at % n),
                    None => at.to_string(),
                };
                line(format!("{labels} {}", cost - least));
            }
        };
        for (variable, table) in self.unary.iter().enumerate() {
            function(format!("1 {variable}"), table, None);
        }
        for edge in &self.edges {
            let n_columns = self.unary[edge.second].len();
            function(format!("2 {} {}", edge.first, edge.second), &edge.table, Some(n_columns));
        }
        (text, missing)
    }
}

/// Returns the entry that a table has most often, the least of these.
fn most_frequent(table: &[i64]) -> i64 {
    let mut sorted = table.to_vec();
    sorted.sort_unstable();
    let runs = sorted.chunk_by(|one, other| one == other);
    runs.rev().max_by_key(|it| it.len()).map_or(0, |it| it[0])
}
