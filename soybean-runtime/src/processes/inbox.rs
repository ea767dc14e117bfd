//! The control messages that a process has received, and what follows from them: failures of other
//! processes, and processes that wait for each other or have left.

use std::{
    fmt::Display,
    time::{Duration, Instant},
};

use super::{
    Process,
    control_message::{ControlMessage, MAX_BYTES},
    progress::{Operation, Progress, ProgressList},
    silence::{PeerTimeout, Silence},
};
use crate::{Error, ErrorKind};

/// Time for a process that has ended to send the reason.
pub(super) const REASON_TIMEOUT: Duration = Duration::from_millis(300);

/// The messages that were received.
pub(super) struct Inbox {
    pub(super) last_poll: Instant,
    /// Processes with a write in progress, once per write.
    pub(super) writing: Vec<usize>,
    /// Failures of other processes, with their numbers.
    pub(super) failures: Vec<(usize, String)>,
    /// Other messages.
    statuses: Vec<Status>,
    pub(super) silence: Silence,
    pub(super) buffer: Box<[u8; MAX_BYTES]>,
}

/// A message about the progress of another process.
struct Status {
    process: usize,
    message: ControlMessage,
    received: Instant,
}

impl Inbox {
    pub(super) fn new(n_processes: usize) -> Self {
        let (failures, statuses, writing) = (Vec::new(), Vec::new(), Vec::new());
        let buffer = Box::new([0; MAX_BYTES]);
        let silence = Silence::new(n_processes, PeerTimeout(None));
        Self { last_poll: Instant::now(), writing, failures, statuses, silence, buffer }
    }

    pub(super) fn accept(&mut self, from: usize, message: ControlMessage) {
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
            ControlMessage::Alive => {}
        }
    }

    /// Returns an error if a process that waits in a command of the trainer `progress` cannot
    /// continue. `trainers` are all trainers of this process.
    pub(super) fn diagnose(
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
            ControlMessage::Failed(_)
            | ControlMessage::Writing
            | ControlMessage::Written
            | ControlMessage::Alive => false,
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
            | ControlMessage::Written
            | ControlMessage::Alive => false,
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

pub(super) fn with_process(process: usize, text: &str) -> String {
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
    use std::{sync::Arc, thread};

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
        let mut inbox = Inbox::new(2);
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
        let mut inbox = Inbox::new(2);
        for (message, expected) in [(ControlMessage::Writing, 1), (ControlMessage::Written, 0)] {
            inbox.accept(1, message);
            assert_eq!((inbox.writing.len(), inbox.statuses.len()), (expected, 0));
        }
    }
}
