//! A problem in pieces, which follow each other and have only pairs of variables in common: the joints.

use std::{
    collections::{BTreeMap, VecDeque},
    iter::once,
    rc::Rc,
};

use super::separators::Separators;
use crate::tiling::pairwise::{Edge, Pairwise, transposed};

/// The fewest variables between two joints.
const N_BETWEEN: usize = 48;
/// The most states that the two variables of a joint have together.
const MAX_STATES: usize = 1 << 12;

/// A problem in pieces.
#[derive(Debug)]
pub(super) struct Pieces {
    /// From one end to the other.
    pub(super) pieces: Vec<Piece>,
    /// The problems of pieces, each once.
    pub(super) kinds: Vec<Pairwise>,
}

/// A part of the problem between two joints.
#[derive(Debug)]
pub(super) struct Piece {
    /// Its variables: the two of the joint before it, those between, the two of the joint behind it. At the ends of the problem none stand in for those of a joint.
    pub(super) variables: Vec<Option<usize>>,
    /// What they cost, by number. The costs of a joint's variables count in the piece behind it; those that stand in have one state.
    pub(super) kind: usize,
}

impl Pieces {
    /// None if the problem has no joints.
    pub(super) fn new(problem: &Pairwise) -> Option<Self> {
        if problem.unary.iter().any(|it| it.len() == 1) {
            return None;
        }
        let separators = Separators::new(problem)?;
        let joints = joints(problem, &separators);
        if joints.is_empty() {
            return None;
        }
        let mut pieces = Vec::with_capacity(joints.len() + 1);
        let mut kinds: Vec<Pairwise> = Vec::new();
        let mut known = BTreeMap::new();
        for (mut variables, edges) in parted(problem, &separators, &joints) {
            arrange(problem, &mut variables, &edges);
            let local = local(problem, &variables, &edges, &mut known);
            let same = kinds.iter().position(|it| are_alike(it, &local));
            let kind = same.unwrap_or(kinds.len());
            if kind == kinds.len() {
                kinds.push(local);
            }
            pieces.push(Piece { variables, kind });
        }
        Some(Self { pieces, kinds })
    }
}

/// The pairs at which the problem is parted: of those that lie near each other the one with the fewest states.
fn joints(problem: &Pairwise, separators: &Separators) -> Vec<usize> {
    let n = problem.unary.len();
    let mut sizes = vec![0; separators.pairs.len() + 1];
    separators.n_before.iter().for_each(|&it| sizes[it] += 1);
    let n_states = |pair: usize| -> usize {
        separators.pairs[pair].iter().map(|&it| problem.unary[it].len()).product()
    };
    let mut joints: Vec<usize> = Vec::new();
    // How many variables lie before, or belong to, the pair at hand, the first of its group, and the last joint.
    let (mut n_before, mut first, mut last) = (0, 0, 0);
    for (pair, size) in sizes.into_iter().enumerate().take(separators.pairs.len()) {
        n_before += size;
        if n_states(pair) > MAX_STATES || n_before < N_BETWEEN || n - n_before < N_BETWEEN {
            continue;
        }
        match joints.last_mut() {
            Some(joint) if n_before < first + N_BETWEEN && n_states(pair) < n_states(*joint) => {
                *joint = pair;
                last = n_before;
            }
            Some(_) if n_before < last + N_BETWEEN => {}
            _ => {
                joints.push(pair);
                (first, last) = (n_before, n_before);
            }
        }
    }
    joints
}

/// The variables and the edges of each piece.
fn parted(
    problem: &Pairwise,
    separators: &Separators,
    joints: &[usize],
) -> Vec<(Vec<Option<usize>>, Vec<usize>)> {
    let place =
        |variable: usize| joints.partition_point(|joint| *joint < separators.n_before[variable]);
    let mut is_joint = vec![false; problem.unary.len()];
    let pairs = || joints.iter().map(|&it| separators.pairs[it]);
    pairs().flatten().for_each(|it| is_joint[it] = true);
    let begun = once([None; 2]).chain(pairs().map(|it| it.map(Some)));
    let mut parts: Vec<_> = begun.map(|it| (it.to_vec(), Vec::new())).collect();
    let inner = (0..is_joint.len()).filter(|&it| !is_joint[it]);
    inner.for_each(|it| parts[place(it)].0.push(Some(it)));
    let ended = pairs().map(|it| it.map(Some)).chain(once([None; 2]));
    parts.iter_mut().zip(ended).for_each(|(part, it)| part.0.extend(it));
    for (number, edge) in problem.edges.iter().enumerate() {
        // A joint has the place of the piece before it, but belongs to the next one too.
        let piece = |variable: usize| place(variable) + usize::from(is_joint[variable]);
        let [first, second] = [edge.first, edge.second].map(|it| (place(it), piece(it)));
        let of_edge = if first.1 == second.1 { first.1 } else { first.0.max(second.0) };
        parts[of_edge].1.push(number);
    }
    parts
}

/// Puts the variables between the joints into the order in which they lie between them.
fn arrange(problem: &Pairwise, variables: &mut [Option<usize>], edges: &[usize]) {
    let mut neighbors: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for Edge { first, second, .. } in edges.iter().map(|&it| &problem.edges[it]) {
        neighbors.entry(*first).or_default().push(*second);
        neighbors.entry(*second).or_default().push(*first);
    }
    let last = variables.len() - 2;
    let steps = |joint: &[Option<usize>]| {
        let mut steps: BTreeMap<usize, i64> = joint.iter().flatten().map(|&it| (it, 0)).collect();
        let mut queue: VecDeque<usize> = steps.keys().copied().collect();
        while let Some(here) = queue.pop_front() {
            let next = steps[&here] + 1;
            for &it in neighbors.get(&here).into_iter().flatten() {
                steps.entry(it).or_insert_with(|| {
                    queue.push_back(it);
                    next
                });
            }
        }
        steps
    };
    let [before, behind] = [&variables[..2], &variables[last..]].map(steps);
    let of = |steps: &BTreeMap<usize, i64>, it: usize| steps.get(&it).copied().unwrap_or(0);
    let place = |it: &Option<usize>| it.map(|it| of(&before, it) - of(&behind, it));
    variables[2..last].sort_by_key(place);
}

/// The problem of these variables with these edges, and without what the last two cost.
fn local(
    problem: &Pairwise,
    variables: &[Option<usize>],
    edges: &[usize],
    known: &mut BTreeMap<*const i64, Rc<[i64]>>,
) -> Pairwise {
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
        let exchanged = || transposed(table, n_columns).collect();
        let table = known.entry(table.as_ptr()).or_insert_with(exchanged);
        Edge { first: second, second: first, table: Rc::clone(table) }
    };
    let mut edges: Vec<Edge> = edges.iter().map(&mut edge).collect();
    edges.sort_by_key(|it| (it.first, it.second));
    Pairwise { unary, edges }
}

fn are_alike(one: &Pairwise, other: &Pairwise) -> bool {
    let is_same = |(one, other): (&Edge, &Edge)| {
        (one.first, one.second) == (other.first, other.second)
            && Rc::ptr_eq(&one.table, &other.table)
    };
    one.edges.len() == other.edges.len()
        && one.edges.iter().zip(&other.edges).all(is_same)
        && one.unary == other.unary
}
