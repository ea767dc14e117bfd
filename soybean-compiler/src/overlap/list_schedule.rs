//! List scheduling on two lanes: a free lane takes the best job that is ready. Source of the
//! method: Graham, "Bounds on multiprocessing timing anomalies", 1969.

use std::collections::BTreeSet;

use soybean_plan::{Lane, StepNeeds};

/// The number of heavy kernels by which a collective may precede the first reader of its result,
/// however little time it takes.
const N_AHEAD: usize = 1;

/// A step to be scheduled.
pub(super) struct Job {
    pub(super) lane: Lane,
    pub(super) seconds: f64,
    /// True if it is a product, which takes long.
    pub(super) is_heavy: bool,
    /// True if it writes a buffer that is kept from step to step.
    pub(super) is_update: bool,
    pub(super) needs: StepNeeds,
}

/// When a job may start, besides its needs and its lane.
#[derive(Clone, Copy, PartialEq)]
enum Turn {
    /// A kernel that keeps its order among those of this kind.
    InOrder,
    /// A kernel for which no kernel in order waits. It runs as soon as it can, at the earliest
    /// where it stands in the program.
    Deferred,
    /// A collective, or a light kernel that serves collectives alone.
    Early,
}

/// Returns the jobs in the order of their starts.
pub(super) fn list_schedule(jobs: &[Job]) -> Vec<usize> {
    ListSchedule::new(jobs).run()
}

/// The state of the simulation.
struct ListSchedule<'a> {
    jobs: &'a [Job],
    turns: Vec<Turn>,
    /// For each job, the first kernel in order that waits for it; the number of jobs if none does.
    deadlines: Vec<usize>,
    /// The time that the kernels in order take before each job.
    clock: Vec<f64>,
    /// The early jobs that may not start yet, with the time of the clock from which they may;
    /// earliest last.
    closed: Vec<(f64, usize)>,
    is_open: Vec<bool>,
    /// The kernels in order that have not started, first last.
    in_order: Vec<usize>,
    /// The number of needs of each job that have not ended.
    n_awaited: Vec<usize>,
    awaited_by: Vec<Vec<usize>>,
    /// Early kernels whose needs have ended.
    ready_early: BTreeSet<usize>,
    /// Deferred kernels whose needs have ended.
    ready_deferred: BTreeSet<usize>,
    /// Collectives whose needs have ended, with their deadlines.
    ready_collectives: BTreeSet<(usize, usize)>,
    /// The job that each lane runs, with its end.
    running: [Option<(f64, usize)>; 2],
    order: Vec<usize>,
}

impl<'a> ListSchedule<'a> {
    fn new(jobs: &'a [Job]) -> Self {
        let turns = turns(jobs);
        let deadlines = deadlines(jobs, &turns);
        let clock = clock(jobs, &turns);
        let mut awaited_by: Vec<Vec<usize>> = vec![Vec::new(); jobs.len()];
        let mut n_awaited = vec![0; jobs.len()];
        for (at, job) in jobs.iter().enumerate() {
            let needs: BTreeSet<usize> = job.needs.needs.iter().copied().collect();
            n_awaited[at] = needs.len();
            needs.into_iter().for_each(|it| awaited_by[it].push(at));
        }
        let in_order = (0..jobs.len()).rev().filter(|&it| turns[it] == Turn::InOrder).collect();
        let mut schedule = Self {
            closed: earliest(jobs, &turns, &deadlines, &clock),
            is_open: turns.iter().map(|it| *it != Turn::Early).collect(),
            jobs,
            turns,
            deadlines,
            clock,
            in_order,
            n_awaited,
            awaited_by,
            ready_early: BTreeSet::new(),
            ready_deferred: BTreeSet::new(),
            ready_collectives: BTreeSet::new(),
            running: [None; 2],
            order: Vec::with_capacity(jobs.len()),
        };
        (0..jobs.len()).for_each(|it| schedule.add_if_ready(it));
        schedule.open();
        schedule
    }

    fn run(mut self) -> Vec<usize> {
        let mut now = 0.0;
        while self.order.len() < self.jobs.len() {
            if self.running[Lane::Communication as usize].is_none()
                && let Some((_, job)) = self.ready_collectives.pop_first()
            {
                self.start(job, now);
            }
            if self.running[Lane::Compute as usize].is_none()
                && let Some(job) = self.next_kernel()
            {
                self.start(job, now);
            }
            now = self.running.iter().flatten().map(|it| it.0).fold(f64::INFINITY, f64::min);
            self.end(now);
        }
        self.order
    }

    /// Returns the kernel that the free lane runs next, if one is ready.
    fn next_kernel(&self) -> Option<usize> {
        let next = self.in_order.last().copied();
        let may_start = |it: &&usize| next.is_none_or(|next| **it < next);
        let deferred = self.ready_deferred.first().filter(may_start);
        let aside = self.ready_early.first().into_iter().chain(deferred).min();
        aside.copied().or(next.filter(|&it| self.n_awaited[it] == 0))
    }

    fn start(&mut self, job: usize, now: f64) {
        self.running[self.jobs[job].lane as usize] = Some((now + self.jobs[job].seconds, job));
        self.order.push(job);
        self.ready_early.remove(&job);
        self.ready_deferred.remove(&job);
        if self.in_order.last() == Some(&job) {
            self.in_order.pop();
            self.open();
        }
    }

