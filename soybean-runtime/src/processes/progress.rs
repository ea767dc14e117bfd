//! Progress of a trainer through its commands, which are the same in all processes.

use std::{
    fmt,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, ThreadId},
};

use crate::{
    abort::lock,
    ranks::{Command, StepContext, TrainStep},
};

/// The aspects of a command on which processes must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operation {
    pub(super) kind: OperationKind,
    /// Number that identifies a step, a tensor or a model.
    pub(super) id: u64,
    /// Further argument: the bits of a learning rate, a number of tensors, or the number of a
    /// communicator.
    pub(super) argument: u32,
}

/// Kinds of commands, and other events at which processes wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperationKind {
    Start,
    Train,
    Evaluate,
    Fetch,
    Save,
    Load,
    ResetProfile,
    Ask,
}

const KINDS: [OperationKind; 8] = [
    OperationKind::Start,
    OperationKind::Train,
    OperationKind::Evaluate,
    OperationKind::Fetch,
    OperationKind::Save,
    OperationKind::Load,
    OperationKind::ResetProfile,
    OperationKind::Ask,
];

/// Length of an encoded operation in bytes.
pub(super) const OPERATION_BYTES: usize = 13;

impl Operation {
    /// Returns an operation without arguments.
    pub(super) const fn of(kind: OperationKind) -> Self {
        Self { kind, id: 0, argument: 0 }
    }

    fn of_tensors(kind: OperationKind, first: usize, n_tensors: usize) -> Self {
        Self { kind, id: first as u64, argument: u32::try_from(n_tensors).unwrap_or(u32::MAX) }
    }

    /// Returns the operation of a command, or `None` if no process waits for another.
    pub(super) fn of_command(command: &Command<'_>) -> Option<Self> {
        match command {
            Command::Train(TrainStep {
                context: StepContext { counters, learning_rate, .. },
                ..
            }) => {
                let (id, argument) = (counters.n_steps + 1, learning_rate.to_bits());
                Some(Self { kind: OperationKind::Train, id, argument })
            }
            Command::Queue { .. } => None,
            Command::Evaluate { entry, .. } => {
                Some(Self { id: *entry as u64, ..Self::of(OperationKind::Evaluate) })
            }
            Command::Fetch(range) => {
                Some(Self::of_tensors(OperationKind::Fetch, range.first, range.n_tensors))
            }
            Command::Save(range) => {
                Some(Self::of_tensors(OperationKind::Save, range.first, range.n_tensors))
            }
            Command::Load { first, tensors } => {
                Some(Self::of_tensors(OperationKind::Load, *first, tensors.len()))
            }
            Command::ResetProfile => Some(Self::of(OperationKind::ResetProfile)),
        }
    }

    /// Returns true if ranks report parts of tensors.
    pub(super) const fn has_parts(self) -> bool {
        matches!(self.kind, OperationKind::Evaluate | OperationKind::Fetch | OperationKind::Save)
    }

    /// Returns true if a process receives these parts.
    pub(super) const fn is_for(self, process: usize) -> bool {
        !matches!(self.kind, OperationKind::Save) || process == 0
    }

    pub(super) fn to_bytes(self) -> [u8; OPERATION_BYTES] {
        let mut bytes = [0; OPERATION_BYTES];
        bytes[0] = self.kind as u8;
        bytes[1..9].copy_from_slice(&self.id.to_le_bytes());
        bytes[9..].copy_from_slice(&self.argument.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; OPERATION_BYTES] = bytes.try_into().ok()?;
        let kind = *KINDS.get(usize::from(bytes[0]))?;
        let id = u64::from_le_bytes(bytes[1..9].try_into().ok()?);
        let argument = u32::from_le_bytes(bytes[9..].try_into().ok()?);
        Some(Self { kind, id, argument })
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, id, argument } = self;
        match kind {
            OperationKind::Start => write!(
                f,
                "the start of a trainer (model and configuration {id:016x}, communicator {argument})"
            ),
            OperationKind::Train => {
                write!(f, "training step {id} with learning rate {}", f32::from_bits(*argument))
            }
            OperationKind::Evaluate if *id == 0 => f.write_str("an evaluation"),
            OperationKind::Evaluate => write!(f, "an evaluation by entry {id}"),
            OperationKind::Fetch => write!(f, "fetching {argument} tensors from number {id} on"),
            OperationKind::Save => write!(f, "saving {argument} tensors from number {id} on"),
            OperationKind::Load => write!(f, "loading {argument} tensors from number {id} on"),
            OperationKind::ResetProfile => f.write_str("resetting the profile"),
            OperationKind::Ask => f.write_str("a query of all processes"),
        }
    }
}

/// Progress of a trainer.
pub(super) struct Progress {
    /// Number of the trainer, the same in all processes.
    pub(super) trainer: u64,
    /// Number of its communicator.
    pub(super) communicator: u32,
    current_command: Mutex<CurrentCommand>,
    /// The last completed command.
    done: AtomicU64,
    /// The last command for which this process has announced that it waits.
    announced: AtomicU64,
}

/// The current command, or the last one.
struct CurrentCommand {
    sequence: u64,
    operation: Operation,
    /// Thread that gave the command.
    thread: ThreadId,
}

impl Progress {
    /// Creates the progress of a new trainer, whose start is command 0.
    pub(super) fn new(trainer: u64, communicator: u32, start: Operation) -> Self {
        let (done, announced) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        let operation = Operation { argument: communicator, ..start };
        let current_command =
            Mutex::new(CurrentCommand { sequence: 0, operation, thread: thread::current().id() });
        Self { trainer, communicator, current_command, done, announced }
    }

    /// Begins the next command.
    pub(super) fn begin(&self, operation: Operation) {
        let mut current_command = lock(&self.current_command);
        *current_command = CurrentCommand {
            sequence: current_command.sequence + 1,
            operation,
            thread: thread::current().id(),
        };
    }

    /// Completes the command in all processes.
    pub(super) fn finish(&self) {
        let (sequence, _) = self.current();
        self.done.store(sequence, Ordering::SeqCst);
    }

    /// Returns the last completed command.
    pub(super) fn last_done(&self) -> u64 {
        self.done.load(Ordering::SeqCst)
    }

    /// Returns the number and the operation of the current command.
    pub(super) fn current(&self) -> (u64, Operation) {
        let current_command = lock(&self.current_command);
        (current_command.sequence, current_command.operation)
    }

    /// Returns true if the same thread drives another trainer. It then begins no command of one
    /// while it waits in the other.
    pub(super) fn has_same_thread_as(&self, other: &Self) -> bool {
        let thread = lock(&self.current_command).thread;
        thread == lock(&other.current_command).thread
    }

    /// Marks a command as announced. Returns true if it was not announced before.
    pub(super) fn announce(&self, sequence: u64) -> bool {
        self.announced.swap(sequence, Ordering::SeqCst) != sequence
    }
}

/// The open trainers of this process.
#[derive(Default)]
pub(super) struct ProgressList(Mutex<Vec<Weak<Progress>>>);

impl ProgressList {
    pub(super) fn add(&self, progress: &Arc<Progress>) {
        let mut all = lock(&self.0);
        all.retain(|it| it.strong_count() > 0);
        all.push(Arc::downgrade(progress));
    }

    pub(super) fn all(&self) -> Vec<Arc<Progress>> {
        lock(&self.0).iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns the trainer with this number.
    pub(super) fn find(&self, trainer: u64) -> Option<Arc<Progress>> {
        lock(&self.0).iter().filter_map(Weak::upgrade).find(|it| it.trainer == trainer)
    }
}
