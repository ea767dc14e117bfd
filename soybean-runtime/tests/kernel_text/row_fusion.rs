//! Random fused rows, and those of softmax, norms and losses.

use soybean_plan::{
    Binary, DType, Instruction, Kernel, KernelDescriptor as _, MAX_RANK, Precision, RowFusion,
    RowStage, RowStageForm, ScalarProgram, Shape, Strides, Unary,
};

use crate::{
    case::{Case, Data},
    dice::{Dice, n_needed},
    map::instruction,
    reference,
};

/// Lengths of rows: in some lanes of a warp, in registers of a block, and in memory.
const LENGTHS: [usize; 12] = [1, 7, 32, 33, 96, 768, 1000, 1024, 5000, 8192, 30_000, 50_257];

/// Returns an index space, and the number of dims that number rows.
fn space(dice: &mut Dice) -> (Shape, usize) {
    let length = dice.pick(&LENGTHS);
    let n_rows = match length {
        ..=96 => dice.pick(&[1, 5, 40, 300]),
        97..=8192 => dice.pick(&[1, 3, 4]),
        _ => dice.pick(&[1, 2]),
    };
    let outer = if n_rows % 2 == 0 { dice.pick(&[1, 2]) } else { 1 };
    let rows = [outer, n_rows / outer];
    let inner = if length.is_multiple_of(8) { dice.pick(&[1, 8]) } else { 1 };
    let row = [length / inner, inner];
    let first = dice.pick(&[0, 1]);
    let n_row_dims = 2 - first;
    if outer > 1 {
        return ([&rows[..], &row].concat().into_iter().collect(), 2);
    }
    ([&rows[first..], &row].concat().into_iter().collect(), n_row_dims)
}

/// Returns strides of an operand: dense, one element for each row, the same row for all, or any.
fn strides(dice: &mut Dice, extents: &Shape, n_row_dims: usize) -> Strides {
    let (rows, row) = extents.split_at(n_row_dims);
    match dice.below(4) {
        0 => Shape::new(rows).dense_strides(),
        1 => {
            let dense = Shape::new(row).dense_strides();
            let mut strides = [0; MAX_RANK];
            strides[n_row_dims..extents.len()].copy_from_slice(&dense.0[..row.len()]);
            Strides(strides)
        }
        2 => dice.strides(extents),
        _ => extents.dense_strides(),
    }
}

/// Returns a random stage over inputs and earlier stages, with values between -1 and 1.
fn stage(dice: &mut Dice, form: RowStageForm, readable: &[usize], fusion: &RowFusion) -> RowStage {
    let number = |it: &usize| Instruction::Input(u8::try_from(*it).unwrap());
    let mut instructions: Vec<Instruction> = readable.iter().map(number).collect();
    // Comparisons read inputs only: values of stages may differ in the last bit.
    let n_exact = readable.iter().filter(|it| **it < fusion.inputs.len()).count();
    instructions.push(Instruction::Scalar(0));
    for _ in 0..1 + dice.below(6) {
        let n = instructions.len();
        let mut register = |n: usize| u16::try_from(dice.below(n)).unwrap();
        let other = [register(n), register(n)];
        let exact = if n_exact == 0 {
            [u16::try_from(readable.len()).unwrap(); 2]
        } else {
            [register(n_exact), register(n_exact)]
        };
        instructions.push(instruction(dice, exact, other));
    }
    let last = |it: &Vec<Instruction>| u16::try_from(it.len() - 1).unwrap();
    instructions.push(Instruction::Unary(Unary::Tanh, last(&instructions)));
    if form == RowStageForm::Sum {
        let (value, factor) = (last(&instructions), 1.0 / fusion.row_length() as f64);
        instructions.push(Instruction::Constant(factor));
        instructions.push(Instruction::Binary(Binary::Multiply, value, value + 1));
    }
    let results = vec![last(&instructions)].into();
    let program = ScalarProgram { instructions: instructions.into(), results };
    RowStage { form, program, is_stored: dice.below(3) == 0 }
}

pub(crate) fn case(dice: &mut Dice) -> Case {
    let (extents, n_row_dims) = space(dice);
    let n_inputs = 1 + dice.below(4);
    let inputs: Vec<Strides> = (0..n_inputs).map(|_| strides(dice, &extents, n_row_dims)).collect();
    let mut fusion =
        RowFusion { extents, n_row_dims, inputs: inputs.into(), stages: vec![].into() };
    let n_stages = 2 + dice.below(5);
    for number in 0..n_stages {
        let forms = [RowStageForm::Point, RowStageForm::Row, RowStageForm::Sum, RowStageForm::Max];
        let form = dice.pick(&forms);
        let is_of_row = |it: &usize| match it.checked_sub(n_inputs) {
            Some(stage) => fusion.stages[stage].form != RowStageForm::Point,
            None => fusion.inputs[*it].0[n_row_dims..].iter().all(|it| *it == 0),
        };
        let all = 0..n_inputs + number;
        let readable: Vec<usize> = match form {
            RowStageForm::Row => all.filter(is_of_row).collect(),
            RowStageForm::Point | RowStageForm::Sum | RowStageForm::Max => all.collect(),
        };
        let stage = stage(dice, form, &readable, &fusion);
        fusion.stages.to_mut().push(stage);
    }
    fusion.stages.to_mut()[n_stages - 1].is_stored = true;
    with_data(dice, fusion, false)
}

