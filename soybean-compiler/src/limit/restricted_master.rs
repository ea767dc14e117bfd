//! The prices at which the plans found so far say that memory is worth the most.
//!
//! With prices `p` on the moments, a plan of cost `c` that exceeds the limit by `e` counts `c + p e`. The prices that make the least of these the greatest
//! are the dual values of the cheapest mixture of plans that keeps the limit: a linear program with a column for each plan, solved here by the simplex
//! method from the mixture that is one plan which fits. Searching with these prices gives the plan that they overlook, or proves that there is none.

/// What counts of a plan.
#[derive(Clone, Debug)]
pub(super) struct Column {
    /// What it costs.
    pub(super) cost: f64,
    /// By how much it exceeds the limit at each moment; negative where it does not.
    pub(super) excess: Vec<f64>,
}

/// The prices of all moments.
#[derive(Clone, Debug)]
pub(super) struct DualPrices {
    pub(super) of_points: Vec<f64>,
    /// What the cheapest mixture costs: no prices prove more.
    pub(super) value: f64,
}

/// What counts as nothing, for numbers around 1.
const EPSILON: f64 = 1e-9;

/// The prices for these plans, of which the first keeps the limit.
pub(super) fn dual_prices(columns: &[Column]) -> DualPrices {
    let unit_of_cost = columns.iter().map(|it| it.cost).fold(1.0, f64::max);
    let excesses = columns.iter().flat_map(|it| &it.excess);
    let unit_of_excess = excesses.map(|it| it.abs()).fold(1.0, f64::max);
    let mut tableau = Tableau::new(columns, unit_of_cost, unit_of_excess);
    // Bland's rule ends in any case; the count is a guard against rounding.
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

/// The linear program, as its basic variables in terms of the others. Variables are numbered: what is left at each moment, then the plans.
struct Tableau {
    /// The basic variables, one for each row, and the variables that are zero, one for each column.
    basic: Vec<usize>,
    outside: Vec<usize>,
    rows: Vec<Vec<f64>>,
    /// The values of the basic variables.
    right: Vec<f64>,
    /// What a unit of each zero variable would add to the cost.
    rates: Vec<f64>,
    /// The cost.
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

    /// The column of the first variable that would make the cost less.
    fn entering(&self) -> Option<usize> {
        let columns = (0..self.outside.len()).filter(|&it| self.rates[it] < -EPSILON);
        columns.min_by_key(|&it| self.outside[it])
    }

    /// The row of the variable that is the first to become zero as the column's grows.
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
        // From 2 bytes too many at 10 to 3 to spare at 40: 6 for each byte, and at no excess 22.
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
        // Half of each of the plans that exceed one moment keeps both limits: 20, at equal prices.
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
