//! Overlap: the steps in an order in which a device can communicate while it computes.
//!
//! A device that has a queue for collectives beside that for kernels starts each step as soon as the memory that it uses is free, but kernels one after
//! another. So a kernel that reads what a collective gives should stand some heavy steps behind it, as updates can: they are *delayed*. And a collective whose
//! operand is there early, as a weight is, should stand some heavy steps before the kernel that reads it: it is *hoisted*, with the light kernels that make
//! its operand. Both are bounded, because what waits takes memory.

use std::collections::BTreeMap;

use soybean_plan::{BufferId, CollectiveKind, Kernel, Program, Step, WorkKind};

use crate::unplaced::{Storage, Unplaced};

/// How many heavy steps a reader of a collective's result is put behind it, if nothing needs it sooner.
const N_BEHIND: usize = 2;
/// How many heavy steps a collective is put before the first reader of its result, if its operand is there.
const N_AHEAD: usize = 1;

/// Reorders the steps of both phases so that a device can communicate while it computes.
pub(crate) fn overlap(lowered: Unplaced) -> Unplaced {
    let Unplaced { mut program, storage, .. } = lowered;
    let reordered = |steps: Vec<Step>| reordered(steps, &program.kernels, &storage);
    let (train, evaluate) = (
        reordered(std::mem::take(&mut program.train)),
        reordered(std::mem::take(&mut program.evaluate)),
    );
    Unplaced { program: Program { train, evaluate, ..program }, storage, ..lowered }
}

fn reordered(steps: Vec<Step>, kernels: &[Kernel], storage: &[Storage]) -> Vec<Step> {
    let places = |steps: &[Step]| places(steps, kernels, storage);
    let numbers = delayed(&places(&steps));
    let steps = sorted(steps, numbers);
    let numbers = hoisted(&places(&steps));
    sorted(steps, numbers)
}

/// For each collective, the last step during which it may be under way: the one before its result is read, or some heavy steps later if it is read later still.
/// Nothing else should use its memory until then.
pub(crate) fn ends(steps: &[Step], kernels: &[Kernel]) -> BTreeMap<usize, usize> {
    let mut under_way: BTreeMap<usize, usize> = BTreeMap::new();
    let mut ends = BTreeMap::new();
    for (at, step) in steps.iter().enumerate() {
        let is_read = |collective: &usize| {
            let results = &steps[*collective].results;
            results.iter().any(|it| step.inputs.contains(it))
        };
        let read: Vec<usize> = under_way.keys().copied().filter(is_read).collect();
        for collective in read {
            under_way.remove(&collective);
            ends.insert(collective, at - 1);
        }
        if is_heavy(&kernels[step.kernel]) {
            under_way.values_mut().for_each(|n_heavy| *n_heavy += 1);
            let last = under_way.extract_if(.., |_, n_heavy| *n_heavy == N_BEHIND);
            ends.extend(last.map(|(collective, _)| (collective, at)));
        }
        if is_transfer(&kernels[step.kernel]) {
            under_way.insert(at, 0);
        }
    }
    let end = steps.len().saturating_sub(1);
    ends.extend(under_way.into_keys().map(|it| (it, end)));
    ends
}

/// Whether a kernel takes long enough that a collective can hide behind it.
fn is_heavy(kernel: &Kernel) -> bool {
    kernel.work_kind() == WorkKind::Product
}

/// Whether a step moves data between devices.
fn is_transfer(kernel: &Kernel) -> bool {
    matches!(kernel, Kernel::Communicate(it) if it.kind != CollectiveKind::Slice)
}

/// What is known of a step.
struct Place {
    is_heavy: bool,
    is_transfer: bool,
    /// Whether it gives a next value of what stays from step to step.
    is_update: bool,
    /// The number of heavy steps before it.
    n_before: usize,
    /// The earlier steps whose results it reads.
    reads: Vec<usize>,
    /// These, and the earlier steps that read or write what it overwrites.
    needs: Vec<usize>,
}

