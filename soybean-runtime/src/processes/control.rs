//! What processes tell each other beside the work, so that none waits for another that will not come.
#![expect(unsafe_code, reason = "messages on their way are in memory that stays")]

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

/// How often a process that waits looks for messages.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// How long a process that has left may take to say why.
pub(super) const REASON_TIMEOUT: Duration = Duration::from_millis(300);
/// How long a process that has failed by itself waits to hear whether peers have failed alike.
const PEER_FAILURE_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a process waits for the peers to come to an error that was not told at once, and so is all processes'.
const COMMON_FAILURE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long processes that have failed wait for the peers to end, before all are ended.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// The channel of control, and what came by it.
pub(super) struct Control {
    communicator: MpiCommunicator,
    process: Process,
    inbox: Mutex<Inbox>,
    outbox: Mutex<Outbox>,
    pub(super) trainers: ProgressList,
    /// Whether this process has told of a failure of its own.
    has_failed: AtomicBool,
}

struct Inbox {
    looked: Instant,
    /// The processes that write something that must not be cut off, once for each such thing.
    writing: Vec<usize>,
    /// The failures of peers, with the number of the process.
    failures: Vec<(usize, String)>,
    /// What else peers said, and when.
    statuses: Vec<(usize, ControlMessage, Instant)>,
    buffer: Box<[u8; MAX_BYTES]>,
}

#[derive(Default)]
struct Outbox {
    /// Whether this process has left, and MPI is about to end.
    is_closed: bool,
    requests: Requests,
    /// What is under way.
    messages: Vec<Box<[u8]>>,
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

