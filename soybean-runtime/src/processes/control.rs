//! Control messages between processes. They report failures and mismatches, so that no process
//! waits for another that will not come.
#![expect(unsafe_code, reason = "pending messages refer to memory that must stay valid")]

use std::{
    fmt::Display,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    Process,
    control_message::{ControlMessage, MAX_BYTES},
    mpi_communicator::{MpiCommunicator, Requests},
    progress::{Operation, Progress, ProgressList},
};
use crate::{Error, ErrorKind, abort::lock};

/// Interval at which a waiting process polls for messages.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Time for a process that has ended to send the reason.
pub(super) const REASON_TIMEOUT: Duration = Duration::from_millis(300);
/// Time for which a failed process waits to hear whether others fail with the same error.
const PEER_FAILURE_TIMEOUT: Duration = Duration::from_millis(500);
/// Time for which a process waits for others to reach an error that all processes have in common.
const COMMON_FAILURE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for which failed processes wait for the others to end, before all are aborted.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// The control channel and the messages received.
pub(super) struct Control {
    communicator: MpiCommunicator,
    process: Process,
    inbox: Mutex<Inbox>,
    outbox: Mutex<Outbox>,
    pub(super) trainers: ProgressList,
    /// Set after this process has reported a failure of its own.
    has_failed: AtomicBool,
}

struct Inbox {
    last_poll: Instant,
    /// Processes with a write in progress, once per write.
    writing: Vec<usize>,
    /// Failures of other processes, with their numbers.
    failures: Vec<(usize, String)>,
    /// Other messages.
    statuses: Vec<Status>,
    buffer: Box<[u8; MAX_BYTES]>,
}

#[derive(Default)]
struct Outbox {
    /// Set when MPI is about to be finalised.
    is_closed: bool,
    requests: Requests,
    /// Buffers of pending messages.
    messages: Vec<Box<[u8]>>,
}

/// A message about the progress of another process.
struct Status {
    process: usize,
    message: ControlMessage,
    received: Instant,
}

