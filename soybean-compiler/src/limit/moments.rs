//! What memory holds at least while each heavy operator of a training step runs.
//!
//! Heavy operators keep their order whatever the tilings are; light ones may move by one of them to let collectives run beside products
//! ([`crate::overlap`]). So a tensor surely lies in memory, as it is stored, from the heavy operator behind it to two before its last reader. What
//! only serves updates may wait longer, and is left out. The operands and the result of the heavy operator itself are there in the tilings of its form.

use std::collections::{BTreeMap, BTreeSet};

use soybean_plan::{Mesh, Placement, Tiling};

use crate::{
    graph::{Graph, Source, Value},
    network::Network,
    operator::Operator,
    schedule::{self, Task},
    tiling::{Charges, Tiled, Working},
};

/// The moments of a training step.
pub(super) struct Moments<'a> {
    network: &'a Network,
    /// The heavy operators, in order; none stands for the moment of a network that has none.
    users: Vec<Option<Value>>,
    /// For each tensor the first and the last moment at which it surely lies in memory as it is stored, if there are any.
    lives: Vec<Option<(usize, usize)>>,
}

impl<'a> Moments<'a> {
    pub(super) fn new(network: &'a Network) -> Self {
        let tasks = schedule::train(network);
        let order = Order::new(network, &tasks);
        let mut this = Self { network, users: order.users(), lives: Vec::new() };
        this.lives = vec![None; network.graph.n_values()];
        let is_next: BTreeSet<Value> = network.updates.iter().map(|&(_, next)| next).collect();
        let serving = serving_updates(network, &is_next);
        let last_moment = this.users.len() - 1;
        // Tensors that are one memory in several shapes count once at a time.
        let mut end_of: BTreeMap<Value, usize> = BTreeMap::new();
        for value in network.graph.values().filter(|it| !is_next.contains(it)) {
            if !matches!(network.graph.node(value).source, Source::Operator(_)) {
                this.lives[value.index()] = Some((0, last_moment));
                end_of.insert(value, last_moment + 1);
                continue;
            }
            let Some((first, end)) = order.life(&network.graph, value) else { continue };
            if serving[value.index()] {
                continue;
            }
            let end_before = end_of.entry(network.graph.memory_of(value)).or_default();
            let first = first.max(*end_before);
            if first < end {
                *end_before = end;
                this.lives[value.index()] = Some((first, end - 1));
            }
        }
        this
    }

    /// The number of moments.
    pub(super) fn len(&self) -> usize {
        self.users.len()
    }

    /// The bytes that a rank of this plan holds at least, at each moment.
    pub(super) fn bytes(&self, tiled: &Tiled) -> Vec<u64> {
        let mut changes = vec![0_i64; self.len() + 1];
        for value in self.network.graph.values() {
            if let Some((first, last)) = self.lives[value.index()] {
                let bytes = self.local(value, tiled.tilings[value.index()], &tiled.mesh);
                changes[first] += bytes.cast_signed();
                changes[last + 1] -= bytes.cast_signed();
            }
        }
        let mut held = 0;
        let mut at_moment = Vec::with_capacity(self.len());
        for (moment, change) in changes[..self.len()].iter().enumerate() {
            held += change;
            at_moment.push(held.cast_unsigned() + self.bytes_of_user(moment, tiled));
        }
        at_moment
    }

    /// What the heavy operator of a moment holds besides stored tensors.
    fn bytes_of_user(&self, moment: usize, tiled: &Tiled) -> u64 {
        let Some(user) = self.users[moment] else { return 0 };
        let (signature, form) = tiled.signature(user);
        let operands = self.network.graph.operands(user);
        let of_operand = |&(position, role): &(usize, Role)| {
            let value = operands[position];
            let tiling = signature.operand_tiling(position, form);
            match role {
                Role::Stored if tiling == tiled.tilings[value.index()] => 0,
                Role::Stored | Role::Fresh => self.local(value, tiling, &tiled.mesh),
            }
        };
        let result = self.local(user, signature.result_tiling(form), &tiled.mesh);
        self.roles(moment, &operands).iter().map(of_operand).sum::<u64>() + result
    }

