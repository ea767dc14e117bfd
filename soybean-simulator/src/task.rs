//! The steps of a program as tasks: their accesses of memory, and the times of kernels or the
//! transfers of collectives.

use std::ops::Range;

use soybean_plan::{
    Access, AxisSet, Bucket, BufferId, Kernel, Lane, Program, Schedule, Step, Topology,
};

use crate::{
    settings::Transport,
    transfers::{self, Part},
};

/// A step of the program, which each rank performs at its own time.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    /// The kind of kernel and its number.
    pub(crate) name: String,
    /// The first buffer that it writes.
    pub(crate) buffer: Option<BufferId>,
    pub(crate) lane: Lane,
    pub(crate) action: Action,
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// A kernel that takes these seconds.
    Compute(f64),
    /// The transfers of a bucket.
    Exchange(Part),
    /// A collective that takes these seconds on the ranks that differ along some axes.
    Measured(f64, AxisSet),
}

impl Task {
    /// Returns the axes along which ranks begin and end together.
    pub(crate) fn joint(&self) -> AxisSet {
        match &self.action {
            Action::Compute(_) => AxisSet::EMPTY,
            Action::Exchange(part) => part.joint,
            Action::Measured(_, axes) => *axes,
        }
    }
}

/// Returns the tasks of some steps in their order, with their schedule. A collective that was
/// measured on the cluster takes its measured time instead of that of its transfers.
pub(crate) fn tasks(
    program: &Program,
    steps: &[Step],
    transport: Transport,
    topology: &Topology,
) -> (Vec<Task>, Schedule) {
    let mut queue = Queue { program, tasks: Vec::new(), accesses: Vec::new() };
    for step in steps {
        let Some(bucket) = program.kernels[step.kernel].transfer() else {
            queue.compute(step, topology.step_seconds(program, step));
            continue;
        };
        match (topology.measured(bucket.kind(), bucket.axes()), transport) {
            (Some(_), _) => {
                let seconds = topology.step_seconds(program, step);
                queue.joint(step, Action::Measured(seconds, bucket.axes()));
            }
            (None, Transport::Direct) => queue.exchange(step, bucket),
            (None, Transport::Rings) => {
                for part in transfers::in_rings(bucket, &program.tables.mesh) {
                    queue.joint(step, Action::Exchange(part));
                }
            }
        }
    }
    let schedule = Schedule::new(&queue.accesses);
    (queue.tasks, schedule)
}

struct Queue<'a> {
    program: &'a Program,
    tasks: Vec<Task>,
    accesses: Vec<Access>,
}

impl Queue<'_> {
    fn push(&mut self, step: &Step, access: Access, action: Action) {
        let name = match &self.program.kernels[step.kernel] {
            Kernel::Communicate(bucket) => bucket.kind().name(),
            kernel => kernel.kind(),
        };
        let name = format!("{name} {}", step.kernel);
        let buffer = step.results.first().copied();
        self.tasks.push(Task { name, buffer, lane: access.lane, action });
        self.accesses.push(access);
    }

    fn compute(&mut self, step: &Step, seconds: f64) {
        let access = Access {
            lane: Lane::Compute,
            reads: self.ranges(&step.inputs),
            group_reads: Vec::new(),
            axes: AxisSet::EMPTY,
            writes: self.ranges(&step.results),
        };
        self.push(step, access, Action::Compute(seconds));
    }

    /// Returns the accesses of direct reads: ranks read each other's inputs, and each other's
    /// results in the second phase, if there is one.
    fn exchange(&mut self, step: &Step, bucket: &Bucket) {
        let parts = transfers::direct(bucket, &self.program.tables.mesh);
        for (part, read) in parts.into_iter().zip([&step.inputs, &step.results]) {
            let access = Access {
                lane: Lane::Communication,
                reads: Vec::new(),
                group_reads: self.ranges(read),
                axes: bucket.axes(),
                writes: self.ranges(&step.results),
            };
            self.push(step, access, Action::Exchange(part));
        }
    }

    /// Adds an exchange in which ranks wait for each other, and each accesses its own memory only,
    /// as in rings.
    fn joint(&mut self, step: &Step, action: Action) {
        let access = Access {
            lane: Lane::Communication,
            reads: self.ranges(&step.inputs),
            group_reads: Vec::new(),
            axes: AxisSet::EMPTY,
            writes: self.ranges(&step.results),
        };
        self.push(step, access, action);
    }

    fn ranges(&self, buffers: &[BufferId]) -> Vec<Range<usize>> {
        let range = |buffer: &BufferId| {
            let buffer = self.program.tables.buffers[*buffer];
            buffer.offset..buffer.offset + buffer.n_elements * buffer.dtype.bytes()
        };
        buffers.iter().map(range).collect()
    }
}
