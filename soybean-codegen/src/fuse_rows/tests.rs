//! Random steps in random memory compute the same before and after fusion.

use soybean_plan::{
    Binary, Buffer, Combine, DType, Instruction, Map, Reduction, ScalarProgram, Shape, Strides,
    overlaps,
};

use super::*;
use crate::random_steps::{Dice, N_CELLS, Phase, described, run, tables};

/// The index space of most steps: rows of four points.
const EXTENTS: [usize; 3] = [2, 3, 4];
/// Buffers of points, of rows, of vectors along rows, and of scalars.
fn buffers(dice: &mut Dice) -> Vec<Buffer> {
    let sizes = [24, 24, 24, 24, 24, 6, 6, 6, 6, 4, 4, 1];
    let mut buffer = |n_elements| {
        // Buffers that begin at the same place are common, others overlap in any way.
        let place = if dice.below(2) == 0 { dice.below(6) * 24 } else { dice.below(N_CELLS - 24) };
        Buffer { offset: place * 4, n_elements, dtype: DType::F32 }
    };
    sizes.into_iter().map(&mut buffer).collect()
}

fn shape_of(n_elements: usize) -> Strides {
    match n_elements {
        24 => Shape::new(&EXTENTS).dense_strides(),
        6 => Strides::new(&[3, 1, 0]),
        4 => Strides::new(&[0, 0, 1]),
        _ => Strides::default(),
    }
}

/// Returns `a x0 + x1 x2 ..` of some inputs.
fn program(dice: &mut Dice, n_inputs: usize) -> ScalarProgram {
    let input = |it: usize| Instruction::Input(u8::try_from(it).expect("few"));
    let mut instructions: Vec<Instruction> = (0..n_inputs).map(input).collect();
    for _ in 0..1 + dice.below(3) {
        let n = instructions.len();
        let mut register = || u16::try_from(dice.below(n)).expect("few");
        let (x, y) = (register(), register());
        let functions = [Binary::Add, Binary::Subtract, Binary::Maximum];
        instructions.push(Instruction::Binary(functions[dice.below(3)], x, y));
    }
    let last = u16::try_from(instructions.len() - 1).expect("few");
    ScalarProgram { instructions: instructions.into(), results: vec![last].into() }
}

/// Returns a random step, if its result has memory of its own or of a dense input.
fn step(dice: &mut Dice, buffers: &[Buffer]) -> Option<(Kernel, Vec<usize>, usize)> {
    let n_inputs = 1 + dice.below(3);
    let form = dice.below(4);
    // Steps for whole rows read no points.
    let readable: Vec<usize> = (0..buffers.len())
        .filter(|it| form != 2 || [6, 1].contains(&buffers[*it].n_elements))
        .collect();
    let inputs: Vec<usize> = (0..n_inputs).map(|_| readable[dice.below(readable.len())]).collect();
    let n_values = if form < 2 { 24 } else { 6 };
    let result: Vec<usize> =
        (0..buffers.len()).filter(|it| buffers[*it].n_elements == n_values).collect();
    let result = result[dice.below(result.len())];
    let strides: Vec<Strides> = inputs.iter().map(|it| shape_of(buffers[*it].n_elements)).collect();
    let range = |it: usize| {
        let Buffer { offset, n_elements, .. } = buffers[it];
        offset..offset + n_elements * 4
    };
    let may_share = |input: &usize| {
        let is_same = form < 2 && buffers[*input] == buffers[result];
        is_same || !overlaps(&range(*input), &range(result))
    };
    let extents = if form == 2 { Shape::new(&EXTENTS[..2]) } else { Shape::new(&EXTENTS) };
    let map = Map { extents, inputs: strides.into(), program: program(dice, n_inputs) };
    let combine = if dice.below(2) == 0 { Combine::Sum } else { Combine::Max };
    let kernel: Kernel = match form {
        3 => Reduction { map, combine, result: shape_of(6) }.into(),
        _ => map.into(),
    };
    inputs.iter().all(may_share).then_some((kernel, inputs, result))
}

fn phase(dice: &mut Dice) -> Phase {
    let buffers = buffers(dice);
    let (mut steps, mut kernels) = (Vec::new(), Vec::new());
    while steps.len() < 12 {
        if let Some((kernel, inputs, result)) = step(dice, &buffers) {
            steps.push(Step { kernel: kernels.len(), inputs, results: vec![result] });
            kernels.push(kernel);
        }
    }
    Phase { steps, kernels, buffers }
}

#[test]
fn fused_steps_compute_the_same() {
    let (mut n_fused, mut n_in_place) = (0, 0);
    for seed in 0..3000 {
        let dice = &mut Dice(seed);
        let phase = phase(dice);
        // The last results, unless others are written over them.
        let last = phase.last_results(dice, 4);
        let Phase { steps, mut kernels, buffers } = phase;
        let tables = tables(&buffers, &last);
        let expected = run(&steps, &kernels, &tables);
        let n_kernels = kernels.len();
        let fused = fuse_rows(&steps, &mut kernels, &tables);
        let found = run(&fused, &kernels, &tables);
        let text = || described(&tables, &kernels, [&steps, &fused]);
        assert_eq!(expected, found, "{seed}: {last:?}\n{}", text());
        n_fused += kernels.len() - n_kernels;
        let is_in_place = |it: &&Step| {
            let same = |one: &usize| it.results.iter().any(|two| buffers[*one] == buffers[*two]);
            it.kernel >= n_kernels && it.inputs.iter().any(same)
        };
        n_in_place += fused.iter().filter(is_in_place).count();
    }
    assert!(n_fused > 1000 && n_in_place > 50, "{n_fused} kernels, {n_in_place} of them in place");
}

#[test]
fn rows_are_the_dims_that_a_reduction_keeps() {
    let space = |extents: &[usize], result: &[usize]| {
        let extents = Shape::new(extents);
        let inputs = vec![extents.dense_strides()].into();
        let program = ScalarProgram {
            instructions: vec![Instruction::Input(0)].into(),
            results: vec![0].into(),
        };
        let map = Map { extents, inputs, program };
        let reduction = Reduction { map, combine: Combine::Sum, result: Strides::new(result) };
        RowSpace::of(&reduction.into()).map(|it| it.n_row_dims)
    };
    assert_eq!(space(&[2, 3, 4], &[3, 1, 0]), Some(2));
    assert_eq!(space(&[2, 3, 4], &[1, 0, 0]), Some(1));
    assert_eq!(space(&[2, 1, 4], &[1, 0, 0]), Some(2));
    assert_eq!(space(&[2, 3, 4], &[0, 0, 0]), Some(0));
    // Columns, the inner of two kept dims, another order of results, and nothing that is combined.
    assert_eq!(space(&[2, 3, 4], &[0, 4, 1]), None);
    assert_eq!(space(&[2, 3, 4], &[4, 0, 1]), None);
    assert_eq!(space(&[2, 3, 4], &[1, 2, 0]), None);
    assert_eq!(space(&[2, 3, 4], &[12, 4, 1]), None);
}
