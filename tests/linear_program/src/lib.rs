//! A program written by hand: a linear model with squared errors, its batch split over all ranks.
#![expect(unsafe_code, reason = "tests vouch for their programs")]

use std::sync::Arc;

use soybean_plan::{
    AxisSet, BUFFER_ALIGNMENT, Binary, Buffer, Collective, CollectiveKind, Combine, Contraction,
    DType, Entry, Executable, Halo, ImageLayout, Init, Input, Instruction, Kernel, Map,
    MatrixStrides, Mesh, Output, Parameter, Placement, Program, Reduction, Rows, RunScalar,
    ScalarProgram, Shape, Step, Strides, Tables, Tile, Tiling,
};

/// The number of rows of a batch.
pub const BATCH: usize = 32;
/// The number of columns of `x`.
pub const FEATURES: usize = 8;

const X: usize = 0;
const Y: usize = 1;
const W: usize = 2;
const PREDICTION: usize = 3;
const ERROR: usize = 4;
const LOSS_PART: usize = 5;
const LOSS: usize = 6;
const GRADIENT_PART: usize = 7;
const GRADIENT: usize = 8;

/// Vouches for a program of [`program`], or a test's variation of it.
#[must_use]
pub fn vouched(program: Program) -> Arc<Executable> {
    // SAFETY: variations leave kernels, steps and the sizes of buffers as they are, or contradict
    // the tables, which trainers check.
    Arc::new(unsafe { Executable::new(program) })
}

/// Returns the program for this many ranks, a power of two up to the batch.
pub fn program(n_ranks: usize) -> Program {
    let mesh = Mesh::new(n_ranks);
    let rows = BATCH / n_ranks;
    let is_alone = n_ranks == 1;
    let sizes = [rows * FEATURES, rows, FEATURES, rows, rows, 1, 1, FEATURES, FEATURES];
    let mut arena_bytes = 0;
    let buffer = |n_elements: &usize| {
        let offset = arena_bytes;
        arena_bytes += (n_elements * 4).next_multiple_of(BUFFER_ALIGNMENT);
        Buffer { offset, n_elements: *n_elements, dtype: DType::F32 }
    };
    let buffers: Vec<Buffer> = sizes.iter().map(buffer).collect();
    let loss = if is_alone { LOSS_PART } else { LOSS };
    let tables = tables(mesh, arena_bytes, buffers, loss);
    let kernels: Vec<Kernel> = vec![
        product(rows, FEATURES, false).into(),
        difference(rows).into(),
        mean_square(rows).into(),
        sum(&mesh, &[]).into(),
        product(FEATURES, rows, true).into(),
        sum(&mesh, &[FEATURES, 1]).into(),
        update().into(),
    ];
    let step = |kernel, inputs: &[usize], result| Step {
        kernel,
        inputs: inputs.to_vec(),
        results: vec![result],
    };
    let mut evaluate = vec![
        step(0, &[X, W], PREDICTION),
        step(1, &[PREDICTION, Y], ERROR),
        step(2, &[ERROR], LOSS_PART),
    ];
    if !is_alone {
        evaluate.push(step(3, &[LOSS_PART], LOSS));
    }
    let mut train = evaluate.clone();
    train.push(step(4, &[X, ERROR], GRADIENT_PART));
    if !is_alone {
        train.push(step(5, &[GRADIENT_PART], GRADIENT));
    }
    let gradient = if is_alone { GRADIENT_PART } else { GRADIENT };
    train.push(step(6, &[W, gradient], W));
    Program {
        tables,
        kernels: kernels.into(),
        train: vec![train],
        accumulate: Vec::new(),
        evaluate: vec![evaluate],
    }
}

