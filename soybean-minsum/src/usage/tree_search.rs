//! Local search with usages: the variables of a tree get their best labels at once.
//!
//! A tree grows from a random variable; it is an induced subgraph. Dynamic programming finds its
//! best labels given the labels around it, where usage costs the prices of its times. Prices rise
//! where the usage exceeds the limit. Once the labels are within the limit, changes that exceed it
//! are rejected. Where many are rejected, the prices rise; where few are, they fall.
//!
//! A search that no longer improves lowers the prices and leaves the limit. Random costs are then
//! added to the labels of each tree, and get smaller from sweep to sweep (simulated annealing in
//! blocks, by perturbed minimization: Papandreou and Yuille 2011).

use super::{
    network::{Link, MOST_COST, Network},
    peak::Peak,
};

/// The number of sweeps within the limit, without progress, after which the limit is left.
const N_IDLE_SWEEPS: u32 = 12;
/// The number of sweeps before the prices rise.
const N_FIRST_SWEEPS: u32 = 5;
/// The first step of prices, as a part of the cost of all labels.
const FIRST_STEP: f64 = 0.02;
/// The factor by which steps grow while the limit is exceeded.
const STEP_GROWTH: f64 = 1.1;

/// The temperature decreases by this factor in each sweep, from 1 to 32 times the first to the
/// least one, each a part of the cost of all labels.
const COOLING: f64 = 0.8;
const FIRST_TEMPERATURE: f64 = 3e-5;
const LEAST_TEMPERATURE: f64 = 1e-6;
/// The work of visiting a link, in entries, besides its entries.
const ENTRIES_OF_LINK: u64 = 8;

/// A variable of a tree, with the position of its parent and the edge to it; none of the root.
struct Member {
    variable: usize,
    parent: Option<(usize, Link)>,
    /// The position of its costs.
    costs: usize,
}

/// The state of a search.
pub(super) struct TreeSearch<'a> {
    network: &'a Network,
    pub(super) labels: Vec<usize>,
    pub(super) cost: i64,
    /// The price of usage at each time.
    pub(super) prices: Vec<f64>,
    usage_costs: Vec<i64>,
    peak: Peak,
    /// For each variable, the last tree that it was in.
    tree_of: Vec<u64>,
    n_trees: u64,
    members: Vec<Member>,
    costs: Vec<i64>,
    found: Vec<usize>,
    random: u64,
    n_accepted: u64,
    n_rejected: u64,
    /// The next step of prices while the limit is exceeded.
    step: f64,
    /// The number of sweeps within the limit since the last better cost.
    n_idle: u32,
    /// The mean of the random costs that are added to labels.
    temperature: f64,
    /// The least cost so far, in or out of the limit: the scale of prices.
    scale: i64,
    n_sweeps: u32,
    /// True if labels within the limit may leave it.
    may_exceed: bool,
    least_cost: i64,
    /// True if the search is about to leave the limit.
    pub(super) is_leaving: bool,
    /// True if the last sweep ended within the limit.
    pub(super) was_within_limit: bool,
    pub(super) work: u64,
}

impl<'a> TreeSearch<'a> {
    pub(super) fn new(
        network: &'a Network,
        labels: Vec<usize>,
        prices: Vec<f64>,
        seed: u64,
    ) -> Self {
        Self {
            network,
            cost: network.cost(&labels),
            usage_costs: network.usage_costs(&prices).0,
            peak: Peak::new(&network.profile(&labels)),
            labels,
            prices,
            tree_of: vec![0; network.n_variables()],
            n_trees: 0,
            members: Vec::new(),
            costs: Vec::new(),
            found: Vec::new(),
            random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            n_accepted: 0,
            n_rejected: 0,
            step: FIRST_STEP,
            n_idle: 0,
            n_sweeps: 0,
            temperature: 0.0,
            scale: i64::MAX,
            may_exceed: true,
            least_cost: i64::MAX,
            is_leaving: false,
            was_within_limit: false,
            work: 0,
        }
    }

    /// Returns whether the labels are within the limit.
    pub(super) fn is_within_limit(&self) -> bool {
        self.peak.usage() <= self.network.limit
    }

    /// Changes trees until as many variables were visited as there are, then the prices.
    pub(super) fn sweep(&mut self) {
        let n = self.network.n_variables();
        let (mut n_visited, bits) = (0, n.ilog2().max(1) as usize);
        (self.n_accepted, self.n_rejected) = (0, 0);
        // Most changes of large trees exceed the limit.
        let scale = if self.is_within_limit() { self.below(bits + 1) } else { bits };
        while n_visited < n {
            let size = 1 << self.below(scale + 1);
            let root = self.below(n);
            self.grow(root, size);
            n_visited += self.members.len();
            self.change_tree();
        }
        self.n_sweeps += 1;
        self.was_within_limit = self.is_within_limit();
        self.change_prices();
    }

    /// Continues with other labels.
    pub(super) fn adopt(&mut self, labels: &[usize]) {
        self.labels.copy_from_slice(labels);
        self.cost = self.network.cost(labels);
        self.peak = Peak::new(&self.network.profile(labels));
    }