    /// Tells all other processes. What cannot be sent is lost; they learn of the end of this process in other ways.
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
            let _lost =
                unsafe { self.communicator.begin_send((process, 0), start, n_bytes, requests) };
        }
    }

    /// Tells the peers of a failure, unless it is theirs.
    pub(super) fn report_failure(&self, text: &str) {
        if !self.is_of_another(text) && !self.has_failed.swap(true, Ordering::SeqCst) {
            self.broadcast(&ControlMessage::Failed(text.to_owned()));
        }
    }

    /// Tells the peers of a failure, and finds out whether this process is the one that tells people.
    pub(super) fn should_report(&self, text: &str) -> bool {
        // What was told at once is a failure of this process. Peers come to the rest too, when they have finished what they write.
        let is_own = self.has_failed.load(Ordering::SeqCst);
        let backoff = if is_own { PEER_FAILURE_TIMEOUT } else { COMMON_FAILURE_TIMEOUT };
        self.report_failure(text);
        if self.is_of_another(text) {
            return false;
        }
        let mut started = Instant::now();
        while self.process.number > 0 && started.elapsed() < backoff {
            self.poll(None);
            let inbox = lock(&self.inbox);
            let is_before = |process: usize| process < self.process.number;
            if inbox.failures.iter().any(|it| is_before(it.0) && is_alike(&it.1, text)) {
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

    /// Whether an error is what another process has told.
    fn is_of_another(&self, text: &str) -> bool {
        let told =
            |(process, failure): &(usize, String)| text.contains(&said_by(*process, failure));
        lock(&self.inbox).failures.iter().any(told)
    }

    /// Whether a process has failed.
    fn is_failed(&self) -> bool {
        self.has_failed.load(Ordering::SeqCst) || !lock(&self.inbox).failures.is_empty()
    }

    /// Takes what peers have said: why this process cannot go on with what it does, if so.
    pub(super) fn poll(&self, progress: Option<&Progress>) -> Option<Error> {
        // Where another thread looks, that is enough.
        let mut inbox = self.inbox.try_lock().ok()?;
        if inbox.looked.elapsed() < POLL_INTERVAL {
            return None;
        }
        inbox.looked = Instant::now();
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

    /// Tells the peers that this process waits in an order of this trainer, once.
    pub(super) fn announce_wait(&self, progress: &Progress) {
        let (order, operation) = progress.current();
        if progress.announce(order) {
            let places =
                self.trainers.all().iter().map(|it| (it.trainer, it.current().0)).collect();
            self.broadcast(&ControlMessage::Waiting {
                trainer: progress.trainer,
                order,
                operation,
                places,
            });
        }
    }

    /// Tells the peers that a trainer has ended.
    pub(super) fn announce_close(&self, progress: &Progress) {
        let (trainer, order) = (progress.trainer, progress.last_done());
        self.broadcast(&ControlMessage::Closed { trainer, order });
    }

    /// Leaves the other processes: waits until all want to end, or after a failure for a while, after which all are ended. What a process writes is finished before.
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
        Self { looked: Instant::now(), writing, failures, statuses, buffer }
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
                self.statuses.push((from, message, Instant::now()));
            }
        }
    }

    /// Why a process that waits in an order of the trainer `progress`, one of `trainers`, cannot go on.
    fn diagnose(
        &mut self,
        progress: Option<&Progress>,
        trainers: &ProgressList,
        process: Process,
    ) -> Option<Error> {
        if let Some((from, text)) = self.failures.first() {
            return Some(Error::new(ErrorKind::Rank, said_by(*from, text)));
        }
        let progress = progress?;
        // What this process has behind it is over.
        self.statuses.retain(|note| match note.1 {
            ControlMessage::Waiting { trainer, order, .. } => match trainers.find(trainer) {
                Some(own) => order >= own.current().0,
                None => trainer > progress.trainer,
            },
            ControlMessage::Closed { .. } | ControlMessage::Ended => true,
            ControlMessage::Failed(_) | ControlMessage::Writing | ControlMessage::Written => false,
        });
        self.statuses.iter().find_map(|(from, message, at)| {
            if let Some((theirs, own)) = deadlock(message, progress, trainers) {
                return Some(mismatch((*from, &theirs), (process.number, &own)));
            }
            let is_left = at.elapsed() > REASON_TIMEOUT && self.has_left(*from, message, progress);
            is_left.then(|| left(*from, &progress.current().1))
        })
    }

    /// Whether a process that has told of its end, or of that of a trainer, does not come to what this one waits in.
    fn has_left(&self, from: usize, message: &ControlMessage, progress: &Progress) -> bool {
        let is_closed = |it: &ControlMessage| matches!(it, ControlMessage::Closed { trainer, .. } if *trainer == progress.trainer);
        match message {
            ControlMessage::Closed { order, .. } => {
                is_closed(message) && *order < progress.current().0
            }
            ControlMessage::Ended => {
                !self.statuses.iter().any(|it| it.0 == from && is_closed(&it.1))
            }
            ControlMessage::Failed(_)
            | ControlMessage::Waiting { .. }
            | ControlMessage::Writing
            | ControlMessage::Written => false,
        }
    }
}

/// What another process waits in and what this one waits in, if they wait for each other.
fn deadlock(
    waiting: &ControlMessage,
    progress: &Progress,
    trainers: &ProgressList,
) -> Option<(String, String)> {
    let ControlMessage::Waiting { trainer, order: theirs, operation: other, places } = waiting
    else {
        return None;
    };
    let (order, operation) = progress.current();
    if *trainer == progress.trainer {
        let is_other = *theirs == order && *other != operation;
        return is_other.then(|| (other.to_string(), operation.to_string()));
    }
    // Each has yet to begin what the other waits in; one that has done so may wait for a third.
    let own = trainers.find(*trainer)?;
    let place = places.iter().find(|it| it.0 == progress.trainer);
    let is_crossed = own.has_same_thread_as(progress)
        && own.current().0 < *theirs
        && place.is_none_or(|it| it.1 < order);
    let of = |operation: &Operation, trainer| format!("{operation} of trainer {trainer}");
    is_crossed.then(|| (of(other, *trainer), of(&operation, progress.trainer)))
}

