//! How far a trainer is, by the orders that it gives; all processes give the same ones.

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
    ranks::{Moment, Order, Training},
};

/// What an order is, as far as processes must agree on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operation {
    pub(super) kind: OperationKind,
    /// What is announced apart by number: a step, a tensor, a model.
    pub(super) id: u64,
    /// And besides: the bits of a learning rate, a number of tensors, the number of a communicator.
    pub(super) argument: u32,
}

/// The kinds of orders, and the other occasions on which processes wait for each other.
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

/// The length of a operation in bytes.
pub(super) const OPERATION_BYTES: usize = 13;

impl Operation {
    /// An kind of which nothing extra is to be said.
    pub(super) const fn of(kind: OperationKind) -> Self {
        Self { kind, id: 0, argument: 0 }
    }

    fn of_tensors(kind: OperationKind, first: usize, n_tensors: usize) -> Self {
        Self { kind, id: first as u64, argument: u32::try_from(n_tensors).unwrap_or(u32::MAX) }
    }

    /// What an order is; none where no process waits for another.
    pub(super) fn of_order(order: &Order<'_>) -> Option<Self> {
        match order {
            Order::Train(Training { moment: Moment { counters, learning_rate }, .. }) => {
                let (id, argument) = (counters.n_steps + 1, learning_rate.to_bits());
                Some(Self { kind: OperationKind::Train, id, argument })
            }
            Order::Queue { .. } => None,
            Order::Evaluate { .. } => Some(Self::of(OperationKind::Evaluate)),
            Order::Fetch(stretch) => {
                Some(Self::of_tensors(OperationKind::Fetch, stretch.first, stretch.n_tensors))
            }
            Order::Save(stretch) => {
                Some(Self::of_tensors(OperationKind::Save, stretch.first, stretch.n_tensors))
            }
            Order::Load { first, tensors } => {
                Some(Self::of_tensors(OperationKind::Load, *first, tensors.len()))
            }
            Order::ResetProfile => Some(Self::of(OperationKind::ResetProfile)),
        }
    }

    /// Whether ranks report parts of tensors.
    pub(super) const fn has_parts(self) -> bool {
        matches!(self.kind, OperationKind::Evaluate | OperationKind::Fetch | OperationKind::Save)
    }

    /// Whether a process is announced these parts.
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
            OperationKind::Evaluate => f.write_str("an evaluation"),
            OperationKind::Fetch => write!(f, "fetching {argument} tensors from number {id} on"),
            OperationKind::Save => write!(f, "saving {argument} tensors from number {id} on"),
            OperationKind::Load => write!(f, "loading {argument} tensors from number {id} on"),
            OperationKind::ResetProfile => f.write_str("setting all times to zero"),
            OperationKind::Ask => f.write_str("asking all processes"),
        }
    }
}

/// How far a trainer is.
pub(super) struct Progress {
    /// The number of the trainer, the same in all processes.
    pub(super) trainer: u64,
    /// The number of its communicator.
    pub(super) communicator: u32,
    current_order: Mutex<CurrentOrder>,
    /// The last order that was carried out.
    done: AtomicU64,
    /// The last order of which peers were announced that this process waits.
    announced: AtomicU64,
}

/// The order that is carried out, or was last.
struct CurrentOrder {
    order: u64,
    operation: Operation,
    /// Who gave it.
    thread: ThreadId,
}

impl Progress {
    /// The beginning of a trainer, which is order 0, on a communicator that has a number.
    pub(super) fn new(trainer: u64, communicator: u32, start: Operation) -> Self {
        let (done, announced) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        let operation = Operation { argument: communicator, ..start };
        let current_order =
            Mutex::new(CurrentOrder { order: 0, operation, thread: thread::current().id() });
        Self { trainer, communicator, current_order, done, announced }
    }

    /// The next order begins.
    pub(super) fn begin(&self, operation: Operation) {
        let mut current_order = lock(&self.current_order);
        *current_order = CurrentOrder {
            order: current_order.order + 1,
            operation,
            thread: thread::current().id(),
        };
    }

    /// The order is carried out, in all processes.
    pub(super) fn finish(&self) {
        let (order, _) = self.current();
        self.done.store(order, Ordering::SeqCst);
    }

    /// The last order that was carried out.
    pub(super) fn last_done(&self) -> u64 {
        self.done.load(Ordering::SeqCst)
    }

    /// The order that is carried out, or was last.
    pub(super) fn current(&self) -> (u64, Operation) {
        let current_order = lock(&self.current_order);
        (current_order.order, current_order.operation)
    }

    /// Whether the same thread gives the orders of another trainer: then it gives no order of one while it waits in one of the other.
    pub(super) fn has_same_thread_as(&self, other: &Self) -> bool {
        let thread = lock(&self.current_order).thread;
        thread == lock(&other.current_order).thread
    }

    /// Whether peers have not been announced yet that this process waits in this order.
    pub(super) fn announce(&self, order: u64) -> bool {
        self.announced.swap(order, Ordering::SeqCst) != order
    }
}

/// The trainers of this process that have not ended.
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

    /// The trainer with this number.
    pub(super) fn find(&self, trainer: u64) -> Option<Arc<Progress>> {
        lock(&self.0).iter().filter_map(Weak::upgrade).find(|it| it.trainer == trainer)
    }
}
