//! A problem with usages in flat arrays, which threads can share.

use std::{collections::BTreeMap, rc::Rc};

use super::UsageProblem;

/// The binary digits of a price after the point.
const PRICE_BITS: u32 = 40;
/// The greatest sum of the costs of usages, so that multiples of it do not overflow.
pub(super) const MOST_COST: i64 = 1 << 57;
/// The greatest price.
const MOST_PRICE: f64 = 1e15;

/// An edge, seen from one of its variables.
#[derive(Clone, Copy)]
pub(super) struct Link {
    pub(super) other: usize,
    /// The position of the first entry, and the distances of entries for the next label.
    table: usize,
    stride: usize,
    other_stride: usize,
}

impl Link {
    /// Returns the edge as its other variable sees it.
    pub(super) fn reversed(self, other: usize) -> Self {
        Self { other, table: self.table, stride: self.other_stride, other_stride: self.stride }
    }
}

/// The arrays of a problem.
pub(super) struct Network {
    /// The position of the first label of each variable, and the number of all labels.
    pub(super) start: Vec<usize>,
    pub(super) unary: Vec<i64>,
    usage: Vec<i64>,
    /// The first time of each variable, and the time after its last one. Times are numbered.
    pub(super) spans: Vec<(usize, usize)>,
    first_link: Vec<usize>,
    links: Vec<Link>,
    tables: Vec<i64>,
    pub(super) n_times: usize,
    pub(super) limit: i64,
}

impl Network {
    pub(super) fn new(problem: &UsageProblem) -> Self {
        let UsageProblem { problem: pairwise, usages, limit, .. } = problem;
        let mut start = vec![0];
        for costs in &pairwise.unary {
            start.push(start[start.len() - 1] + costs.len());
        }
        let (mut tables, mut position_of) = (Vec::new(), BTreeMap::new());
        let mut links_of = vec![Vec::new(); pairwise.unary.len()];
        for edge in &pairwise.edges {
            let table =
                *position_of.entry(Rc::as_ptr(&edge.table).cast::<i64>()).or_insert_with(|| {
                    tables.extend_from_slice(&edge.table);
                    tables.len() - edge.table.len()
                });
            let n = pairwise.unary[edge.second].len();
            let link = |other, stride, other_stride| Link { other, table, stride, other_stride };
            links_of[edge.first].push(link(edge.second, n, 1));
            links_of[edge.second].push(link(edge.first, 1, n));
        }
        let mut first_link = vec![0];
        for links in &links_of {
            first_link.push(first_link[first_link.len() - 1] + links.len());
        }
        let (spans, n_times) = problem.spans();
        Self {
            start,
            unary: pairwise.unary.concat(),
            usage: usages.concat(),
            spans,
            first_link,
            links: links_of.concat(),
            tables,
            n_times,
            limit: *limit,
        }
    }

    pub(super) fn n_variables(&self) -> usize {
        self.spans.len()
    }

    pub(super) fn n_labels(&self, variable: usize) -> usize {
        self.start[variable + 1] - self.start[variable]
    }

    pub(super) fn links(&self, variable: usize) -> &[Link] {
        &self.links[self.first_link[variable]..self.first_link[variable + 1]]
    }

    pub(super) fn usage(&self, variable: usize, label: usize) -> i64 {
        self.usage[self.start[variable] + label]
    }

    pub(super) fn entry(&self, link: Link, label: usize, other_label: usize) -> i64 {
        self.tables[link.table + label * link.stride + other_label * link.other_stride]
    }

    /// Adds the costs of an edge for one label of the other variable.
    pub(super) fn add_costs(&self, link: Link, other_label: usize, costs: &mut [i64]) {
        let (mut at, mut label) = (link.table + other_label * link.other_stride, 0);
        while label < costs.len() {
            costs[label] += self.tables[at];
            at += link.stride;
            label += 1;
        }
    }

    /// Adds for each label of a variable's parent the least of its costs and the edge's.
    pub(super) fn add_least_costs(&self, link: Link, costs: &[i64], parent_costs: &mut [i64]) {
        let (mut row, mut parent_label) = (link.table, 0);
        while parent_label < parent_costs.len() {
            let (mut at, mut label, mut least) = (row, 0, i64::MAX);
            while label < costs.len() {
                least = least.min(costs[label] + self.tables[at]);
                at += link.stride;
                label += 1;
            }
            parent_costs[parent_label] += least;
            row += link.other_stride;
            parent_label += 1;
        }
    }

    /// Returns the usage at each time.
    pub(super) fn profile(&self, labels: &[usize]) -> Vec<i64> {
        let mut profile = vec![0; self.n_times + 1];
        for (variable, &(start, end)) in self.spans.iter().enumerate() {
            profile[start] += self.usage(variable, labels[variable]);
            profile[end] -= self.usage(variable, labels[variable]);
        }
        for time in 1..profile.len() {
            profile[time] += profile[time - 1];
        }
        profile.truncate(self.n_times);
        profile
    }

    /// Returns the cost of the usage of each label at these prices, rounded down, and the cost of
    /// the limit at all times, rounded up.
    pub(super) fn usage_costs(&self, prices: &[f64]) -> (Vec<i64>, i64) {
        let mut sums = vec![0_i128];
        for price in prices {
            sums.push(sums[sums.len() - 1] + fixed_point(*price));
        }
        let mut costs = Vec::with_capacity(self.usage.len());
        let most = i128::from(MOST_COST) / self.n_variables() as i128;
        for (variable, &(start, end)) in self.spans.iter().enumerate() {
            let price = sums[end] - sums[start];
            for usage in &self.usage[self.start[variable]..self.start[variable + 1]] {
                let cost = price.saturating_mul((*usage).into()) >> PRICE_BITS;
                costs.push(i64::try_from(cost.min(most)).expect("the greatest sum fits"));
            }
        }
        let of_limit = sums[prices.len()].saturating_mul(self.limit.into());
        let of_limit = (of_limit >> PRICE_BITS).saturating_add(1);
        (costs, i64::try_from(of_limit).unwrap_or(i64::MAX))
    }

    pub(super) fn cost(&self, labels: &[usize]) -> i64 {
        let of_variable = |variable: usize| {
            let label = labels[variable];
            let later = self.links(variable).iter().filter(|it| it.other > variable);
            let edges: i64 = later.map(|it| self.entry(*it, label, labels[it.other])).sum();
            self.unary[self.start[variable] + label] + edges
        };
        (0..self.n_variables()).map(of_variable).sum()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "prices are limited")]
fn fixed_point(price: f64) -> i128 {
    (price.min(MOST_PRICE) * (1_u64 << PRICE_BITS) as f64) as i128
}
