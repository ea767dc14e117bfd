//! Tests that conflicting tasks keep the order in which they were queued, in whatever order streams
//! run.

use super::*;
use crate::{Mesh, random::mixed};

/// Pseudorandom numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = mixed(self.0.wrapping_add(1));
        usize::try_from(self.0 >> 33).expect("31 bits") % bound
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

const ARENA: usize = 64;

fn ranges(dice: &mut Dice, most: usize) -> Vec<Range<usize>> {
    let range = |dice: &mut Dice| {
        let start = dice.below(ARENA);
        start..start + 1 + dice.below(8)
    };
    (0..dice.below(most + 1)).map(|_| range(dice)).collect()
}

fn random(dice: &mut Dice, mesh: &Mesh) -> Access {
    let lane = dice.pick(&Lane::ALL);
    let axes: AxisSet = (0..mesh.n_axes()).filter(|_| dice.below(2) == 0).collect();
    let group_reads = match lane {
        Lane::Communication if !axes.is_empty() => ranges(dice, 1),
        Lane::Communication | Lane::Compute => Vec::new(),
    };
    Access { lane, reads: ranges(dice, 2), group_reads, axes, writes: ranges(dice, 1) }
}

/// Returns true if a task of one rank and an earlier task of another touch the same memory of a
/// rank, and one of them writes it.
fn disturbs(
    mesh: &Mesh,
    (earlier, rank): (&Access, usize),
    (later, other): (&Access, usize),
) -> bool {
    let of_group = |task: &Access, by: usize, of: usize| {
        if mesh.group(by, task.axes).contains(&of) { task.group_reads.clone() } else { Vec::new() }
    };
    let own = |ranges: &[Range<usize>], by: usize, of: usize| {
        if by == of { ranges.to_vec() } else { Vec::new() }
    };
    (0..mesh.n_ranks()).any(|of| {
        let reads = |task: &Access, by| [own(&task.reads, by, of), of_group(task, by, of)].concat();
        let (written, overwritten) =
            (own(&earlier.writes, rank, of), own(&later.writes, other, of));
        meet(&written, &reads(later, other))
            || meet(&written, &overwritten)
            || meet(&reads(earlier, rank), &overwritten)
    })
}

/// Returns, for each task of each rank, the tasks of all ranks that are certainly done before it
/// starts.
fn done_before(mesh: &Mesh, tasks: &[Access], schedule: &Schedule) -> Vec<Vec<bool>> {
    let n_ranks = mesh.n_ranks();
    let mut before: Vec<Vec<bool>> = Vec::new();
    for (number, task) in tasks.iter().enumerate() {
        for rank in 0..n_ranks {
            let mut done = vec![false; tasks.len() * n_ranks];
            let previous = tasks[..number].iter().rposition(|it| it.lane == task.lane);
            let mut awaited: Vec<usize> =
                previous.map(|it| it * n_ranks + rank).into_iter().collect();
            for wait in &schedule.waits[number] {
                assert!(schedule.is_awaited[wait.task]);
                awaited
                    .extend(mesh.group(rank, wait.axes).iter().map(|it| wait.task * n_ranks + it));
            }
            for node in awaited {
                done[node] = true;
                done.iter_mut().zip(&before[node]).for_each(|(done, it)| *done |= it);
            }
            before.push(done);
        }
    }
    before
}

fn fault(mesh: &Mesh, tasks: &[Access], schedule: &Schedule) -> Option<String> {
    let n_ranks = mesh.n_ranks();
    let before = done_before(mesh, tasks, schedule);
    let nodes = || (0..tasks.len()).flat_map(|task| (0..n_ranks).map(move |rank| (task, rank)));
    for (later, other) in nodes() {
        for (earlier, rank) in nodes().filter(|it| it.0 < later) {
            let is_safe = before[later * n_ranks + other][earlier * n_ranks + rank];
            if !is_safe && disturbs(mesh, (&tasks[earlier], rank), (&tasks[later], other)) {
                return Some(format!("task {later} of rank {other} may meet {earlier} of {rank}"));
            }
        }
    }
    None
}

#[test]
fn conflicting_tasks_stay_in_order() {
    let (mut n_waits, mut n_needed) = (0, 0);
    for seed in 0..150 {
        let mut dice = Dice(seed);
        let mesh = Mesh::new(dice.pick(&[1, 2, 4, 6]));
        let tasks: Vec<Access> =
            (0..1 + dice.below(14)).map(|_| random(&mut dice, &mesh)).collect();
        let schedule = Schedule::new(&tasks);
        assert_eq!(fault(&mesh, &tasks, &schedule), None, "{tasks:?}");
        // Most waits are needed: without one of them, conflicting tasks may overlap.
        for (task, waits) in schedule.waits.iter().enumerate() {
            for wait in 0..waits.len() {
                let mut without = schedule.clone();
                without.waits[task].remove(wait);
                n_waits += 1;
                n_needed += usize::from(fault(&mesh, &tasks, &without).is_some());
            }
        }
    }
    assert!(
        n_waits > 200 && n_needed * 10 > n_waits * 9,
        "{n_needed} of {n_waits} waits are needed"
    );
}
