//! What processes tell each other beside the work, so that none waits for another that will not come.
#![expect(unsafe_code, reason = "messages on their way are in memory that stays")]

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    Process,
    calls::{Channel, Requests},
    course::Course,
    messages::{MAX_BYTES, Message},
};
use crate::{Error, ErrorKind, abort::lock};

/// How often a process that waits looks for messages.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How long a process that has left may take to say why.
const REASONS_TAKE: Duration = Duration::from_millis(300);
/// How long a process that has failed waits to hear whether others have failed alike.
const OTHERS_TAKE: Duration = Duration::from_millis(500);
/// How long processes that have failed wait for the others to end, before all are ended.
const ENDING_TAKES: Duration = Duration::from_secs(2);

/// The channel of control, and what came by it.
pub(super) struct Control {
    channel: Channel,
    process: Process,
    inbox: Mutex<Inbox>,
    outbox: Mutex<Outbox>,
    /// Whether this process has told of a failure of its own.
    has_failed: AtomicBool,
}

struct Inbox {
    looked: Instant,
    /// The failures of others, with the number of the process.
    failures: Vec<(usize, String)>,
    /// What else others said, and when.
    notes: Vec<(usize, Message, Instant)>,
    buffer: Box<[u8; MAX_BYTES]>,
}

#[derive(Default)]
struct Outbox {
    requests: Requests,
    /// What is under way.
    messages: Vec<Box<[u8]>>,
}

impl Control {
    pub(super) fn new(channel: Channel, process: Process) -> Self {
        let buffer = Box::new([0; MAX_BYTES]);
        let (failures, notes, looked) = (Vec::new(), Vec::new(), Instant::now());
        Self {
            channel,
            process,
            inbox: Mutex::new(Inbox { looked, failures, notes, buffer }),
            outbox: Mutex::default(),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Tells all other processes. What cannot be sent is lost; they learn of the end of this process in other ways.
    pub(super) fn tell(&self, message: &Message) {
        let mut outbox = lock(&self.outbox);
        let Outbox { requests, messages } = &mut *outbox;
        if requests.is_done().unwrap_or(false) {
            messages.clear();
        }
        let bytes = message.to_bytes().into_boxed_slice();
        let (start, n_bytes) = (bytes.as_ptr(), bytes.len());
        messages.push(bytes);
        for process in (0..self.process.count).filter(|it| *it != self.process.number) {
            // SAFETY: the memory stays until all requests are done.
            let _lost = unsafe { self.channel.begin_send((process, 0), start, n_bytes, requests) };
        }
    }

    /// Tells the others of a failure, unless it is theirs.
    pub(super) fn tell_failure(&self, text: &str) {
        if !self.is_of_another(text) && !self.has_failed.swap(true, Ordering::SeqCst) {
            self.tell(&Message::Failed(text.to_owned()));
        }
    }

    /// Tells the others of a failure, and finds out whether this process is the one that tells people.
    pub(super) fn is_to_say(&self, text: &str) -> bool {
        self.tell_failure(text);
        if self.is_of_another(text) {
            return false;
        }
        let started = Instant::now();
        while self.process.number > 0 && started.elapsed() < OTHERS_TAKE {
            self.look(None);
            let failures = &lock(&self.inbox).failures;
            if failures.iter().any(|it| it.0 < self.process.number && is_alike(&it.1, text)) {
                return false;
            }
            thread::sleep(LOOK_EVERY);
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

    /// Takes what others have said: why this process cannot go on with what it does, if so.
    pub(super) fn look(&self, course: Option<&Course>) -> Option<Error> {
        // Where another thread looks, that is enough.
        let mut inbox = self.inbox.try_lock().ok()?;
        if inbox.looked.elapsed() < LOOK_EVERY {
            return None;
        }
        inbox.looked = Instant::now();
        loop {
            let taken = self.channel.take(&mut inbox.buffer[..]);
            let (process, n_bytes) = match taken {
                Ok(Some(taken)) => taken,
                Ok(None) => break,
                Err(error) => return Some(error),
            };
            match Message::from_bytes(&inbox.buffer[..n_bytes.min(MAX_BYTES)]) {
                Some(Message::Failed(text)) => inbox.failures.push((process, text)),
                Some(message) => inbox.notes.push((process, message, Instant::now())),
                None => {}
            }
        }
        inbox.judge(course, self.process)
    }

    /// Leaves the other processes: waits until all want to end, or after a failure for a while, after which all are ended.
    pub(super) fn leave(&self) {
        self.tell(&Message::Ended);
        let mut requests = Requests::default();
        let mut is_done = self.channel.begin_meeting(&mut requests).is_err();
        let mut failed = None;
        while !is_done {
            is_done = requests.is_done().unwrap_or(true);
            self.look(None);
            if self.is_failed() && failed.get_or_insert_with(Instant::now).elapsed() > ENDING_TAKES
            {
                return self.channel.abort();
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

impl Inbox {
    fn judge(&mut self, course: Option<&Course>, process: Process) -> Option<Error> {
        if let Some((from, text)) = self.failures.first() {
            return Some(Error::new(ErrorKind::Rank, said_by(*from, text)));
        }
        let course = course?;
        let (order, deed) = course.place();
        self.notes.retain(|note| match &note.1 {
            Message::Waiting { trainer, order: theirs, .. } => {
                *trainer > course.trainer || *theirs >= order
            }
            Message::Closed { .. } | Message::Failed(_) | Message::Ended => true,
        });
        let closed = |from: usize| {
            self.notes.iter().find_map(|note| match &note.1 {
                Message::Closed { trainer, order }
                    if (note.0, *trainer) == (from, course.trainer) =>
                {
                    Some(*order)
                }
                _ => None,
            })
        };
        let fault = |(from, message, at): &(usize, Message, Instant)| match message {
            Message::Waiting { trainer, order: theirs, deed: other } => {
                let is_other = *trainer == course.trainer && *theirs == order && *other != deed;
                is_other.then(|| differ((*from, *other), (process.number, deed)))
            }
            Message::Closed { .. } | Message::Ended => {
                let is_left = match (message, closed(*from)) {
                    (Message::Ended, None) => true,
                    (_, last) => last.is_some_and(|last| last < order),
                };
                let is_left = is_left && at.elapsed() > REASONS_TAKE;
                is_left.then(|| left(*from, &deed))
            }
            Message::Failed(_) => None,
        };
        self.notes.iter().find_map(fault)
    }
}

/// Whether two errors have the same cause: what was expected is the same.
fn is_alike(one: &str, other: &str) -> bool {
    let cause = |text: &str| text.split(", found").next().map(str::to_owned);
    cause(one) == cause(other)
}

fn said_by(process: usize, text: &str) -> String {
    format!("process {process}: {text}")
}

/// The error where processes do not do the same.
pub(super) fn differ(
    one: (usize, super::course::Deed),
    other: (usize, super::course::Deed),
) -> Error {
    let (first, second) = if one.0 < other.0 { (one, other) } else { (other, one) };
    let message = format!(
        "expected all processes to do the same, found {} in process {}, and {} in process {}",
        first.1, first.0, second.1, second.0
    );
    Error::new(ErrorKind::Process, message)
}

fn left(process: usize, deed: &super::course::Deed) -> Error {
    let message = format!(
        "expected all processes to do the same, found that process {process} has ended its work before {deed}"
    );
    Error::new(ErrorKind::Process, message)
}
