//! The split of a problem into a chain of subproblems that share separators of two variables.

use std::{
    collections::{BTreeMap, VecDeque},
    iter::once,
    rc::Rc,
};

use super::separators::Separators;
use crate::problem::{Edge, PairwiseProblem, transposed};

/// The fewest variables between two separators.
const MIN_VARIABLES: usize = 48;
/// The most label pairs of a separator.
const MAX_LABEL_PAIRS: usize = 1 << 12;

/// A problem as a chain of subproblems.
#[derive(Debug)]
pub(super) struct Split {
    /// The subproblems, from left to right.
    pub(super) subproblems: Vec<Subproblem>,
    /// The distinct problems of subproblems.
    pub(super) templates: Vec<PairwiseProblem>,
}

/// A subproblem between two separators.
#[derive(Debug)]
pub(super) struct Subproblem {
    /// The two variables of the left separator, the inner variables, and the two variables of the
    /// right separator. At the ends of the chain, `None` stands for a missing separator's
    /// variables.
    pub(super) variables: Vec<Option<usize>>,
    /// The number of its template. The unary costs of a separator count in the subproblem to its
    /// right. Missing variables have one label.
    pub(super) template: usize,
}

impl Split {
    /// Splits a problem, or returns `None` if it has no usable separators.
    pub(super) fn new(problem: &PairwiseProblem) -> Option<Self> {
        if problem.unary.iter().any(|it| it.len() == 1) {
            return None;
        }
        let separators = Separators::new(problem)?;
        let chosen = choose(problem, &separators);
        if chosen.is_empty() {
            return None;
        }
        let mut subproblems = Vec::with_capacity(chosen.len() + 1);
        let mut templates: Vec<PairwiseProblem> = Vec::new();
        let mut known = BTreeMap::new();
        for (mut variables, edges) in partition(problem, &separators, &chosen) {
            sort_along_chain(problem, &mut variables, &edges);
            let local = local_problem(problem, &variables, &edges, &mut known);
            let same = templates.iter().position(|it| are_equal(it, &local));
            let template = same.unwrap_or(templates.len());
            if template == templates.len() {
                templates.push(local);
            }
            subproblems.push(Subproblem { variables, template });
        }
        Some(Self { subproblems, templates })
    }
}

/// Chooses the separators at which the problem is split: of those near each other, the one with the
/// fewest label pairs.
fn choose(problem: &PairwiseProblem, separators: &Separators) -> Vec<usize> {
    let n = problem.unary.len();
    let mut sizes = vec![0; separators.pairs.len() + 1];
    separators.n_before.iter().for_each(|&it| sizes[it] += 1);
    let n_label_pairs = |pair: usize| -> usize {
        separators.pairs[pair].iter().map(|&it| problem.unary[it].len()).product()
    };
    let mut chosen: Vec<usize> = Vec::new();
    // The numbers of variables up to the pair at hand, up to the first pair of its group, and up to
    // the last separator chosen.
    let (mut n_before, mut first, mut last) = (0, 0, 0);
    for (pair, size) in sizes.into_iter().enumerate().take(separators.pairs.len()) {
        n_before += size;
        if n_label_pairs(pair) > MAX_LABEL_PAIRS
            || n_before < MIN_VARIABLES
            || n - n_before < MIN_VARIABLES
        {
            continue;
        }
        match chosen.last_mut() {
            Some(separator)
                if n_before < first + MIN_VARIABLES
                    && n_label_pairs(pair) < n_label_pairs(*separator) =>
            {
                *separator = pair;
                last = n_before;
            }
            Some(_) if n_before < last + MIN_VARIABLES => {}
            _ => {
                chosen.push(pair);
                (first, last) = (n_before, n_before);
            }
        }
    }
    chosen
}

