//! What each rank did when, in one step.

use std::{fmt::Write, time::Instant};

use crate::KernelCategory;

/// One piece of work of a rank.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Span {
    /// The kind of kernel, and its number in the model's list.
    pub(crate) name: String,
    /// What kind of work it is; none for what begins and ends a step.
    pub(crate) work: Option<KernelCategory>,
    /// The stream of the rank on which it ran.
    pub(crate) stream: &'static str,
    /// When it began, in microseconds.
    pub(crate) start: f64,
    /// How long it took, in microseconds.
    pub(crate) duration: f64,
}

/// The work of all ranks in one training step, with the time of each piece.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// For each rank what it did, in order.
    ranks: Vec<Vec<Span>>,
}

impl Trace {
    pub(crate) const fn new(ranks: Vec<Vec<Span>>) -> Self {
        Self { ranks }
    }

    /// The number of pieces of work.
    #[must_use]
    pub fn n_spans(&self) -> usize {
        self.ranks.iter().map(Vec::len).sum()
    }

    /// The share of the step that went into work of this kind, from 0 to 1: the mean of all ranks. What runs on several streams at once counts for each.
    #[must_use]
    pub fn share(&self, work: KernelCategory) -> f64 {
        let of_work = |it: &&Span| it.work == Some(work);
        // The sum of no numbers would be -0.
        let spent = |spans: &[Span]| {
            spans.iter().filter(of_work).fold(0.0, |spent, it| spent + it.duration)
        };
        let share = |spans: &Vec<Span>| spent(spans) / length(spans).max(f64::MIN_POSITIVE);
        self.ranks.iter().map(share).sum::<f64>() / self.ranks.len().max(1) as f64
    }

    /// The trace in the format of Chrome's `about:tracing` and of Perfetto: a process for each rank, a thread for each of its streams, times in microseconds. Source:
    /// "Trace Event Format", complete events.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut events = Vec::new();
        for (rank, spans) in self.ranks.iter().enumerate() {
            let mut streams: Vec<&str> = Vec::new();
            for span in spans {
                if !streams.contains(&span.stream) {
                    streams.push(span.stream);
                }
            }
            events.push(label("process_name", rank, 0, &format!("rank {rank}")));
            for (thread, stream) in streams.iter().enumerate() {
                events.push(label("thread_name", rank, thread, stream));
            }
            for Span { name, stream, start, duration, .. } in spans {
                let thread = streams.iter().position(|it| it == stream).unwrap_or(0);
                events.push(format!(
                    r#"{{"ph":"X","name":"{name}","cat":"{stream}","pid":{rank},"tid":{thread},"ts":{start:.3},"dur":{duration:.3}}}"#
                ));
            }
        }
        format!("{{\"traceEvents\":[\n{}\n]}}\n", events.join(",\n"))
    }
}

/// The microseconds from the first start to the last end.
fn length(spans: &[Span]) -> f64 {
    let start = spans.iter().map(|it| it.start).fold(f64::INFINITY, f64::min);
    let end = spans.iter().map(|it| it.start + it.duration).fold(0.0, f64::max);
    (end - start).max(0.0)
}

fn label(what: &str, rank: usize, thread: usize, name: &str) -> String {
    let mut text = String::new();
    let _infallible = write!(
        text,
        r#"{{"ph":"M","name":"{what}","pid":{rank},"tid":{thread},"args":{{"name":"{name}"}}}}"#
    );
    text
}

/// The microseconds from one moment to a later one.
pub(crate) fn microseconds(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64() * 1e6
}
