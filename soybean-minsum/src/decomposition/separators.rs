//! Separators of two variables, in order along a problem.
//!
//! Layers follow each other, and often only an activation and its gradient lead from one to the
//! next. Given the labels of both, the two sides of the pair are independent problems.
//!
//! The separators are minimum vertex cuts between two ends of the interaction graph. If a flow of
//! two vertex-disjoint paths is maximal, one variable on each path separates the ends. A search
//! through the residual graph meets these cuts in order. Source: Ford and Fulkerson 1956.

use std::collections::VecDeque;

use crate::problem::{Edge, PairwiseProblem};

/// The number of variables tried as ends.
const MAX_PEAKS: usize = 16;

/// The separators of a problem.
#[derive(Debug)]
pub(super) struct Separators {
    /// The pairs, from one end to the other. The first variables are on one path, the second ones
    /// on the other.
    pub(super) pairs: Vec<[usize; 2]>,
    /// For each variable the number of pairs before it; a pair is not before itself.
    pub(super) n_before: Vec<usize>,
}

impl Separators {
    /// Returns the separators, or `None` if no pair separates the ends of the problem.
    pub(super) fn new(problem: &PairwiseProblem) -> Option<Self> {
        let neighbors = neighbors(problem);
        let somewhere = (0..neighbors.len()).find(|&it| !neighbors[it].is_empty())?;
        let target = *breadth_first(&neighbors, somewhere).0.last()?;
        let (source, _) = best_end(&neighbors, target)?;
        let (_, (pairs, n_before)) = best_end(&neighbors, source)?;
        Some(Self { pairs, n_before })
    }
}

/// The cuts between two ends, and the number of cuts before each variable.
type Cuts = (Vec<[usize; 2]>, Vec<usize>);

/// Returns the opposite end with the most cuts between. Candidates are variables at least as far
/// away as all their neighbors.
fn best_end(neighbors: &[Vec<usize>], end: usize) -> Option<(usize, Cuts)> {
    let (order, distances) = breadth_first(neighbors, end);
    let is_peak =
        |it: &usize| neighbors[*it].iter().all(|other| distances[*other] <= distances[*it]);
    let cuts = |other: usize| {
        let mut flow = Flow::new(neighbors, end, other);
        (flow.augment() && flow.augment()).then(|| flow.cuts()).flatten().map(|it| (other, it))
    };
    let peaks = order.iter().rev().copied().filter(is_peak).take(MAX_PEAKS);
    peaks.filter_map(cuts).max_by_key(|(_, (pairs, _))| pairs.len())
}

/// Returns for each variable those that it shares a table with.
fn neighbors(problem: &PairwiseProblem) -> Vec<Vec<usize>> {
    let mut neighbors = vec![Vec::new(); problem.unary.len()];
    for &Edge { first, second, .. } in &problem.edges {
        neighbors[first].push(second);
        neighbors[second].push(first);
    }
    neighbors
}

/// Returns the variables reachable from one, nearest first, and the distance of each.
fn breadth_first(neighbors: &[Vec<usize>], start: usize) -> (Vec<usize>, Vec<usize>) {
    let mut distances = vec![usize::MAX; neighbors.len()];
    distances[start] = 0;
    let mut order = vec![start];
    let mut at = 0;
    while at < order.len() {
        let here = order[at];
        for &next in &neighbors[here] {
            if distances[next] == usize::MAX {
                distances[next] = distances[here] + 1;
                order.push(next);
            }
        }
        at += 1;
    }
    (order, distances)
}

/// A flow: paths from a source to a target that share no other variable.
struct Flow<'a> {
    neighbors: &'a [Vec<usize>],
    source: usize,
    target: usize,
    /// The next variable of each variable on a path.
    next: Vec<Option<usize>>,
    /// The previous variable of each variable on a path.
    previous: Vec<Option<usize>>,
}

/// Returns the node of the split graph by which a path enters a variable.
fn entrance(variable: usize) -> usize {
    2 * variable
}

/// Returns the node of the split graph by which a path leaves a variable.
fn exit(variable: usize) -> usize {
    2 * variable + 1
}

impl<'a> Flow<'a> {
    fn new(neighbors: &'a [Vec<usize>], source: usize, target: usize) -> Self {
        let nothing = vec![None; neighbors.len()];
        Self { neighbors, source, target, next: nothing.clone(), previous: nothing }
    }

    /// Adds one path, if there is one. Returns whether there was.
    fn augment(&mut self) -> bool {
        let mut search = Search::new(self);
        search.run(self);
        if !search.is_reached(entrance(self.target)) {
            return false;
        }
        let mut added = Vec::new();
        let mut node = entrance(self.target);
        while let Some(origin) = search.origins[node].filter(|it| *it != node) {
            let (from, to) = (origin / 2, node / 2);
            if from != to && node == entrance(to) {
                added.push((from, to));
            } else if from != to {
                // A step back along a path removes this part of it.
                self.next[to] = None;
                self.previous[from] = None;
            }
            node = origin;
        }
        for (from, to) in added {
            self.next[from] = Some(to);
            if to != self.target {
                self.previous[to] = Some(from);
            }
        }
        true
    }

    /// Returns the pairs that separate source and target, or `None` if there are none.
    fn cuts(&self) -> Option<Cuts> {
        let mut search = Search::new(self);
        search.run(self);
        let is_first = |it: &usize| self.previous[*it] == Some(self.source);
        let firsts: Vec<usize> = (0..self.neighbors.len()).filter(is_first).collect();
        let mut at: [usize; 2] = firsts.try_into().ok()?;
        let mut pairs = Vec::new();
        while !search.is_reached(entrance(self.target)) {
            for variable in &mut at {
                while search.is_reached(exit(*variable)) {
                    *variable = self.next[*variable]?;
                }
            }
            pairs.push(at);
            search.n_pairs = pairs.len();
            at.iter().for_each(|&it| search.reach(exit(it), exit(it)));
            search.run(self);
        }
        (!pairs.is_empty()).then_some((pairs, search.n_before))
    }
}

/// A breadth-first search of the residual graph of a flow.
struct Search {
    /// The node from which each node was reached.
    origins: Vec<Option<usize>>,
    queue: VecDeque<usize>,
    /// The number of pairs found so far.
    n_pairs: usize,
    /// For each variable, the number of pairs found when it was reached.
    n_before: Vec<usize>,
}

impl Search {
    fn new(flow: &Flow<'_>) -> Self {
        let n = flow.neighbors.len();
        let mut this = Self {
            origins: vec![None; 2 * n],
            queue: VecDeque::new(),
            n_pairs: 0,
            n_before: vec![0; n],
        };
        this.reach(exit(flow.source), exit(flow.source));
        this
    }

    fn is_reached(&self, node: usize) -> bool {
        self.origins[node].is_some()
    }

    fn reach(&mut self, node: usize, origin: usize) {
        if self.is_reached(node) {
            return;
        }
        if !self.is_reached(node ^ 1) {
            self.n_before[node / 2] = self.n_pairs;
        }
        self.origins[node] = Some(origin);
        self.queue.push_back(node);
    }

    fn run(&mut self, flow: &Flow<'_>) {
        while let Some(node) = self.queue.pop_front() {
            let variable = node / 2;
            let previous = flow.previous[variable];
            if node == entrance(variable) {
                self.reach(previous.map_or(exit(variable), exit), node);
                continue;
            }
            flow.neighbors[variable].iter().for_each(|&it| self.reach(entrance(it), node));
            if previous.is_some() {
                self.reach(entrance(variable), node);
            }
        }
    }
}
