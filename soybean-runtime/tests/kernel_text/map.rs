//! Random maps.

use soybean_plan::{
    Binary, Combine, Concatenation, DType, Instruction, Kernel, MAX_RANK, Map, Padding,
    Permutation, Pooling, PoolingForm, Precision, Reduction, ScalarProgram, Shape, Strides, Unary,
};

use crate::{
    case::{Case, Data},
    dice::{Dice, n_needed},
    row_fusion::centered,
};

/// Returns a random program over these inputs and both scalars, whose values stay moderate.
pub(crate) fn program(dice: &mut Dice, n_inputs: usize, n_results: usize) -> ScalarProgram {
    let number = |it: usize| u8::try_from(it).unwrap();
    let mut instructions: Vec<Instruction> =
        (0..n_inputs).map(|it| Instruction::Input(number(it))).collect();
    instructions.extend((0..dice.below(3)).map(|it| Instruction::Scalar(number(it))));
    instructions.push(Instruction::Constant(0.75));
    // Comparisons use only these: others may differ in the last bit.
    let n_exact = instructions.len();
    for _ in 0..dice.below(9) + n_results {
        let n = instructions.len();
        let mut register = |n| u16::try_from(dice.below(n)).unwrap();
        let (exact, other) = ([register(n_exact), register(n_exact)], [register(n), register(n)]);
        instructions.push(instruction(dice, exact, other));
    }
    let n = instructions.len();
    let mut results: Vec<u16> =
        (0..n_results).map(|_| u16::try_from(dice.below(n)).unwrap()).collect();
    results[0] = u16::try_from(n - 1).unwrap();
    ScalarProgram { instructions: instructions.into(), results: results.into() }
}

/// Returns a random instruction; comparisons read the first two registers.
pub(crate) fn instruction(dice: &mut Dice, exact: [u16; 2], [a, b]: [u16; 2]) -> Instruction {
    let bounded = [
        Unary::Negate,
        Unary::Relu,
        Unary::Tanh,
        Unary::Sigmoid,
        Unary::Erf,
        Unary::Sin,
        Unary::Cos,
        Unary::Detach,
    ];
    let binary = [Binary::Add, Binary::Subtract, Binary::Multiply, Binary::Maximum];
    let comparison = [Binary::Equal, Binary::Greater, Binary::Noise];
    match dice.below(6) {
        0 => Instruction::Unary(dice.pick(&bounded), a),
        1 => Instruction::Select(exact[0], a, b),
        2 => Instruction::Binary(dice.pick(&comparison), exact[0], exact[1]),
        _ => Instruction::Binary(dice.pick(&binary), a, b),
    }
}

pub(crate) fn case(dice: &mut Dice) -> Case {
    let (n_inputs, n_results) = (dice.below(4), 1 + dice.below(3));
    let extents = dice.shape();
    let strides: Vec<_> = (0..n_inputs).map(|_| dice.strides(&extents)).collect();
    let program = program(dice, n_inputs, n_results);
    let types = [[DType::F32; 3], [DType::F32, DType::Bf16, DType::I32], [DType::Bf16; 3]];
    let types = dice.pick(&types);
    let data = |it: &_| {
        let dtype = dice.pick(&types);
        dice.data(dtype, n_needed(&extents, it))
    };
    let inputs: Vec<Data> = strides.iter().map(data).collect();
    let n_points = extents.n_elements();
    let mut results: Vec<(DType, usize)> =
        (0..n_results).map(|_| (dice.pick(&types), n_points)).collect();
    let is_dense = |it: &usize| strides[*it] == extents.dense_strides();
    let reused = (0..n_inputs).find(is_dense).filter(|_| dice.below(2) == 0);
    if let Some(input) = reused {
        results[n_results - 1].0 = inputs[input].dtype;
    }
    let map = Map { extents, inputs: strides.into(), program };
    // About ten roundings of values below 1e3.
    let case = Case::new(map, inputs, results, 1e-4);
    let precision = dice.pick(&Precision::ALL);
    Case { reused: reused.map(|it| [n_results - 1, it]).into_iter().collect(), precision, ..case }
}

const COMPARISONS_OF_INTEGERS: [Binary; 2] = [Binary::EqualIntegers, Binary::GreaterInteger];

