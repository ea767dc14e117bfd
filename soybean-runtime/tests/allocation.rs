//! A training step allocates nothing, on any thread.
//!
//! This test is a separate program, because threads that run other tests would allocate meanwhile.

use soybean_counting_allocator::count_during;
use soybean_linear_program::{batch, program, vouched};
use soybean_plan::{
    Attention, AttentionForm, Binary, Buffer, Combine, Concatenation, Contraction, Convolution,
    ConvolutionForm, DType, Embedding, EmbeddingForm, ImageLayout, Indexing, IndexingForm,
    Instruction, Kernel, Map, MatrixStrides, Padding, Permutation, Pooling, PoolingForm, Program,
    Ranking, RankingForm, Reduction, RowFusion, RowStage, RowStageForm, ScalarProgram,
    ScoreFunction, Shape, Step, Strides, Unary,
};
use soybean_runtime::{Config, Device, Trainer, View};

/// Returns the linear model with more kernels, which are large enough for several threads.
fn enlarged(n_ranks: usize) -> Program {
    const N: usize = 192;
    let mut program = program(n_ranks);
    let mut buffers = program.tables.buffers.into_owned();
    let first = buffers.len();
    for dtype in [DType::F32, DType::F32, DType::F32, DType::I32] {
        let offset = program.tables.arena_bytes;
        buffers.push(Buffer { offset, n_elements: N * N, dtype });
        program.tables.arena_bytes += N * N * 4;
    }
    program.tables.buffers = buffers.into();
    let extents = Shape::new(&[N, N]);
    let matrix = MatrixStrides { batch: Strides::default(), row: N, column: 1 };
    let (batch, left, right, result) = (Shape::default(), matrix, matrix, matrix);
    let contraction = Contraction { batch, rows: N, columns: N, depth: N, left, right, result };
    let map = Map {
        extents,
        inputs: vec![extents.dense_strides()].into(),
        program: ScalarProgram {
            instructions: vec![Instruction::Input(0)].into(),
            results: vec![0].into(),
        },
    };
    let reduce = |result: &[usize]| Reduction {
        map: map.clone(),
        combine: Combine::Sum,
        result: Strides::new(result),
    };
    let [a, b, c, indices] = [0, 1, 2, 3].map(|it| first + it);
    add(&mut program, contraction, &[a, b], c);
    for result in [[0, 1], [1, 0], [0, 0]] {
        add(&mut program, reduce(&result), &[a], c);
    }
    add(&mut program, map, &[a], b);
    add(&mut program, centered(extents), &[a], b);
    add(&mut program, Permutation { extents, input: Strides::new(&[1, N]) }, &[a], b);
    add_windows(&mut program, [a, b, c]);
    add_copies(&mut program, [a, b, c, indices]);
    add_attention(&mut program, [a, b, c]);
    program
}

/// Returns rows less the sum of their elements.
fn centered(extents: Shape) -> RowFusion {
    let stage = |form, instructions: &[Instruction], is_stored| RowStage {
        form,
        program: ScalarProgram {
            instructions: instructions.to_vec().into(),
            results: vec![u16::try_from(instructions.len() - 1).expect("few")].into(),
        },
        is_stored,
    };
    let [x, sum] = [0, 1].map(Instruction::Input);
    let rest = [x, sum, Instruction::Binary(Binary::Subtract, 0, 1)];
    RowFusion {
        extents,
        n_row_dims: 1,
        inputs: vec![extents.dense_strides()].into(),
        stages: vec![
            stage(RowStageForm::Sum, &[x], false),
            stage(RowStageForm::Point, &rest, true),
        ]
        .into(),
    }
}

/// Adds a kernel and a training step that runs it.
fn add(program: &mut Program, kernel: impl Into<Kernel>, inputs: &[usize], result: usize) {
    let number = program.kernels.len();
    program.kernels.to_mut().push(kernel.into());
    program.train[0].push(Step { kernel: number, inputs: inputs.to_vec(), results: vec![result] });
}