/// Returns the case of a kernel with random elements.
fn with_data(dice: &mut Dice, fusion: RowFusion, has_infinities: bool) -> Case {
    let RowFusion { extents, n_row_dims, ref inputs, .. } = fusion;
    let types = dice.pick(&[[DType::F32; 2], [DType::Bf16; 2], [DType::F32, DType::Bf16]]);
    let reads_integers =
        |it: usize| fusion.stages.iter().any(|stage| stage.program.reads_integers(it));
    let data = |(number, strides): (usize, &Strides)| {
        let dtype = if reads_integers(number) { DType::I32 } else { dice.pick(&types) };
        let mut data = dice.data(dtype, n_needed(&extents, strides));
        if dtype == DType::I32 {
            // Labels, or the numbers of classes.
            let n = extents[n_row_dims];
            let is_label = strides.0[n_row_dims] == 0;
            let mut label = |it| if is_label { dice.below(n) } else { it };
            data.numbers = (0..data.numbers.len()).map(|it| label(it) as f32).collect();
        } else if has_infinities && number == 0 {
            let masked = data.numbers.iter_mut().filter(|_| dice.below(3) == 0);
            masked.for_each(|it| *it = f32::NEG_INFINITY);
        }
        data
    };
    let inputs: Vec<Data> = inputs.iter().enumerate().map(data).collect();
    let result = |stage: usize| (dice.pick(&types), fusion.n_values(stage));
    let mut results: Vec<(DType, usize)> = fusion.stored().map(result).collect();
    let is_dense = |it: &usize| {
        fusion.inputs[*it] == extents.dense_strides() && inputs[*it].dtype != DType::I32
    };
    let last = fusion.stages.last().map(|it| it.form);
    let reused = (0..inputs.len()).find(is_dense).filter(|_| dice.below(2) == 0);
    let reused = reused.filter(|_| last == Some(RowStageForm::Point));
    let n_results = results.len();
    if let Some(input) = reused {
        results[n_results - 1].0 = inputs[input].dtype;
    }
    // Sums of up to 50,257 terms of one size, relative to their size.
    let case = Case::new(fusion, inputs, results, 2e-4);
    let precision = dice.pick(&Precision::ALL);
    Case { reused: reused.map(|it| [n_results - 1, it]).into_iter().collect(), precision, ..case }
}

/// A writer of the stages of a kernel.
struct Builder {
    fusion: RowFusion,
}

impl Builder {
    fn stage(
        &mut self,
        form: RowStageForm,
        is_stored: bool,
        instructions: &[Instruction],
    ) -> usize {
        let results = vec![u16::try_from(instructions.len() - 1).unwrap()].into();
        let program = ScalarProgram { instructions: instructions.to_vec().into(), results };
        self.fusion.stages.to_mut().push(RowStage { form, program, is_stored });
        self.fusion.inputs.len() + self.fusion.stages.len() - 1
    }
}

/// Returns rows less the sum of their elements.
pub(crate) fn centered(extents: Shape) -> RowFusion {
    let inputs = vec![extents.dense_strides()].into();
    let fusion = RowFusion { extents, n_row_dims: 1, inputs, stages: vec![].into() };
    let mut builder = Builder { fusion };
    let sum = builder.stage(RowStageForm::Sum, false, &[read(0)]);
    let rest = [read(0), read(sum), binary(Binary::Subtract, 0, 1)];
    builder.stage(RowStageForm::Point, true, &rest);
    builder.fusion
}

fn read(number: usize) -> Instruction {
    Instruction::Input(u8::try_from(number).unwrap())
}

fn binary(function: Binary, x: u16, y: u16) -> Instruction {
    Instruction::Binary(function, x, y)
}

