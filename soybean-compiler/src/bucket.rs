//! Buckets: collectives of one kind along the same axes that run as one step.
//!
//! Every collective has a latency, and ranks wait for each other. A bucket has one latency for all
//! of its collectives. There are two ways into a bucket:
//!
//! - A collective that serves updates alone, such as the reduce-scatter of a gradient, waits for
//!   further ones of its class, and the steps that read its result wait with it. Nothing else needs
//!   them before the end of the phase. A bucket is complete when its bytes take [`N_LATENCIES`]
//!   times as long as its latency: then a larger one would save little. All are complete when only
//!   [`N_BEHIND`] heavy steps are left, beside which they can still run.
//! - A collective that other steps wait for stays where it is. It takes later ones of its class
//!   along whose operands are available, such as weights and biases. These delay its readers by one
//!   latency at most, which is what each of them saves.
//!
//! If this makes a phase slower, its collectives stay alone.
//!
//! A class is a kind and a set of axes. Times are those of the machine for which steps were
//! ordered.

mod dependencies;

use std::{borrow::Cow, collections::BTreeMap};

use soybean_plan::{AxisSet, Bucket, CollectiveKind, Kernel, Program, Step, Topology};

use crate::{
    overlap::reordered,
    tiling::number,
    unplaced::{Storage, Unplaced},
};
use dependencies::{Dependencies, dependencies};

/// The number of heavy steps by which the readers of a waiting collective's result come later.
const N_BEHIND: usize = 2;
/// A bucket for updates is complete when its bytes take this many times as long as its latency.
const N_LATENCIES: f64 = 3.0;
/// The same for collectives that have few heavy steps left to run beside.
const N_LATENCIES_AT_END: f64 = 2.0;
/// The most by which buckets may make a phase slower, as predicted. Where few larger messages are
/// as fast, they depend less on latencies.
const MAX_SLOWDOWN: f64 = 1.005;
/// Joins collectives of all phases in buckets.
pub(crate) fn bucket(overlapped: Unplaced) -> Unplaced {
    let Unplaced { program: alone, storage, contents, overlaps_on } = overlapped;
    let topology = overlaps_on.as_ref().expect("steps were ordered for a machine");
    let mut kernels = alone.kernels.to_vec();
    let mut joined = |steps: &[Step]| -> Vec<Step> {
        let order = Queue::new(steps, &alone.kernels, &storage, topology).order();
        order.into_iter().map(|it| joined_step(steps, &it, &mut kernels)).collect()
    };
    let train = alone.train.iter().map(|it| joined(it)).collect();
    let accumulate = joined(&alone.accumulate);
    let evaluate = alone.evaluate.iter().map(|it| joined(it)).collect();
    let (tables, kernels) = (alone.tables.clone(), Cow::Owned(kernels));
    let mut program = Program { tables, kernels, train, accumulate, evaluate };
    // Buckets end later than their collectives, so updates and readers have other turns.
    let chosen = |joined: &[Step], before: &[Step]| -> Vec<Step> {
        let joined = reordered(&program, joined, &storage, topology);
        let least = topology.overlapped_seconds(&alone, before);
        let is_slower = topology.overlapped_seconds(&program, &joined) > MAX_SLOWDOWN * least;
        if is_slower { before.to_vec() } else { joined }
    };
    let training = program.train.iter().zip(&alone.train);
    let train = training.map(|(joined, before)| chosen(joined, before)).collect();
    let accumulate = chosen(&program.accumulate, &alone.accumulate);
    let evaluations = program.evaluate.iter().zip(&alone.evaluate);
    let evaluate = evaluations.map(|(joined, before)| chosen(joined, before)).collect();
    (program.train, program.accumulate, program.evaluate) = (train, accumulate, evaluate);
    Unplaced { program: used_alone(program), storage, contents, overlaps_on }
}

/// Returns several collectives as one step, or a step as it is.
fn joined_step(steps: &[Step], members: &[usize], kernels: &mut Vec<Kernel>) -> Step {
    if let [alone] = members {
        return steps[*alone].clone();
    }
    let steps = || members.iter().map(|&it| &steps[it]);
    let buckets = steps().filter_map(|it| kernels[it.kernel].transfer());
    let collectives = buckets.flat_map(|it| it.collectives.iter().copied()).collect();
    Step {
        kernel: number(kernels, Bucket { collectives }.into()),
        inputs: steps().flat_map(|it| &it.inputs).copied().collect(),
        results: steps().flat_map(|it| &it.results).copied().collect(),
    }
}

