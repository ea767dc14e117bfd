//! The memory in use at each step of a training step or a prediction, by what it is for.

use std::collections::BTreeMap;

use soybean_compiler::Content;
use soybean_plan::{BufferId, CollectiveKind, Kernel, Program, Step};

use super::json::list;

/// The size of the arena, the contents that are shown, from the bottom of the stack to its top, and for each step the bytes of each. Gaps are not shown.
pub(super) fn json(program: &Program) -> String {
    let shown = || Content::NAMES.into_iter().filter(|it| it.2 != Content::Gaps);
    let names = list(shown().map(|(name, ..)| format!("\"{name}\"")));
    let row = |used: &BTreeMap<Content, usize>| {
        list(shown().map(|(.., it)| used.get(&it).unwrap_or(&0).to_string()))
    };
    let used = list(in_use(program).iter().map(row));
    let arena = program.tables.arena_bytes;
    format!("{{\"arena\":{arena},\"kinds\":{names},\"used\":{used}}}")
}

/// A stretch of the arena and the steps during which it holds something.
struct Life {
    content: Content,
    start: usize,
    end: usize,
    first: usize,
    last: usize,
}

/// For each step of the program, the bytes of each content: of what stays, and of all that was written and is still to be read. Memory that only keeps buffers from
/// one another, or waits for collectives under way, is not among them.
fn in_use(program: &Program) -> Vec<BTreeMap<Content, usize>> {
    let n_steps = program.measured().len();
    let mut used = vec![BTreeMap::new(); n_steps];
    let mut lives = lives(program);
    // What is written later stands first: a map that writes over its input owns that memory.
    lives.sort_by_key(|it| (it.start, n_steps - it.first));
    for (at, used) in used.iter_mut().enumerate() {
        let mut counted = 0;
        for life in lives.iter().filter(|it| it.first <= at && at <= it.last) {
            *used.entry(life.content).or_default() +=
                life.end.saturating_sub(life.start.max(counted));
            counted = counted.max(life.end);
        }
    }
    used
}

fn lives(program: &Program) -> Vec<Life> {
    let (tables, steps) = (&program.tables, program.measured());
    let ends: Vec<BufferId> = results(program).into_iter().chain(tables.gradient_norm).collect();
    let mut kept: Vec<Option<Content>> = vec![None; tables.buffers.len()];
    for it in tables.parameters.iter() {
        let content = if it.is_trained { Content::Parameters } else { Content::States };
        kept[it.buffer] = Some(content);
    }
    tables.states.iter().for_each(|it| kept[it.buffer] = Some(Content::States));
    tables.inputs.iter().for_each(|it| kept[it.buffer] = Some(Content::Inputs));
    tables.constants.iter().for_each(|it| kept[it.buffer] = Some(Content::Inputs));
    let life = |buffer: BufferId, content: Content, first: usize, last: usize| {
        let it = &tables.buffers[buffer];
        // Buffers begin at multiples of 64 bytes.
        let bytes = (it.n_elements * it.dtype.bytes()).next_multiple_of(64);
        Life { content, start: it.offset, end: it.offset + bytes, first, last }
    };
    let stays = |(buffer, content): (BufferId, &Option<Content>)| {
        content.map(|content| life(buffer, content, 0, steps.len()))
    };
    let mut lives: Vec<Life> = kept.iter().enumerate().filter_map(stays).collect();
    let is_forward = forward(program, &kept);
    for (at, step) in steps.iter().enumerate() {
        let content = match (&program.kernels[step.kernel], is_forward[at]) {
            (Kernel::Communicate(it), _) if it.kind != CollectiveKind::Slice => {
                Content::Collectives
            }
            (_, true) => Content::Activations,
            (_, false) => Content::Gradients,
        };
        for &result in step.results.iter().filter(|it| kept[**it].is_none()) {
            let last =
                if ends.contains(&result) { steps.len() } else { last_use(steps, result, at) };
            lives.push(life(result, content, at, last));
        }
    }
    lives
}

/// What is computed forward and fetched after the last step: the loss, or in inference the outputs.
fn results(program: &Program) -> Vec<BufferId> {
    match program.tables.loss {
        Some(loss) => vec![loss],
        None => program.tables.outputs.iter().map(|it| it.buffer).collect(),
    }
}

/// The last step that reads a buffer, or the one that writes it.
fn last_use(steps: &[Step], buffer: BufferId, written: usize) -> usize {
    steps.iter().rposition(|it| it.inputs.contains(&buffer)).unwrap_or(written)
}

/// Which steps serve the loss, or in inference the outputs, or the next values of buffers that the model itself keeps; the others are of gradients and updates.
fn forward(program: &Program, stays: &[Option<Content>]) -> Vec<bool> {
    let tables = &program.tables;
    let mut is_needed = vec![false; stays.len()];
    results(program).into_iter().for_each(|it| is_needed[it] = true);
    for parameter in tables.parameters.iter().filter(|it| !it.is_trained) {
        is_needed[parameter.buffer] = true;
    }
    let mut is_forward = vec![false; program.measured().len()];
    for (at, step) in program.measured().iter().enumerate().rev() {
        is_forward[at] = step.results.iter().any(|it| is_needed[*it]);
        if is_forward[at] {
            // What stays from step to step is not made by the steps that read it. By the gradients' norm buffers only tell whether they move.
            let is_made =
                |it: &&BufferId| stays[**it].is_none() && Some(**it) != tables.gradient_norm;
            step.inputs.iter().filter(is_made).for_each(|it| is_needed[*it] = true);
        }
    }
    is_forward
}
