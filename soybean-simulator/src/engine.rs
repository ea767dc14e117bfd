//! The event loop of the simulation. Tasks begin when their lane is free and their predecessors
//! have ended. They end when their kernel's time is over or their transfers have arrived.

mod flows;

use std::{
    cmp::{Ordering, Reverse},
    collections::{BTreeSet, BinaryHeap},
};

use soybean_plan::{Lane, Mesh, Schedule};

use crate::{
    links::{Links, Route},
    settings::Lanes,
    task::{Action, Task},
    transfers::Transfer,
};
use flows::Flows;

/// The record of a simulation.
pub(crate) struct Outcome {
    /// For each task and each rank its start and end, in seconds.
    pub(crate) spans: Vec<Vec<[f64; 2]>>,
    /// For each link the time with at least one transfer.
    pub(crate) busy: Vec<f64>,
    /// For each link the bytes that it carried.
    pub(crate) bytes: Vec<u64>,
    /// For each level the bytes of the transfers that cross it.
    pub(crate) bytes_per_level: Vec<u64>,
}

/// An event whose time is known in advance.
#[derive(Clone, Copy, PartialEq)]
struct Event {
    seconds: f64,
    kind: EventKind,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum EventKind {
    /// The end of a kernel.
    End { node: usize },
    /// The arrival of a transfer's first byte.
    Arrive { node: usize, transfer: usize },
}

impl Eq for Event {}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        self.seconds.total_cmp(&other.seconds).then(self.kind.cmp(&other.kind))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A task of one rank: number `task * n_ranks + rank`.
#[derive(Clone, Default)]
struct Node {
    /// The number of nodes that must end before it begins.
    n_awaited: usize,
    /// The number of transfers that have not arrived, of its own and of the nodes that end with it.
    n_open: usize,
    /// The nodes that wait for it.
    awaited_by: Vec<usize>,
    span: [f64; 2],
}

struct Engine<'a> {
    tasks: &'a [Task],
    mesh: &'a Mesh,
    n_ranks: usize,
    links: &'a Links,
    nodes: Vec<Node>,
    events: BinaryHeap<Reverse<Event>>,
    flows: Flows<'a>,
    bytes_per_level: Vec<u64>,
}

/// Simulates all tasks on all ranks.
pub(crate) fn run(
    tasks: &[Task],
    schedule: &Schedule,
    mesh: &Mesh,
    links: &Links,
    lanes: Lanes,
) -> Outcome {
    let mut engine = Engine {
        tasks,
        mesh,
        n_ranks: mesh.n_ranks(),
        links,
        nodes: nodes(tasks, schedule, mesh, lanes),
        events: BinaryHeap::new(),
        flows: Flows::new(links),
        bytes_per_level: vec![0; links.n_levels()],
    };
    let ready = |it: &usize| engine.nodes[*it].n_awaited == 0;
    let ready: Vec<usize> = (0..engine.nodes.len()).filter(ready).collect();
    ready.into_iter().for_each(|it| engine.begin(it, 0.0));
    while let Some(seconds) = engine.next() {
        engine.advance(seconds);
    }
    debug_assert!(engine.nodes.iter().all(|it| it.n_awaited == 0 && it.n_open == 0));
    let spans: Vec<_> = engine.nodes.iter().map(|it| it.span).collect();
    Outcome {
        spans: spans.chunks(engine.n_ranks).map(<[_]>::to_vec).collect(),
        busy: engine.flows.busy,
        bytes: engine.flows.bytes,
        bytes_per_level: engine.bytes_per_level,
    }
}