/// Returns the program without the kernels that no step runs.
fn used_alone(program: Program) -> Program {
    let Program { tables, kernels, mut train, mut accumulate, mut evaluate } = program;
    let mut numbers: Vec<Option<usize>> = vec![None; kernels.len()];
    train
        .iter()
        .flatten()
        .chain(&accumulate)
        .chain(evaluate.iter().flatten())
        .for_each(|it| numbers[it.kernel] = Some(0));
    let used: Vec<Kernel> =
        kernels.iter().zip(&numbers).filter(|it| it.1.is_some()).map(|it| it.0.clone()).collect();
    numbers.iter_mut().flatten().enumerate().for_each(|(number, it)| *it = number);
    for step in
        train.iter_mut().flatten().chain(&mut accumulate).chain(evaluate.iter_mut().flatten())
    {
        step.kernel = numbers[step.kernel].expect("the kernel of a step is used");
    }
    Program { tables, kernels: Cow::Owned(used), train, accumulate, evaluate }
}

/// A kind and a set of axes: collectives of one class can share a bucket.
type Class = (CollectiveKind, AxisSet);

fn class(bucket: &Bucket) -> Class {
    (bucket.kind(), bucket.axes())
}

/// Returns the bytes that collectives of a class move during their latency, over all ranks.
fn covered_bytes(topology: &Topology, (kind, axes): Class) -> f64 {
    let cost = topology.collective_cost(kind, axes);
    cost.latency_seconds / cost.seconds_per_byte
}

/// The state of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not reached yet.
    Ahead,
    /// It waits for others, or it is in an open bucket.
    Waiting,
    /// It is in the new order, after this many heavy steps.
    Ordered { n_heavy: usize },
}

/// An open bucket.
#[derive(Default)]
struct Open {
    members: Vec<usize>,
    bytes: f64,
}

/// The steps of a phase while they are brought into their new order.
struct Queue<'a> {
    kernels: &'a [Kernel],
    steps: &'a [Step],
    topology: &'a Topology,
    dependencies: Vec<Dependencies>,
    state: Vec<State>,
    /// The steps that share each step of the new order.
    order: Vec<Vec<usize>>,
    n_heavy: usize,
    /// The heavy steps that have not come yet.
    n_left: usize,
    /// The steps that wait for others, in order.
    held: Vec<usize>,
    open: BTreeMap<Class, Open>,
    /// For each class the collectives that may wait and have not come yet.
    n_expected: BTreeMap<Class, usize>,
    /// For each class the collectives that may not wait, in order.
    urgent: BTreeMap<Class, Vec<usize>>,
}

impl<'a> Queue<'a> {
    fn new(
        steps: &'a [Step],
        kernels: &'a [Kernel],
        storage: &[Storage],
        topology: &'a Topology,
    ) -> Self {
        let dependencies = dependencies(steps, kernels, storage);
        let (mut n_expected, mut urgent) = (BTreeMap::new(), BTreeMap::new());
        for (at, step) in steps.iter().enumerate() {
            match kernels[step.kernel].transfer().map(class) {
                Some(class) if dependencies[at].may_wait => {
                    *n_expected.entry(class).or_default() += 1;
                }
                Some(class) => urgent.entry(class).or_insert_with(Vec::new).push(at),
                None => {}
            }
        }
        Self {
            kernels,
            steps,
            topology,
            state: vec![State::Ahead; steps.len()],
            n_left: dependencies.iter().filter(|it| it.is_heavy).count(),
            dependencies,
            order: Vec::with_capacity(steps.len()),
            n_heavy: 0,
            held: Vec::new(),
            open: BTreeMap::new(),
            n_expected,
            urgent,
        }
    }

    /// Returns the steps in their new order; those of one bucket together.
    fn order(mut self) -> Vec<Vec<usize>> {
        for at in 0..self.steps.len() {
            if self.state[at] == State::Ahead {
                self.reach(at);
            }
        }
        self.drain();
        self.order
    }