    /// The operands of a moment's operator that are known to take memory of their own, with what is known.
    fn roles(&self, moment: usize, operands: &[Value]) -> Vec<(usize, Role)> {
        let graph = &self.network.graph;
        let lives = |value: Value| {
            self.lives[value.index()].is_some_and(|(first, last)| (first..=last).contains(&moment))
        };
        let mut seen = BTreeSet::new();
        let mut roles = Vec::new();
        for (position, &value) in operands.iter().enumerate() {
            let memory = graph.memory_of(value);
            if !seen.insert(memory) {
                continue;
            }
            let is_another_shape_there = || {
                graph.values().any(|it| it != value && graph.memory_of(it) == memory && lives(it))
            };
            if lives(value) {
                roles.push((position, Role::Stored));
            } else if !is_another_shape_there() {
                roles.push((position, Role::Fresh));
            }
        }
        roles
    }

    fn local(&self, value: Value, tiling: Tiling, mesh: &Mesh) -> u64 {
        let node = self.network.graph.node(value);
        let split = tiling.axes_where(|it| matches!(it, Placement::Split(_)));
        (node.shape.n_elements() * node.dtype.bytes() / mesh.group_size(split)) as u64
    }

    /// What memory costs where a byte at these moments has these prices, in bytes moved.
    pub(super) fn charges(&self, prices: &BTreeMap<usize, f64>) -> Charges {
        let of_life = |life: &Option<(usize, usize)>| match *life {
            Some((first, last)) => prices.range(first..=last).map(|(_, price)| price).sum(),
            None => 0.0,
        };
        let mut charges =
            Charges { stored: self.lives.iter().map(of_life).collect(), working: BTreeMap::new() };
        for (&moment, &price) in prices.iter().filter(|it| *it.1 > 0.0) {
            let Some(user) = self.users[moment] else { continue };
            let roles = self.roles(moment, &self.network.graph.operands(user));
            let of_role =
                |wanted: Role| roles.iter().filter(|it| it.1 == wanted).map(|it| it.0).collect();
            let working =
                Working { price, fresh: of_role(Role::Fresh), stored: of_role(Role::Stored) };
            charges.working.insert(user, working);
        }
        charges
    }
}

/// What is known of an operand's memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It is counted as it is stored; in another tiling it takes more.
    Stored,
    /// It is not counted otherwise.
    Fresh,
}

/// When each tensor is made and read: the number of heavy operators before.
struct Order {
    heavy: Vec<Value>,
    made: BTreeMap<Value, usize>,
    /// For tensors that are computed, and for those that take a new value, when.
    runs: BTreeMap<Value, usize>,
}

impl Order {
    fn new(network: &Network, tasks: &[Task]) -> Self {
        let mut this = Self { heavy: Vec::new(), made: BTreeMap::new(), runs: BTreeMap::new() };
        for task in tasks {
            let n_before = this.heavy.len();
            match task {
                Task::Compute(value) => {
                    this.runs.insert(*value, n_before);
                    if is_heavy(&network.graph, *value) {
                        this.heavy.push(*value);
                    }
                    this.made.insert(*value, this.heavy.len());
                }
                Task::Update(updates) => {
                    this.runs.extend(updates.iter().map(|&(_, next)| (next, n_before)));
                }
            }
        }
        this
    }

    fn users(&self) -> Vec<Option<Value>> {
        match &self.heavy[..] {
            [] => vec![None],
            heavy => heavy.iter().copied().map(Some).collect(),
        }
    }

    /// The first moment at which a computed tensor is there, and the first at which it need not be there any more.
    fn life(&self, graph: &Graph, value: Value) -> Option<(usize, usize)> {
        let read = graph.users(value).iter().filter_map(|it| self.runs.get(it)).copied().max()?;
        let first = *self.made.get(&value)?;
        // One moment of a reader is behind it, and a collective before it may come one sooner.
        let end = read.checked_sub(1)?;
        (first < end).then_some((first, end))
    }
}

fn is_heavy(graph: &Graph, value: Value) -> bool {
    matches!(
        graph.operator(value),
        Some(Operator::Contract(_) | Operator::Convolve(_) | Operator::Attend(_))
    )
}

/// The tensors that only serve updates.
fn serving_updates(network: &Network, is_next: &BTreeSet<Value>) -> Vec<bool> {
    let graph = &network.graph;
    let is_trained = network.trained();
    let mut serving = vec![false; graph.n_values()];
    for value in graph.values().rev() {
        let users = graph.users(value);
        let mut trained = users.iter().filter(|it| is_trained[it.index()]);
        let serves = |it: &Value| serving[it.index()] || is_next.contains(it);
        serving[value.index()] = trained.all(serves) && value != network.loss;
    }
    serving
}