    /// Returns a random number below `n`.
    fn below(&mut self, n: usize) -> usize {
        usize::try_from(random(&mut self.random) % n as u64).expect("it is below `n`")
    }

    /// Grows a tree of at most this size.
    fn grow(&mut self, root: usize, size: usize) {
        self.n_trees += 1;
        self.members.clear();
        let mut open: Vec<(usize, Option<(usize, Link)>)> = vec![(root, None)];
        let mut n_costs = 0;
        while let Some(last) = open.len().checked_sub(1)
            && self.members.len() < size
        {
            let at = self.below(open.len());
            open.swap(at, last);
            let Some((variable, parent)) = open.pop() else { break };
            let links = self.network.links(variable);
            self.work += links.len() as u64;
            let is_member = |it: usize| self.tree_of[it] == self.n_trees;
            if is_member(variable) || links.iter().filter(|it| is_member(it.other)).count() > 1 {
                continue;
            }
            self.tree_of[variable] = self.n_trees;
            for link in links.iter().filter(|it| self.tree_of[it.other] != self.n_trees) {
                open.push((link.other, Some((self.members.len(), *link))));
            }
            self.members.push(Member { variable, parent, costs: n_costs });
            n_costs += self.network.n_labels(variable);
        }
        self.costs.resize(n_costs, 0);
        self.found.resize(self.members.len(), 0);
    }

    /// Gives the variables of the tree their best labels, at higher prices if that exceeds the
    /// limit.
    fn change_tree(&mut self) {
        let first = self.below(3);
        for factor in [[0.5, 1.0, 2.0], [1.0, 1.5, 4.0], [1.0, 2.0, 8.0]][first] {
            self.minimize(factor);
            let (cost, usage_cost) = self.found_difference();
            let is_worse = cost >= 0 && cost + usage_cost >= 0;
            if is_worse && (self.temperature == 0.0 || (cost, usage_cost) == (0, 0)) {
                continue;
            }
            if self.apply(cost) {
                self.n_accepted += 1;
                return;
            }
            self.n_rejected += 1;
        }
    }

    /// Finds the best labels of the tree, where usage costs this multiple of its price.
    fn minimize(&mut self, factor: f64) {
        self.collect_costs(factor);
        self.send_costs_to_parents();
        self.choose_labels();
    }

    /// Sets the costs of each variable of the tree, given the labels around it.
    fn collect_costs(&mut self, factor: f64) {
        let network = self.network;
        for member in &self.members {
            let (start, n) = (network.start[member.variable], network.n_labels(member.variable));
            let costs = &mut self.costs[member.costs..][..n];
            for (label, cost) in costs.iter_mut().enumerate() {
                let of_usage = scaled(self.usage_costs[start + label], factor);
                *cost = network.unary[start + label] + of_usage;
            }
            if self.temperature > 0.0 {
                for cost in costs.iter_mut() {
                    *cost += noise(&mut self.random, self.temperature);
                }
            }
            for link in network.links(member.variable) {
                if self.tree_of[link.other] != self.n_trees {
                    network.add_costs(*link, self.labels[link.other], costs);
                }
                self.work += n as u64 + ENTRIES_OF_LINK;
            }
        }
    }

    /// Adds the least costs of each variable to its parent's.
    fn send_costs_to_parents(&mut self) {
        let network = self.network;
        for member in self.members.iter().rev() {
            let Some((parent, link)) = member.parent else { continue };
            let parent = &self.members[parent];
            let (before, costs) = self.costs.split_at_mut(member.costs);
            let n_parent = network.n_labels(parent.variable);
            let costs = &costs[..network.n_labels(member.variable)];
            let link = link.reversed(parent.variable);
            network.add_least_costs(link, costs, &mut before[parent.costs..][..n_parent]);
            self.work += (n_parent * costs.len()) as u64;
        }
    }

    /// Chooses the best labels, parents before their children.
    fn choose_labels(&mut self) {
        let network = self.network;
        for (at, member) in self.members.iter().enumerate() {
            let costs = &mut self.costs[member.costs..][..network.n_labels(member.variable)];
            if let Some((parent, link)) = member.parent {
                let link = link.reversed(self.members[parent].variable);
                network.add_costs(link, self.found[parent], costs);
            }
            let least = costs.iter().copied().min().unwrap_or(0);
            self.found[at] = match self.labels[member.variable] {
                label if costs[label] == least => label,
                _ => costs.iter().position(|it| *it == least).unwrap_or(0),
            };
        }
    }

