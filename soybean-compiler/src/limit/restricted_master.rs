//! The restricted master problem of column generation: the dual prices of memory, given the plans
//! found so far.
//!
//! With prices `p` at the program points, a plan of cost `c` that exceeds the limit by `e` has the
//! Lagrangian `c + p e`. The wanted prices maximize the least Lagrangian of the plans. They are the
//! dual values of a linear program with a column per plan: the cheapest mixture of plans that keeps
//! the limit. The simplex method solves it here, from the mixture that consists of one plan which
//! fits. A search with these prices finds a plan with a smaller Lagrangian, or proves that there is
//! none. Source: Dantzig and Wolfe 1960.

/// A column of the linear program: a plan.
#[derive(Clone, Debug)]
pub(super) struct Column {
    /// The cost.
    pub(super) cost: f64,
    /// The excess over the limit at each program point; negative below the limit.
    pub(super) excess: Vec<f64>,
}

/// The dual prices of all program points.
#[derive(Clone, Debug)]
pub(super) struct DualPrices {
    pub(super) of_points: Vec<f64>,
    /// The cost of the cheapest mixture. No prices prove a greater lower bound.
    pub(super) value: f64,
}

/// The tolerance, for numbers around 1.
const EPSILON: f64 = 1e-9;

/// Returns the dual prices for these plans, of which the first keeps the limit.
pub(super) fn dual_prices(columns: &[Column]) -> DualPrices {
    let unit_of_cost = columns.iter().map(|it| it.cost).fold(1.0, f64::max);
    let excesses = columns.iter().flat_map(|it| &it.excess);
    let unit_of_excess = excesses.map(|it| it.abs()).fold(1.0, f64::max);
    let mut tableau = Tableau::new(columns, unit_of_cost, unit_of_excess);
    // Bland's rule (1977) terminates; the count guards against rounding.
    for _ in 0..1000 {
        let Some(column) = tableau.entering() else { break };
        let Some(row) = tableau.leaving(column) else { break };
        tableau.pivot(row, column);
    }
    let per_byte = unit_of_cost / unit_of_excess;
    let n_points = columns[0].excess.len();
    let mut of_points = vec![0.0; n_points];
    for (&variable, &rate) in tableau.outside.iter().zip(&tableau.rates) {
        if variable < n_points {
            of_points[variable] = rate.max(0.0) * per_byte;
        }
    }
    DualPrices { of_points, value: tableau.value * unit_of_cost }
}

/// The simplex tableau: basic variables in terms of the others. The slack of each program point
/// comes first, then the plans.
struct Tableau {
    /// The basic variables, one for each row, and the nonbasic ones, one for each column.
    basic: Vec<usize>,
    outside: Vec<usize>,
    rows: Vec<Vec<f64>>,
    /// The values of the basic variables.
    right: Vec<f64>,
    /// The reduced costs of the nonbasic variables.
    rates: Vec<f64>,
    /// The objective value.
    value: f64,
}

impl Tableau {
    fn new(columns: &[Column], unit_of_cost: f64, unit_of_excess: f64) -> Self {
        let (first, others) = columns.split_first().expect("there is a plan that fits");
        let n_points = first.excess.len();
        let of_point = |point: usize| -> Vec<f64> {
            let difference =
                |it: &Column| (it.excess[point] - first.excess[point]) / unit_of_excess;
            others.iter().map(difference).collect()
        };
        let mut rows: Vec<Vec<f64>> = (0..n_points).map(of_point).collect();
        rows.push(vec![1.0; others.len()]);
        let mut right: Vec<f64> =
            first.excess.iter().map(|it| (-it / unit_of_excess).max(0.0)).collect();
        right.push(1.0);
        Self {
            basic: (0..=n_points).collect(),
            outside: (n_points + 1..n_points + columns.len()).collect(),
            rows,
            right,
            rates: others.iter().map(|it| (it.cost - first.cost) / unit_of_cost).collect(),
            value: first.cost / unit_of_cost,
        }
    }

    /// Returns the column of the first variable with a negative reduced cost.
    fn entering(&self) -> Option<usize> {
        let columns = (0..self.outside.len()).filter(|&it| self.rates[it] < -EPSILON);
        columns.min_by_key(|&it| self.outside[it])
    }

    /// Returns the row of the variable that first becomes zero as that of the column grows.
    fn leaving(&self, column: usize) -> Option<usize> {
        let rows = (0..self.rows.len()).filter(|&it| self.rows[it][column] > EPSILON);
        let ratio = |row: usize| self.right[row] / self.rows[row][column];
        rows.min_by(|&one, &other| {
            let by_number = || self.basic[one].cmp(&self.basic[other]);
            ratio(one).total_cmp(&ratio(other)).then_with(by_number)
        })
    }

    fn pivot(&mut self, row: usize, column: usize) {
        let pivot = self.rows[row][column];
        self.rows[row].iter_mut().for_each(|it| *it /= pivot);
        self.rows[row][column] = 1.0 / pivot;
        self.right[row] /= pivot;
        let (pivots, right) = (self.rows[row].clone(), self.right[row]);
        let eliminated = |entries: &mut [f64]| {
            let factor = std::mem::take(&mut entries[column]);
            entries.iter_mut().zip(&pivots).for_each(|(it, pivot)| *it -= factor * pivot);
            factor
        };
        for other in (0..self.rows.len()).filter(|&it| it != row) {
            let factor = eliminated(&mut self.rows[other]);
            self.right[other] = (self.right[other] - factor * right).max(0.0);
        }
        self.value += eliminated(&mut self.rates) * right;
        std::mem::swap(&mut self.basic[row], &mut self.outside[column]);
    }
}

#[cfg(test)]
mod tests {
    use super::{Column, dual_prices};

    fn column(cost: f64, excess: &[f64]) -> Column {
        Column { cost, excess: excess.to_vec() }
    }

    #[test]
    fn one_moment_is_priced_by_the_line_between_two_plans() {
        // From 2 bytes too many at 10 to 3 to spare at 40: 6 for each byte, and 22 at no excess.
        let found =
            dual_prices(&[column(40.0, &[-3.0]), column(10.0, &[2.0]), column(39.0, &[1.0])]);
        assert!((found.of_points[0] - 6.0).abs() < 1e-9, "{found:?}");
        assert!((found.value - 22.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn plans_that_fit_make_memory_free() {
        let found = dual_prices(&[column(40.0, &[-3.0, -1.0]), column(10.0, &[-2.0, -0.5])]);
        assert_eq!(found.of_points, [0.0, 0.0]);
        assert!((found.value - 10.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn each_moment_has_its_price() {
        // Half of each plan that exceeds one point keeps both limits: 20, at equal prices.
        let columns =
            [column(50.0, &[-1.0, -1.0]), column(10.0, &[2.0, -2.0]), column(30.0, &[-2.0, 2.0])];
        let found = dual_prices(&columns);
        assert!((found.value - 20.0).abs() < 1e-9, "{found:?}");
        for Column { cost, excess } in &columns {
            let priced: f64 =
                excess.iter().zip(&found.of_points).map(|(it, price)| it * price).sum();
            assert!(cost + priced > found.value - 1e-9, "{found:?}");
        }
    }
}
