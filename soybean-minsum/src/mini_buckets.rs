//! Lower bounds by mini-bucket elimination, and the assignments that they suggest.
//!
//! Bucket elimination sums all tables that mention a variable. Where that sum has too many entries,
//! the tables are partitioned into mini-buckets, each of which may choose its own label of the
//! variable. That can only cost less, so the final constant is a lower bound. It is the optimum if
//! one mini-bucket was enough for each variable. Before the split, costs are shifted so that all
//! mini-buckets have the same min-marginals for the variable. Sources: Dechter and Rish 2003; for
//! the shift, Ihler, Flerova, Dechter and Otten 2012.

use std::{cmp::Reverse, rc::Rc};

use super::{
    elimination_order::{EliminationOrder, Limits},
    problem::PairwiseProblem,
    projection::{Table, project_out},
};

/// The result of mini-bucket elimination.
pub(crate) struct MiniBucketResult {
    /// No assignment costs less.
    pub(crate) lower_bound: i64,
    /// An assignment: each label is the best one given the labels of the variables that were
    /// eliminated later.
    pub(crate) labels: Vec<usize>,
    /// The number of entries of the largest table.
    pub(crate) largest_table: usize,
    /// The number of table entries visited.
    pub(crate) work: u64,
}

/// The work for one combination of labels, in entries, besides the entries visited for it.
const ENTRIES_OF_COMBINATION: usize = 4;

/// A summand; the last of its variables changes fastest.
#[derive(Clone)]
struct Term {
    variables: Vec<usize>,
    costs: Rc<[i64]>,
}

/// An eliminated variable, with the tables that mentioned it.
struct Eliminated {
    variable: usize,
    tables: Vec<Term>,
}

/// Eliminates all variables. Each mini-bucket visits at most `n_entries` table entries. Once the
/// work is used up, each table is a mini-bucket of its own.
pub(crate) fn eliminate_in_mini_buckets(
    problem: &PairwiseProblem,
    n_entries: u64,
    work_limit: u64,
) -> MiniBucketResult {
    let sizes: Vec<usize> = problem.unary.iter().map(Vec::len).collect();
    let order = EliminationOrder::new(problem, Limits::NONE);
    let mut rank = vec![0; sizes.len()];
    order.variables.iter().enumerate().for_each(|(at, &variable)| rank[variable] = at);
    // A table belongs to the bucket of the first of its variables in the order.
    let mut buckets: Vec<Vec<Term>> = (0..sizes.len()).map(|_| Vec::new()).collect();
    let mut lower_bound = 0;
    let (mut largest_table, mut work) = (0, 0);
    let n_entries = usize::try_from(n_entries.min(work_limit)).unwrap_or(usize::MAX);
    for (variable, costs) in problem.unary.iter().enumerate() {
        buckets[variable].push(Term { variables: vec![variable], costs: costs.as_slice().into() });
    }
    for edge in &problem.edges {
        // A variable with one label is a constant.
        let both = [edge.first, edge.second];
        let variables: Vec<usize> = both.into_iter().filter(|&it| sizes[it] > 1).collect();
        let costs = Rc::clone(&edge.table);
        match variables.iter().copied().min_by_key(|&it| rank[it]) {
            Some(first) => buckets[first].push(Term { variables, costs }),
            None => lower_bound += costs[0],
        }
    }
    let mut eliminated = Vec::with_capacity(sizes.len());
    for &variable in &order.variables {
        let tables = std::mem::take(&mut buckets[variable]);
        let n_entries = if work < work_limit { n_entries } else { 0 };
        let (scopes, groups): (Vec<_>, Vec<_>) =
            partition(&sizes, variable, tables.clone(), n_entries).into_iter().unzip();
        let groups = if groups.len() > 1 { shift_costs(&sizes, variable, groups) } else { groups };
        for (scope, group) in scopes.into_iter().zip(&groups) {
            let costs = least_sums(&sizes, variable, &scope, group);
            largest_table = largest_table.max(costs.len());
            work += (costs.len() * (sizes[variable] + ENTRIES_OF_COMBINATION) * group.len()) as u64;
            match scope.iter().copied().min_by_key(|&it| rank[it]) {
                Some(next) => buckets[next].push(Term { variables: scope, costs: costs.into() }),
                None => lower_bound += costs[0],
            }
        }
        eliminated.push(Eliminated { variable, tables });
    }
    let mut labels = vec![0; sizes.len()];
    for it in eliminated.iter().rev() {
        labels[it.variable] = best_label(&sizes, it, &labels);
    }
    MiniBucketResult { lower_bound, labels, largest_table, work }
}

