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
pub(super) struct Deed {
    pub(super) act: Act,
    /// What is told apart by number: a step, a tensor, a model.
    pub(super) word: u64,
    /// And besides: the bits of a learning rate, a number of tensors, the number of a channel.
    pub(super) detail: u32,
}

/// The kinds of orders, and the other occasions on which processes wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Start,
    Train,
    Evaluate,
    Fetch,
    Save,
    Load,
    ResetProfile,
    Ask,
}

const ACTS: [Act; 8] = [
    Act::Start,
    Act::Train,
    Act::Evaluate,
    Act::Fetch,
    Act::Save,
    Act::Load,
    Act::ResetProfile,
    Act::Ask,
];

/// The length of a deed in bytes.
pub(super) const DEED_BYTES: usize = 13;

impl Deed {
    /// An act of which nothing more is to be said.
    pub(super) const fn of(act: Act) -> Self {
        Self { act, word: 0, detail: 0 }
    }

    fn of_tensors(act: Act, first: usize, n_tensors: usize) -> Self {
        Self { act, word: first as u64, detail: u32::try_from(n_tensors).unwrap_or(u32::MAX) }
    }

    /// What an order is; none where no process waits for another.
    pub(super) fn of_order(order: &Order<'_>) -> Option<Self> {
        match order {
            Order::Train(Training { moment: Moment { counters, learning_rate }, .. }) => {
                let (word, detail) = (counters.n_steps + 1, learning_rate.to_bits());
                Some(Self { act: Act::Train, word, detail })
            }
            Order::Queue { .. } => None,
            Order::Evaluate { .. } => Some(Self::of(Act::Evaluate)),
            Order::Fetch(stretch) => {
                Some(Self::of_tensors(Act::Fetch, stretch.first, stretch.n_tensors))
            }
            Order::Save(stretch) => {
                Some(Self::of_tensors(Act::Save, stretch.first, stretch.n_tensors))
            }
            Order::Load { first, tensors } => {
                Some(Self::of_tensors(Act::Load, *first, tensors.len()))
            }
            Order::ResetProfile => Some(Self::of(Act::ResetProfile)),
        }
    }

    /// Whether ranks report parts of tensors.
    pub(super) const fn has_parts(self) -> bool {
        matches!(self.act, Act::Evaluate | Act::Fetch | Act::Save)
    }

    /// Whether a process is told these parts.
    pub(super) const fn is_for(self, process: usize) -> bool {
        !matches!(self.act, Act::Save) || process == 0
    }

    pub(super) fn to_bytes(self) -> [u8; DEED_BYTES] {
        let mut bytes = [0; DEED_BYTES];
        bytes[0] = self.act as u8;
        bytes[1..9].copy_from_slice(&self.word.to_le_bytes());
        bytes[9..].copy_from_slice(&self.detail.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; DEED_BYTES] = bytes.try_into().ok()?;
        let act = *ACTS.get(usize::from(bytes[0]))?;
        let word = u64::from_le_bytes(bytes[1..9].try_into().ok()?);
        let detail = u32::from_le_bytes(bytes[9..].try_into().ok()?);
        Some(Self { act, word, detail })
    }
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { act, word, detail } = self;
        match act {
            Act::Start => write!(
                f,
                "the start of a trainer (model and configuration {word:016x}, channel {detail})"
            ),
            Act::Train => {
                write!(f, "training step {word} with learning rate {}", f32::from_bits(*detail))
            }
            Act::Evaluate => f.write_str("an evaluation"),
            Act::Fetch => write!(f, "fetching {detail} tensors from number {word} on"),
            Act::Save => write!(f, "saving {detail} tensors from number {word} on"),
            Act::Load => write!(f, "loading {detail} tensors from number {word} on"),
            Act::ResetProfile => f.write_str("setting all times to zero"),
            Act::Ask => f.write_str("asking all processes"),
        }
    }
}

/// How far a trainer is.
pub(super) struct Course {
    /// The number of the trainer, the same in all processes.
    pub(super) trainer: u64,
    /// The number of its channel.
    pub(super) channel: u32,
    place: Mutex<Place>,
    /// The last order that was carried out.
    done: AtomicU64,
    /// The last order of which others were told that this process waits.
    told: AtomicU64,
}

/// The order that is carried out, or was last.
struct Place {
    order: u64,
    deed: Deed,
    /// Who gave it.
    thread: ThreadId,
}

impl Course {
    /// The beginning of a trainer, which is order 0, on a channel that has a number.
    pub(super) fn new(trainer: u64, channel: u32, start: Deed) -> Self {
        let (done, told) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        let deed = Deed { detail: channel, ..start };
        let place = Mutex::new(Place { order: 0, deed, thread: thread::current().id() });
        Self { trainer, channel, place, done, told }
    }

    /// The next order begins.
    pub(super) fn go_on(&self, deed: Deed) {
        let mut place = lock(&self.place);
        *place = Place { order: place.order + 1, deed, thread: thread::current().id() };
    }

    /// The order is carried out, in all processes.
    pub(super) fn finish(&self) {
        let (order, _) = self.place();
        self.done.store(order, Ordering::SeqCst);
    }

    /// The last order that was carried out.
    pub(super) fn n_done(&self) -> u64 {
        self.done.load(Ordering::SeqCst)
    }

    /// The order that is carried out, or was last.
    pub(super) fn place(&self) -> (u64, Deed) {
        let place = lock(&self.place);
        (place.order, place.deed)
    }

    /// Whether the same thread gives the orders of another trainer: then it gives no order of one while it waits in one of the other.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        let thread = lock(&self.place).thread;
        thread == lock(&other.place).thread
    }

    /// Whether others have not been told yet that this process waits in this order.
    pub(super) fn is_news(&self, order: u64) -> bool {
        self.told.swap(order, Ordering::SeqCst) != order
    }
}

/// The trainers of this process that have not ended.
#[derive(Default)]
pub(super) struct Courses(Mutex<Vec<Weak<Course>>>);

impl Courses {
    pub(super) fn add(&self, course: &Arc<Course>) {
        let mut all = lock(&self.0);
        all.retain(|it| it.strong_count() > 0);
        all.push(Arc::downgrade(course));
    }

    pub(super) fn all(&self) -> Vec<Arc<Course>> {
        lock(&self.0).iter().filter_map(Weak::upgrade).collect()
    }

    /// The trainer with this number.
    pub(super) fn find(&self, trainer: u64) -> Option<Arc<Course>> {
        lock(&self.0).iter().filter_map(Weak::upgrade).find(|it| it.trainer == trainer)
    }
}
