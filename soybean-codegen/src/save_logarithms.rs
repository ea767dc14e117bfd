//! Attention whose gradients read what the forward step has saved.
//!
//! Gradients need the sum of the exponentials of each query's scores, which takes half of the
//! forward step to compute again. So where a phase has both steps, the forward step saves the
//! logarithm of this sum in a buffer of its own. The gradients also need the dot product of each
//! query's result and its gradient, so they read the result, which must still be there.

use std::ops::Range;

use soybean_plan::{
    Attention, AttentionForm, AttentionLayout, Buffer, BufferId, DType, Kernel, Step, Tables,
    first_gap,
};

use crate::{fold_permutations::occupied, memory::Memory};

/// Returns the steps of a phase in which gradients of attention read saved logarithms wherever they
/// can. New kernels are appended to `kernels`, and the logarithms to the buffers.
#[must_use]
pub fn save_logarithms(
    steps: &[Step],
    kernels: &mut Vec<Kernel>,
    tables: &mut Tables,
) -> Vec<Step> {
    let lasting = (0..tables.buffers.len()).filter(|it| tables.is_live_at_end(*it));
    let lasting: Vec<Range<usize>> = lasting.map(|it| tables.range(it)).collect();
    let mut steps = steps.to_vec();
    for at in 0..steps.len() {
        let Some(forward) = attention(&steps, kernels, at) else { continue };
        let forward = Attention { saves_logarithms: true, ..forward.clone() };
        let gradients = gradients(&Memory::new(&steps, tables), kernels, at);
        let Some(&(last, _)) = gradients.last() else { continue };
        let result = steps[at].results[0];
        steps[at].kernel = Kernel::from(forward.clone()).number_in(kernels);
        for (step, gradient) in gradients.iter().cloned() {
            steps[step].kernel = Kernel::from(gradient).number_in(kernels);
            steps[step].inputs.push(result);
        }
        let n_elements = forward.heads * forward.group * forward.queries;
        let mut taken = occupied(&steps, tables, (at, last), &[]);
        taken.extend_from_slice(&lasting);
        let logarithms = place(tables, taken, n_elements);
        steps[at].results.push(logarithms);
        for (step, _) in gradients {
            steps[step].inputs.push(logarithms);
        }
    }
    steps
}

/// Returns a new buffer outside these ranges.
fn place(tables: &mut Tables, taken: Vec<Range<usize>>, n_elements: usize) -> BufferId {
    let n_bytes = n_elements * DType::F32.bytes();
    let offset = first_gap(taken, n_bytes);
    tables.arena_bytes = tables.arena_bytes.max(offset + n_bytes);
    let buffers = tables.buffers.to_mut();
    buffers.push(Buffer { offset, n_elements, dtype: DType::F32 });
    buffers.len() - 1
}

/// Returns the kernel of a step, if it is attention that saves no logarithms.
fn attention<'a>(steps: &[Step], kernels: &'a [Kernel], at: usize) -> Option<&'a Attention> {
    match kernels.get(steps[at].kernel)? {
        Kernel::Attend(it) if !it.saves_logarithms => Some(it),
        _ => None,
    }
}

/// Returns the steps that compute gradients of a forward step while all that it read, and its
/// result, are still there, with the kernels that read what it saves.
fn gradients(memory: &Memory<'_>, kernels: &[Kernel], at: usize) -> Vec<(usize, Attention)> {
    let Some(forward) = attention(memory.steps, kernels, at) else { return Vec::new() };
    let is_empty = forward.queries * forward.keys * forward.width == 0;
    if forward.form != AttentionForm::Forward || is_empty {
        return Vec::new();
    }
    let Step { inputs, results, .. } = &memory.steps[at];
    let needed = || inputs.iter().chain(results);
    let mut found = Vec::new();
    for step in at + 1..memory.steps.len() {
        // A gradient may not write to the result that it reads.
        if memory.writer(results[0], step..step + 1).is_some() {
            break;
        }
        let reads_same = |it: &Step| {
            let (operands, masks) = (it.inputs.get(..3), it.inputs.get(4..));
            operands == inputs.get(..3) && masks == inputs.get(3..)
        };
        let gradient = attention(memory.steps, kernels, step);
        let gradient = gradient.filter(|it| is_gradient_of(it, forward));
        let is_there = |it: &BufferId| memory.writer(*it, at + 1..step).is_none();
        if let Some(it) = gradient
            && reads_same(&memory.steps[step])
            && needed().all(is_there)
        {
            found.push((step, Attention { saves_logarithms: true, ..it.clone() }));
        }
    }
    found
}

/// Returns whether gradients are those of a forward computation, with the same layouts.
fn is_gradient_of(gradient: &Attention, forward: &Attention) -> bool {
    let AttentionLayout { operands, results } = forward.layout;
    let layout = AttentionLayout {
        operands: [operands[0], operands[1], operands[2], results[0]],
        ..gradient.layout
    };
    let mut expected = Attention { form: gradient.form, layout, ..forward.clone() };
    // Only gradients have the derivative.
    if let (Some(expected), Some(score)) = (&mut expected.score, &gradient.score) {
        expected.slope.clone_from(&score.slope);
    }
    gradient.form != AttentionForm::Forward && *gradient == expected
}

#[cfg(test)]
mod tests;
