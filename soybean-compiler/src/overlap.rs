//! Overlap: the steps in an order in which a device can communicate while it computes.
//!
//! A device with separate queues for collectives and kernels starts each step as soon as its memory
//! is free, but runs kernels one after another. A kernel that reads a collective's result should
//! therefore come some heavy steps later, as updates can: it is *delayed*. A collective whose
//! operand is available early, such as a weight, should come some heavy steps before its reader: it
//! is *hoisted*, with the light kernels that make its operand. Both distances are bounded, because
//! waiting buffers take memory.

use std::collections::BTreeMap;

use soybean_plan::{BufferId, Kernel, Program, Step, WorkKind};

use crate::unplaced::{Storage, Unplaced};

/// The number of heavy steps by which a reader of a collective's result is delayed, unless it is
/// needed sooner.
pub(crate) const N_BEHIND: usize = 2;
/// The number of heavy steps by which a collective precedes the first reader of its result, if its
/// operand is available.
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

/// Returns, for each collective, the last step during which it may be under way: the one before its
/// result is read, or the `N_BEHIND`-th heavy step if that is earlier. Its memory must not be
/// reused until then.
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

/// Returns whether a kernel takes long enough to hide a collective.
fn is_heavy(kernel: &Kernel) -> bool {
    kernel.work_kind() == WorkKind::Product
}

/// Returns whether a step moves data between devices.
fn is_transfer(kernel: &Kernel) -> bool {
    kernel.transfer().is_some()
}

/// The dependencies of a step.
struct StepInfo {
    is_heavy: bool,
    is_transfer: bool,
    /// True if it writes a buffer that is kept from step to step.
    is_update: bool,
    /// The number of heavy steps before it.
    n_before: usize,
    /// The earlier steps that write its inputs.
    reads: Vec<usize>,
    /// These, and the earlier steps that read or write what it overwrites.
    needs: Vec<usize>,
}

fn places(steps: &[Step], kernels: &[Kernel], storage: &[Storage]) -> Vec<StepInfo> {
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
        places.push(StepInfo {
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

/// Sorts the steps by their numbers; steps with equal numbers stay in order. No step has a lower
/// number than those it needs.
fn sorted(steps: Vec<Step>, numbers: Vec<usize>) -> Vec<Step> {
    let mut numbered: Vec<(usize, Step)> = numbers.into_iter().zip(steps).collect();
    numbered.sort_by_key(|it| it.0);
    numbered.into_iter().map(|it| it.1).collect()
}

/// Marks the steps that are light and either satisfy `last` or are read by marked steps alone.
fn serving(places: &[StepInfo], last: impl Fn(usize) -> bool) -> Vec<bool> {
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

/// Returns the number of heavy steps before each step; more for updates that wait for collectives,
/// and for steps that serve these alone.
fn delayed(places: &[StepInfo]) -> Vec<usize> {
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

/// Returns the number of heavy steps before each step, plus one; fewer for collectives, and for
/// light steps that serve these alone and wait for no others.
fn hoisted(places: &[StepInfo]) -> Vec<usize> {
    let mut waits: Vec<bool> = Vec::with_capacity(places.len());
    for place in places {
        let waits_for = |&it: &usize| places[it].is_transfer || waits[it];
        waits.push(!place.is_heavy && place.reads.iter().any(waits_for));
    }
    let may_come = serving(places, |at| places[at].is_transfer);
    let mut numbers: Vec<usize> = Vec::with_capacity(places.len());
    for (at, place) in places.iter().enumerate() {
        let floor = place.needs.iter().map(|&it| numbers[it]).max().unwrap_or(0);
        // Steps that are not hoisted have numbers from 1. A hoisted step comes after the heavy step
        // with its number, and may come before the first.
        let early = place.n_before.saturating_sub(N_AHEAD);
        let is_moved = may_come[at] && (place.is_transfer || !waits[at]);
        numbers.push(if is_moved { early.max(floor) } else { place.n_before + 1 });
    }
    numbers
}