/// Partitions the tables into mini-buckets, each of which visits few entries. Returns each
/// mini-bucket with its other variables.
fn partition(
    sizes: &[usize],
    variable: usize,
    mut tables: Vec<Term>,
    n_entries: usize,
) -> Vec<(Vec<usize>, Vec<Term>)> {
    tables.sort_by_key(|it| Reverse(it.costs.len()));
    // The number is that of the entries of a table over all variables of the group.
    let mut groups: Vec<(usize, Vec<usize>, Vec<Term>)> = Vec::new();
    for table in tables {
        let others = table.variables.iter().copied().filter(|&it| it != variable);
        let growth = |scope: &[usize]| {
            let added = others.clone().filter(|it| scope.binary_search(it).is_err());
            added.fold(1_usize, |all, it| all.saturating_mul(sizes[it]))
        };
        let grown = groups.iter_mut().map(|it| (growth(&it.1), it));
        let fitting = grown.filter(|(growth, it)| growth.saturating_mul(it.0) <= n_entries);
        match fitting.min_by_key(|it| it.0) {
            Some((growth, (n_entries, scope, group))) => {
                *n_entries *= growth;
                scope.extend(others);
                scope.sort_unstable();
                scope.dedup();
                group.push(table);
            }
            None => {
                let scope = neighbors(variable, std::slice::from_ref(&table));
                groups.push((growth(&[]).saturating_mul(sizes[variable]), scope, vec![table]));
            }
        }
    }
    groups.into_iter().map(|(_, scope, group)| (scope, group)).collect()
}

/// Adds a unary table to each group, so that all groups have the same min-marginals up to rounding.
/// The added tables sum to zero.
fn shift_costs(sizes: &[usize], variable: usize, groups: Vec<Vec<Term>>) -> Vec<Vec<Term>> {
    let marginals: Vec<Vec<i64>> =
        groups.iter().map(|it| min_marginals(sizes, variable, it)).collect();
    let n = i64::try_from(groups.len()).expect("a variable has few mini-buckets");
    let mut rest = vec![0; sizes[variable]];
    let mut shifted = Vec::with_capacity(groups.len());
    for (at, mut group) in groups.into_iter().enumerate() {
        let share = |label: usize| {
            marginals.iter().map(|it| it[label]).sum::<i64>() / n - marginals[at][label]
        };
        let costs: Vec<i64> =
            (0..sizes[variable]).map(|label| if at == 0 { 0 } else { share(label) }).collect();
        costs.iter().zip(&mut rest).for_each(|(cost, rest)| *rest -= cost);
        group.push(Term { variables: vec![variable], costs: costs.into() });
        shifted.push(group);
    }
    let last = shifted[0].last_mut().expect("a table was added");
    last.costs = rest.into();
    shifted
}

/// Returns the least cost of a group for each label of the variable.
fn min_marginals(sizes: &[usize], variable: usize, group: &[Term]) -> Vec<i64> {
    let mut group: Vec<Term> = group.to_vec();
    // The other variables go one by one; no table on the way is larger than that of the group.
    for other in neighbors(variable, &group) {
        let (with, without): (Vec<Term>, Vec<Term>) =
            group.into_iter().partition(|it| it.variables.contains(&other));
        let rest = neighbors(other, &with);
        let costs = least_sums(sizes, other, &rest, &with);
        group = without;
        group.push(Term { variables: rest, costs: costs.into() });
    }
    let mut marginals = vec![0; sizes[variable]];
    for table in &group {
        let mentions_variable = !table.variables.is_empty();
        for (label, marginal) in marginals.iter_mut().enumerate() {
            *marginal += table.costs[if mentions_variable { label } else { 0 }];
        }
    }
    marginals
}

fn best_label(sizes: &[usize], eliminated: &Eliminated, labels: &[usize]) -> usize {
    let cost = |label: usize| -> i64 {
        let of_table = |table: &Term| {
            let at = table.variables.iter().fold(0, |at, &it| {
                at * sizes[it] + if it == eliminated.variable { label } else { labels[it] }
            });
            table.costs[at]
        };
        eliminated.tables.iter().map(of_table).sum()
    };
    (0..sizes[eliminated.variable]).min_by_key(|&it| cost(it)).expect("variables have labels")
}

/// Minimizes the sum of a group over the labels of a variable, for each combination of labels of
/// the others.
fn least_sums(sizes: &[usize], variable: usize, others: &[usize], group: &[Term]) -> Vec<i64> {
    let tables = group.iter().map(|Term { variables, costs }| Table { variables, costs });
    let tables: Vec<Table<'_>> = tables.collect();
    project_out(sizes, variable, others, &tables).0
}

/// Returns the variables that share one of these tables with `variable`, in increasing order.
fn neighbors(variable: usize, group: &[Term]) -> Vec<usize> {
    let all = group.iter().flat_map(|it| it.variables.iter().copied());
    let mut neighbors: Vec<usize> = all.filter(|&it| it != variable).collect();
    neighbors.sort_unstable();
    neighbors.dedup();
    neighbors
}
