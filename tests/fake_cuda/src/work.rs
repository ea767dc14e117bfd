//! Work items of streams and graphs.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::memory::Memory;
use crate::random::Random;
use crate::status::DeviceError;

/// The state that work can modify.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) memory: Memory,
    pub(crate) random: Random,
    /// Number of kernel launches so far.
    pub(crate) n_launches: u64,
    /// Number of the launch that fails.
    pub(crate) failing_launch: Option<u64>,
    /// Number of the launch that never ends.
    pub(crate) hanging_launch: Option<u64>,
    pub(crate) planted_faults: Vec<PlantedFault>,
}

/// A fault of all kernels whose name contains a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlantedFault {
    pub(crate) kind: FaultKind,
    pub(crate) name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// The kernel never ends.
    Hang,
    /// The first element of each operand is wrong afterwards.
    WrongResults,
    /// The process dies.
    Crash,
}

impl FromStr for PlantedFault {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (kind, name) = text.split_once(' ').ok_or(())?;
        let kind = match kind {
            "hang" => FaultKind::Hang,
            "wrong" => FaultKind::WrongResults,
            "crash" => FaultKind::Crash,
            _ => return Err(()),
        };
        Ok(Self { kind, name: name.to_owned() })
    }
}

/// The action of a task, which may run several times in a graph.
pub(crate) type Job = Arc<dyn Fn(&mut Machine) -> Result<(), DeviceError> + Send + Sync>;

/// Polled condition for work that waits for other ranks.
pub(crate) type Ready = Arc<dyn Fn() -> bool + Send + Sync>;

/// Action at each submission of work.
pub(crate) type OnSubmit = Arc<dyn Fn() + Send + Sync>;

/// A piece of work on one device.
#[derive(Clone)]
pub(crate) struct Task {
    pub(crate) device: usize,
    pub(crate) job: Job,
}

/// An entry of a stream's queue.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Task(Task),
    /// Completes this recording of an event.
    Record {
        event: u64,
        record: u64,
    },
    /// Waits for this recording of an event.
    Wait {
        event: u64,
        record: u64,
    },
    /// Work that starts when several streams have reached it.
    Rendezvous(u64),
    Graph {
        executable: u64,
        graph: Arc<Graph>,
    },
}

/// Tasks with dependencies.
#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
    /// Dependents of each node.
    waiting: Vec<Vec<usize>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) task: Task,
    pub(crate) dependencies: Vec<usize>,
    /// Stream that the node was captured from. Nodes of one stream share its priority.
    pub(crate) stream: u64,
    /// The communication that the node is a part of, if any.
    pub(crate) communication: Option<Communication>,
}

/// Properties of work that belongs to a communicator.
#[derive(Clone)]
pub(crate) struct Communication {
    pub(crate) comm_id: u64,
    /// Returns true if the other ranks are ready, for work that is on one rank's stream.
    pub(crate) is_ready: Option<Ready>,
    /// True if other ranks are in other processes.
    pub(crate) spans_processes: bool,
    /// Called once for each time that the work is submitted: at once, or by each launch of the
    /// graph that captured it.
    pub(crate) on_submit: Option<OnSubmit>,
}

/// A launched graph that has started.
#[derive(Debug)]
pub(crate) struct GraphRun {
    pub(crate) graph: Arc<Graph>,
    pub(crate) executable: u64,
    /// Number of open dependencies of each node.
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

impl Communication {
    /// Describes work among ranks of this process.
    pub(crate) const fn local(comm_id: u64) -> Self {
        Self { comm_id, is_ready: None, spans_processes: false, on_submit: None }
    }

    /// Describes a rank's part of work among ranks of this process.
    pub(crate) fn among_threads(comm_id: u64, is_ready: Ready) -> Self {
        Self { is_ready: Some(is_ready), ..Self::local(comm_id) }
    }

    /// Returns true if the work waits for other processes.
    pub(crate) fn is_shared(&self) -> bool {
        self.spans_processes
    }

    /// Returns true if the ranks that the work waits for are ready.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready.as_ref().is_none_or(|is_ready| is_ready())
    }

    /// Tells the communicator that the work was submitted.
    pub(crate) fn submitted(&self) {
        if let Some(on_submit) = &self.on_submit {
            on_submit();
        }
    }
}

impl fmt::Debug for Communication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "work of communicator {:#x}", self.comm_id)
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

    /// Returns the communications among the nodes, in the order of their capture.
    pub(crate) fn communications(&self) -> impl Iterator<Item = &Communication> {
        self.nodes.iter().filter_map(|node| node.communication.as_ref())
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

    /// Marks a node as complete.
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