fn tables(mesh: Mesh, arena_bytes: usize, buffers: Vec<Buffer>, loss: usize) -> Tables {
    let split = Tiling::new(&vec![Placement::Split(0); mesh.n_axes()]);
    let whole = Tiling::replicated(mesh.n_axes());
    let tile = |shape: &[usize], tiling| Tile::new(Shape::new(shape), tiling);
    let input = |name, shape, buffer, is_queried| Input {
        name,
        dtype: DType::F32,
        tile: tile(shape, split),
        buffer,
        n_classes: None,
        ignored_label: None,
        is_queried,
    };
    let output = |name, tile, buffer, rows| Output { name, dtype: DType::F32, tile, buffer, rows };
    let bytes = |n_elements: usize| 2 * 4 * ((mesh.n_ranks() - 1) * n_elements) as u64;
    Tables {
        arena_bytes,
        buffers: buffers.into(),
        entries: vec![Entry::only(2, 2, 1, bytes(1)).trained(loss, bytes(FEATURES + 1))].into(),
        inputs: vec![
            input("x".into(), &[BATCH, FEATURES], X, true),
            input("y".into(), &[BATCH, 1], Y, false),
        ]
        .into(),
        parameters: vec![Parameter {
            name: "w".into(),
            tile: tile(&[FEATURES, 1], whole),
            layout: ImageLayout::ChannelsFirst,
            buffer: W,
            init: Init::Normal { mean: 0.0, std: 0.5 },
            is_trained: true,
            use_hash: 0,
        }]
        .into(),
        scalars: vec![RunScalar::LearningRate].into(),
        outputs: vec![
            output("loss".into(), tile(&[], whole), loss, Rows::Mixed),
            output("prediction".into(), tile(&[BATCH, 1], split), PREDICTION, Rows::Own { dim: 0 }),
        ]
        .into(),
        ..Tables::new("linear", mesh)
    }
}

/// Returns the product `x w`, or `x^T e`.
fn product(rows: usize, depth: usize, is_transposed: bool) -> Contraction {
    let matrix = |row, column| MatrixStrides { batch: Strides::default(), row, column };
    Contraction {
        batch: Shape::default(),
        rows,
        columns: 1,
        depth,
        left: if is_transposed { matrix(1, FEATURES) } else { matrix(FEATURES, 1) },
        right: matrix(1, 1),
        result: matrix(1, 1),
    }
}

fn difference(rows: usize) -> Map {
    let instructions = vec![
        Instruction::Input(0),
        Instruction::Input(1),
        Instruction::Binary(Binary::Subtract, 0, 1),
    ];
    dense_map(&[rows, 1], 2, instructions, 2)
}

/// Returns the update `w - rate * 2 / batch * gradient`.
fn update() -> Map {
    let instructions = vec![
        Instruction::Input(0),
        Instruction::Input(1),
        Instruction::Scalar(0),
        Instruction::Constant(2.0 / BATCH as f64),
        Instruction::Binary(Binary::Multiply, 2, 3),
        Instruction::Binary(Binary::Multiply, 4, 1),
        Instruction::Binary(Binary::Subtract, 0, 5),
    ];
    dense_map(&[FEATURES, 1], 2, instructions, 6)
}

fn mean_square(rows: usize) -> Reduction {
    let instructions = vec![
        Instruction::Input(0),
        Instruction::Binary(Binary::Multiply, 0, 0),
        Instruction::Constant(1.0 / BATCH as f64),
        Instruction::Binary(Binary::Multiply, 1, 2),
    ];
    let map = dense_map(&[rows, 1], 1, instructions, 3);
    Reduction { map, combine: Combine::Sum, result: Strides::default() }
}

fn dense_map(shape: &[usize], n_inputs: usize, instructions: Vec<Instruction>, result: u16) -> Map {
    let extents = Shape::new(shape);
    Map {
        extents,
        inputs: vec![extents.dense_strides(); n_inputs].into(),
        program: ScalarProgram { instructions: instructions.into(), results: vec![result].into() },
    }
}

fn sum(mesh: &Mesh, shape: &[usize]) -> Collective {
    let n_axes = mesh.n_axes();
    Collective {
        kind: CollectiveKind::AllReduce,
        dtype: DType::F32,
        combine: Combine::Sum,
        axes: (0..n_axes).collect::<AxisSet>(),
        shape: Shape::new(shape),
        from: Tiling::new(&vec![Placement::Partial; n_axes]),
        to: Tiling::replicated(n_axes),
        halo: Halo::NONE,
    }
}

/// Returns a batch that depends on the step.
pub fn batch(step: usize) -> (Vec<f32>, Vec<f32>) {
    let number = |index: usize| ((index * 7919 + step * 104_729) % 2003) as f32 / 1001.0 - 1.0;
    let x: Vec<f32> = (0..BATCH * FEATURES).map(number).collect();
    let y = x.chunks(FEATURES).map(|row| row.iter().sum::<f32>() * 0.5 + 0.1).collect();
    (x, y)
}