/// Returns the variables and the edges of each subproblem.
fn partition(
    problem: &PairwiseProblem,
    separators: &Separators,
    chosen: &[usize],
) -> Vec<(Vec<Option<usize>>, Vec<usize>)> {
    let place =
        |variable: usize| chosen.partition_point(|pair| *pair < separators.n_before[variable]);
    let mut is_separator = vec![false; problem.unary.len()];
    let pairs = || chosen.iter().map(|&it| separators.pairs[it]);
    pairs().flatten().for_each(|it| is_separator[it] = true);
    let left = once([None; 2]).chain(pairs().map(|it| it.map(Some)));
    let mut parts: Vec<_> = left.map(|it| (it.to_vec(), Vec::new())).collect();
    let inner = (0..is_separator.len()).filter(|&it| !is_separator[it]);
    inner.for_each(|it| parts[place(it)].0.push(Some(it)));
    let right = pairs().map(|it| it.map(Some)).chain(once([None; 2]));
    parts.iter_mut().zip(right).for_each(|(part, it)| part.0.extend(it));
    for (number, edge) in problem.edges.iter().enumerate() {
        // A separator has the place of the subproblem to its left, but belongs to the right one
        // too.
        let right_place = |variable: usize| place(variable) + usize::from(is_separator[variable]);
        let [first, second] = [edge.first, edge.second].map(|it| (place(it), right_place(it)));
        let of_edge = if first.1 == second.1 { first.1 } else { first.0.max(second.0) };
        parts[of_edge].1.push(number);
    }
    parts
}

/// Sorts the inner variables by their distance from the left separator less that from the right
/// one.
fn sort_along_chain(problem: &PairwiseProblem, variables: &mut [Option<usize>], edges: &[usize]) {
    let mut neighbors: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for Edge { first, second, .. } in edges.iter().map(|&it| &problem.edges[it]) {
        neighbors.entry(*first).or_default().push(*second);
        neighbors.entry(*second).or_default().push(*first);
    }
    let last = variables.len() - 2;
    let distances_from = |separator: &[Option<usize>]| {
        let mut distances: BTreeMap<usize, i64> =
            separator.iter().flatten().map(|&it| (it, 0)).collect();
        let mut queue: VecDeque<usize> = distances.keys().copied().collect();
        while let Some(here) = queue.pop_front() {
            let next = distances[&here] + 1;
            for &it in neighbors.get(&here).into_iter().flatten() {
                distances.entry(it).or_insert_with(|| {
                    queue.push_back(it);
                    next
                });
            }
        }
        distances
    };
    let [left, right] = [&variables[..2], &variables[last..]].map(distances_from);
    let of = |distances: &BTreeMap<usize, i64>, it: usize| distances.get(&it).copied().unwrap_or(0);
    let position = |it: &Option<usize>| it.map(|it| of(&left, it) - of(&right, it));
    variables[2..last].sort_by_key(position);
}

/// Returns the problem of these variables with these edges, without the unary costs of the right
/// separator.
fn local_problem(
    problem: &PairwiseProblem,
    variables: &[Option<usize>],
    edges: &[usize],
    known: &mut BTreeMap<*const i64, Rc<[i64]>>,
) -> PairwiseProblem {
    let costs = |it: &Option<usize>| it.map_or_else(|| vec![0], |it| problem.unary[it].clone());
    let mut unary: Vec<Vec<i64>> = variables.iter().map(costs).collect();
    let n_own = unary.len() - 2;
    unary[n_own..].iter_mut().for_each(|it| it.fill(0));
    let places = variables.iter().enumerate().filter_map(|(at, it)| Some(((*it)?, at)));
    let place: BTreeMap<usize, usize> = places.collect();
    let mut edge = |number: &usize| {
        let Edge { first, second, table } = &problem.edges[*number];
        let n_columns = problem.unary[*second].len();
        let (first, second) = (place[first], place[second]);
        if first < second {
            return Edge { first, second, table: Rc::clone(table) };
        }
        let exchanged = || transposed(table, n_columns).into();
        let table = known.entry(table.as_ptr()).or_insert_with(exchanged);
        Edge { first: second, second: first, table: Rc::clone(table) }
    };
    let mut edges: Vec<Edge> = edges.iter().map(&mut edge).collect();
    edges.sort_by_key(|it| (it.first, it.second));
    PairwiseProblem { unary, edges }
}

/// Returns whether two problems have equal unary costs and share all tables.
fn are_equal(one: &PairwiseProblem, other: &PairwiseProblem) -> bool {
    let is_same = |(one, other): (&Edge, &Edge)| {
        (one.first, one.second) == (other.first, other.second)
            && Rc::ptr_eq(&one.table, &other.table)
    };
    one.edges.len() == other.edges.len()
        && one.edges.iter().zip(&other.edges).all(is_same)
        && one.unary == other.unary
}