/// Returns the tasks of all ranks with their predecessors: the rank's previous task in the same
/// lane, and those of the schedule. Ranks that begin a task together have the same predecessors.
fn nodes(tasks: &[Task], schedule: &Schedule, mesh: &Mesh, lanes: Lanes) -> Vec<Node> {
    let n_ranks = mesh.n_ranks();
    let mut nodes = vec![Node::default(); tasks.len() * n_ranks];
    let mut previous: [Option<usize>; 2] = [None; 2];
    for (number, task) in tasks.iter().enumerate() {
        let lane = match lanes {
            Lanes::Two => task.lane,
            Lanes::One => Lane::Compute,
        };
        let before = previous[lane as usize].replace(number);
        let awaited = |rank: usize| {
            let own = before.map(|it| it * n_ranks + rank);
            let others = schedule.waits[number].iter().flat_map(move |wait| {
                let group = mesh.group(rank, wait.axes);
                group.into_iter().map(move |it| wait.task * n_ranks + it)
            });
            own.into_iter().chain(others)
        };
        for rank in 0..n_ranks {
            let node = number * n_ranks + rank;
            let members = mesh.group(rank, task.joint());
            let awaited: BTreeSet<usize> = members.into_iter().flat_map(awaited).collect();
            nodes[node].n_awaited = awaited.len();
            awaited.into_iter().for_each(|it| nodes[it].awaited_by.push(node));
        }
    }
    nodes
}

impl Engine<'_> {
    fn transfers(&self, node: usize) -> &[Transfer] {
        match &self.tasks[node / self.n_ranks].action {
            Action::Compute(_) | Action::Measured(..) => &[],
            Action::Exchange(part) => &part.taken[node % self.n_ranks],
        }
    }

    /// Returns the nodes that end together with this one, including itself.
    fn members(&self, node: usize) -> Vec<usize> {
        let (task, rank) = (node / self.n_ranks, node % self.n_ranks);
        let group = self.mesh.group(rank, self.tasks[task].joint());
        group.into_iter().map(|it| task * self.n_ranks + it).collect()
    }

    fn route(&self, node: usize, transfer: Transfer) -> Route {
        self.links.route(transfer.source, node % self.n_ranks)
    }

    fn begin(&mut self, node: usize, now: f64) {
        self.nodes[node].span[0] = now;
        let (seconds, n_hops) = match &self.tasks[node / self.n_ranks].action {
            Action::Compute(seconds) | Action::Measured(seconds, _) => (*seconds, 0.0),
            Action::Exchange(part) => (0.0, part.n_hops as f64),
        };
        self.nodes[node].n_open =
            self.members(node).into_iter().map(|it| self.transfers(it).len()).sum();
        for (number, transfer) in self.transfers(node).to_vec().into_iter().enumerate() {
            let route = self.route(node, transfer);
            self.bytes_per_level[route.level] += transfer.bytes;
            let seconds = now + n_hops * self.links.latency(&route);
            let kind = EventKind::Arrive { node, transfer: number };
            self.events.push(Reverse(Event { seconds, kind }));
        }
        if self.nodes[node].n_open == 0 {
            let (seconds, kind) = (now + seconds, EventKind::End { node });
            self.events.push(Reverse(Event { seconds, kind }));
        }
    }

    fn end(&mut self, node: usize, now: f64) {
        self.nodes[node].span[1] = now;
        for next in std::mem::take(&mut self.nodes[node].awaited_by) {
            self.nodes[next].n_awaited -= 1;
            if self.nodes[next].n_awaited == 0 {
                self.begin(next, now);
            }
        }
    }

    /// Returns the time of the next event.
    fn next(&self) -> Option<f64> {
        let known = self.events.peek().map(|it| it.0.seconds);
        match (known, self.flows.next_end()) {
            (Some(known), Some(end)) => Some(known.min(end)),
            (known, end) => known.or(end),
        }
    }

    /// Processes the events of this time.
    fn advance(&mut self, now: f64) {
        let finished = self.flows.finished(now);
        for node in finished.into_iter().flat_map(|it| self.members(it)).collect::<Vec<_>>() {
            self.nodes[node].n_open -= 1;
            if self.nodes[node].n_open == 0 {
                self.end(node, now);
            }
        }
        while let Some(&Reverse(event)) = self.events.peek()
            && event.seconds <= now
        {
            self.events.pop();
            match event.kind {
                EventKind::End { node } => self.end(node, now),
                EventKind::Arrive { node, transfer } => {
                    let transfer = self.transfers(node)[transfer];
                    let route = self.route(node, transfer);
                    self.flows.add(node, route.links, transfer.bytes, now);
                }
            }
        }
        self.flows.share(now);
    }
}
