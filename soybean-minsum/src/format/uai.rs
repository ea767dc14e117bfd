//! The format UAI: the word MARKOV, the number of labels of each variable, the variables of each
//! factor, and the factors, which multiply. Source: the UAI inference competitions.

use std::fmt::Write as _;

use super::{FormatError, Functions, Words};
use crate::problem::PairwiseProblem;

/// The cost of the probability 0, in multiples of the greatest other cost.
const IMPOSSIBLE: f64 = 2.0;
/// A cost of a probability may not be greater.
const MOST_COST: f64 = (1_u64 << 52) as f64;

impl PairwiseProblem {
    /// Reads a problem in the format UAI, of factors of at most two variables. A factor `p` costs
    /// `-ln(p) * scale`, rounded, and the factor 0 more than all others together, so that the least
    /// cost is that of the most probable assignment.
    ///
    /// ```
    /// # use soybean_minsum::PairwiseProblem;
    /// let problem = PairwiseProblem::from_uai("MARKOV 1 2 1 1 0  2 0.25 0.75", 1000.0).unwrap();
    /// assert_eq!(problem.unary, [[1386, 288]]);
    /// ```
    ///
    /// # Errors
    /// Returns what is wrong: a word that is no number, a factor of more than two variables, below
    /// 0 or not finite, a variable that does not exist, a table of another size, or costs that are
    /// too great.
    pub fn from_uai(text: &str, scale: f64) -> Result<Self, FormatError> {
        let mut words = Words::new(text);
        let kind = words.word("MARKOV")?;
        if kind != "MARKOV" && kind != "BAYES" {
            return Err(FormatError("a file in the format UAI begins with MARKOV".to_owned()));
        }
        let n_variables = words.number("number of variables")?;
        let mut functions = Functions::of_sizes(n_variables, &mut words)?;
        let n_factors: usize = words.number("number of factors")?;
        let mut scopes = Vec::new();
        for _ in 0..n_factors {
            scopes.push(functions.scope(&mut words)?);
        }
        let mut tables = Vec::new();
        for scope in &scopes {
            let (n, expected) = (words.number("number of entries")?, functions.n_entries(scope));
            if expected != n {
                let message = format!("a factor of {scope:?} has {expected} entries, found {n}");
                return Err(FormatError(message));
            }
            let mut table: Vec<f64> = Vec::new();
            for _ in 0..n {
                let factor: f64 = words.number("factor")?;
                if !(factor.is_finite() && factor >= 0.0) {
                    return Err(FormatError(format!(
                        "a factor is finite and from 0, found {factor}"
                    )));
                }
                table.push(-factor.ln() * scale);
            }
            tables.push(table);
        }
        words.end()?;
        let greatest = |table: &Vec<f64>| {
            table.iter().filter(|it| it.is_finite()).map(|it| it.abs()).fold(0.0, f64::max)
        };
        let impossible = (IMPOSSIBLE * tables.iter().map(greatest).sum::<f64>()).max(1.0);
        if impossible.is_nan() || impossible > MOST_COST {
            return Err(FormatError("costs are too great; take a smaller scale".to_owned()));
        }
        for (scope, table) in scopes.iter().zip(tables) {
            let costs = table.into_iter().map(|it| rounded(it.min(impossible)));
            functions.add(scope, costs)?;
        }
        functions.problem()
    }

    /// Returns the problem in the format UAI: a cost `c` is the factor `exp(-c / scale)`, of costs
    /// less the least of their table. Costs of more than 700 times the scale become 0.
    ///
    /// # Panics
    /// If the problem is malformed, as for [`solve`](crate::solve).
    #[must_use]
    pub fn to_uai(&self, scale: f64) -> String {
        self.assert_valid();
        let sizes: Vec<String> = self.unary.iter().map(|it| it.len().to_string()).collect();
        let n_factors = self.unary.len() + self.edges.len();
        let mut text = format!("MARKOV\n{}\n{}\n{n_factors}\n", sizes.len(), sizes.join(" "));
        let mut line = |it: String| writeln!(text, "{it}").expect("strings take any text");
        for variable in 0..self.unary.len() {
            line(format!("1 {variable}"));
        }
        for edge in &self.edges {
            line(format!("2 {} {}", edge.first, edge.second));
        }
        let tables = self.unary.iter().map(|it| &it[..]);
        for table in tables.chain(self.edges.iter().map(|it| &*it.table)) {
            let least = table.iter().copied().min().unwrap_or(0);
            let factor = |cost: &i64| format!("{:e}", (-((cost - least) as f64) / scale).exp());
            let factors: Vec<String> = table.iter().map(factor).collect();
            line(format!("{} {}", factors.len(), factors.join(" ")));
        }
        text
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the costs are checked")]
fn rounded(cost: f64) -> i64 {
    cost.round() as i64
}
