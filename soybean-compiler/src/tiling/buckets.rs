//! Lower bounds by elimination in mini-buckets, and the states that they suggest.
//!
//! Where the tables that mention a variable are too many to be summed over all their variables at once, they are put into several buckets, and each bucket may choose
//! its own state of the variable. That can only cost less, so what is left at the end is a bound; where one bucket was enough each time it is the optimum.
//! What each bucket costs at least in each state is first shared out equally, so that the buckets agree as far as they can. Source: Dechter and Rish 2003; for the
//! sharing, Ihler et al. 2012.

use std::{cmp::Reverse, rc::Rc};

use super::{
    minimum::{Table, minimum},
    order::{Limits, Order},
    pairwise::Pairwise,
};

/// What elimination in buckets gives.
pub(super) struct Bucketed {
    /// No states cost less.
    pub(super) bound: i64,
    /// Each the best for the states of the variables that were eliminated after its own.
    pub(super) states: Vec<usize>,
    pub(super) largest_table: usize,
    /// The entries looked at.
    pub(super) work: u64,
}

/// What a combination of states costs besides the entries looked at for it, in such entries.
const ENTRIES_OF_COMBINATION: usize = 4;

/// One of the tables that are added up; the last of its variables changes fastest.
#[derive(Clone)]
struct Term {
    variables: Vec<usize>,
    costs: Rc<[i64]>,
}

/// A variable that is gone: the tables that mentioned it.
struct Gone {
    variable: usize,
    tables: Vec<Term>,
}

/// Eliminates all variables with at most this many entries looked at for each bucket.
pub(super) fn bucketed(problem: &Pairwise, n_entries: u64) -> Bucketed {
    let sizes: Vec<usize> = problem.unary.iter().map(Vec::len).collect();
    let order = Order::new(problem, Limits::NONE);
    let mut rank = vec![0; sizes.len()];
    order.variables.iter().enumerate().for_each(|(at, &variable)| rank[variable] = at);
    // The bucket of a table is that of the first of its variables to go.
    let mut buckets: Vec<Vec<Term>> = (0..sizes.len()).map(|_| Vec::new()).collect();
    let mut bound = 0;
    let (mut largest_table, mut work) = (0, 0);
    let n_entries = usize::try_from(n_entries).unwrap_or(usize::MAX);
    for (variable, costs) in problem.unary.iter().enumerate() {
        buckets[variable].push(Term { variables: vec![variable], costs: costs.as_slice().into() });
    }
    for edge in &problem.edges {
        // A variable with one state is no variable.
        let both = [edge.first, edge.second];
        let variables: Vec<usize> = both.into_iter().filter(|&it| sizes[it] > 1).collect();
        let costs = Rc::clone(&edge.table);
        match variables.iter().copied().min_by_key(|&it| rank[it]) {
            Some(first) => buckets[first].push(Term { variables, costs }),
            None => bound += costs[0],
        }
    }
    let mut gone = Vec::with_capacity(sizes.len());
    for &variable in &order.variables {
        let tables = std::mem::take(&mut buckets[variable]);
        let (scopes, groups): (Vec<_>, Vec<_>) =
            grouped(&sizes, variable, tables.clone(), n_entries).into_iter().unzip();
        let groups = if groups.len() > 1 { shared_out(&sizes, variable, groups) } else { groups };
        for (scope, group) in scopes.into_iter().zip(&groups) {
            let costs = least_sums(&sizes, variable, &scope, group);
            largest_table = largest_table.max(costs.len());
            work += (costs.len() * (sizes[variable] + ENTRIES_OF_COMBINATION) * group.len()) as u64;
            match scope.iter().copied().min_by_key(|&it| rank[it]) {
                Some(next) => buckets[next].push(Term { variables: scope, costs: costs.into() }),
                None => bound += costs[0],
            }
        }
        gone.push(Gone { variable, tables });
    }
    let mut states = vec![0; sizes.len()];
    for it in gone.iter().rev() {
        states[it.variable] = best_state(&sizes, it, &states);
    }
    Bucketed { bound, states, largest_table, work }
}

