//! Tests of a linear program with a rounded copy of its parameter and a second parameter.

use soybean_linear_program::{program, vouched};
use soybean_plan::{
    BUFFER_ALIGNMENT, Buffer, BufferId, DType, Kernel, Map, Program, ScalarProgram, Shape, Step,
    Tile,
};

use super::*;

/// The buffers of the linear program.
const X: BufferId = 0;
const W: BufferId = 2;
const PREDICTION: BufferId = 3;
const GRADIENT: BufferId = 7;
/// Those that are added: `W` rounded, another parameter and its gradient.
const ROUNDED: BufferId = 9;
const SECOND: BufferId = 10;
const GRADIENT_OF_SECOND: BufferId = 11;
/// The elements of `W` and of the other parameter.
const SIZES: [usize; 2] = [8, 24];

/// The numbers of the kernels.
const PRODUCT: usize = 0;
const UPDATE: usize = 6;
const ROUND: usize = 7;
const COPY: usize = 8;
const UPDATE_OF_SECOND: usize = 9;

fn map(n_elements: usize, program: ScalarProgram, n_inputs: usize) -> Kernel {
    let extents = Shape::new(&[n_elements]);
    Map { extents, inputs: vec![extents.dense_strides(); n_inputs].into(), program }.into()
}

fn step(kernel: usize, inputs: &[BufferId], result: BufferId) -> Step {
    Step { kernel, inputs: inputs.to_vec(), results: vec![result] }
}

/// Returns the linear program, whose product reads `W` rounded, with an update of another
/// parameter. Its gradient is a copy.
fn model() -> Program {
    let mut program = program(1);
    for (n_elements, dtype) in
        [(SIZES[0], DType::Bf16), (SIZES[1], DType::F32), (SIZES[1], DType::F32)]
    {
        let offset = program.tables.arena_bytes;
        program.tables.buffers.to_mut().push(Buffer { offset, n_elements, dtype });
        program.tables.arena_bytes +=
            (n_elements * dtype.bytes()).next_multiple_of(BUFFER_ALIGNMENT);
    }
    let parameters = program.tables.parameters.to_mut();
    let mut second = parameters[0].clone();
    second.buffer = SECOND;
    second.tile = Tile::new(Shape::new(&[SIZES[1], 1]), second.tile.tiling);
    parameters.push(second);
    let kernels = program.kernels.to_mut();
    let Kernel::Map(update) = kernels[UPDATE].clone() else { unreachable!("updates are maps") };
    kernels.extend([
        map(SIZES[0], ScalarProgram::identity(), 1),
        map(SIZES[1], ScalarProgram::identity(), 1),
        map(SIZES[1], update.program, 2),
    ]);
    for steps in program.train.iter_mut().chain(&mut program.evaluate) {
        steps[0] = step(PRODUCT, &[X, ROUNDED], PREDICTION);
        steps.insert(0, step(ROUND, &[W], ROUNDED));
    }
    let train = &mut program.train[0];
    train.push(step(COPY, &[SECOND], GRADIENT_OF_SECOND));
    train.push(step(UPDATE_OF_SECOND, &[SECOND, GRADIENT_OF_SECOND], SECOND));
    program
}

fn place(program: &Program, buffer: BufferId) -> (usize, usize) {
    let Buffer { offset, n_elements, .. } = program.tables.buffers[buffer];
    (offset, n_elements)
}

#[test]
fn updates_write_the_rounded_copy() {
    let mut program = model();
    let arena_bytes = program.tables.arena_bytes;
    assert_eq!(keep_rounded(&mut program), Rounded::from([(W, ROUNDED)]));
    let updates: Vec<&Step> = program.train[0].iter().filter(|it| it.results[0] == W).collect();
    assert_eq!(updates.len(), 1);
    assert_eq!(updates[0].results, [W, ROUNDED]);
    let Kernel::Map(map) = &program.kernels[updates[0].kernel] else { unreachable!("a map") };
    assert_eq!(map.program.results[0], map.program.results[1]);
    assert!(program.tables.buffers[ROUNDED].offset >= arena_bytes);
    let all = program.train.iter().chain(&program.evaluate).flatten();
    assert!(all.clone().all(|it| it.kernel != ROUND));
    assert_eq!(all.filter(|it| it.inputs.contains(&ROUNDED)).count(), 2);
}

#[test]
fn a_copy_that_is_read_after_an_update_is_not_kept() {
    let mut program = model();
    program.train[0].push(step(PRODUCT, &[X, ROUNDED], PREDICTION));
    let steps = program.train.clone();
    assert_eq!(keep_rounded(&mut program), Rounded::new());
    assert_eq!(program.train, steps);
}

#[test]
fn a_parameter_that_no_map_updates_has_no_copy() {
    let mut program = model();
    program.evaluate[0].push(step(PRODUCT, &[X, ROUNDED], W));
    assert_eq!(keep_rounded(&mut program), Rounded::new());
}

#[test]
fn small_updates_are_one_over_buffers_side_by_side() {
    let mut program = model();
    join_updates(&mut program);
    let last = program.train[0].last().unwrap().clone();
    let spans = [last.inputs[0], last.inputs[1]];
    assert_eq!(last.results, [spans[0]]);
    for (span, own) in spans.into_iter().zip([[W, SECOND], [GRADIENT, GRADIENT_OF_SECOND]]) {
        let (start, n_elements) = place(&program, span);
        // Both begin at multiples of 128 elements.
        assert_eq!(n_elements, 256);
        assert_eq!(own.map(|it| place(&program, it)), [(start, 8), (start + 512, 24)]);
    }
    let is_update = |it: &&Step| [UPDATE, UPDATE_OF_SECOND].contains(&it.kernel);
    assert_eq!(program.train[0].iter().filter(is_update).count(), 0);
    check_tables(&program.tables).unwrap();
}

/// Updates run in the order of gradients, which is that of layers backwards.
#[test]
fn parameters_side_by_side_have_the_order_of_the_plan() {
    let mut program = model();
    let train = &mut program.train[0];
    let of_second = train.split_off(train.len() - 2);
    let update = train.pop().unwrap();
    train.extend(of_second.into_iter().chain([update]));
    join_updates(&mut program);
    assert!(place(&program, W) < place(&program, SECOND));
    assert!(place(&program, GRADIENT) < place(&program, GRADIENT_OF_SECOND));
    assert_eq!(program.train[0].iter().filter(|it| it.kernel == UPDATE_OF_SECOND).count(), 0);
}

#[test]
fn an_update_whose_parameter_is_read_later_does_not_wait() {
    let mut program = model();
    let at = program.train[0].len() - 1;
    program.train[0].insert(at, step(PRODUCT, &[X, W], PREDICTION));
    let n_steps = program.train[0].len();
    join_updates(&mut program);
    assert_eq!(program.train[0].len(), n_steps);
    assert_eq!(program.train[0][at], step(PRODUCT, &[X, W], PREDICTION));
}

#[test]
fn copies_and_joined_updates_go_together() {
    let model = model();
    let DeviceProgram { program, copies, .. } =
        DeviceProgram::new(&*vouched(model.clone())).unwrap();
    assert_eq!(copies, Rounded::from([(W, ROUNDED)]));
    // The updates differ in their results.
    assert_eq!(program.train[0].len(), model.train[0].len() - 1);
    check_tables(&program.tables).unwrap();
}
