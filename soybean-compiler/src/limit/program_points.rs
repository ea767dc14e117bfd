//! Lower bounds on memory at each program point, as sums over tensors and operators.
//!
//! A program point is a task with a kernel, in the order that needs the least memory
//! ([`crate::overlap::Order::Lean`]). A tensor that is live across it is in memory as it is stored.
//! The kernel's operands and result are in the tilings of its partitioning. Not counted are buffers
//! within an operand's conversion, halos, updates, and gaps between buffers, so programs hold a
//! little more.

use std::{collections::BTreeMap, ops::Range};

use soybean_plan::{Mesh, Placement, Tiling};

use crate::{
    graph::{Graph, Source},
    network::Network,
    operator::Operator,
    operator::Phase,
    operators::{attend::Attend, combines_terms, elementwise::Elementwise},
    order::{self, Task},
    tiling::{KernelMultiplier, MemoryMultipliers, TiledNetwork},
    value::Value,
};

/// The program points of a training step, or in inference of a prediction.
pub(super) struct ProgramPoints<'a> {
    network: &'a Network,
    points: Vec<ProgramPoint>,
    /// For each tensor, the points across which it is live as stored.
    lives: Vec<Range<usize>>,
}

/// A kernel, and the operands that it holds.
struct ProgramPoint {
    user: Value,
    /// The operands that take memory whatever their stored tiling is: nothing reads them later.
    fresh: Vec<usize>,
    /// The operands that take memory of their own if their stored tiling is another one: something
    /// reads them later.
    stored: Vec<usize>,
}

impl<'a> ProgramPoints<'a> {
    pub(super) fn new(network: &'a Network) -> Self {
        let times = TaskTimes::new(network);
        let graph = &network.graph;
        let has_kernel = |value: Value| {
            graph.operator(value).is_some_and(|operator| !operator.is_alias())
                && Attend::computed_with(graph, value).is_none()
        };
        let users: Vec<(usize, Value)> =
            times.computed.iter().copied().filter(|it| has_kernel(it.1)).collect();
        let lives = lives(network, &times, &users);
        let mut classes: BTreeMap<Value, Vec<Value>> = BTreeMap::new();
        graph.values().for_each(|it| classes.entry(graph.memory_of(it)).or_default().push(it));
        let point = |(at, &(_, user)): (usize, &(usize, Value))| {
            let lives = |value: Value| lives[value.index()].contains(&at);
            point(graph, user, &classes, lives)
        };
        let points = users.iter().enumerate().map(point).collect();
        Self { network, points, lives }
    }

    /// Returns the number of points.
    pub(super) fn len(&self) -> usize {
        self.points.len()
    }

    /// Returns a lower bound on the bytes that a rank of this plan holds at each point.
    pub(super) fn bytes(&self, tiled: &TiledNetwork) -> Vec<u64> {
        let mut changes = vec![0_i64; self.len() + 1];
        for value in self.network.graph.values() {
            let Range { start, end } = self.lives[value.index()];
            if start < end && !self.is_idle_replica(value, tiled) {
                let bytes = self.local(value, tiled.tilings[value.index()], &tiled.mesh);
                changes[start] += bytes.cast_signed();
                changes[end] -= bytes.cast_signed();
            }
        }
        let mut held = 0;
        let mut at_moment = Vec::with_capacity(self.len());
        for (point, change) in self.points.iter().zip(changes) {
            held += change;
            at_moment.push(held.cast_unsigned() + self.bytes_of_kernel(point, tiled));
        }
        at_moment
    }

    /// Returns whether a replica has the tiling of its tensor, and so shares its memory.
    fn is_idle_replica(&self, value: Value, tiled: &TiledNetwork) -> bool {
        let graph = &self.network.graph;
        let source = || graph.operands(value)[0];
        graph.is_replica(value) && tiled.tilings[value.index()] == tiled.tilings[source().index()]
    }

    /// Returns the bytes that the kernel of a point holds in addition to stored tensors.
    fn bytes_of_kernel(&self, point: &ProgramPoint, tiled: &TiledNetwork) -> u64 {
        let (signature, partitioning) = tiled.signature(point.user);
        let operands = self.network.graph.operands(point.user);
        let in_form = |position: usize| {
            let tiling = signature.operand_tiling(position, partitioning);
            (tiling, self.local(operands[position], tiling, &tiled.mesh))
        };
        let fresh: u64 = point.fresh.iter().map(|&it| in_form(it).1).sum();
        let other = |&position: &usize| {
            let (tiling, bytes) = in_form(position);
            (tiling != tiled.tilings[operands[position].index()]).then_some(bytes)
        };
        let stored: u64 = point.stored.iter().filter_map(other).sum();
        fresh + stored + self.local(point.user, signature.result_tiling(partitioning), &tiled.mesh)
    }