/// Whether two errors have the same cause: what was expected is the same, on whatever rank or GPU.
fn is_alike(one: &str, other: &str) -> bool {
    let cause = |text: &str| {
        let expected = text.split(", found").next().unwrap_or_default();
        expected.chars().filter(|it| !it.is_ascii_digit()).collect::<String>()
    };
    cause(one) == cause(other)
}

fn said_by(process: usize, text: &str) -> String {
    format!("process {process}: {text}")
}

/// The error where processes do not do the same.
pub(super) fn mismatch(one: (usize, &dyn Display), other: (usize, &dyn Display)) -> Error {
    let (first, second) = if one.0 < other.0 { (one, other) } else { (other, one) };
    let message = format!(
        "expected all processes to do the same, found {} in process {}, and {} in process {}",
        first.1, first.0, second.1, second.0
    );
    Error::new(ErrorKind::Process, message)
}

fn left(process: usize, operation: &Operation) -> Error {
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

    /// A trainer that is at this order, which the calling thread has given.
    fn progress(trainers: &ProgressList, trainer: u64, order: u64) -> Arc<Progress> {
        let progress = Arc::new(Progress::new(trainer, 1, Operation::of(OperationKind::Start)));
        trainers.add(&progress);
        (1..=order).for_each(|it| progress.begin(step(it)));
        progress
    }

    /// What process 0 concludes, which waits in order 5 of trainer 1 and has come to order 3 of trainer 2, when process 1 waits in this order of trainer 2, and has come to that of trainer 1.
    fn diagnosed(theirs: u64, place: Option<u64>, in_two_threads: bool) -> Option<String> {
        let trainers = ProgressList::default();
        let first = progress(&trainers, 1, 5);
        let _second = match in_two_threads {
            true => thread::scope(|it| it.spawn(|| progress(&trainers, 2, 3)).join().unwrap()),
            false => progress(&trainers, 2, 3),
        };
        let mut inbox = Inbox::new();
        let places = place.map(|it| (1, it)).into_iter().chain([(2, theirs)]).collect();
        inbox.accept(
            1,
            ControlMessage::Waiting { trainer: 2, order: theirs, operation: step(9), places },
        );
        let process = Process { number: 0, count: 2 };
        inbox.diagnose(Some(&first), &trainers, process).map(|it| it.to_string())
    }

    #[test]
    fn processes_that_wait_for_each_other_in_two_trainers_are_told() {
        let found = diagnosed(4, Some(4), false).unwrap();
        let (here, there) =
            (format!("{} of trainer 1", step(5)), format!("{} of trainer 2", step(9)));
        let expected = format!("found {here} in process 0, and {there} in process 1");
        assert!(found.ends_with(&expected), "{found}");
        // It has not even started the trainer.
        assert!(diagnosed(4, None, false).is_some());
        // It has made the step in which this process waits, perhaps for a third.
        assert_eq!(diagnosed(4, Some(5), false), None);
        // This process has made the step in which the other waits.
        assert_eq!(diagnosed(3, Some(4), false), None);
        assert_eq!(diagnosed(2, Some(4), false), None);
        // Another thread may come to it.
        assert_eq!(diagnosed(4, Some(4), true), None);
    }

    #[test]
    fn what_is_written_is_known_until_it_is_there() {
        let mut inbox = Inbox::new();
        for (message, expected) in [(ControlMessage::Writing, 1), (ControlMessage::Written, 0)] {
            inbox.accept(1, message);
            assert_eq!((inbox.writing.len(), inbox.statuses.len()), (expected, 0));
        }
    }

    #[test]
    fn processes_that_fail_alike_are_told_apart_by_nothing() {
        let on = |rank: usize, free: usize| {
            format!(
                "the tensors of rank {rank}: expected 96 bytes on GPU {rank}, found {free} free"
            )
        };
        assert!(is_alike(&on(0, 5), &on(4, 7)));
        assert!(!is_alike(&on(0, 5), "input `y`: expected 96 elements, found 5"));
    }
}
