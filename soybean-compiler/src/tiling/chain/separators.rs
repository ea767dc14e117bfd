//! Pairs of variables that part a problem, one pair after another.
//!
//! Layers follow each other, and often just a tensor leads from one to the next, and its gradient back. Given both, what lies before the pair and what lies behind it
//! are problems of their own.
//!
//! Two paths without a common variable lead from one end of the problem to the other. Where no third one does, variables on them, one on each, part the ends: the
//! minimum cuts of a flow, which a search through what the flow leaves open meets in order. Source: Ford and Fulkerson 1956.

use std::collections::VecDeque;

use crate::tiling::pairwise::{Edge, Pairwise};

/// How many variables are tried as ends.
const N_PEAKS: usize = 16;

/// Where a problem can be parted.
#[derive(Debug)]
pub(super) struct Separators {
    /// The pairs, from one end to the other; all first variables lie on one path, all second ones on the other.
    pub(super) pairs: Vec<[usize; 2]>,
    /// For each variable, how many pairs lie before it. No pair lies before itself.
    pub(super) n_before: Vec<usize>,
}

impl Separators {
    /// None if no pair parts the problem's ends.
    pub(super) fn new(problem: &Pairwise) -> Option<Self> {
        let neighbors = neighbors(problem);
        let somewhere = (0..neighbors.len()).find(|&it| !neighbors[it].is_empty())?;
        let target = *walk(&neighbors, somewhere).0.last()?;
        let (source, _) = best_end(&neighbors, target)?;
        let (_, (pairs, n_before)) = best_end(&neighbors, source)?;
        Some(Self { pairs, n_before })
    }
}

/// The cuts between two ends, and how many lie before each variable.
type Cuts = (Vec<[usize; 2]>, Vec<usize>);

/// The other end with the most cuts between: what is farther away than all around it may be an end.
fn best_end(neighbors: &[Vec<usize>], end: usize) -> Option<(usize, Cuts)> {
    let (order, distances) = walk(neighbors, end);
    let is_peak =
        |it: &usize| neighbors[*it].iter().all(|other| distances[*other] <= distances[*it]);
    let cuts = |other: usize| {
        let mut flow = Flow::new(neighbors, end, other);
        (flow.augment() && flow.augment()).then(|| flow.cuts()).flatten().map(|it| (other, it))
    };
    let peaks = order.iter().rev().copied().filter(is_peak).take(N_PEAKS);
    peaks.filter_map(cuts).max_by_key(|(_, (pairs, _))| pairs.len())
}

/// For each variable those that it shares a table with.
fn neighbors(problem: &Pairwise) -> Vec<Vec<usize>> {
    let mut neighbors = vec![Vec::new(); problem.unary.len()];
    for &Edge { first, second, .. } in &problem.edges {
        neighbors[first].push(second);
        neighbors[second].push(first);
    }
    neighbors
}

/// The variables that can be reached from one, the nearest first, and how far each is away.
fn walk(neighbors: &[Vec<usize>], start: usize) -> (Vec<usize>, Vec<usize>) {
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

/// Paths from a source to a target that share no other variable.
struct Flow<'a> {
    neighbors: &'a [Vec<usize>],
    source: usize,
    target: usize,
    /// For variables on paths.
    next: Vec<Option<usize>>,
    previous: Vec<Option<usize>>,
}

/// The place at which a search enters a variable; the next number is that at which it leaves it.
fn entrance(variable: usize) -> usize {
    2 * variable
}

fn exit(variable: usize) -> usize {
    2 * variable + 1
}

impl<'a> Flow<'a> {
    fn new(neighbors: &'a [Vec<usize>], source: usize, target: usize) -> Self {
        let nothing = vec![None; neighbors.len()];
        Self { neighbors, source, target, next: nothing.clone(), previous: nothing }
    }

    /// Finds one path more, if there is one.
    fn augment(&mut self) -> bool {
        let mut search = Search::new(self);
        search.spread(self);
        if !search.is_reached(entrance(self.target)) {
            return false;
        }
        let mut added = Vec::new();
        let mut place = entrance(self.target);
        while let Some(origin) = search.origins[place].filter(|it| *it != place) {
            let (from, to) = (origin / 2, place / 2);
            if from != to && place == entrance(to) {
                added.push((from, to));
            } else if from != to {
                // The way back along a path takes this part of it away.
                self.next[to] = None;
                self.previous[from] = None;
            }
            place = origin;
        }
        for (from, to) in added {
            self.next[from] = Some(to);
            if to != self.target {
                self.previous[to] = Some(from);
            }
        }
        true
    }

    /// The pairs of variables that part source and target, and how many lie before each variable; none if there are none.
    fn cuts(&self) -> Option<Cuts> {
        let mut search = Search::new(self);
        search.spread(self);
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
            search.spread(self);
        }
        (!pairs.is_empty()).then_some((pairs, search.n_before))
    }
}

/// A search for what can be reached besides the paths, or by giving parts of them up.
struct Search {
    /// For each place the one from which it was reached.
    origins: Vec<Option<usize>>,
    queue: VecDeque<usize>,
    /// The pairs found so far.
    n_pairs: usize,
    /// For each variable how many pairs were found when it was reached.
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

    fn is_reached(&self, place: usize) -> bool {
        self.origins[place].is_some()
    }

    fn reach(&mut self, place: usize, origin: usize) {
        if self.is_reached(place) {
            return;
        }
        if !self.is_reached(place ^ 1) {
            self.n_before[place / 2] = self.n_pairs;
        }
        self.origins[place] = Some(origin);
        self.queue.push_back(place);
    }

    fn spread(&mut self, flow: &Flow<'_>) {
        while let Some(place) = self.queue.pop_front() {
            let variable = place / 2;
            let previous = flow.previous[variable];
            if place == entrance(variable) {
                self.reach(previous.map_or(exit(variable), exit), place);
                continue;
            }
            flow.neighbors[variable].iter().for_each(|&it| self.reach(entrance(it), place));
            if previous.is_some() {
                self.reach(entrance(variable), place);
            }
        }
    }
}