    fn transfer(&self, at: usize) -> Option<&'a Bucket> {
        self.kernels[self.steps[at].kernel].transfer()
    }

    /// Brings a step into the order, or lets it wait. All that it needs has been reached.
    fn reach(&mut self, at: usize) {
        let may_wait = self.dependencies[at].may_wait;
        if may_wait && self.waits(at) {
            self.state[at] = State::Waiting;
            self.held.push(at);
            return;
        }
        if self.is_blocked(at) {
            self.drain();
        }
        match self.transfer(at) {
            Some(bucket) if may_wait => self.gather(at, bucket),
            Some(bucket) => self.run_with_others(at, bucket),
            None => self.run(vec![at]),
        }
        if self.dependencies[at].is_heavy {
            self.n_heavy += 1;
            self.n_left -= 1;
            if self.n_left == N_BEHIND {
                self.close();
            }
            self.release();
        }
    }

    /// Returns true if a step needs one that waits.
    fn is_blocked(&self, at: usize) -> bool {
        self.dependencies[at].needs.iter().any(|&it| self.state[it] == State::Waiting)
    }

    /// Returns true if a step needs one that waits, or a collective that has had no time to run
    /// beside heavy steps.
    fn waits(&self, at: usize) -> bool {
        let is_under_way = |it: usize| match self.state[it] {
            State::Ordered { n_heavy } => {
                self.transfer(it).is_some() && self.n_heavy < n_heavy + N_BEHIND
            }
            State::Ahead | State::Waiting => false,
        };
        self.is_blocked(at) || self.dependencies[at].needs.iter().any(|&it| is_under_way(it))
    }

    fn run(&mut self, members: Vec<usize>) {
        members.iter().for_each(|&it| self.state[it] = State::Ordered { n_heavy: self.n_heavy });
        self.order.push(members);
    }

    /// Reaches the waiting steps once more.
    fn release(&mut self) {
        std::mem::take(&mut self.held).into_iter().for_each(|it| self.reach(it));
    }

    /// Runs all open buckets.
    fn close(&mut self) {
        std::mem::take(&mut self.open).into_values().for_each(|it| self.run(it.members));
    }

    /// Brings all waiting steps into the order.
    fn drain(&mut self) {
        while !(self.open.is_empty() && self.held.is_empty()) {
            self.close();
            // No heavy step is left for collectives to run beside.
            self.n_heavy += N_BEHIND;
            self.release();
        }
    }

    /// Puts a collective that may wait into the open bucket of its class.
    fn gather(&mut self, at: usize, bucket: &Bucket) {
        let class = class(bucket);
        self.state[at] = State::Waiting;
        let open = self.open.entry(class).or_default();
        open.members.push(at);
        open.bytes += bucket.bytes(&self.topology.mesh()) as f64;
        let n_latencies = if self.n_left > N_BEHIND { N_LATENCIES } else { N_LATENCIES_AT_END };
        let is_full = open.bytes >= n_latencies * covered_bytes(self.topology, class);
        let n_expected = self.n_expected.get_mut(&class).expect("counted at the start");
        *n_expected -= 1;
        if (is_full || *n_expected == 0)
            && let Some(open) = self.open.remove(&class)
        {
            self.run(open.members);
        }
    }

    /// Runs a collective that may not wait, with later ones of its class that are ready.
    fn run_with_others(&mut self, at: usize, bucket: &Bucket) {
        let class = class(bucket);
        let mut free = covered_bytes(self.topology, class);
        let mut members = vec![at];
        // Marked before others are looked at, which must not need it.
        self.state[at] = State::Waiting;
        let later = self.urgent.get(&class).map_or(&[][..], |it| &it[..]);
        let later = later[later.partition_point(|&it| it <= at)..].to_vec();
        for other in later.into_iter().filter(|&it| it > at) {
            let bytes =
                self.transfer(other).map_or(0.0, |it| it.bytes(&self.topology.mesh()) as f64);
            if self.state[other] != State::Ahead || bytes > free {
                continue;
            }
            let Some(before) = self.makers(other, free) else { continue };
            before.into_iter().for_each(|it| self.run(vec![it]));
            self.state[other] = State::Waiting;
            members.push(other);
            free -= bytes;
        }
        self.run(members);
    }

    /// Returns the steps that a collective still needs, in order, if they are small and serve it
    /// alone; none if it needs others.
    fn makers(&self, at: usize, most_bytes: f64) -> Option<Vec<usize>> {
        let mut makers = Vec::new();
        let mut open = vec![at];
        let mut n_bytes = 0.0;
        while let Some(at) = open.pop() {
            for &needed in &self.dependencies[at].needs {
                match self.state[needed] {
                    State::Ordered { .. } => continue,
                    State::Waiting => return None,
                    State::Ahead => {}
                }
                let Dependencies { is_heavy, n_readers, bytes, .. } = self.dependencies[needed];
                n_bytes += bytes as f64 * self.topology.mesh().n_ranks() as f64;
                if is_heavy
                    || n_readers > 1
                    || self.transfer(needed).is_some()
                    || n_bytes > most_bytes
                {
                    return None;
                }
                makers.push(needed);
                open.push(needed);
            }
        }
        makers.sort_unstable();
        makers.dedup();
        Some(makers)
    }
}
