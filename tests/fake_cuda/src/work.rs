//! What streams and graphs are made of.

use std::fmt;
use std::sync::Arc;

use crate::memory::Memory;
use crate::random::Random;
use crate::status::DeviceError;

/// What work can change_interval.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) memory: Memory,
    pub(crate) random: Random,
    /// Kernels that have begun, for the fault that names one by its number.
    pub(crate) n_launches: u64,
    /// The launch that fails.
    pub(crate) failing_launch: Option<u64>,
}

/// Runs once for each launch of its graph, or once.
pub(crate) type Job = Arc<dyn Fn(&mut Machine) -> Result<(), DeviceError> + Send + Sync>;

/// Asks again and again whether work can run that waits for other processes.
pub(crate) type Ready = Arc<dyn Fn() -> bool + Send + Sync>;

/// A piece of work of one device.
#[derive(Clone)]
pub(crate) struct Task {
    pub(crate) device: usize,
    pub(crate) job: Job,
}

/// An entry of a stream's queue.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Task(Task),
    /// The event has completed as it was recorded by that record.
    Record {
        event: u64,
        record: u64,
    },
    /// Nothing goes on until the event has completed as that record recorded it.
    Wait {
        event: u64,
        record: u64,
    },
    /// Work that several streams do together once all have come to it.
    Rendezvous(u64),
    Graph {
        executable: u64,
        graph: Arc<Graph>,
    },
}

/// Tasks, each with those that it waits for.
#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
    /// For each node, those that wait for it.
    waiting: Vec<Vec<usize>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) task: Task,
    pub(crate) dependencies: Vec<usize>,
    /// The stream that it was captured from: work of one stream tends to run at one speed.
    pub(crate) stream: u64,
}

/// A launch of a graph that has begun.
#[derive(Debug)]
pub(crate) struct GraphRun {
    pub(crate) graph: Arc<Graph>,
    pub(crate) executable: u64,
    /// For each node, how many of its dependencies have not run.
    missing: Vec<usize>,
    pub(crate) ready: Vec<usize>,
    left: usize,
}

impl Task {
    pub(crate) fn new(
        device: usize,
        job: impl Fn(&mut Machine) -> Result<(), DeviceError> + Send + Sync + 'static,
    ) -> Self {
        Self { device, job: Arc::new(job) }
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Task on device {}", self.device)
    }
}

impl Graph {
    pub(crate) fn new(nodes: Vec<Node>) -> Self {
        let mut waiting = vec![Vec::new(); nodes.len()];
        for (number, node) in nodes.iter().enumerate() {
            for &dependency in &node.dependencies {
                waiting[dependency].push(number);
            }
        }
        Self { nodes, waiting }
    }
}

impl GraphRun {
    pub(crate) fn new(executable: u64, graph: Arc<Graph>) -> Self {
        let missing: Vec<usize> = graph.nodes.iter().map(|node| node.dependencies.len()).collect();
        let ready = (0..missing.len()).filter(|&node| missing[node] == 0).collect();
        Self { executable, ready, left: missing.len(), missing, graph }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.left == 0
    }

    /// Notes that a ready node has run.
    pub(crate) fn finish(&mut self, done: usize) {
        self.left -= 1;
        self.ready.retain(|&node| node != done);
        for &waiting in &self.graph.waiting[done] {
            self.missing[waiting] -= 1;
            if self.missing[waiting] == 0 {
                self.ready.push(waiting);
            }
        }
    }
}
