//! Control messages between processes. They report failures and mismatches, so that no process
//! waits for another that will not come.
#![expect(unsafe_code, reason = "pending messages refer to memory that must stay valid")]

use std::{
    io::{self, Write},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use super::{
    Process,
    control_message::{ALIVE, ControlMessage, MAX_BYTES},
    inbox::{Inbox, with_process},
    mpi_communicator::{MpiCommunicator, Requests},
    progress::{Operation, Progress, ProgressList},
    silence::{Observation, PeerTimeout, Silence},
};
use crate::{
    Error, ErrorKind,
    abort::{STOPPING_TIME, lock},
};

/// Interval at which a waiting process polls for messages.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Time for which a failed process waits to hear whether others fail with the same error.
const PEER_FAILURE_TIMEOUT: Duration = Duration::from_millis(500);
/// Time for which a process waits for others to reach an error that all processes have in common.
const COMMON_FAILURE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for which failed processes wait for the others to end, before all are aborted. The one that
/// prints the error first stops its threads, and hears what others found.
const SHUTDOWN_TIMEOUT: Duration =
    STOPPING_TIME.saturating_add(PEER_FAILURE_TIMEOUT).saturating_add(Duration::from_secs(2));

/// Time between the signs of life of a process that has not started a trainer.
const FIRST_INTERVAL_MILLISECONDS: u64 = 500;

/// The control channel and the messages received.
pub(super) struct Control {
    communicator: MpiCommunicator,
    process: Process,
    inbox: Mutex<Inbox>,
    outbox: Mutex<Outbox>,
    pub(super) trainers: ProgressList,
    /// Set after this process has reported a failure of its own.
    has_failed: AtomicBool,
    /// Milliseconds between two signs of life.
    interval: AtomicU64,
}

#[derive(Default)]
struct Outbox {
    /// Set when MPI is about to be finalized.
    is_closed: bool,
    requests: Requests,
    /// Buffers of pending messages.
    messages: Vec<Box<[u8]>>,
    /// Pending signs of life, by process.
    signs: Vec<Requests>,
}

impl Control {
    pub(super) fn new(communicator: MpiCommunicator, process: Process) -> Self {
        Self {
            communicator,
            process,
            inbox: Mutex::new(Inbox::new(process.count)),
            outbox: Mutex::default(),
            trainers: ProgressList::default(),
            has_failed: AtomicBool::new(false),
            interval: AtomicU64::new(FIRST_INTERVAL_MILLISECONDS),
        }
    }

    /// Sets the time for which another process may be silent.
    pub(super) fn set_peer_timeout(&self, timeout: PeerTimeout) {
        lock(&self.inbox).silence.timeout = timeout;
        let interval = timeout.interval().as_millis();
        self.interval.store(u64::try_from(interval).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Sends signs of life until this process leaves the run.
    pub(super) fn send_signs_of_life(&self) {
        while self.send_sign_of_life() {
            thread::sleep(Duration::from_millis(self.interval.load(Ordering::SeqCst)));
        }
    }

    /// Sends a sign of life to each process that has taken the last one. Returns false if this
    /// process has left.
    fn send_sign_of_life(&self) -> bool {
        let mut outbox = lock(&self.outbox);
        let Process { number, count } = self.process;
        outbox.signs.resize_with(count, Requests::default);
        if outbox.is_closed {
            return false;
        }
        for (process, pending) in outbox.signs.iter_mut().enumerate().filter(|it| it.0 != number) {
            if pending.is_done().unwrap_or(false) {
                let to = (process, 0);
                // SAFETY: the memory is static.
                let _dropped = unsafe {
                    self.communicator.begin_send(to, ALIVE.as_ptr(), ALIVE.len(), pending)
                };
            }
        }
        true
    }

    /// Sends a message to all other processes. Messages that cannot be sent are dropped, since the
    /// other processes also detect the end of this one by other means.
    pub(super) fn broadcast(&self, message: &ControlMessage) {
        let mut outbox = lock(&self.outbox);
        let Outbox { is_closed, requests, messages, .. } = &mut *outbox;
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
        let listened = inbox.last_poll.elapsed();
        inbox.last_poll = Instant::now();
        loop {
            let taken = self.communicator.try_receive(&mut inbox.buffer[..]);
            let (process, n_bytes) = match taken {
                Ok(Some(taken)) => taken,
                Ok(None) => break,
                Err(error) => return Some(error),
            };
            if let Some(time) = inbox.silence.hear(process) {
                self.print(&format!("process {process} is back after {}", seconds(time)));
            }
            if let Some(message) =
                ControlMessage::from_bytes(&inbox.buffer[..n_bytes.min(MAX_BYTES)])
            {
                inbox.accept(process, message);
            }
        }
        let diagnosis = inbox.diagnose(progress, &self.trainers, self.process);
        let operation = progress.map(|it| it.current().1);
        let silence = self.find_silence(&mut inbox.silence, listened, operation);
        diagnosis.or(silence)
    }

    /// Prints which processes are silent. Returns an error if one has been silent for too long.
    fn find_silence(
        &self,
        silence: &mut Silence,
        listened: Duration,
        operation: Option<Operation>,
    ) -> Option<Error> {
        let found = silence.listen(listened);
        found.into_iter().find_map(|it| match it {
            Observation::Silent(process, time) => {
                let place = operation.map_or("the end of the run".to_owned(), |it| it.to_string());
                let (time, since) = (seconds(time), time_of_day(time));
                let limit = silence.timeout.0;
                let limit =
                    limit.map_or(String::new(), |it| format!(" for at most {}", seconds(it)));
                self.print(&format!(
                    "process {process} has been silent for {time}, since {since}; waiting{limit} in {place}"
                ));
                None
            }
            Observation::TimedOut(process, time) => {
                let time = seconds(time);
                Some(Error::new(
                    ErrorKind::Process,
                    format!(
                        "expected all processes to answer, found that process {process} has been silent for {time}, the peer timeout"
                    ),
                ))
            }
        })
    }

    /// Prints a line of this process in one write. There is no caller that could.
    fn print(&self, text: &str) {
        let line = format!("process {}: {text}\n", self.process.number);
        let _may_be_closed = io::stderr().write_all(line.as_bytes());
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
    /// the time limit expires, unless one that is not silent has a write in progress.
    pub(super) fn leave(&self) {
        self.trainers.all().iter().for_each(|it| self.announce_close(it));
        self.broadcast(&ControlMessage::Ended);
        let mut requests = Requests::default();
        let mut is_done = self.communicator.begin_barrier(&mut requests).is_err();
        let mut failed = None;
        while !is_done {
            is_done = requests.is_done().unwrap_or(true);
            let error = self.poll(None);
            let inbox = lock(&self.inbox);
            let is_timed_out = inbox.silence.is_timed_out();
            // A process that is silent may never finish its write.
            let is_writing = !inbox.writing.is_empty() && !is_timed_out;
            drop(inbox);
            if is_timed_out && !self.is_failed() {
                error.into_iter().for_each(|it| self.print(&format!("error: {it}")));
                return self.communicator.abort();
            }
            // After a failure, the process that prints it needs time.
            if !self.is_failed() || is_writing {
                failed = None;
            } else if failed.get_or_insert_with(Instant::now).elapsed() > SHUTDOWN_TIMEOUT {
                return self.communicator.abort();
            }
            thread::sleep(POLL_INTERVAL);
        }
        lock(&self.outbox).is_closed = true;
    }
}

/// Returns true if two errors have the same cause: they expected the same, on whatever rank or GPU.
fn has_same_cause(one: &str, other: &str) -> bool {
    let cause = |text: &str| {
        let expected = text.split(", found").next().unwrap_or_default();
        expected.chars().filter(|it| !it.is_ascii_digit()).collect::<String>()
    };
    cause(one) == cause(other)
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs())
}

/// Returns the time of day so long ago, in UTC.
fn time_of_day(ago: Duration) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = now.saturating_sub(ago).as_secs() % 86_400;
    format!("{:02}:{:02}:{:02} UTC", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_with_the_same_cause_are_recognized() {
        let on = |rank: usize, free: usize| {
            format!(
                "the tensors of rank {rank}: expected 96 bytes on GPU {rank}, found {free} free"
            )
        };
        assert!(has_same_cause(&on(0, 5), &on(4, 7)));
        assert!(!has_same_cause(&on(0, 5), "input `y`: expected 96 elements, found 5"));
    }
}
