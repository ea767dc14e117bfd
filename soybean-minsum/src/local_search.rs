//! Local search: an assignment improves by the best labels of many variables at once.
//!
//! The variables that may change induce a forest in the graph of the problem; the others keep their
//! labels. Dynamic programming finds the best labels of a forest. (Hamze and de Freitas 2004 sample
//! by such forests.) Forests with different variables take turns until none improves the
//! assignment.

use super::{
    minima::{column_minima, row_minima},
    problem::PairwiseProblem,
    reparametrization::{add, add_entries, least_label},
};

/// The number of forests in turn without an improvement that ends the search.
const N_FORESTS: usize = 4;
/// The work of visiting an edge, in entries, besides the entries of its table.
const ENTRIES_OF_EDGE: u64 = 64;

/// The local search in a problem.
pub(crate) struct LocalSearch {
    /// The edges of each variable, with the variable at the other end.
    edges_of: Vec<Vec<(usize, usize)>>,
    scratch: Scratch,
}

/// Buffers, reused from forest to forest.
#[derive(Default)]
struct Scratch {
    /// The costs of the labels of each variable of a forest.
    costs: Vec<Vec<i64>>,
    /// The costs of a child as messages to it, and the least ones for each label of its parent.
    messages: Vec<i64>,
    least: Vec<i64>,
}

/// A variable of a forest.
#[derive(Clone, Copy)]
struct Member {
    variable: usize,
    /// The edge to its parent, and the parent; none of a root.
    parent: Option<(usize, usize)>,
}

impl LocalSearch {
    pub(crate) fn new(problem: &PairwiseProblem) -> Self {
        let mut edges_of = vec![Vec::new(); problem.unary.len()];
        for (number, edge) in problem.edges.iter().enumerate() {
            edges_of[edge.first].push((number, edge.second));
            edges_of[edge.second].push((number, edge.first));
        }
        let costs = vec![Vec::new(); problem.unary.len()];
        Self { edges_of, scratch: Scratch { costs, ..Scratch::default() } }
    }

    /// Improves the labels until no forest does, or the work is used up. Returns the work done; the
    /// last forest may exceed what was given.
    pub(crate) fn improve(
        &mut self,
        problem: &PairwiseProblem,
        labels: &mut [usize],
        work: u64,
    ) -> u64 {
        let mut n_covered = vec![0; labels.len()];
        let (mut done, mut n_idle) = (0, 0);
        for is_backward in [false, true].into_iter().cycle() {
            if n_idle == N_FORESTS || done >= work {
                break;
            }
            let forest = self.forest(&mut n_covered, is_backward);
            done += ENTRIES_OF_EDGE * problem.edges.len() as u64;
            done += self.collect_costs(problem, &forest, labels);
            n_idle = if self.choose_labels(problem, &forest, labels) { 0 } else { n_idle + 1 };
        }
        done
    }

    /// Returns a forest: the variables that were in the fewest forests first, as long as they close
    /// no cycle. Parents come before their children.
    fn forest(&self, n_covered: &mut [usize], is_backward: bool) -> Vec<Member> {
        let order = in_order(n_covered, is_backward);
        let mut trees = Trees::new(order.len());
        for &variable in &order {
            if trees.add(variable, &self.edges_of[variable]) {
                n_covered[variable] += 1;
            }
        }
        let (mut members, mut is_open) = (Vec::with_capacity(order.len()), trees.is_member);
        for root in order {
            if !is_open[root] {
                continue;
            }
            is_open[root] = false;
            let mut next = members.len();
            members.push(Member { variable: root, parent: None });
            while next < members.len() {
                let variable = members[next].variable;
                let (edges, mut at) = (&self.edges_of[variable][..], 0);
                while at < edges.len() {
                    let (edge, other) = edges[at];
                    if is_open[other] {
                        is_open[other] = false;
                        members.push(Member { variable: other, parent: Some((edge, variable)) });
                    }
                    at += 1;
                }
                next += 1;
            }
        }
        members
    }

    /// Sets for each label of a forest's variables the least costs of the variable and its
    /// descendants. Returns the entries of the tables of its edges.
    fn collect_costs(
        &mut self,
        problem: &PairwiseProblem,
        forest: &[Member],
        labels: &[usize],
    ) -> u64 {
        let Scratch { costs, messages, least } = &mut self.scratch;
        let mut is_member = vec![false; labels.len()];
        forest.iter().for_each(|it| is_member[it.variable] = true);
        for &Member { variable, .. } in forest {
            let costs = &mut costs[variable];
            costs.clone_from(&problem.unary[variable]);
            let (edges, mut at) = (&self.edges_of[variable][..], 0);
            while at < edges.len() {
                let (edge, other) = edges[at];
                if !is_member[other] {
                    add_costs(problem, edge, variable, labels[other], costs);
                }
                at += 1;
            }
        }
        let mut n_entries = 0;
        for &Member { variable, parent } in forest.iter().rev() {
            let Some((edge, parent)) = parent else { continue };
            messages.clone_from(&costs[variable]);
            negate(messages);
            let (edge, costs) = (&problem.edges[edge], &mut costs[parent]);
            least.clone_from(costs);
            match edge.first == parent {
                true => row_minima(&edge.table, messages, least),
                false => column_minima(&edge.table, messages, least),
            }
            add(costs, least);
            n_entries += edge.table.len() as u64;
        }
        n_entries
    }

