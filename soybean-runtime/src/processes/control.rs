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
    calls::{Channel, Requests},
    course::{Course, Courses, Deed},
    messages::{MAX_BYTES, Message},
};
use crate::{Error, ErrorKind, abort::lock};

/// How often a process that waits looks for messages.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How long a process that has left may take to say why.
pub(super) const REASONS_TAKE: Duration = Duration::from_millis(300);
/// How long a process that has failed by itself waits to hear whether others have failed alike.
const OTHERS_TAKE: Duration = Duration::from_millis(500);
/// How long a process waits for the others to come to an error that was not told at once, and so is all processes'.
const ALL_TAKE: Duration = Duration::from_secs(2);
/// How long processes that have failed wait for the others to end, before all are ended.
const ENDING_TAKES: Duration = Duration::from_secs(2);

/// The channel of control, and what came by it.
pub(super) struct Control {
    channel: Channel,
    process: Process,
    inbox: Mutex<Inbox>,
    outbox: Mutex<Outbox>,
    pub(super) courses: Courses,
    /// Whether this process has told of a failure of its own.
    has_failed: AtomicBool,
}

struct Inbox {
    looked: Instant,
    /// The processes that write something that must not be cut off, once for each such thing.
    writing: Vec<usize>,
    /// The failures of others, with the number of the process.
    failures: Vec<(usize, String)>,
    /// What else others said, and when.
    notes: Vec<(usize, Message, Instant)>,
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
    pub(super) fn new(channel: Channel, process: Process) -> Self {
        Self {
            channel,
            process,
            inbox: Mutex::new(Inbox::new()),
            outbox: Mutex::default(),
            courses: Courses::default(),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Tells all other processes. What cannot be sent is lost; they learn of the end of this process in other ways.
    pub(super) fn tell(&self, message: &Message) {
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
        // What was told at once is a failure of this process. Others come to the rest too, when they have finished what they write.
        let is_own = self.has_failed.load(Ordering::SeqCst);
        let patience = if is_own { OTHERS_TAKE } else { ALL_TAKE };
        self.tell_failure(text);
        if self.is_of_another(text) {
            return false;
        }
        let mut started = Instant::now();
        while self.process.number > 0 && started.elapsed() < patience {
            self.look(None);
            let inbox = lock(&self.inbox);
            let is_before = |process: usize| process < self.process.number;
            if inbox.failures.iter().any(|it| is_before(it.0) && is_alike(&it.1, text)) {
                return false;
            }
            if !is_own && inbox.writing.iter().any(|it| is_before(*it)) {
                started = Instant::now();
            }
            drop(inbox);
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
            if let Some(message) = Message::from_bytes(&inbox.buffer[..n_bytes.min(MAX_BYTES)]) {
                inbox.take(process, message);
            }
        }
        inbox.judge(course, &self.courses, self.process)
    }

    /// Tells the others that this process waits in an order of this trainer, once.
    pub(super) fn tell_waiting(&self, course: &Course) {
        let (order, deed) = course.place();
        if course.is_news(order) {
            let places = self.courses.all().iter().map(|it| (it.trainer, it.place().0)).collect();
            self.tell(&Message::Waiting { trainer: course.trainer, order, deed, places });
        }
    }

    /// Tells the others that a trainer has ended.
    pub(super) fn tell_closed(&self, course: &Course) {
        let (trainer, order) = (course.trainer, course.n_done());
        self.tell(&Message::Closed { trainer, order });
    }

    /// Leaves the other processes: waits until all want to end, or after a failure for a while, after which all are ended. What a process writes is finished before.
    pub(super) fn leave(&self) {
        self.courses.all().iter().for_each(|it| self.tell_closed(it));
        self.tell(&Message::Ended);
        let mut requests = Requests::default();
        let mut is_done = self.channel.begin_meeting(&mut requests).is_err();
        let mut failed = None;
        while !is_done {
            is_done = requests.is_done().unwrap_or(true);
            self.look(None);
            if !self.is_failed() || !lock(&self.inbox).writing.is_empty() {
                failed = None;
            } else if failed.get_or_insert_with(Instant::now).elapsed() > ENDING_TAKES {
                return self.channel.abort();
            }
            thread::sleep(LOOK_EVERY);
        }
        lock(&self.outbox).is_closed = true;
    }
}

impl Inbox {
    fn new() -> Self {
        let (failures, notes, writing) = (Vec::new(), Vec::new(), Vec::new());
        let buffer = Box::new([0; MAX_BYTES]);
        Self { looked: Instant::now(), writing, failures, notes, buffer }
    }

    fn take(&mut self, from: usize, message: Message) {
        match message {
            Message::Failed(text) => self.failures.push((from, text)),
            Message::Writing => self.writing.push(from),
            Message::Written => {
                let begun = self.writing.iter().position(|it| *it == from);
                begun.map(|it| self.writing.swap_remove(it));
            }
            Message::Waiting { .. } | Message::Closed { .. } | Message::Ended => {
                self.notes.push((from, message, Instant::now()));
            }
        }
    }

    /// Why a process that waits in an order of the trainer `course`, one of `courses`, cannot go on.
    fn judge(
        &mut self,
        course: Option<&Course>,
        courses: &Courses,
        process: Process,
    ) -> Option<Error> {
        if let Some((from, text)) = self.failures.first() {
            return Some(Error::new(ErrorKind::Rank, said_by(*from, text)));
        }
        let course = course?;
        // What this process has behind it is over.
        self.notes.retain(|note| match note.1 {
            Message::Waiting { trainer, order, .. } => match courses.find(trainer) {
                Some(own) => order >= own.place().0,
                None => trainer > course.trainer,
            },
            Message::Closed { .. } | Message::Ended => true,
            Message::Failed(_) | Message::Writing | Message::Written => false,
        });
        self.notes.iter().find_map(|(from, message, at)| {
            if let Some((theirs, own)) = crossed(message, course, courses) {
                return Some(differ((*from, &theirs), (process.number, &own)));
            }
            let is_left = at.elapsed() > REASONS_TAKE && self.has_left(*from, message, course);
            is_left.then(|| left(*from, &course.place().1))
        })
    }

    /// Whether a process that has told of its end, or of that of a trainer, does not come to what this one waits in.
    fn has_left(&self, from: usize, message: &Message, course: &Course) -> bool {
        let is_closed = |it: &Message| matches!(it, Message::Closed { trainer, .. } if *trainer == course.trainer);
        match message {
            Message::Closed { order, .. } => is_closed(message) && *order < course.place().0,
            Message::Ended => !self.notes.iter().any(|it| it.0 == from && is_closed(&it.1)),
            Message::Failed(_) | Message::Waiting { .. } | Message::Writing | Message::Written => {
                false
            }
        }
    }
}

/// What another process waits in and what this one waits in, if they wait for each other.
fn crossed(waiting: &Message, course: &Course, courses: &Courses) -> Option<(String, String)> {
    let Message::Waiting { trainer, order: theirs, deed: other, places } = waiting else {
        return None;
    };
    let (order, deed) = course.place();
    if *trainer == course.trainer {
        let is_other = *theirs == order && *other != deed;
        return is_other.then(|| (other.to_string(), deed.to_string()));
    }
    // Each has yet to begin what the other waits in; one that has done so may wait for a third.
    let own = courses.find(*trainer)?;
    let place = places.iter().find(|it| it.0 == course.trainer);
    let is_crossed =
        own.is_beside(course) && own.place().0 < *theirs && place.is_none_or(|it| it.1 < order);
    let of = |deed: &Deed, trainer| format!("{deed} of trainer {trainer}");
    is_crossed.then(|| (of(other, *trainer), of(&deed, course.trainer)))
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
pub(super) fn differ(one: (usize, &dyn Display), other: (usize, &dyn Display)) -> Error {
    let (first, second) = if one.0 < other.0 { (one, other) } else { (other, one) };
    let message = format!(
        "expected all processes to do the same, found {} in process {}, and {} in process {}",
        first.1, first.0, second.1, second.0
    );
    Error::new(ErrorKind::Process, message)
}

fn left(process: usize, deed: &Deed) -> Error {
    let message = format!(
        "expected all processes to do the same, found that process {process} has ended its work before {deed}"
    );
    Error::new(ErrorKind::Process, message)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::processes::course::Act;

    fn step(word: u64) -> Deed {
        Deed { act: Act::Train, word, detail: 0 }
    }

    /// A trainer that is at this order, which the calling thread has given.
    fn course(courses: &Courses, trainer: u64, order: u64) -> Arc<Course> {
        let course = Arc::new(Course::new(trainer, 1, Deed::of(Act::Start)));
        courses.add(&course);
        (1..=order).for_each(|it| course.go_on(step(it)));
        course
    }

    /// What process 0 concludes, which waits in order 5 of trainer 1 and has come to order 3 of trainer 2, when process 1 waits in this order of trainer 2, and has come to that of trainer 1.
    fn judged(theirs: u64, place: Option<u64>, in_two_threads: bool) -> Option<String> {
        let courses = Courses::default();
        let first = course(&courses, 1, 5);
        let _second = match in_two_threads {
            true => thread::scope(|it| it.spawn(|| course(&courses, 2, 3)).join().unwrap()),
            false => course(&courses, 2, 3),
        };
        let mut inbox = Inbox::new();
        let places = place.map(|it| (1, it)).into_iter().chain([(2, theirs)]).collect();
        inbox.take(1, Message::Waiting { trainer: 2, order: theirs, deed: step(9), places });
        let process = Process { number: 0, count: 2 };
        inbox.judge(Some(&first), &courses, process).map(|it| it.to_string())
    }

    #[test]
    fn processes_that_wait_for_each_other_in_two_trainers_are_told() {
        let found = judged(4, Some(4), false).unwrap();
        let (here, there) =
            (format!("{} of trainer 1", step(5)), format!("{} of trainer 2", step(9)));
        let expected = format!("found {here} in process 0, and {there} in process 1");
        assert!(found.ends_with(&expected), "{found}");
        // It has not even started the trainer.
        assert!(judged(4, None, false).is_some());
        // It has made the step in which this process waits, perhaps for a third.
        assert_eq!(judged(4, Some(5), false), None);
        // This process has made the step in which the other waits.
        assert_eq!(judged(3, Some(4), false), None);
        assert_eq!(judged(2, Some(4), false), None);
        // Another thread may come to it.
        assert_eq!(judged(4, Some(4), true), None);
    }

    #[test]
    fn what_is_written_is_known_until_it_is_there() {
        let mut inbox = Inbox::new();
        for (message, expected) in [(Message::Writing, 1), (Message::Written, 0)] {
            inbox.take(1, message);
            assert_eq!((inbox.writing.len(), inbox.notes.len()), (expected, 0));
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
