//! The memory plan: an offset in the one arena for every buffer.
//!
//! Kept buffers come first. The others live from the step that writes them to the last that reads
//! them; a map overwrites an input that dies with it, the result of a convolution if there is one.
//! The buffers of a collective live as long as it may be under way in the chosen order. Larger
//! buffers are placed first, each at the lowest offset that is free for all its lifetime.

use std::{borrow::Cow, collections::BTreeMap};

use soybean_plan::{Buffer, BufferId, Kernel, Program, Step, Strides};

use crate::{
    holdings::{Holdings, Life},
    operator::Phase,
    overlap,
    unplaced::{Storage, Unplaced},
};

/// A stretch of memory that one buffer, or several one after another, live in.
struct Slot {
    bytes: usize,
    phase: Phase,
    first: usize,
    last: usize,
    offset: usize,
    /// The buffers that live in it, and when each is written.
    buffers: Vec<(usize, BufferId)>,
}

/// Steps that run one after the other, and the buffers that must outlive them.
struct Steps<'a> {
    phase: Phase,
    steps: &'a [Step],
    kept: Vec<BufferId>,
    /// For each collective, the last step during which it may be under way.
    ends: BTreeMap<usize, usize>,
}

/// The offsets and lifetimes of all buffers.
struct Plan {
    buffers: Vec<Buffer>,
    /// The size of the arena.
    arena_bytes: usize,
    /// Of all buffers that do not stay.
    lives: Vec<Life>,
}

/// A program whose buffers have offsets, and the contents of its memory.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) program: Program,
    pub(crate) holdings: Holdings,
}

/// Gives every buffer an offset in the arena.
pub(crate) fn plan_memory(lowered: Unplaced) -> Placed {
    let Unplaced { mut program, storage, contents, overlaps_on } = lowered;
    let tables = &program.tables;
    let left_by_accumulating = tables.accumulate_loss.into_iter().collect();
    let steps = |phase: Phase, kept: Vec<BufferId>| {
        let steps = match phase {
            Phase::Train(entry) => &program.train[entry][..],
            Phase::Accumulate => &program.accumulate[..],
            Phase::Evaluate(entry) => &program.evaluate[entry][..],
        };
        let topology = overlaps_on.as_ref();
        let ends = topology.map(|it| overlap::ends(&program, steps, it)).unwrap_or_default();
        Steps { phase, steps, kept, ends }
    };
    let training = tables.entries.iter().filter_map(|it| it.training.as_ref()).enumerate();
    let training = training.map(|(entry, it)| steps(Phase::Train(entry), it.left().collect()));
    let mut phases: Vec<Steps<'_>> = training.collect();
    phases.push(steps(Phase::Accumulate, left_by_accumulating));
    phases.extend((0..tables.entries.len()).map(|entry| {
        let left = tables.outputs_of(entry).iter().map(|it| it.buffer).collect();
        steps(Phase::Evaluate(entry), left)
    }));
    let Plan { buffers, arena_bytes, lives } = plan(&storage, &program.kernels, &phases);
    program.tables.buffers = Cow::Owned(buffers);
    program.tables.arena_bytes = arena_bytes;
    let holdings = Holdings::new(&contents, &storage, &lives, arena_bytes);
    Placed { program, holdings }
}