    /// Returns how much the labels that were found cost more than the present ones, and their
    /// usage.
    fn found_difference(&self) -> (i64, i64) {
        let network = self.network;
        let (mut sum, mut usage_sum) = (0, 0);
        for (at, member) in self.members.iter().enumerate() {
            let (label, found) = (self.labels[member.variable], self.found[at]);
            let start = network.start[member.variable];
            if let Some((parent, link)) = member.parent {
                let parent_label = self.labels[self.members[parent].variable];
                sum += network.entry(link, self.found[parent], found);
                sum -= network.entry(link, parent_label, label);
            }
            if label == found {
                continue;
            }
            sum += network.unary[start + found] - network.unary[start + label];
            usage_sum += self.usage_costs[start + found] - self.usage_costs[start + label];
            for link in network.links(member.variable) {
                if self.tree_of[link.other] != self.n_trees {
                    let other = self.labels[link.other];
                    sum += network.entry(*link, found, other) - network.entry(*link, label, other);
                }
            }
        }
        (sum, usage_sum)
    }

    /// Sets the labels that were found, unless they newly exceed the limit. Returns whether it did.
    fn apply(&mut self, cost: i64) -> bool {
        let was_within = self.is_within_limit();
        self.exchange();
        if was_within && !self.may_exceed && !self.is_within_limit() {
            self.exchange();
            return false;
        }
        self.cost += cost;
        true
    }

    /// Exchanges the present labels and those that were found.
    fn exchange(&mut self) {
        for (found, member) in self.found.iter_mut().zip(&self.members) {
            let label = &mut self.labels[member.variable];
            if *label != *found {
                let usage = |label| self.network.usage(member.variable, label);
                self.peak.add(self.network.spans[member.variable], usage(*found) - usage(*label));
                std::mem::swap(label, found);
            }
        }
    }

    /// Moves the prices after a sweep.
    fn change_prices(&mut self) {
        let profile = self.network.profile(&self.labels);
        self.is_leaving = false;
        self.may_exceed = self.temperature > 0.0;
        self.scale = self.scale.min(self.cost);
        self.temperature *= COOLING;
        if self.temperature < LEAST_TEMPERATURE * self.scale as f64 {
            self.temperature = 0.0;
        }
        if self.is_within_limit() {
            self.lower_prices(&profile);
        } else if self.n_sweeps > N_FIRST_SWEEPS {
            self.raise_prices(&profile);
        }
        self.usage_costs = self.network.usage_costs(&self.prices).0;
    }

    /// Returns the usage that the prices of usage are of: the limit, unless it is 0.
    fn usage_unit(&self) -> f64 {
        self.network.limit.max(1) as f64
    }

    /// Lowers the prices of times with little usage. At the other times, the prices follow the
    /// number of rejected changes.
    fn lower_prices(&mut self, profile: &[i64]) {
        let is_better = self.cost < self.least_cost || self.temperature > 0.0;
        self.n_idle = if is_better { 0 } else { self.n_idle + 1 };
        self.least_cost = self.least_cost.min(self.cost);
        self.step = FIRST_STEP;
        let (factor, unit) =
            (if self.n_rejected > self.n_accepted { 1.05 } else { 0.95 }, self.usage_unit());
        for (price, usage) in self.prices.iter_mut().zip(profile) {
            let part = *usage as f64 / unit;
            *price *= if part > 0.99 { factor } else { (part * 1.5 - 0.55).clamp(0.6, 0.95) };
        }
        if self.n_idle > N_IDLE_SWEEPS {
            (self.n_idle, self.least_cost) = (0, i64::MAX);
            self.is_leaving = true;
            self.leave_limit();
        }
    }

    /// Raises the prices of times with too much usage, in proportion to the excess.
    fn raise_prices(&mut self, profile: &[i64]) {
        let (limit, unit) = (self.network.limit, self.usage_unit());
        let excess = |it: &i64| (it - limit).max(0) as f64 / unit;
        let sum: f64 = profile.iter().map(excess).sum();
        let most = profile.iter().map(excess).fold(0.0, f64::max).min(1.0);
        let sum_of_prices = self.step * self.scale as f64 / unit * (0.1 + most);
        for (price, usage) in self.prices.iter_mut().zip(profile) {
            *price += sum_of_prices * excess(usage) / sum;
        }
        self.step *= STEP_GROWTH;
    }

    /// Lowers the prices and lets labels exceed the limit while they are random.
    fn leave_limit(&mut self) {
        self.prices.iter_mut().for_each(|it| *it *= 0.8);
        self.may_exceed = true;
        let hotter = 1 << self.below(6);
        let temperature = f64::from(hotter) * FIRST_TEMPERATURE * self.scale as f64;
        // A random number of 32 bits makes at most 23 times the mean.
        let most = MOST_COST as f64 / 23.0 / self.network.n_variables() as f64;
        self.temperature = temperature.min(most);
    }
}

/// Returns a random number of 32 bits. Xorshift, Marsaglia 2003.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state >> 32
}

/// Returns a random cost with this mean, exponentially distributed.
#[expect(clippy::cast_possible_truncation, reason = "temperatures are limited")]
fn noise(state: &mut u64, temperature: f64) -> i64 {
    let part = (random(state) + 1) as f64 / (1_u64 << 32) as f64;
    (-part.ln() * temperature) as i64
}

#[expect(clippy::cast_possible_truncation, reason = "costs of usages are limited")]
fn scaled(cost: i64, factor: f64) -> i64 {
    (cost as f64 * factor) as i64
}