    /// Opens the early jobs whose time has come.
    fn open(&mut self) {
        let now = self.in_order.last().map_or(f64::INFINITY, |&it| self.clock[it]);
        while let Some((_, job)) = self.closed.pop_if(|it| it.0 <= now) {
            self.is_open[job] = true;
            self.add_if_ready(job);
        }
    }

    /// Ends the jobs that end at this time.
    fn end(&mut self, now: f64) {
        for lane in Lane::ALL {
            let ended = self.running[lane as usize].take_if(|it| it.0 <= now);
            let Some((_, job)) = ended else { continue };
            for next in std::mem::take(&mut self.awaited_by[job]) {
                self.n_awaited[next] -= 1;
                self.add_if_ready(next);
            }
        }
    }

    /// Notes a job that may start if all its needs have ended. Kernels in order are known.
    fn add_if_ready(&mut self, job: usize) {
        if !self.is_open[job] || self.n_awaited[job] > 0 {
            return;
        }
        match (self.jobs[job].lane, self.turns[job]) {
            (_, Turn::InOrder) => false,
            (Lane::Communication, Turn::Early | Turn::Deferred) => {
                self.ready_collectives.insert((self.deadlines[job], job))
            }
            (Lane::Compute, Turn::Early) => self.ready_early.insert(job),
            (Lane::Compute, Turn::Deferred) => self.ready_deferred.insert(job),
        };
    }
}

fn turns(jobs: &[Job]) -> Vec<Turn> {
    let is_collective = |at: usize| jobs[at].lane == Lane::Communication;
    let serves_updates = serving(jobs, |at| jobs[at].is_update);
    let serves_collectives = serving(jobs, is_collective);
    let mut waits: Vec<bool> = Vec::with_capacity(jobs.len());
    for job in jobs {
        let waits_for = |&it: &usize| is_collective(it) || waits[it];
        waits.push(!job.is_heavy && job.needs.reads.iter().any(waits_for));
    }
    let turn = |at: usize| match () {
        () if is_collective(at) => Turn::Early,
        () if serves_updates[at] => Turn::Deferred,
        () if serves_collectives[at] && !waits[at] => Turn::Early,
        () => Turn::InOrder,
    };
    (0..jobs.len()).map(turn).collect()
}

/// Marks the light jobs that either satisfy `last` or are read by marked jobs alone.
fn serving(jobs: &[Job], last: impl Fn(usize) -> bool) -> Vec<bool> {
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); jobs.len()];
    for (at, job) in jobs.iter().enumerate() {
        job.needs.reads.iter().for_each(|&it| readers[it].push(at));
    }
    let mut serves = vec![false; jobs.len()];
    for at in (0..jobs.len()).rev() {
        let has_only_such = !readers[at].is_empty() && readers[at].iter().all(|&it| serves[it]);
        serves[at] = !jobs[at].is_heavy && (last(at) || has_only_such);
    }
    serves
}

/// Returns for each job the first kernel in order that waits for it.
fn deadlines(jobs: &[Job], turns: &[Turn]) -> Vec<usize> {
    let mut deadlines = vec![jobs.len(); jobs.len()];
    for (at, job) in jobs.iter().enumerate().rev() {
        let deadline = if turns[at] == Turn::InOrder { at } else { deadlines[at] };
        for &needed in &job.needs.needs {
            deadlines[needed] = deadlines[needed].min(deadline);
        }
    }
    deadlines
}

/// Returns the time that the kernels in order take before each job.
fn clock(jobs: &[Job], turns: &[Turn]) -> Vec<f64> {
    let mut clock = Vec::with_capacity(jobs.len());
    let mut now = 0.0;
    for (job, turn) in jobs.iter().zip(turns) {
        clock.push(now);
        now += if *turn == Turn::InOrder { job.seconds } else { 0.0 };
    }
    clock
}

/// Returns the early jobs with the time of the clock from which they may start, earliest last.
/// Collectives that run one after another then end before their deadlines, even if each takes twice
/// its time.
fn earliest(jobs: &[Job], turns: &[Turn], deadlines: &[usize], clock: &[f64]) -> Vec<(f64, usize)> {
    let heavy: Vec<usize> = (0..jobs.len()).filter(|&it| jobs[it].is_heavy).collect();
    let mut early: Vec<usize> = (0..jobs.len()).filter(|&it| turns[it] == Turn::Early).collect();
    early.sort_by_key(|&it| (deadlines[it], it));
    let mut from = vec![0.0; jobs.len()];
    let mut lane_is_free_until = f64::INFINITY;
    for &at in early.iter().rev() {
        let Some(&due) = clock.get(deadlines[at]) else { continue };
        from[at] = due;
        if jobs[at].lane == Lane::Communication {
            let n_before = heavy.partition_point(|&it| it < deadlines[at]);
            let ahead = n_before.checked_sub(N_AHEAD).map_or(0.0, |it| clock[heavy[it]]);
            lane_is_free_until = due.min(lane_is_free_until) - jobs[at].seconds;
            from[at] = ahead.min(lane_is_free_until - jobs[at].seconds);
        }
    }
    // What an early job needs comes before it.
    for (at, job) in jobs.iter().enumerate().rev().filter(|(at, _)| turns[*at] == Turn::Early) {
        for &needed in &job.needs.needs {
            from[needed] = f64::min(from[needed], from[at]);
        }
    }
    let mut closed: Vec<(f64, usize)> = early.into_iter().map(|it| (from[it], it)).collect();
    closed.sort_by(|one, other| other.0.total_cmp(&one.0).then(other.1.cmp(&one.1)));
    closed
}
