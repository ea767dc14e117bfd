//! Adversarial scheduling of work within the order of streams and events.
//!
//! Nothing runs before somebody waits, except for a little now and then. Random priorities that
//! hold for a while select the next stream, so that one stream can run far ahead of another. With a
//! new choice for every step, streams would progress evenly and hide a missing wait. Source:
//! Burckhardt et al. 2010 (probabilistic concurrency testing).

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::random::{Random, mix};
use crate::state::{State, report_problem};
use crate::status::{ApiResult, DeviceError, Status};
use crate::work::{Communication, GraphRun, Node, Task, Work};

/// A piece of work that could run next.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The front of a stream's queue.
    Front(u64),
    /// A node of the graph at the front of a stream's queue.
    Node(u64, usize),
}

/// Random priorities of streams, and how long they hold.
#[derive(Debug)]
pub(crate) struct SchedulePolicy {
    /// Seed of the priorities.
    stream_order: u64,
    /// Average number of steps until the policy changes.
    change_interval: u64,
    /// Average number of submissions until some work runs at once.
    eager_interval: u64,
}

impl SchedulePolicy {
    /// Short and long intervals: some errors need many changes, others a stream that stays slow.
    pub(crate) fn new(random: &mut Random) -> Self {
        let stream_order = random.next();
        let change_interval = 16 << (3 * random.below(3));
        let eager_interval = 8 << (6 * random.below(3));
        Self { stream_order, change_interval, eager_interval }
    }
}

impl State {
    /// Appends work to the queue of a stream that is not capturing.
    pub(crate) fn enqueue(&mut self, stream: u64, work: Work) -> ApiResult {
        let device = self.streams[&stream].device;
        self.check_device(device)?;
        self.wait_for_null_stream(stream);
        self.push(stream, work);
        if self.machine.random.below(self.policy.eager_interval) == 0 {
            self.run_some();
        }
        Ok(())
    }