    fn local(&self, value: Value, tiling: Tiling, mesh: &Mesh) -> u64 {
        let node = self.network.graph.node(value);
        let split = tiling.axes_where(|it| matches!(it, Placement::Split(_)));
        (node.shape.n_elements() * node.dtype.bytes() / mesh.group_size(split)) as u64
    }

    /// Returns the multipliers of tensors and kernels for these prices of a byte at some points.
    pub(super) fn multipliers(&self, prices: &BTreeMap<usize, f64>) -> MemoryMultipliers {
        let of_life = |life: &Range<usize>| prices.range(life.clone()).map(|(_, it)| it).sum();
        let working = |(&point, &price): (&usize, &f64)| {
            let ProgramPoint { user, fresh, stored } = self.points.get(point)?;
            Some((*user, KernelMultiplier { price, fresh: fresh.clone(), stored: stored.clone() }))
        };
        MemoryMultipliers {
            stored: self.lives.iter().map(of_life).collect(),
            kernels: prices.iter().filter_map(working).collect(),
        }
    }
}

/// Classifies a kernel's operands by their memory. Of several operands in the same memory, one
/// counts.
fn point(
    graph: &Graph,
    user: Value,
    classes: &BTreeMap<Value, Vec<Value>>,
    lives: impl Fn(Value) -> bool,
) -> ProgramPoint {
    let mut point = ProgramPoint { user, fresh: Vec::new(), stored: Vec::new() };
    // A map may write its result over an operand that has all its dims.
    let is_map = |it: &Operator| it.is::<Elementwise>() || combines_terms(it);
    let mut may_overwrite = graph.operator(user).is_some_and(is_map);
    let mut seen: Vec<Value> = Vec::new();
    for (position, value) in graph.operands(user).into_iter().enumerate() {
        let memory = graph.memory_of(value);
        if seen.contains(&memory) {
            continue;
        }
        seen.push(memory);
        if lives(value) {
            point.stored.push(position);
        } else if graph.is_replica(value) || classes[&memory].iter().any(|&it| lives(it)) {
            continue;
        } else if may_overwrite && graph.shape(value) == graph.shape(user) {
            may_overwrite = false;
        } else {
            point.fresh.push(position);
        }
    }
    point
}

/// Returns for each tensor the points strictly between the task that computes it and the last that
/// reads it. Tensors that share memory in several shapes count one after another.
fn lives(network: &Network, times: &TaskTimes, users: &[(usize, Value)]) -> Vec<Range<usize>> {
    let graph = &network.graph;
    let mut lives = vec![0..0; graph.n_values()];
    let mut ends: BTreeMap<Value, usize> = BTreeMap::new();
    for value in graph.values() {
        let end = ends.entry(graph.memory_of(value)).or_default();
        let (first, last) = match graph.node(value).source {
            Source::Operator(_) => {
                let Some((made, read)) = times.life(graph, value) else { continue };
                let first = users.partition_point(|it| it.0 <= made);
                // A replica mostly shares the memory of another tensor, and does not count among
                // the operands of its last reader.
                let is_before =
                    |it: &(usize, Value)| it.0 < read + usize::from(graph.is_replica(value));
                (first, users.partition_point(is_before))
            }
            Source::Input { .. } | Source::Parameter(_) | Source::Buffer(_) | Source::State => {
                (0, users.len())
            }
        };
        let first = first.max(*end);
        if first < last {
            *end = last;
            lives[value.index()] = first..last;
        }
    }
    lives
}

/// The times of the tasks of the measured computation.
struct TaskTimes {
    /// The computed tensors with their times, in order.
    computed: Vec<(usize, Value)>,
    /// The times of all tasks by the values that they give, including next values.
    of: BTreeMap<Value, usize>,
}

impl TaskTimes {
    fn new(network: &Network) -> Self {
        let mut this = Self { computed: Vec::new(), of: BTreeMap::new() };
        for (time, task) in order::measured(network).iter().enumerate() {
            match task {
                Task::Compute(value) => {
                    this.computed.push((time, *value));
                    this.of.insert(*value, time);
                }
                Task::Update(update) => {
                    this.of.extend(update.next.iter().map(|it| (it.1, time)));
                }
            }
        }
        this
    }

    /// Returns when a computed tensor is computed and when it is last read; `None` if no task of
    /// its own computes it, or nothing reads it.
    fn life(&self, graph: &Graph, value: Value) -> Option<(usize, usize)> {
        let made = self.computed.binary_search_by_key(self.of.get(&value)?, |it| it.0).ok()?;
        let reads = |user: &Value| graph.operands_in(*user, Phase::Train(0)).contains(&value);
        let users = graph.users(value);
        let times = users.iter().filter(|it| reads(it)).filter_map(|it| self.of.get(it));
        Some((self.computed[made].0, *times.max()?))
    }
}