fn places(steps: &[Step], kernels: &[Kernel], storage: &[Storage]) -> Vec<Place> {
    let mut writer: BTreeMap<BufferId, usize> = BTreeMap::new();
    let mut readers: BTreeMap<BufferId, Vec<usize>> = BTreeMap::new();
    let mut n_before = 0;
    let mut places = Vec::with_capacity(steps.len());
    for (at, step) in steps.iter().enumerate() {
        let kernel = &kernels[step.kernel];
        let reads: Vec<usize> =
            step.inputs.iter().filter_map(|it| writer.get(it)).copied().collect();
        let overwrites = step.results.iter().filter_map(|it| writer.get(it));
        let before = step.results.iter().filter_map(|it| readers.get(it)).flatten();
        let needs = reads.iter().chain(overwrites).chain(before).copied().collect();
        let is_heavy = is_heavy(kernel);
        places.push(Place {
            is_heavy,
            is_transfer: is_transfer(kernel),
            is_update: step.results.iter().any(|&it| storage[it].is_persistent),
            n_before,
            reads,
            needs,
        });
        n_before += usize::from(is_heavy);
        step.inputs.iter().for_each(|&it| readers.entry(it).or_default().push(at));
        writer.extend(step.results.iter().map(|&it| (it, at)));
    }
    places
}

/// The steps by their numbers. Those with equal numbers stay in order, and no step has a lower number than those that it needs.
fn sorted(steps: Vec<Step>, numbers: Vec<usize>) -> Vec<Step> {
    let mut numbered: Vec<(usize, Step)> = numbers.into_iter().zip(steps).collect();
    numbered.sort_by_key(|it| it.0);
    numbered.into_iter().map(|it| it.1).collect()
}

/// Whether each step is light and among those of `last`, or read by such steps alone.
fn serving(places: &[Place], last: impl Fn(usize) -> bool) -> Vec<bool> {
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); places.len()];
    for (at, place) in places.iter().enumerate() {
        place.reads.iter().for_each(|&it| readers[it].push(at));
    }
    let mut serves = vec![false; places.len()];
    for at in (0..places.len()).rev() {
        let has_only_such = !readers[at].is_empty() && readers[at].iter().all(|&it| serves[it]);
        serves[at] = !places[at].is_heavy && (last(at) || has_only_such);
    }
    serves
}

/// How many heavy steps stand before each step; more for updates that wait for collectives, and for what is done for them alone.
fn delayed(places: &[Place]) -> Vec<usize> {
    let may_wait = serving(places, |at| places[at].is_update);
    let mut wanted: Vec<usize> = Vec::with_capacity(places.len());
    for (place, may_wait) in places.iter().zip(may_wait) {
        let until = |&it: &usize| match &places[it] {
            needed if needed.is_transfer => wanted[it] + N_BEHIND,
            _ => wanted[it],
        };
        let until = place.needs.iter().map(until).max().unwrap_or(0);
        wanted.push(if may_wait { until.max(place.n_before) } else { place.n_before });
    }
    let mut latest = vec![usize::MAX; places.len()];
    for (at, place) in places.iter().enumerate().rev() {
        latest[at] = latest[at].min(wanted[at]);
        for &needed in &place.needs {
            latest[needed] = latest[needed].min(latest[at]);
        }
    }
    latest
}

/// How many heavy steps stand before each step, and one; fewer for collectives, and for light steps that are done for them alone and do not wait for others.
fn hoisted(places: &[Place]) -> Vec<usize> {
    let mut waits: Vec<bool> = Vec::with_capacity(places.len());
    for place in places {
        let waits_for = |&it: &usize| places[it].is_transfer || waits[it];
        waits.push(!place.is_heavy && place.reads.iter().any(waits_for));
    }
    let may_come = serving(places, |at| places[at].is_transfer);
    let mut numbers: Vec<usize> = Vec::with_capacity(places.len());
    for (at, place) in places.iter().enumerate() {
        let floor = place.needs.iter().map(|&it| numbers[it]).max().unwrap_or(0);
        // What stays has numbers from 1: a step that comes stands behind the heavy step of its number, and may stand before the first.
        let early = place.n_before.saturating_sub(N_AHEAD);
        let is_moved = may_come[at] && (place.is_transfer || !waits[at]);
        numbers.push(if is_moved { early.max(floor) } else { place.n_before + 1 });
    }
    numbers
}