/// Adds attention of one head, whose queries are divided among threads, and a convolution that uses
/// Winograd transforms.
fn add_attention(program: &mut Program, [a, b, c]: [usize; 3]) {
    let instructions = vec![Instruction::Input(0), Instruction::Unary(Unary::Tanh, 0)];
    let tanh = ScalarProgram { instructions: instructions.into(), results: vec![1].into() };
    let function = ScoreFunction { score: tanh.clone(), slope: Some(tanh), heads: None };
    let forms = [AttentionForm::Forward, AttentionForm::Gradient];
    for (form, score) in forms.into_iter().flat_map(|it| [(it, None), (it, Some(&function))]) {
        let attention = Attention {
            is_causal: true,
            score: score.cloned(),
            pairs: Attention::causal_pairs(190, 190),
            scale: 0.125,
            ..Attention::new(form, 1, [190; 2], [64; 2])
        };
        let [n_inputs, n_results] =
            [attention.input_lengths().len(), attention.result_lengths().len()];
        let number = program.kernels.len();
        program.kernels.to_mut().push(attention.into());
        // Positions, which come last, are not read.
        let inputs = [&[a, b, a, b][..n_inputs], &[a]].concat();
        let results = vec![c; n_results];
        program.train[0].push(Step { kernel: number, inputs, results });
    }
    let convolution = Convolution {
        form: ConvolutionForm::Forward,
        batch: 8,
        groups: 1,
        channels: 16,
        filters: 16,
        image: [16, 16],
        window: [3, 3],
        result: [16, 16],
        stride: [1, 1],
        padding: [1, 1],
        dilation: [1, 1],
        layout: ImageLayout::ChannelsFirst,
    };
    add(program, convolution, &[a, b], c);
}

/// Adds convolutions and poolings of all forms. 8 planes of 64 x 64 pixels fit in each buffer;
/// results have half the height and width.
fn add_windows(program: &mut Program, [a, b, c]: [usize; 3]) {
    let forms = [ConvolutionForm::Forward, ConvolutionForm::Data, ConvolutionForm::Filter];
    for form in forms {
        let convolution = Convolution {
            form,
            batch: 1,
            groups: 1,
            channels: 8,
            filters: 8,
            image: [64, 64],
            window: [3, 3],
            result: [32, 32],
            stride: [2, 2],
            padding: [1, 1],
            dilation: [1, 1],
            layout: ImageLayout::ChannelsFirst,
        };
        add(program, convolution, &[a, b], c);
    }
    let forms =
        [PoolingForm::Max, PoolingForm::MaxGradient, PoolingForm::Sum, PoolingForm::SumGradient];
    for form in forms {
        let pooling = Pooling {
            form,
            planes: 8,
            channels: 1,
            image: [64, 64],
            window: [3, 3],
            result: [32, 32],
            stride: [2, 2],
            padding: [1, 1],
        };
        let n_inputs = if form == PoolingForm::MaxGradient { 2 } else { 1 };
        add(program, pooling, &[a, b][..n_inputs], c);
    }
}

/// Adds a padding, a concatenation, embeddings, elements by their indices, and a ranking.
fn add_copies(program: &mut Program, [a, b, c, indices]: [usize; 4]) {
    let window = [Shape::new(&[8, 60, 60]), Shape::new(&[8, 64, 64])];
    let low = [0, 2, 2, 0, 0, 0, 0, 0];
    add(program, Padding { input: window[0], result: window[1], low, fill: 1.0 }, &[a], b);
    add(program, Concatenation { outer: 64, lengths: vec![100, 400].into() }, &[a, b], c);
    for form in [EmbeddingForm::Gather, EmbeddingForm::ScatterAdd] {
        let embedding = Embedding { form, n_indices: 500, rows: 300, vocabulary: 600, width: 64 };
        add(program, embedding, &[indices, a, indices], c);
    }
    for form in IndexingForm::ALL {
        let (n_indices, rows, extent) = (500, 300, 600);
        let it = Indexing { form: *form, outer: 1, n_indices, rows, extent, inner: 1 };
        add(program, it, &[indices, a, indices], c);
    }
    let form = RankingForm::Descending;
    add(program, Ranking { form, outer: 50, length: 10, inner: 1 }, &[a], indices);
}

fn main() {
    let (x, y) = batch(0);
    for n_ranks in [1, 2, 8] {
        let config = Config { device: Device::Cpu, threads: Some(2), ..Config::default() };
        let mut trainer = Trainer::new_shared(vouched(enlarged(n_ranks)), config).expect("sound");
        let mut steps = |n_steps| {
            for _ in 0..n_steps {
                trainer.step(&[View::F32(&x), View::F32(&y)]).expect("sound");
            }
        };
        steps(5);
        let ((), n_allocations) = count_during(|| steps(20));
        assert_eq!(n_allocations, 0, "{n_ranks} ranks");
    }
}