    /// Gives the variables of a forest their best labels. Returns whether a label changed: only a
    /// lower cost changes labels.
    fn choose_labels(
        &mut self,
        problem: &PairwiseProblem,
        forest: &[Member],
        labels: &mut [usize],
    ) -> bool {
        let mut has_changed = false;
        for &Member { variable, parent } in forest {
            let costs = &mut self.scratch.costs[variable];
            if let Some((edge, parent)) = parent {
                add_costs(problem, edge, variable, labels[parent], costs);
            }
            let best = least_label(costs);
            if costs[labels[variable]] > costs[best] {
                labels[variable] = best;
                has_changed = true;
            }
        }
        has_changed
    }
}

/// Adds the costs of an edge for each label of a variable and one label of the other one.
fn add_costs(
    problem: &PairwiseProblem,
    edge: usize,
    variable: usize,
    other_label: usize,
    costs: &mut [i64],
) {
    let edge = &problem.edges[edge];
    let n_second = problem.unary[edge.second].len();
    let (start, stride) = match edge.first == variable {
        true => (other_label, n_second),
        false => (other_label * n_second, 1),
    };
    add_entries(costs, &edge.table, start, stride);
}

fn negate(costs: &mut [i64]) {
    let mut at = 0;
    while at < costs.len() {
        costs[at] = -costs[at];
        at += 1;
    }
}

/// Returns the variables that were in the fewest forests first, and equal ones forward or backward.
fn in_order(n_covered: &[usize], is_backward: bool) -> Vec<usize> {
    let n = n_covered.len();
    // A counting sort: the number of variables that come before those in so many forests.
    let mut n_before = vec![0; n_covered.iter().max().map_or(0, |it| it + 1) + 1];
    n_covered.iter().for_each(|it| n_before[it + 1] += 1);
    (1..n_before.len()).for_each(|it| n_before[it] += n_before[it - 1]);
    let (mut order, mut at) = (vec![0; n], 0);
    while at < n {
        let variable = if is_backward { n - 1 - at } else { at };
        let place = &mut n_before[n_covered[variable]];
        order[*place] = variable;
        *place += 1;
        at += 1;
    }
    order
}

/// The trees of a forest, as disjoint sets of variables.
struct Trees {
    /// Another variable of the same tree, or the variable itself if it stands for the tree.
    next: Vec<usize>,
    is_member: Vec<bool>,
    /// The last variable that found itself next to the tree of each variable that stands for one.
    found_by: Vec<usize>,
}

impl Trees {
    fn new(n: usize) -> Self {
        Self { next: (0..n).collect(), is_member: vec![false; n], found_by: vec![n; n] }
    }

    /// Adds a variable, given its edges, unless two of its neighbors are in one tree. Returns
    /// whether it did.
    fn add(&mut self, variable: usize, edges: &[(usize, usize)]) -> bool {
        let mut at = 0;
        while at < edges.len() {
            let neighbor = edges[at].1;
            if self.is_member[neighbor] {
                let tree = self.tree_of(neighbor);
                if self.found_by[tree] == variable {
                    return false;
                }
                self.found_by[tree] = variable;
            }
            at += 1;
        }
        self.is_member[variable] = true;
        at = 0;
        while at < edges.len() {
            let neighbor = edges[at].1;
            if self.is_member[neighbor] {
                let tree = self.tree_of(neighbor);
                self.next[tree] = variable;
            }
            at += 1;
        }
        true
    }

    fn tree_of(&mut self, mut variable: usize) -> usize {
        while self.next[variable] != variable {
            self.next[variable] = self.next[self.next[variable]];
            variable = self.next[variable];
        }
        variable
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            problem::Edge,
            tests::{brute_force, numbers},
        },
        *,
    };

    /// Returns a problem with costs below 100 on these edges.
    fn problem(edges: &[(usize, usize)], n: usize, seed: u64) -> PairwiseProblem {
        let mut number = numbers(seed);
        let sizes: Vec<u64> = (0..n).map(|_| 1 + number(4)).collect();
        let mut costs =
            |n: u64| -> Vec<i64> { (0..n).map(|_| number(100).cast_signed()).collect() };
        let unary = sizes.iter().map(|it| costs(*it)).collect();
        let edge = |&(first, second): &(usize, usize)| Edge {
            first,
            second,
            table: costs(sizes[first] * sizes[second]).into(),
        };
        PairwiseProblem { unary, edges: edges.iter().map(edge).collect() }
    }

    #[test]
    fn a_forest_gets_its_best_labels_at_once() {
        let edges = [(0, 2), (1, 2), (2, 5), (3, 4), (5, 6), (0, 7)];
        for seed in 0..50 {
            let problem = problem(&edges, 8, seed);
            let mut labels = vec![0; 8];
            LocalSearch::new(&problem).improve(&problem, &mut labels, 1);
            assert_eq!(problem.cost(&labels), brute_force(&problem), "{seed}");
        }
    }

    #[test]
    fn cycles_never_get_worse_and_mostly_get_their_best_labels() {
        let edges = [(0, 1), (1, 2), (2, 3), (0, 3), (1, 4), (2, 5), (4, 5), (0, 5), (3, 6)];
        let mut n_best = 0;
        for seed in 0..100 {
            let problem = problem(&edges, 7, seed);
            let mut labels = vec![0; 7];
            let before = problem.cost(&labels);
            let work = LocalSearch::new(&problem).improve(&problem, &mut labels, u64::MAX);
            let cost = problem.cost(&labels);
            assert!(cost <= before && work > 0, "{seed}");
            n_best += usize::from(cost == brute_force(&problem));
        }
        assert!(n_best >= 80, "{n_best}");
    }
}
