//! The memory in use at each step of training, by what it is for.

use soybean_plan::{BufferId, CollectiveKind, Kernel, Program, Step};

use super::json::list;

/// What memory is for, from the bottom of the stack to its top.
const KINDS: [&str; 6] =
    ["parameters", "states", "inputs", "activations", "gradients", "collectives"];

const PARAMETERS: usize = 0;
const STATES: usize = 1;
const INPUTS: usize = 2;
const ACTIVATIONS: usize = 3;
const GRADIENTS: usize = 4;
const COLLECTIVES: usize = 5;

/// The size of the arena, the kinds, and for each step the bytes of each kind.
pub(super) fn json(program: &Program) -> String {
    let kinds = list(KINDS.iter().map(|it| format!("\"{it}\"")));
    let used = list(in_use(program).iter().map(|it| list(it.iter().map(ToString::to_string))));
    let arena = program.tables.arena_bytes;
    format!("{{\"arena\":{arena},\"kinds\":{kinds},\"used\":{used}}}")
}

/// A stretch of the arena and the steps during which it holds something.
struct Life {
    kind: usize,
    start: usize,
    end: usize,
    first: usize,
    last: usize,
}

/// For each step of training, the bytes of each kind: of what stays, and of all that was written and is still to be read. Memory that only keeps buffers from
/// one another, or waits for collectives under way, is not among them.
fn in_use(program: &Program) -> Vec<[usize; KINDS.len()]> {
    let n_steps = program.train.len();
    let mut used = vec![[0; KINDS.len()]; n_steps];
    let mut lives = lives(program);
    // What is written later stands first: a map that writes over its input owns that memory.
    lives.sort_by_key(|it| (it.start, n_steps - it.first));
    for (at, used) in used.iter_mut().enumerate() {
        let mut counted = 0;
        for life in lives.iter().filter(|it| it.first <= at && at <= it.last) {
            used[life.kind] += life.end.saturating_sub(life.start.max(counted));
            counted = counted.max(life.end);
        }
    }
    used
}

fn lives(program: &Program) -> Vec<Life> {
    let (tables, steps) = (&program.tables, &program.train);
    let mut kinds: Vec<Option<usize>> = vec![None; tables.buffers.len()];
    tables.parameters.iter().for_each(|it| kinds[it.buffer] = Some(PARAMETERS));
    tables.states.iter().for_each(|it| kinds[it.buffer] = Some(STATES));
    tables.inputs.iter().for_each(|it| kinds[it.buffer] = Some(INPUTS));
    tables.constants.iter().for_each(|it| kinds[it.buffer] = Some(INPUTS));
    let life = |buffer: BufferId, kind: usize, first: usize, last: usize| {
        let it = &tables.buffers[buffer];
        // Buffers begin at multiples of 64 bytes.
        let bytes = (it.n_elements * it.dtype.bytes()).next_multiple_of(64);
        Life { kind, start: it.offset, end: it.offset + bytes, first, last }
    };
    let stays = |(buffer, kind): (BufferId, &Option<usize>)| {
        kind.map(|kind| life(buffer, kind, 0, steps.len()))
    };
    let mut lives: Vec<Life> = kinds.iter().enumerate().filter_map(stays).collect();
    let is_forward = forward(program, &kinds);
    for (at, step) in steps.iter().enumerate() {
        let kind = match (&program.kernels[step.kernel], is_forward[at]) {
            (Kernel::Communicate(it), _) if it.kind != CollectiveKind::Slice => COLLECTIVES,
            (_, true) => ACTIVATIONS,
            (_, false) => GRADIENTS,
        };
        for &result in step.results.iter().filter(|it| kinds[**it].is_none()) {
            let last =
                if result == tables.loss { steps.len() } else { last_use(steps, result, at) };
            lives.push(life(result, kind, at, last));
        }
    }
    lives
}

/// The last step that reads a buffer, or the one that writes it.
fn last_use(steps: &[Step], buffer: BufferId, written: usize) -> usize {
    steps.iter().rposition(|it| it.inputs.contains(&buffer)).unwrap_or(written)
}

/// Which steps serve the loss, or the next values of buffers that the model itself keeps; the others are of gradients and updates.
fn forward(program: &Program, stays: &[Option<usize>]) -> Vec<bool> {
    let tables = &program.tables;
    let mut is_needed = vec![false; stays.len()];
    is_needed[tables.loss] = true;
    for parameter in tables.parameters.iter().filter(|it| !it.is_trained) {
        is_needed[parameter.buffer] = true;
    }
    let mut is_forward = vec![false; program.train.len()];
    for (at, step) in program.train.iter().enumerate().rev() {
        is_forward[at] = step.results.iter().any(|it| is_needed[*it]);
        if is_forward[at] {
            // What stays from step to step is not made by the steps that read it.
            step.inputs
                .iter()
                .filter(|it| stays[**it].is_none())
                .for_each(|it| is_needed[*it] = true);
        }
    }
    is_forward
}
