//! Traces: the times of all kernels and collectives in one step.

use std::{borrow::Cow, collections::BTreeMap, fmt::Write, time::Instant};

use soybean_plan::{BufferId, json_string};

use crate::KernelCategory;

/// One kernel or collective of a rank, with its time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Span {
    /// The kind of the kernel or of other work.
    pub(crate) name: Cow<'static, str>,
    /// The number of the kernel or collective in the model's list; `None` for other work.
    pub(crate) kernel: Option<usize>,
    /// The first buffer that it writes.
    pub(crate) buffer: Option<BufferId>,
    /// The kind of work; `None` for copies at the start and the end of a step.
    pub(crate) work: Option<KernelCategory>,
    /// The stream on which it ran.
    pub(crate) stream: &'static str,
    /// The start time in microseconds.
    pub(crate) start: f64,
    /// The duration in microseconds.
    pub(crate) duration: f64,
    /// The bytes read and written, each operand and each result once; 0 if they are not known.
    pub(crate) n_bytes: u64,
    /// The floating-point operations of products; 0 for other work.
    pub(crate) n_operations: u64,
}

impl Span {
    /// Returns the rates of the span as arguments of its event: bytes per nanosecond are gigabytes
    /// per second.
    fn rates(&self) -> String {
        let rate = |name: &str, n: u64, per_microsecond: f64| {
            let value = n as f64 / self.duration / per_microsecond;
            (n > 0 && self.duration > 0.0).then(|| format!(r#""{name}":{value:.1}"#))
        };
        let megabytes =
            (self.n_bytes > 0).then(|| format!(r#""MB":{:.3}"#, self.n_bytes as f64 / 1e6));
        let rates =
            [megabytes, rate("GB/s", self.n_bytes, 1e3), rate("TFLOP/s", self.n_operations, 1e6)];
        rates.into_iter().flatten().collect::<Vec<_>>().join(",")
    }
}

/// A piece of work that was not measured, such as a predicted one.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceEvent {
    /// The name.
    pub name: String,
    /// The row in which it is shown, below those of the rank.
    pub row: &'static str,
    /// The time of its start, in microseconds from the first start of the rank.
    pub start: f64,
    /// The duration in microseconds.
    pub duration: f64,
}

/// The kernels and collectives of all ranks in one training step, with their times.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The spans of each rank, in order.
    ranks: Vec<Vec<Span>>,
}

impl Trace {
    pub(crate) const fn new(ranks: Vec<Vec<Span>>) -> Self {
        Self { ranks }
    }

    /// Returns the number of spans of all ranks.
    #[must_use]
    pub fn n_spans(&self) -> usize {
        self.ranks.iter().map(Vec::len).sum()
    }

    /// Returns the fraction of the step that was spent on this kind of work, from 0 to 1, as the
    /// mean of all ranks. KernelCategory that runs on several streams at once counts for each.
    #[must_use]
    pub fn share(&self, work: KernelCategory) -> f64 {
        let of_work = |it: &&Span| it.work == Some(work);
        // `sum` of no numbers would be -0.
        let spent = |spans: &[Span]| {
            spans.iter().filter(of_work).fold(0.0, |spent, it| spent + it.duration)
        };
        let share = |spans: &Vec<Span>| spent(spans) / length(spans).max(f64::MIN_POSITIVE);
        self.ranks.iter().map(share).sum::<f64>() / self.ranks.len().max(1) as f64
    }

    /// Returns the seconds that all calls of a kernel or collective took together, by its number in
    /// the model's list: the mean of all ranks.
    #[must_use]
    pub fn kernel_seconds(&self) -> BTreeMap<usize, f64> {
        let mut seconds = BTreeMap::new();
        for span in self.ranks.iter().flatten() {
            let Some(kernel) = span.kernel else { continue };
            *seconds.entry(kernel).or_default() += span.duration / 1e6 / self.ranks.len() as f64;
        }
        seconds
    }

    /// Puts names before those of kernels: to each buffer of the program belongs the name of what
    /// it holds, such as its layer.
    pub fn name_buffers(&mut self, names: &[String]) {
        for span in self.ranks.iter_mut().flatten() {
            let name = span.buffer.and_then(|it| names.get(it)).filter(|it| !it.is_empty());
            if let Some(name) = name {
                span.name = format!("{name}, {}", span.name).into();
            }
        }
    }

    /// Adds work that was not measured to a rank.
    pub fn add(&mut self, rank: usize, events: impl IntoIterator<Item = TraceEvent>) {
        let Some(spans) = self.ranks.get_mut(rank) else { return };
        let origin = first_start(spans);
        spans.extend(events.into_iter().map(|TraceEvent { name, row, start, duration }| Span {
            name: name.into(),
            kernel: None,
            buffer: None,
            work: None,
            stream: row,
            start: origin + start,
            duration,
            n_bytes: 0,
            n_operations: 0,
        }));
    }

    /// Formats the trace for Chrome's `about:tracing` and Perfetto: one process for each rank, one
    /// thread for each stream, times in microseconds. Spans on GPUs have their rates as arguments:
    /// bytes, and the operations of products. Source: "Trace Event Format", complete
    /// events.
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
            for span in spans {
                let Span { name, kernel, stream, start, duration, .. } = span;
                let thread = streams.iter().position(|it| it == stream).unwrap_or(0);
                let number = kernel.map_or_else(String::new, |it| format!(" {it}"));
                let name = json_string(&format!("{name}{number}"));
                events.push(format!(
                    r#"{{"ph":"X","name":{name},"cat":"{stream}","pid":{rank},"tid":{thread},"ts":{start:.3},"dur":{duration:.3},"args":{{{}}}}}"#,
                    span.rates()
                ));
            }
        }
        format!("{{\"traceEvents\":[\n{}\n]}}\n", events.join(",\n"))
    }
}

/// Returns the microseconds from the first start to the last end.
fn length(spans: &[Span]) -> f64 {
    let end = spans.iter().map(|it| it.start + it.duration).fold(0.0, f64::max);
    (end - first_start(spans)).max(0.0)
}

/// Returns the first start in microseconds; 0 without spans.
fn first_start(spans: &[Span]) -> f64 {
    spans.iter().map(|it| it.start).reduce(f64::min).unwrap_or(0.0)
}

fn label(what: &str, rank: usize, thread: usize, name: &str) -> String {
    let mut text = String::new();
    let _infallible = write!(
        text,
        r#"{{"ph":"M","name":"{what}","pid":{rank},"tid":{thread},"args":{{"name":"{name}"}}}}"#
    );
    text
}

/// Returns the microseconds between two times.
pub(crate) fn microseconds(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    // Guards: names that break the JSON of a trace.
    #[test]
    fn names_are_escaped() {
        let span = Span {
            name: "a \"b\" \\ \u{1b}\n".into(),
            kernel: Some(3),
            buffer: None,
            work: None,
            stream: "compute",
            start: 0.0,
            duration: 1.0,
            n_bytes: 0,
            n_operations: 0,
        };
        let text = Trace::new(vec![vec![span]]).to_json();
        assert!(text.contains(r#""name":"a \"b\" \\ \u001b\u000a 3","cat""#), "{text}");
        assert!(!text.chars().any(|it| it.is_control() && it != '\n'), "{text}");
    }
}
