//! The results of a simulation.

use soybean_plan::{BufferId, Lane};

use crate::{engine::Outcome, links::Links, task::Task};

/// One step of a program on all ranks, with the time of each piece of work.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulation {
    /// The model.
    pub name: String,
    /// The time until the last rank ends its last task, in seconds.
    pub seconds: f64,
    /// The breakdown of each rank's time.
    pub ranks: Vec<RankLoad>,
    /// The load of each link.
    pub links: Vec<LinkLoad>,
    /// For each level of the cluster, the bytes of the transfers that cross it. A transfer crosses
    /// the slowest level between its two ranks.
    pub bytes_per_level: Vec<u64>,
    /// For each rank its tasks, in the order of the program.
    pub spans: Vec<Vec<Span>>,
}

/// The breakdown of a rank's time, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankLoad {
    /// The time with a running kernel.
    pub compute_seconds: f64,
    /// The time with a running collective.
    pub communication_seconds: f64,
    /// The time with a running collective and no running kernel.
    pub exposed_seconds: f64,
}

/// The load of a link in one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkLoad {
    /// The link's level, direction and GPUs: `groups: from GPUs 0 to 3`.
    pub name: String,
    /// The number of the level.
    pub level: usize,
    /// The bytes that it carried.
    pub bytes: u64,
    /// The time with at least one transfer, in seconds.
    pub busy_seconds: f64,
    /// The bandwidth, in bytes per second.
    pub bytes_per_second: f64,
}

/// One task of one rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The kind of kernel, and its number in the program's list.
    pub name: String,
    /// The first buffer that it writes.
    pub buffer: Option<BufferId>,
    /// The lane in which it ran.
    pub lane: Lane,
    /// The time of its start, in seconds from the start of the step.
    pub start: f64,
    /// The time of its end.
    pub end: f64,
}

impl Simulation {
    pub(crate) fn new(name: &str, tasks: &[Task], links: &Links, outcome: Outcome) -> Self {
        let n_ranks = outcome.spans.first().map_or(0, Vec::len);
        let span = |rank: usize, (task, spans): (&Task, &Vec<[f64; 2]>)| {
            let [start, end] = spans[rank];
            Span { name: task.name.clone(), buffer: task.buffer, lane: task.lane, start, end }
        };
        let of_rank =
            |rank| tasks.iter().zip(&outcome.spans).map(|it| span(rank, it)).collect::<Vec<_>>();
        let spans: Vec<Vec<Span>> = (0..n_ranks).map(of_rank).collect();
        let load = |number: usize| LinkLoad {
            name: links.name(number),
            level: links.links[number].level,
            bytes: outcome.bytes[number],
            busy_seconds: outcome.busy[number],
            bytes_per_second: links.links[number].bytes_per_second,
        };
        Self {
            name: name.to_owned(),
            seconds: spans.iter().flatten().map(|it| it.end).fold(0.0, f64::max),
            ranks: spans.iter().map(|it| RankLoad::of(it)).collect(),
            links: (0..links.links.len()).map(load).collect(),
            bytes_per_level: outcome.bytes_per_level,
            spans,
        }
    }

    /// Returns the longest time that a rank computes, in seconds.
    #[must_use]
    pub fn compute_seconds(&self) -> f64 {
        self.ranks.iter().map(|it| it.compute_seconds).fold(0.0, f64::max)
    }

    /// Returns the time by which the step is longer than the kernels of the rank that computes
    /// longest, in seconds.
    #[must_use]
    pub fn overhead_seconds(&self) -> f64 {
        self.seconds - self.compute_seconds()
    }

    /// Returns the step in the format of Chrome's `about:tracing` and of Perfetto: a process for
    /// each rank, a thread for each of its lanes, times in microseconds. Source: "Trace Event
    /// Format", complete events.
    #[must_use]
    pub fn chrome_trace(&self) -> String {
        crate::trace::chrome_trace(self)
    }
}

impl RankLoad {
    fn of(spans: &[Span]) -> Self {
        let in_lane = |lane: Lane| {
            spans
                .iter()
                .filter(move |it| it.lane == lane)
                .map(|it| [it.start, it.end])
                .collect::<Vec<_>>()
        };
        let (compute, communication) = (in_lane(Lane::Compute), in_lane(Lane::Communication));
        let communication_seconds = length(&communication);
        Self {
            compute_seconds: length(&compute),
            communication_seconds,
            exposed_seconds: communication_seconds - shared(&compute, &communication),
        }
    }
}

fn length(spans: &[[f64; 2]]) -> f64 {
    spans.iter().map(|[start, end]| end - start).sum()
}

/// Returns the time that two lists of spans have in common. Each list is sorted, and its spans do
/// not overlap.
fn shared(left: &[[f64; 2]], right: &[[f64; 2]]) -> f64 {
    let (mut at, mut seconds) = (0, 0.0);
    for [start, end] in right {
        while at < left.len() && left[at][1] <= *start {
            at += 1;
        }
        let meeting = left[at..].iter().take_while(|it| it[0] < *end);
        seconds += meeting.map(|it| it[1].min(*end) - it[0].max(*start)).sum::<f64>();
    }
    seconds
}