/// Returns the kernel of a cross-entropy with its gradient, of a softmax, or of a layer norm.
pub(crate) fn of_networks(dice: &mut Dice) -> Case {
    let length = dice.pick(&LENGTHS[1..]);
    let n_rows = match length {
        10_001.. => 2,
        // Many rows, or a few, have different threads.
        768 => dice.pick(&[3, 2050]),
        _ => dice.pick(&[1, 3, 20]),
    };
    let extents = Shape::new(&[n_rows, length]);
    let (dense, row, column) =
        (extents.dense_strides(), Strides::new(&[1, 0]), Strides::new(&[0, 1]));
    let inputs = vec![dense, column, row, column].into();
    let fusion = RowFusion { extents, n_row_dims: 1, inputs, stages: vec![].into() };
    let builder = Builder { fusion };
    match dice.below(3) {
        0 => norm(dice, builder),
        _ => cross_entropy(dice, builder),
    }
}

/// `log(sum(exp(x + b - max)))` less the value of the label, and the gradient of `x`; input 1 is
/// `b`, input 2 the labels, input 3 the numbers of the classes.
fn cross_entropy(dice: &mut Dice, mut builder: Builder) -> Case {
    use {Binary::*, RowStageForm::*};
    let shifted =
        |max: usize| [read(0), read(1), binary(Add, 0, 1), read(max), binary(Subtract, 2, 3)];
    let is_label = [Instruction::Integer(2), Instruction::Integer(3), binary(EqualIntegers, 0, 1)];
    let max = builder.stage(Max, dice.below(2) == 0, &shifted(0)[..3]);
    let exponential = [&shifted(max)[..], &[Instruction::Unary(Unary::Exp, 4)]].concat();
    let exp = builder.stage(Point, false, &exponential);
    let summed = if dice.below(2) == 0 { vec![read(exp)] } else { exponential };
    let sum = builder.stage(Sum, true, &summed);
    let picked = [read(0), read(1), binary(Add, 0, 1), read(max), binary(Subtract, 2, 3)];
    let select = [
        Instruction::Integer(2),
        Instruction::Integer(3),
        binary(EqualIntegers, 5, 6),
        Instruction::Constant(0.0),
        Instruction::Select(7, 4, 8),
    ];
    let picked = builder.stage(Sum, false, &[&picked[..], &select].concat());
    let loss = [read(sum), Instruction::Unary(Unary::Log, 0), read(picked), binary(Subtract, 1, 2)];
    builder.stage(Row, true, &loss);
    if dice.below(3) > 0 {
        let rest = [read(exp), read(sum), binary(Divide, 3, 4), binary(Subtract, 5, 2)];
        builder.stage(Point, true, &[&is_label[..], &rest].concat());
    }
    let has_infinities = dice.below(2) == 0;
    with_data(dice, builder.fusion, has_infinities)
}

/// `(x - mean) / sqrt(variance + 0.01) * w + w`, and the deviation; input 1 is `w`.
fn norm(dice: &mut Dice, mut builder: Builder) -> Case {
    use {Binary::*, RowStageForm::*};
    let factor = Instruction::Constant(1.0 / builder.fusion.row_length() as f64);
    let sum = builder.stage(Sum, false, &[read(0)]);
    let mean = builder.stage(Row, true, &[read(sum), factor, binary(Multiply, 0, 1)]);
    let centered = [read(0), read(mean), binary(Subtract, 0, 1)];
    let square = [&centered[..], &[binary(Multiply, 2, 2)]].concat();
    let squares = builder.stage(Sum, false, &square);
    let deviation = [
        read(squares),
        factor,
        binary(Multiply, 0, 1),
        Instruction::Constant(0.01),
        binary(Add, 2, 3),
        Instruction::Unary(Unary::Sqrt, 4),
    ];
    let deviation = builder.stage(Row, true, &deviation);
    let rest = [read(deviation), binary(Divide, 2, 3), read(1), binary(Multiply, 4, 5)];
    let scaled = [&centered[..], &rest, &[binary(Add, 6, 5)]].concat();
    builder.stage(Point, true, &scaled);
    with_data(dice, builder.fusion, false)
}

#[test]
fn the_cpu_computes_what_the_descriptor_says() {
    for seed in 0..40 {
        for case in [case(&mut Dice(seed)), of_networks(&mut Dice(seed))] {
            let Kernel::FuseRows(fusion) = &case.kernel else { panic!("{case:?}") };
            let wide = |it: &Data| it.numbers.iter().map(|it| f64::from(*it)).collect();
            let inputs: Vec<Vec<f64>> = case.inputs.iter().map(wide).collect();
            let inputs: Vec<&[f64]> = inputs.iter().map(|it| &it[..]).collect();
            let scalars = reference::scalars().map(f64::from);
            #[expect(clippy::cast_possible_truncation, reason = "single precision suffices")]
            let narrow = |it: &Vec<f64>| it.iter().map(|it| *it as f32).collect();
            let expected: Vec<Vec<f32>> =
                fusion.evaluate(&inputs, &scalars).iter().map(narrow).collect();
            case.compare(&reference::run(&case), &expected)
                .unwrap_or_else(|it| panic!("{seed}: {it}\n{case:?}"));
        }
    }
}