    fn push(&mut self, stream: u64, work: Work) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.queue.push_back(work);
        }
    }

    /// Adds the implicit synchronization between the null stream and blocking streams.
    fn wait_for_null_stream(&mut self, stream: u64) {
        let device = self.streams[&stream].device;
        let null_stream = self.devices[device].null_stream;
        let mut others: Vec<u64> = if stream == null_stream {
            let blocking = self
                .streams
                .iter()
                .filter(|(_, other)| other.is_blocking && other.device == device);
            blocking.map(|(&number, _)| number).collect()
        } else if self.streams[&stream].is_blocking {
            vec![null_stream]
        } else {
            Vec::new()
        };
        others.retain(|other| !self.streams[other].queue.is_empty());
        for other in others {
            let event = self.new_event(device, false);
            self.forget_event(event, 1);
            self.push(other, Work::Record { event, record: 1 });
            self.push(stream, Work::Wait { event, record: 1 });
        }
    }

    /// Runs a few steps, if there are any.
    pub(crate) fn run_some(&mut self) {
        for _ in 0..=self.machine.random.below(16) {
            if !self.step() {
                return;
            }
        }
    }

    /// Runs work until the stream is idle.
    pub(crate) fn finish_stream(&mut self, stream: u64) -> ApiResult {
        self.run_until(|state| {
            state.streams.get(&stream).is_none_or(|stream| stream.queue.is_empty())
        })?;
        self.streams.get(&stream).map_or(Ok(()), |stream| self.check_device(stream.device))
    }

    /// Runs work until all streams of the device are idle.
    pub(crate) fn finish_device(&mut self, device: usize) -> ApiResult {
        self.run_until(|state| {
            state.streams.values().all(|stream| stream.device != device || stream.queue.is_empty())
        })?;
        self.check_device(device)
    }

    /// Runs work until the last recording of the event is complete.
    pub(crate) fn finish_event(&mut self, event: u64) -> ApiResult {
        self.run_until(|state| {
            state.events.get(&event).is_none_or(|event| event.completed >= event.recorded)
        })?;
        self.events.get(&event).map_or(Ok(()), |event| self.check_device(event.device))
    }

    fn run_until(&mut self, is_done: impl Fn(&Self) -> bool) -> ApiResult {
        while !is_done(self) {
            if self.step() {
                continue;
            }
            if self.waits_for_processes() {
                thread::sleep(Duration::from_micros(50));
            } else {
                let waiting = self.streams.iter().filter_map(|(number, stream)| {
                    Some(format!("stream {number:#x}: {:?}", stream.queue.front()?))
                });
                let waiting: Vec<String> = waiting.collect();
                report_problem(&format!("all wait for each other\n{}", waiting.join("\n")));
                return Err(Status::LAUNCH_TIMEOUT);
            }
        }
        Ok(())
    }

    /// Returns true if pending work waits for other processes. Without them it waits for ever, as
    /// on a real device.
    fn waits_for_processes(&self) -> bool {
        let is_shared = |work: &Work| matches!(work, Work::Rendezvous(rendezvous) if self.rendezvous.get(rendezvous).is_some_and(|it| it.communication.is_shared()));
        let has_shared_node = |run: &GraphRun| {
            let nodes = run.ready.iter().map(|&node| &run.graph.nodes[node]);
            nodes.filter_map(|node| node.communication.as_ref()).any(Communication::is_shared)
        };
        self.streams.values().any(|stream| {
            stream.queue.front().is_some_and(is_shared)
                || stream.run.as_ref().is_some_and(has_shared_node)
        })
    }

    /// Runs one piece of work. Returns false if none can run.
    fn step(&mut self) -> bool {
        if self.machine.random.below(self.policy.change_interval) == 0 {
            self.policy = SchedulePolicy::new(&mut self.machine.random);
        }
        let Some(step) = self.next_step() else { return false };
        self.clock += 1000 + self.machine.random.below(1000);
        match step {
            Step::Front(stream) => self.run_front(stream),
            Step::Node(stream, node) => self.run_node(stream, node),
        }
        true
    }

    /// Returns the possible step of the stream with the highest priority.
    fn next_step(&self) -> Option<Step> {
        let mut best: Option<(u64, Step)> = None;
        // Few steps have a priority so high that it matters whether they can run.
        let mut offer = |key: u64, step: Step, can_run: &dyn Fn() -> bool| {
            let rank = mix(key ^ self.policy.stream_order);
            if best.is_none_or(|(least, _)| rank < least) && can_run() {
                best = Some((rank, step));
            }
        };
        for (&number, stream) in &self.streams {
            match (&stream.run, stream.queue.front()) {
                (Some(run), _) => {
                    for &at in &run.ready {
                        let node = &run.graph.nodes[at];
                        offer(node.stream, Step::Node(number, at), &|| self.can_run_node(node));
                    }
                }
                (None, Some(work)) if !stream.hangs => {
                    offer(number, Step::Front(number), &|| self.can_run(work));
                }
                (None, _) => {}
            }
        }
        best.map(|(_, step)| step)
    }

    fn can_run_node(&self, node: &Node) -> bool {
        let is_ready = |it: &Communication| self.aborted.contains(&it.comm_id) || it.is_ready();
        self.devices[node.task.device].error.is_none()
            && node.communication.as_ref().is_none_or(is_ready)
    }

    fn can_run(&self, work: &Work) -> bool {
        match work {
            Work::Task(_) | Work::Record { .. } => true,
            Work::Wait { event, record } => self.events.get(event).is_none_or(|event| event.completed >= *record),
            Work::Rendezvous(rendezvous) => self.rendezvous.get(rendezvous).is_none_or(|known| {
                let is_there = |stream: &u64| matches!(self.streams.get(stream).and_then(|it| it.queue.front()), Some(Work::Rendezvous(it)) if it == rendezvous);
                known.streams.len() == known.n_streams && known.streams.iter().all(is_there) && known.communication.is_ready()
            }),
            // An executable graph runs once at a time.
            Work::Graph { executable, .. } => {
                self.streams.values().all(|stream| stream.run.as_ref().is_none_or(|run| run.executable != *executable))
            }
        }
    }

    fn run_front(&mut self, number: u64) {
        let Some(stream) = self.streams.get_mut(&number) else { return };
        let Some(work) = stream.queue.pop_front() else { return };
        match work {
            Work::Task(task) => {
                if self.run_task(&task).is_err_and(|it| it.is_endless())
                    && let Some(stream) = self.streams.get_mut(&number)
                {
                    stream.queue.push_front(Work::Task(task));
                    stream.hangs = true;
                }
            }
            Work::Record { event, record } => self.complete_event(event, record),
            Work::Wait { .. } => {}
            Work::Rendezvous(rendezvous) => self.run_rendezvous(rendezvous),
            Work::Graph { executable, graph } => {
                let run = GraphRun::new(executable, Arc::clone(&graph));
                if !run.is_done() {
                    // The stream continues after the last node.
                    stream.queue.push_front(Work::Graph { executable, graph });
                    stream.run = Some(run);
                }
            }
        }
    }

    fn run_node(&mut self, number: u64, node: usize) {
        let Some(run) = self.streams.get(&number).and_then(|stream| stream.run.as_ref()) else {
            return;
        };
        let Node { task, communication, .. } = run.graph.nodes[node].clone();
        let is_aborted = communication.is_some_and(|it| self.aborted.contains(&it.comm_id));
        let outcome = if is_aborted { Ok(()) } else { self.run_task(&task) };
        // An error may have emptied the stream.
        let Some(stream) = self.streams.get_mut(&number) else { return };
        let Some(run) = &mut stream.run else { return };
        // After an error or a hang, dependent nodes never run and the graph never completes.
        match outcome {
            Ok(()) => run.finish(node),
            Err(fault) => {
                run.ready.retain(|&it| it != node);
                stream.hangs = fault.is_endless();
            }
        }
        if run.is_done() {
            stream.run = None;
            stream.queue.pop_front();
        }
    }

    fn run_task(&mut self, task: &Task) -> Result<(), DeviceError> {
        let outcome = (task.job)(&mut self.machine);
        if let Err(fault) = &outcome
            && !fault.is_endless()
        {
            self.fail_device(task.device, fault);
        }
        outcome
    }

    /// Runs work that several streams share. The selected stream has already removed it from its
    /// queue.
    fn run_rendezvous(&mut self, number: u64) {
        let Some(rendezvous) = self.rendezvous.remove(&number) else { return };
        for stream in &rendezvous.streams {
            if let Some(stream) = self.streams.get_mut(stream)
                && matches!(stream.queue.front(), Some(Work::Rendezvous(it)) if *it == number)
            {
                stream.queue.pop_front();
            }
        }
        if let Err(fault) = (rendezvous.job)(&mut self.machine) {
            let devices: Vec<usize> = rendezvous
                .streams
                .iter()
                .filter_map(|stream| Some(self.streams.get(stream)?.device))
                .collect();
            for device in devices {
                self.fail_device(device, &fault);
            }
        }
    }
}