/// Places all buffers for the phases' steps.
fn plan(storage: &[Storage], kernels: &[Kernel], phases: &[Steps<'_>]) -> Plan {
    let mut offsets = vec![0; storage.len()];
    let mut persistent_bytes = 0;
    for (buffer, storage) in storage.iter().enumerate().filter(|(_, it)| it.is_persistent) {
        offsets[buffer] = persistent_bytes;
        persistent_bytes += storage.bytes();
    }
    let mut slot_of: Vec<Option<usize>> = vec![None; storage.len()];
    let mut slots = Vec::new();
    for steps in phases {
        assign_slots(steps, storage, kernels, &mut slots, &mut slot_of);
    }
    let transient_bytes = place(&mut slots);
    for (buffer, slot) in slot_of.iter().enumerate() {
        if let Some(slot) = slot {
            offsets[buffer] = persistent_bytes + slots[*slot].offset;
        }
    }
    let buffer = |(storage, &offset): (&Storage, &usize)| Buffer {
        offset,
        n_elements: storage.n_elements,
        dtype: storage.dtype,
    };
    Plan {
        buffers: storage.iter().zip(&offsets).map(buffer).collect(),
        arena_bytes: persistent_bytes + transient_bytes,
        lives: slots.iter().flat_map(lives).collect(),
    }
}

/// Returns the lifetimes of a slot's buffers: each lasts until the next buffer is written over it.
fn lives(slot: &Slot) -> impl Iterator<Item = Life> {
    let ends = slot.buffers[1..].iter().map(|it| it.0 - 1).chain([slot.last]);
    let phase = slot.phase;
    let life = move |(&(first, buffer), last)| Life { buffer, phase, first, last };
    slot.buffers.iter().zip(ends).map(life)
}

/// Gives every transient buffer of a phase a slot.
fn assign_slots(
    steps: &Steps<'_>,
    storage: &[Storage],
    kernels: &[Kernel],
    slots: &mut Vec<Slot>,
    slot_of: &mut [Option<usize>],
) {
    let mut last_use = vec![0; storage.len()];
    for (at, step) in steps.steps.iter().enumerate() {
        for buffer in step.inputs.iter().copied() {
            last_use[buffer] = at;
        }
    }
    for (&collective, &end) in &steps.ends {
        let step = &steps.steps[collective];
        for buffer in step.inputs.iter().chain(&step.results).copied() {
            last_use[buffer] = last_use[buffer].max(end);
        }
    }
    for &buffer in &steps.kept {
        last_use[buffer] = steps.steps.len();
    }
    for (at, step) in steps.steps.iter().enumerate() {
        for result in step.results.iter().copied() {
            // What is updated in place stays in its slot.
            if storage[result].is_persistent || step.inputs.contains(&result) {
                continue;
            }
            let dies = |&input: &BufferId| {
                slot_of[input]
                    .is_some_and(|slot| slots[slot].last == at && slots[slot].phase == steps.phase)
            };
            // A device may let a convolution write the map's result at once.
            let is_of_convolution = |input: &BufferId| {
                let slot = slot_of[*input].map(|it| &slots[it]);
                let writer = slot.and_then(|it| it.buffers.last()).map(|it| &steps.steps[it.0]);
                matches!(writer.map(|it| &kernels[it.kernel]), Some(Kernel::Convolve(_)))
            };
            let inputs = overwritable(step, kernels, storage, result).into_iter().filter(dies);
            let over = inputs.min_by_key(|it| !is_of_convolution(it));
            let slot = over.and_then(|input| slot_of[input]).unwrap_or_else(|| {
                slots.push(Slot {
                    bytes: storage[result].bytes(),
                    phase: steps.phase,
                    first: at,
                    last: at,
                    offset: 0,
                    buffers: Vec::new(),
                });
                slots.len() - 1
            });
            slots[slot].last = last_use[result].max(at);
            slots[slot].buffers.push((at, result));
            slot_of[result] = Some(slot);
        }
    }
}

/// Returns the inputs of a map that one of its results may overwrite: read once, with as many
/// elements in the same order.
fn overwritable(
    step: &Step,
    kernels: &[Kernel],
    storage: &[Storage],
    result: BufferId,
) -> Vec<BufferId> {
    let Kernel::Map(map) = &kernels[step.kernel] else { return Vec::new() };
    let inputs = &step.inputs;
    let dense = map.extents.dense_strides();
    let is_alike = |input: BufferId, strides: &Strides| {
        *strides == dense
            && storage[input].n_elements == storage[result].n_elements
            && storage[input].dtype == storage[result].dtype
            && inputs.iter().filter(|&&it| it == input).count() == 1
    };
    let pairs = inputs.iter().zip(map.inputs.iter());
    pairs.filter(|&(&input, strides)| is_alike(input, strides)).map(|(&input, _)| input).collect()
}

/// A slot that has its offset.
struct Stretch {
    first: usize,
    last: usize,
    offset: usize,
    end: usize,
}

/// Chooses the slots' offsets; the bytes that they take together.
fn place(slots: &mut [Slot]) -> usize {
    let mut order: Vec<usize> = (0..slots.len()).collect();
    order.sort_by_key(|&it| (usize::MAX - slots[it].bytes, it));
    let mut placed: BTreeMap<Phase, Vec<Stretch>> = BTreeMap::new();
    let mut total = 0;
    for slot in order {
        let &Slot { phase, first, last, bytes, .. } = &slots[slot];
        // Slots of the phase by offset. Flat loops are used because macros are compiled without
        // optimization.
        let placed = placed.entry(phase).or_default();
        let others = &placed[..];
        let (mut offset, mut at) = (0, 0);
        while at < others.len() {
            let other = &others[at];
            at += 1;
            if other.last < first || last < other.first {
                continue;
            }
            if offset + bytes <= other.offset {
                break;
            }
            if offset < other.end {
                offset = other.end;
            }
        }
        slots[slot].offset = offset;
        total = total.max(offset + bytes);
        let position = placed.partition_point(|it| it.offset <= offset);
        placed.insert(position, Stretch { first, last, offset, end: offset + bytes });
    }
    total
}
