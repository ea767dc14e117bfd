//! Local search: an assignment improves by the best labels of many variables at once.
//!
//! The variables that may change induce a forest in the graph of the problem; the others keep their
//! labels. Dynamic programming finds the best labels of a forest. (Hamze and de Freitas 2004 sample
//! by such forests.) Forests with different variables take turns until none improves the
//! assignment.

use super::{
    problem::PairwiseProblem,
    reparametrization::{add, add_entries, column_minima, least, row_minima, subtract},
};

/// The number of forests in turn without an improvement that ends the search.
const N_FORESTS: usize = 4;
/// The work of visiting an edge, in entries, besides the entries of its table.
const ENTRIES_OF_EDGE: u64 = 64;

/// The local search in a problem.
pub(crate) struct LocalSearch<'a> {
    problem: &'a PairwiseProblem,
    /// The edges of each variable, with the variable at the other end.
    edges_of: Vec<Vec<(usize, usize)>>,
}

/// A variable of a forest.
struct Member {
    variable: usize,
    /// The edge to its parent, and the parent; none of a root.
    parent: Option<(usize, usize)>,
}

impl<'a> LocalSearch<'a> {
    pub(crate) fn new(problem: &'a PairwiseProblem) -> Self {
        let mut edges_of = vec![Vec::new(); problem.unary.len()];
        for (number, edge) in problem.edges.iter().enumerate() {
            edges_of[edge.first].push((number, edge.second));
            edges_of[edge.second].push((number, edge.first));
        }
        Self { problem, edges_of }
    }

    /// Improves the labels until no forest does, or the work is used up. Returns the work done; the
    /// last forest may exceed what was given.
    pub(crate) fn improve(&self, labels: &mut [usize], work: u64) -> u64 {
        let mut n_covered = vec![0; labels.len()];
        let (mut done, mut cost, mut n_idle) = (0, self.problem.cost(labels), 0);
        for is_backward in [false, true].into_iter().cycle() {
            if n_idle == N_FORESTS || done >= work {
                break;
            }
            let forest = self.forest(&mut n_covered, is_backward);
            done += self.improve_forest(&forest, labels);
            let found = self.problem.cost(labels);
            n_idle = if found < cost { 0 } else { n_idle + 1 };
            cost = found;
        }
        done
    }

    /// Returns a forest: the variables that were in the fewest forests first, as long as they close
    /// no cycle. Parents come before their children.
    fn forest(&self, n_covered: &mut [usize], is_backward: bool) -> Vec<Member> {
        let mut order: Vec<usize> = (0..n_covered.len()).collect();
        if is_backward {
            order.reverse();
        }
        order.sort_by_key(|it| n_covered[*it]);
        let mut trees = Trees::new(order.len());
        for &variable in &order {
            if trees.add(variable, self.edges_of[variable].iter().map(|it| it.1)) {
                n_covered[variable] += 1;
            }
        }
        let (mut members, mut is_open) = (Vec::new(), trees.is_member);
        for root in order {
            if !std::mem::take(&mut is_open[root]) {
                continue;
            }
            let mut next = members.len();
            members.push(Member { variable: root, parent: None });
            while next < members.len() {
                let variable = members[next].variable;
                next += 1;
                for &(edge, other) in &self.edges_of[variable] {
                    if std::mem::take(&mut is_open[other]) {
                        members.push(Member { variable: other, parent: Some((edge, variable)) });
                    }
                }
            }
        }
        members
    }

    /// Gives the variables of a forest their best labels. Returns the work done.
    fn improve_forest(&self, forest: &[Member], labels: &mut [usize]) -> u64 {
        let mut costs: Vec<Vec<i64>> = self.problem.unary.clone();
        let mut is_member = vec![false; labels.len()];
        forest.iter().for_each(|it| is_member[it.variable] = true);
        let mut work = ENTRIES_OF_EDGE * self.problem.edges.len() as u64;
        for &Member { variable, .. } in forest {
            for &(edge, other) in self.edges_of[variable].iter().filter(|it| !is_member[it.1]) {
                self.add_costs(edge, variable, labels[other], &mut costs[variable]);
            }
        }
        for &Member { variable, parent } in forest.iter().rev() {
            let Some((edge, parent)) = parent else { continue };
            let of_child = std::mem::take(&mut costs[variable]);
            self.add_least_costs(edge, parent, &of_child, &mut costs[parent]);
            costs[variable] = of_child;
            work += self.problem.edges[edge].table.len() as u64;
        }
        for &Member { variable, parent } in forest {
            let costs = &mut costs[variable];
            if let Some((edge, parent)) = parent {
                self.add_costs(edge, variable, labels[parent], costs);
            }
            let least = least(costs);
            if costs[labels[variable]] > least {
                let found = costs.iter().position(|it| *it == least);
                labels[variable] = found.expect("the least cost is one of them");
            }
        }
        work
    }

    /// Adds the costs of an edge for each label of a variable and one label of the other one.
    fn add_costs(&self, edge: usize, variable: usize, other_label: usize, costs: &mut [i64]) {
        let edge = &self.problem.edges[edge];
        let n_second = self.problem.unary[edge.second].len();
        let (start, stride) = match edge.first == variable {
            true => (other_label, n_second),
            false => (other_label * n_second, 1),
        };
        add_entries(costs, &edge.table, start, stride);
    }

    /// Adds for each label of a parent the least costs of its child with the edge between them.
    fn add_least_costs(&self, edge: usize, parent: usize, of_child: &[i64], costs: &mut [i64]) {
        let edge = &self.problem.edges[edge];
        let mut messages = vec![0; of_child.len()];
        subtract(&mut messages, of_child);
        let mut least = vec![0; costs.len()];
        match edge.first == parent {
            true => row_minima(&edge.table, &messages, &mut least),
            false => column_minima(&edge.table, &messages, &mut least),
        }
        add(costs, &least);
    }
}

/// The trees of a forest, as disjoint sets of variables.
struct Trees {
    /// Another variable of the same tree, or the variable itself if it stands for the tree.
    next: Vec<usize>,
    is_member: Vec<bool>,
}

impl Trees {
    fn new(n: usize) -> Self {
        Self { next: (0..n).collect(), is_member: vec![false; n] }
    }

    /// Adds a variable unless two of its neighbors are in one tree. Returns whether it did.
    fn add(&mut self, variable: usize, neighbors: impl Iterator<Item = usize>) -> bool {
        let mut trees = Vec::new();
        for neighbor in neighbors {
            if self.is_member[neighbor] {
                let tree = self.tree_of(neighbor);
                if trees.contains(&tree) {
                    return false;
                }
                trees.push(tree);
            }
        }
        self.is_member[variable] = true;
        trees.into_iter().for_each(|it| self.next[it] = variable);
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
            LocalSearch::new(&problem).improve(&mut labels, 1);
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
            let work = LocalSearch::new(&problem).improve(&mut labels, u64::MAX);
            let cost = problem.cost(&labels);
            assert!(cost <= before && work > 0, "{seed}");
            n_best += usize::from(cost == brute_force(&problem));
        }
        assert!(n_best >= 80, "{n_best}");
    }
}