/// The tables in groups, each of which can be eliminated with few entries; and the other variables of each group.
fn grouped(
    sizes: &[usize],
    variable: usize,
    mut tables: Vec<Term>,
    n_entries: usize,
) -> Vec<(Vec<usize>, Vec<Term>)> {
    tables.sort_by_key(|it| Reverse(it.costs.len()));
    // With the entries of a table over all variables of the group.
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

/// Adds to each group a table of the variable alone, which add up to nothing, so that all groups cost as much at least in each state.
fn shared_out(sizes: &[usize], variable: usize, groups: Vec<Vec<Term>>) -> Vec<Vec<Term>> {
    let least: Vec<Vec<i64>> = groups.iter().map(|it| least(sizes, variable, it)).collect();
    let n = i64::try_from(groups.len()).expect("a handful of groups");
    let mut rest = vec![0; sizes[variable]];
    let mut shared = Vec::with_capacity(groups.len());
    for (at, mut group) in groups.into_iter().enumerate() {
        let share =
            |state: usize| least.iter().map(|it| it[state]).sum::<i64>() / n - least[at][state];
        let costs: Vec<i64> =
            (0..sizes[variable]).map(|state| if at == 0 { 0 } else { share(state) }).collect();
        costs.iter().zip(&mut rest).for_each(|(cost, rest)| *rest -= cost);
        group.push(Term { variables: vec![variable], costs: costs.into() });
        shared.push(group);
    }
    let last = shared[0].last_mut().expect("a table was added");
    last.costs = rest.into();
    shared
}

/// What a group costs at least in each state of the variable.
fn least(sizes: &[usize], variable: usize, group: &[Term]) -> Vec<i64> {
    let mut group: Vec<Term> = group.to_vec();
    // The others go one by one; no table that this makes is larger than that of the whole group.
    for other in neighbors(variable, &group) {
        let (with, without): (Vec<Term>, Vec<Term>) =
            group.into_iter().partition(|it| it.variables.contains(&other));
        let rest = neighbors(other, &with);
        let costs = least_sums(sizes, other, &rest, &with);
        group = without;
        group.push(Term { variables: rest, costs: costs.into() });
    }
    let mut least = vec![0; sizes[variable]];
    for table in &group {
        let is_of_variable = !table.variables.is_empty();
        for (state, least) in least.iter_mut().enumerate() {
            *least += table.costs[if is_of_variable { state } else { 0 }];
        }
    }
    least
}

fn best_state(sizes: &[usize], gone: &Gone, states: &[usize]) -> usize {
    let cost = |state: usize| -> i64 {
        let of_table = |table: &Term| {
            let at = table.variables.iter().fold(0, |at, &it| {
                at * sizes[it] + if it == gone.variable { state } else { states[it] }
            });
            table.costs[at]
        };
        gone.tables.iter().map(of_table).sum()
    };
    (0..sizes[gone.variable]).min_by_key(|&it| cost(it)).expect("variables have states")
}

/// The least sums of the group over the states of a variable, for each combination of states of the others.
fn least_sums(sizes: &[usize], variable: usize, others: &[usize], group: &[Term]) -> Vec<i64> {
    let tables = group.iter().map(|Term { variables, costs }| Table { variables, costs });
    let tables: Vec<Table<'_>> = tables.collect();
    minimum(sizes, variable, others, &tables).0
}

/// The variables that share one of these tables with this one, in increasing order.
fn neighbors(variable: usize, group: &[Term]) -> Vec<usize> {
    let all = group.iter().flat_map(|it| it.variables.iter().copied());
    let mut neighbors: Vec<usize> = all.filter(|&it| it != variable).collect();
    neighbors.sort_unstable();
    neighbors.dedup();
    neighbors
}