/// Returns a map or a reduction that compares integers with each other and with constants that
/// single precision does not distinguish from their neighbors.
pub(crate) fn integers(dice: &mut Dice) -> Case {
    let (extents, strides, inputs) = large_integers(dice);
    let constant = dice.pick(&[i32::MIN, -(1 << 24) - 1, 7, (1 << 24) + 1, i32::MAX]);
    let mut instructions = vec![
        Instruction::Integer(0),
        Instruction::Integer(1),
        Instruction::IntegerConstant(constant),
        Instruction::Unary(Unary::Float, 1),
        Instruction::Constant(0.0),
    ];
    for (function, x, y) in [(0, 0, 1), (1, 0, 1), (0, 0, 2), (1, 0, 2), (1, 2, 0)] {
        instructions.push(Instruction::Binary(COMPARISONS_OF_INTEGERS[function], x, y));
    }
    let last = u16::try_from(instructions.len() - 1).unwrap();
    instructions.push(Instruction::Select(last, 3, 4));
    let results: Vec<u16> = (3..=last + 1).filter(|it| *it != 4).collect();
    let n_points = extents.n_elements();
    if dice.below(3) == 0 {
        let program =
            ScalarProgram { instructions: instructions.into(), results: vec![last].into() };
        let map = Map { extents, inputs: strides.to_vec().into(), program };
        let kernel = Reduction { map, combine: Combine::Max, result: Strides::default() };
        return Case::new(kernel, inputs, vec![(DType::F32, 1)], 0.0);
    }
    let types = results.iter().map(|_| (DType::F32, n_points)).collect();
    let program = ScalarProgram { instructions: instructions.into(), results: results.into() };
    let map = Map { extents, inputs: strides.to_vec().into(), program };
    Case::new(map, inputs, types, 0.0)
}

/// Returns an index space, and the strides and elements of two inputs of integers.
fn large_integers(dice: &mut Dice) -> (Shape, [Strides; 2], Vec<Data>) {
    let extents = dice.shape();
    let strides = [dice.strides(&extents), dice.strides(&extents)];
    let large = [i32::MIN, -(1 << 24), -1, 0, 7, 1 << 24, (1 << 24) + 2, 1 << 30];
    let data = |it: &Strides| {
        let numbers = (0..n_needed(&extents, it)).map(|_| dice.pick(&large) as f32).collect();
        Data { dtype: DType::I32, numbers }
    };
    let inputs = strides.iter().map(data).collect();
    (extents, strides, inputs)
}

/// Returns a map that computes with integers. Each result is there twice: as it is, and its
/// remainder, which single precision represents.
pub(crate) fn arithmetic_of_integers(dice: &mut Dice) -> Case {
    let (extents, strides, inputs) = large_integers(dice);
    let constant = dice.pick(&[i32::MIN, -(1 << 24) - 1, -7, 0, 7, (1 << 24) + 1, i32::MAX]);
    let mut instructions = vec![
        Instruction::Integer(0),
        Instruction::Integer(1),
        Instruction::IntegerConstant(constant),
        Instruction::IntegerConstant(4093),
        Instruction::Binary(Binary::GreaterInteger, 0, 1),
    ];
    let first = u16::try_from(instructions.len()).unwrap();
    instructions.push(Instruction::Select(4, 1, 2));
    for function in Binary::ALL.iter().filter(|it| it.gives_integers()) {
        for (x, y) in [(0, 1), (0, 2), (2, 1)] {
            instructions.push(Instruction::Binary(*function, x, y));
        }
    }
    let end = u16::try_from(instructions.len()).unwrap();
    instructions
        .extend((first..end).map(|it| Instruction::Binary(Binary::RemainderOfIntegers, it, 3)));
    let results: Vec<u16> = (first..).take(2 * usize::from(end - first)).collect();
    let types = results.iter().map(|_| (DType::I32, extents.n_elements())).collect();
    let program = ScalarProgram { instructions: instructions.into(), results: results.into() };
    Case::new(Map { extents, inputs: strides.to_vec().into(), program }, inputs, types, 0.0)
}

/// Numbers where implementations are easily wrong.
const SPECIAL: [f32; 22] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    f32::NAN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::MAX,
    f32::MIN,
    f32::MIN_POSITIVE,
    1e-40,
    88.5,
    -87.0,
    -103.0,
    2e9,
    3e9,
    -3e9,
    1e-4,
    9.5,
    -9.5,
    4.0,
];

