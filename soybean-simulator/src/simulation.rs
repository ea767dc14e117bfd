//! What a simulation found.

use soybean_plan::Lane;

use crate::{engine::Outcome, links::Links, task::Task};

/// One step of a program on all ranks, with the time of each piece of work.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulation {
    /// The model.
    pub name: String,
    /// The time of the step, in seconds: until the last rank has done its last task.
    pub seconds: f64,
    /// For each rank where its time goes.
    pub ranks: Vec<RankLoad>,
    /// What each link carried.
    pub links: Vec<LinkLoad>,
    /// For each level of the cluster the bytes of the transfers that cross it: those between two ranks for which it is the slowest level between them.
    pub bytes_per_level: Vec<u64>,
    /// For each rank what it did, in the order of the program.
    pub spans: Vec<Vec<Span>>,
}

/// Where the time of a rank goes, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankLoad {
    /// The time in which its kernels ran.
    pub compute_seconds: f64,
    /// The time in which its collectives ran.
    pub communication_seconds: f64,
    /// The time in which its collectives ran and none of its kernels did.
    pub exposed_seconds: f64,
}

/// What a link carried in one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkLoad {
    /// Its level, direction and GPUs: `groups: from GPUs 0 to 3`.
    pub name: String,
    /// The number of its level.
    pub level: usize,
    /// The bytes that it carried.
    pub bytes: u64,
    /// The time in which it carried something, in seconds.
    pub busy_seconds: f64,
    /// What it can carry, in bytes per second.
    pub bytes_per_second: f64,
}

/// One task of one rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The kind of kernel, and its number in the program's list.
    pub name: String,
    /// Where it ran.
    pub lane: Lane,
    /// When it began, in seconds from the begin of the step.
    pub start: f64,
    /// When it ended.
    pub end: f64,
}

impl Simulation {
    pub(crate) fn new(name: &str, tasks: &[Task], links: &Links, outcome: Outcome) -> Self {
        let n_ranks = outcome.spans.first().map_or(0, Vec::len);
        let span = |rank: usize, (task, spans): (&Task, &Vec<[f64; 2]>)| {
            let [start, end] = spans[rank];
            Span { name: task.name.clone(), lane: task.lane, start, end }
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

    /// The time of the rank that computes longest, in seconds.
    #[must_use]
    pub fn compute_seconds(&self) -> f64 {
        self.ranks.iter().map(|it| it.compute_seconds).fold(0.0, f64::max)
    }

    /// The time by which the step is longer than the kernels of the rank that computes longest, in seconds.
    #[must_use]
    pub fn overhead_seconds(&self) -> f64 {
        self.seconds - self.compute_seconds()
    }

    /// The step in the format of Chrome's `about:tracing` and of Perfetto: a process for each rank, a thread for each of its lanes, times in microseconds. Source: "Trace Event
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

/// The time that two lists of spans have in common; each is in order, and no two spans of a list meet.
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