impl Control {
    pub(super) fn new(communicator: MpiCommunicator, process: Process) -> Self {
        Self {
            communicator,
            process,
            inbox: Mutex::new(Inbox::new()),
            outbox: Mutex::default(),
            trainers: ProgressList::default(),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Sends a message to all other processes. Messages that cannot be sent are dropped, since the
    /// other processes also detect the end of this one by other means.
    pub(super) fn broadcast(&self, message: &ControlMessage) {
        let mut outbox = lock(&self.outbox);
        let Outbox { is_closed, requests, messages } = &mut *outbox;
        if *is_closed {
            return;
        }
        if requests.is_done().unwrap_or(false) {
            messages.clear();
        }
        let bytes = message.to_bytes().into_boxed_slice();
        let (start, n_bytes) = (bytes.as_ptr(), bytes.len());
        messages.push(bytes);
        for process in (0..self.process.count).filter(|it| *it != self.process.number) {
            // SAFETY: the memory stays until all requests are done.
            let _dropped =
                unsafe { self.communicator.begin_send((process, 0), start, n_bytes, requests) };
        }
    }

    /// Reports a failure to the other processes, unless one of them caused it.
    pub(super) fn report_failure(&self, text: &str) {
        if !self.is_peer_failure(text) && !self.has_failed.swap(true, Ordering::SeqCst) {
            self.broadcast(&ControlMessage::Failed(text.to_owned()));
        }
    }

    /// Reports a failure to the other processes. Returns true if this process should print it.
    pub(super) fn should_report(&self, text: &str) -> bool {
        // A failure that was reported at once belongs to this process. All processes reach the
        // other errors, after they have finished their writes.
        let is_own = self.has_failed.load(Ordering::SeqCst);
        let timeout = if is_own { PEER_FAILURE_TIMEOUT } else { COMMON_FAILURE_TIMEOUT };
        self.report_failure(text);
        if self.is_peer_failure(text) {
            return false;
        }
        let mut started = Instant::now();
        while self.process.number > 0 && started.elapsed() < timeout {
            self.poll(None);
            let inbox = lock(&self.inbox);
            let is_before = |process: usize| process < self.process.number;
            if inbox.failures.iter().any(|it| is_before(it.0) && has_same_cause(&it.1, text)) {
                return false;
            }
            if !is_own && inbox.writing.iter().any(|it| is_before(*it)) {
                started = Instant::now();
            }
            drop(inbox);
            thread::sleep(POLL_INTERVAL);
        }
        true
    }

    /// Returns true if the error was reported by another process.
    fn is_peer_failure(&self, text: &str) -> bool {
        let is_reported =
            |(process, failure): &(usize, String)| text.contains(&with_process(*process, failure));
        lock(&self.inbox).failures.iter().any(is_reported)
    }

    /// Returns true if any process has failed.
    fn is_failed(&self) -> bool {
        self.has_failed.load(Ordering::SeqCst) || !lock(&self.inbox).failures.is_empty()
    }

    /// Receives control messages. Returns an error if this process cannot continue with its
    /// operation.
    pub(super) fn poll(&self, progress: Option<&Progress>) -> Option<Error> {
        // One polling thread is enough.
        let mut inbox = self.inbox.try_lock().ok()?;
        if inbox.last_poll.elapsed() < POLL_INTERVAL {
            return None;
        }
        inbox.last_poll = Instant::now();
        loop {
            let taken = self.communicator.try_receive(&mut inbox.buffer[..]);
            let (process, n_bytes) = match taken {
                Ok(Some(taken)) => taken,
                Ok(None) => break,
                Err(error) => return Some(error),
            };
            if let Some(message) =
                ControlMessage::from_bytes(&inbox.buffer[..n_bytes.min(MAX_BYTES)])
            {
                inbox.accept(process, message);
            }
        }
        inbox.diagnose(progress, &self.trainers, self.process)
    }

    /// Tells the other processes once that this one waits in a command of this trainer.
    pub(super) fn announce_wait(&self, progress: &Progress) {
        let (sequence, operation) = progress.current();
        if progress.announce(sequence) {
            let positions =
                self.trainers.all().iter().map(|it| (it.trainer, it.current().0)).collect();
            self.broadcast(&ControlMessage::Waiting {
                trainer: progress.trainer,
                sequence,
                operation,
                positions,
            });
        }
    }

    /// Tells the other processes that a trainer has ended.
    pub(super) fn announce_close(&self, progress: &Progress) {
        let (trainer, sequence) = (progress.trainer, progress.last_done());
        self.broadcast(&ControlMessage::Closed { trainer, sequence });
    }

    /// Leaves the run. Waits until all processes want to end. After a failure all are aborted when
    /// the time limit expires, unless one has a write in progress.
    pub(super) fn leave(&self) {
        self.trainers.all().iter().for_each(|it| self.announce_close(it));
        self.broadcast(&ControlMessage::Ended);
        let mut requests = Requests::default();
        let mut is_done = self.communicator.begin_barrier(&mut requests).is_err();
        let mut failed = None;
        while !is_done {
            is_done = requests.is_done().unwrap_or(true);
            self.poll(None);
            if !self.is_failed() || !lock(&self.inbox).writing.is_empty() {
                failed = None;
            } else if failed.get_or_insert_with(Instant::now).elapsed() > SHUTDOWN_TIMEOUT {
                return self.communicator.abort();
            }
            thread::sleep(POLL_INTERVAL);
        }
        lock(&self.outbox).is_closed = true;
    }
}

impl Inbox {
    fn new() -> Self {
        let (failures, statuses, writing) = (Vec::new(), Vec::new(), Vec::new());
        let buffer = Box::new([0; MAX_BYTES]);
        Self { last_poll: Instant::now(), writing, failures, statuses, buffer }
    }

    fn accept(&mut self, from: usize, message: ControlMessage) {
        match message {
            ControlMessage::Failed(text) => self.failures.push((from, text)),
            ControlMessage::Writing => self.writing.push(from),
            ControlMessage::Written => {
                let begun = self.writing.iter().position(|it| *it == from);
                begun.map(|it| self.writing.swap_remove(it));
            }
            ControlMessage::Waiting { .. }
            | ControlMessage::Closed { .. }
            | ControlMessage::Ended => {
                self.statuses.push(Status { process: from, message, received: Instant::now() });
            }
        }
    }

    /// Returns an error if a process that waits in a command of the trainer `progress` cannot
    /// continue. `trainers` are all trainers of this process.
    fn diagnose(
        &mut self,
        progress: Option<&Progress>,
        trainers: &ProgressList,
        process: Process,
    ) -> Option<Error> {
        if let Some((from, text)) = self.failures.first() {
            return Some(Error::new(ErrorKind::Rank, with_process(*from, text)));
        }
        let progress = progress?;
        // Messages about completed commands are obsolete.
        self.statuses.retain(|status| match status.message {
            ControlMessage::Waiting { trainer, sequence, .. } => match trainers.find(trainer) {
                Some(own) => sequence >= own.current().0,
                None => trainer > progress.trainer,
            },
            ControlMessage::Closed { .. } | ControlMessage::Ended => true,
            ControlMessage::Failed(_) | ControlMessage::Writing | ControlMessage::Written => false,
        });
        self.statuses.iter().find_map(|Status { process: from, message, received }| {
            if let Some((theirs, own)) = deadlock(message, progress, trainers) {
                return Some(mismatch((*from, &theirs), (process.number, &own)));
            }
            let has_departed =
                received.elapsed() > REASON_TIMEOUT && self.has_left(*from, message, progress);
            has_departed.then(|| departed(*from, &progress.current().1))
        })
    }

    /// Returns true if a process has ended, or closed the trainer, without reaching the current
    /// command.
    fn has_left(&self, from: usize, message: &ControlMessage, progress: &Progress) -> bool {
        let is_closed = |it: &ControlMessage| matches!(it, ControlMessage::Closed { trainer, .. } if *trainer == progress.trainer);
        match message {
            ControlMessage::Closed { sequence, .. } => {
                is_closed(message) && *sequence < progress.current().0
            }
            ControlMessage::Ended => {
                !self.statuses.iter().any(|it| it.process == from && is_closed(&it.message))
            }
            ControlMessage::Failed(_)
            | ControlMessage::Waiting { .. }
            | ControlMessage::Writing
            | ControlMessage::Written => false,
        }
    }
}

/// Returns the operations that this process and the sender wait in, if they wait for each other.
fn deadlock(
    waiting: &ControlMessage,
    progress: &Progress,
    trainers: &ProgressList,
) -> Option<(String, String)> {
    let ControlMessage::Waiting { trainer, sequence: theirs, operation: other, positions } =
        waiting
    else {
        return None;
    };
    let (sequence, operation) = progress.current();
    if *trainer == progress.trainer {
        let is_other = *theirs == sequence && *other != operation;
        return is_other.then(|| (other.to_string(), operation.to_string()));
    }
    // Both must have yet to begin the operation of the other. Otherwise the other may wait for a
    // third process.
    let own = trainers.find(*trainer)?;
    let position = positions.iter().find(|it| it.0 == progress.trainer);
    let is_crossed = own.has_same_thread_as(progress)
        && own.current().0 < *theirs
        && position.is_none_or(|it| it.1 < sequence);
    let of = |operation: &Operation, trainer| format!("{operation} of trainer {trainer}");
    is_crossed.then(|| (of(other, *trainer), of(&operation, progress.trainer)))
}

/// Returns true if two errors have the same cause: they expected the same, on whatever rank or GPU.
fn has_same_cause(one: &str, other: &str) -> bool {
    let cause = |text: &str| {
        let expected = text.split(", found").next().unwrap_or_default();
        expected.chars().filter(|it| !it.is_ascii_digit()).collect::<String>()
    };
    cause(one) == cause(other)
}

fn with_process(process: usize, text: &str) -> String {
    format!("process {process}: {text}")
}

/// Returns the error for processes that do different things.
pub(super) fn mismatch(one: (usize, &dyn Display), other: (usize, &dyn Display)) -> Error {
    let (first, second) = if one.0 < other.0 { (one, other) } else { (other, one) };
    let message = format!(
        "expected all processes to do the same, found {} in process {}, and {} in process {}",
        first.1, first.0, second.1, second.0
    );
    Error::new(ErrorKind::Process, message)
}

fn departed(process: usize, operation: &Operation) -> Error {
    let message = format!(
        "expected all processes to do the same, found that process {process} has ended its work before {operation}"
    );
    Error::new(ErrorKind::Process, message)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::processes::progress::OperationKind;

    fn step(id: u64) -> Operation {
        Operation { kind: OperationKind::Train, id, argument: 0 }
    }

    /// Returns the progress of a trainer at this command, given by the calling thread.
    fn progress(trainers: &ProgressList, trainer: u64, sequence: u64) -> Arc<Progress> {
        let progress = Arc::new(Progress::new(trainer, 1, Operation::of(OperationKind::Start)));
        trainers.add(&progress);
        (1..=sequence).for_each(|it| progress.begin(step(it)));
        progress
    }

    /// Diagnoses process 0, which waits in command 5 of trainer 1 and has reached command 3 of
    /// trainer
    /// 2. Process 1 waits in command `theirs` of trainer 2 and has reached command `position` of
    /// trainer 1.
    fn diagnosed(theirs: u64, position: Option<u64>, in_two_threads: bool) -> Option<String> {
        let trainers = ProgressList::default();
        let first = progress(&trainers, 1, 5);
        let _second = match in_two_threads {
            true => thread::scope(|it| it.spawn(|| progress(&trainers, 2, 3)).join().unwrap()),
            false => progress(&trainers, 2, 3),
        };
        let mut inbox = Inbox::new();
        let positions = position.map(|it| (1, it)).into_iter().chain([(2, theirs)]).collect();
        inbox.accept(
            1,
            ControlMessage::Waiting { trainer: 2, sequence: theirs, operation: step(9), positions },
        );
        let process = Process { number: 0, count: 2 };
        inbox.diagnose(Some(&first), &trainers, process).map(|it| it.to_string())
    }

    #[test]
    fn deadlocks_across_two_trainers_are_detected() {
        let found = diagnosed(4, Some(4), false).unwrap();
        let (here, there) =
            (format!("{} of trainer 1", step(5)), format!("{} of trainer 2", step(9)));
        let expected = format!("found {here} in process 0, and {there} in process 1");
        assert!(found.ends_with(&expected), "{found}");
        // Process 1 has not even started trainer 1.
        assert!(diagnosed(4, None, false).is_some());
        // Process 1 has begun the step in which this process waits. It may wait for a third.
        assert_eq!(diagnosed(4, Some(5), false), None);
        // This process has begun the step in which process 1 waits.
        assert_eq!(diagnosed(3, Some(4), false), None);
        assert_eq!(diagnosed(2, Some(4), false), None);
        // Another thread of this process may still reach it.
        assert_eq!(diagnosed(4, Some(4), true), None);
    }

    #[test]
    fn writes_in_progress_are_tracked() {
        let mut inbox = Inbox::new();
        for (message, expected) in [(ControlMessage::Writing, 1), (ControlMessage::Written, 0)] {
            inbox.accept(1, message);
            assert_eq!((inbox.writing.len(), inbox.statuses.len()), (expected, 0));
        }
    }

    #[test]
    fn errors_with_the_same_cause_are_recognised() {
        let on = |rank: usize, free: usize| {
            format!(
                "the tensors of rank {rank}: expected 96 bytes on GPU {rank}, found {free} free"
            )
        };
        assert!(has_same_cause(&on(0, 5), &on(4, 7)));
        assert!(!has_same_cause(&on(0, 5), "input `y`: expected 96 elements, found 5"));
    }
}