/// Returns a map of all scalar functions at numbers where implementations are easily wrong.
pub(crate) fn special_numbers(dice: &mut Dice) -> Case {
    let n_points = SPECIAL.len() * SPECIAL.len();
    let shifted = dice.below(3);
    let along = |inner: usize| {
        let number = |it: usize| SPECIAL[(it / inner + shifted) % SPECIAL.len()];
        Data { dtype: DType::F32, numbers: (0..n_points).map(number).collect() }
    };
    let inputs = vec![along(1), along(SPECIAL.len())];
    let mut instructions = vec![Instruction::Input(0), Instruction::Input(1)];
    let unary = Unary::ALL.iter().filter(|it| **it != Unary::Float);
    instructions.extend(unary.map(|it| Instruction::Unary(*it, 0)));
    let binary = Binary::ALL.iter().filter(|it| !it.takes_integers());
    instructions.extend(binary.map(|it| Instruction::Binary(*it, 0, 1)));
    instructions.push(Instruction::Select(0, 1, 0));
    let erf = instructions.iter().position(|it| *it == Instruction::Unary(Unary::Erf, 0)).unwrap();
    let noise = soybean_plan::noise(1.0, 0.5);
    let constants = SPECIAL.into_iter().chain([noise, noise.next_up(), noise.next_down()]);
    for constant in constants {
        let register = |it: usize| u16::try_from(it).unwrap();
        let shared = register(instructions.len());
        instructions.push(Instruction::Constant(f64::from(constant)));
        instructions.push(Instruction::Binary(Binary::Divide, 0, shared));
        instructions.push(Instruction::Binary(Binary::Noise, 0, 1));
        instructions.push(Instruction::Binary(Binary::Greater, shared, shared + 2));
        instructions.push(Instruction::Binary(Binary::Add, register(erf), shared));
    }
    let registers: Vec<u16> = (0..).take(instructions.len()).collect();
    // As integers, too: truncated and saturated.
    let integer = (DType::I32, n_points);
    let types = registers.iter().map(|_| (DType::F32, n_points)).chain([integer]);
    let results: Vec<(DType, usize)> = types.collect();
    let program = ScalarProgram {
        instructions: instructions.into(),
        results: registers.iter().copied().chain([0]).collect(),
    };
    let extents = Shape::new(&[n_points]);
    let map = Map { extents, inputs: vec![extents.dense_strides(); 2].into(), program };
    // A few units in the last place.
    let case = Case::new(map, inputs, results, 1e-6);
    match dice.below(2) {
        0 => case,
        // The argument of an exponential is rounded, of up to 103.
        _ => Case { precision: Precision::Bf16, tolerance: 1e-5, ..case },
    }
}

/// Returns kernels over more elements than 32 bits can number, which can be compiled but not run.
pub(crate) fn beyond_32_bits() -> Vec<Case> {
    let extents = Shape::new(&[70_000, 70_000]);
    let transposed = Strides::new(&[1, 70_000]);
    let program =
        ScalarProgram { instructions: vec![Instruction::Input(0)].into(), results: vec![0].into() };
    let map = Map { extents, inputs: vec![transposed].into(), program };
    let reduction = |result: &[usize]| {
        let (map, result) = (map.clone(), Strides::new(result));
        Kernel::from(Reduction { map, combine: Combine::Sum, result })
    };
    let (form, low) = (PoolingForm::Sum, [0; MAX_RANK]);
    let (image, result, window) = ([200; 2], [100; 2], [2; 2]);
    let kernels = [
        map.clone().into(),
        reduction(&[1, 0]),
        reduction(&[0, 1]),
        centered(extents).into(),
        Permutation { extents, input: transposed }.into(),
        Padding { input: extents, result: extents.with(1, 70_001), low, fill: 0.0 }.into(),
        Concatenation { outer: 70_000, lengths: vec![70_000].into() }.into(),
        Pooling {
            form,
            planes: 200_000,
            channels: 1,
            image,
            window,
            result,
            stride: [2; 2],
            padding: [0; 2],
        }
        .into(),
    ];
    let case = |kernel: Kernel| {
        let inputs = vec![Data { dtype: DType::F32, numbers: Vec::new() }];
        Case::new(kernel, inputs, vec![(DType::F32, 0)], 0.0)
    };
    kernels.into_iter().map(case).collect()
}
