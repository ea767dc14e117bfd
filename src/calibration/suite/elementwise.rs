//! Maps and reductions, with programs as networks have them.

use soybean_plan::{
    Binary, Combine, Instruction, Map, Reduction, ScalarProgram, Shape, Strides, Unary,
};

use crate::calibration::trial::Trial;

/// Rows and columns of the index spaces.
const SIZES: [[usize; 2]; 7] =
    [[16, 8], [32, 10], [64, 64], [64, 256], [256, 512], [1024, 512], [2048, 2048]];

/// How an input covers rows and columns.
#[derive(Clone, Copy)]
enum Cover {
    /// One element for each point.
    Points,
    /// One element for each column, such as a bias.
    Columns,
    /// One element for each row, such as a maximum.
    Rows,
}

impl Cover {
    fn strides(self, [_, columns]: [usize; 2]) -> Strides {
        match self {
            Self::Points => Strides::new(&[columns, 1]),
            Self::Columns => Strides::new(&[0, 1]),
            Self::Rows => Strides::new(&[1, 0]),
        }
    }

    fn n_elements(self, [rows, columns]: [usize; 2]) -> usize {
        match self {
            Self::Points => rows * columns,
            Self::Columns => columns,
            Self::Rows => rows,
        }
    }
}

/// A scalar program with the covers of its inputs.
struct Elementwise {
    inputs: Vec<Cover>,
    program: ScalarProgram,
}

impl Elementwise {
    /// `body` follows the instructions that fetch the inputs.
    fn new(inputs: &[Cover], body: &[Instruction], results: &[u16]) -> Self {
        let fetched = (0..).take(inputs.len()).map(Instruction::Input);
        let instructions: Vec<Instruction> = fetched.chain(body.iter().copied()).collect();
        let program =
            ScalarProgram { instructions: instructions.into(), results: results.to_vec().into() };
        Self { inputs: inputs.to_vec(), program }
    }

    fn map(&self, size: [usize; 2]) -> Map {
        let inputs: Vec<Strides> = self.inputs.iter().map(|it| it.strides(size)).collect();
        Map { extents: Shape::new(&size), inputs: inputs.into(), program: self.program.clone() }
    }

    fn n_read(&self, size: [usize; 2]) -> Vec<usize> {
        self.inputs.iter().map(|it| it.n_elements(size)).collect()
    }
}

/// Returns each program at each size.
pub(super) fn maps() -> impl Iterator<Item = Trial> {
    SIZES.into_iter().flat_map(|size| {
        programs().into_iter().map(move |it| {
            let results = vec![size[0] * size[1]; it.program.results.len()];
            Trial::new(it.map(size), &it.n_read(size), &results)
        })
    })
}

/// From a sum to the update of Adam.
fn programs() -> Vec<Elementwise> {
    use Cover::{Columns, Points, Rows};
    use Instruction::{Constant, Select};
    let unary = Instruction::Unary;
    let binary = Instruction::Binary;
    let (add, multiply) = (Binary::Add, Binary::Multiply);
    vec![
        Elementwise::new(&[Points, Points], &[binary(add, 0, 1)], &[2]),
        // relu(x + b), and its gradient.
        Elementwise::new(&[Points, Columns], &[binary(add, 0, 1), unary(Unary::Relu, 2)], &[3]),
        Elementwise::new(
            &[Points, Points],
            &[Constant(0.0), binary(Binary::Greater, 0, 2), Select(3, 1, 2)],
            &[4],
        ),
        // exp(x - max), and the gradient of a softmax.
        Elementwise::new(
            &[Points, Rows],
            &[binary(Binary::Subtract, 0, 1), unary(Unary::Exp, 2)],
            &[3],
        ),
        // A norm: x * scale * row + bias.
        Elementwise::new(
            &[Points, Rows, Columns, Columns],
            &[binary(multiply, 0, 1), binary(multiply, 4, 2), binary(add, 5, 3)],
            &[6],
        ),
        // An activation with an error function: x * (1 + erf(x)).
        Elementwise::new(
            &[Points],
            &[
                unary(Unary::Erf, 0),
                Constant(1.0),
                binary(add, 1, 2),
                binary(multiply, 0, 3),
                Constant(0.5),
                binary(multiply, 4, 5),
            ],
            &[6],
        ),
        // Momentum: the next velocity and the next weight.
        Elementwise::new(
            &[Points, Points, Points],
            &[
                Constant(0.9),
                binary(multiply, 2, 3),
                binary(add, 4, 1),
                Constant(0.01),
                binary(multiply, 5, 6),
                binary(Binary::Subtract, 0, 7),
            ],
            &[8, 5],
        ),
        adam(),
    ]
}

/// The next weight, mean and mean of squares from weight, gradient, mean and mean of squares.
fn adam() -> Elementwise {
    use Cover::Points;
    use Instruction::Constant;
    let unary = Instruction::Unary;
    let binary = Instruction::Binary;
    let (add, multiply) = (Binary::Add, Binary::Multiply);
    let body = [
        Constant(0.9),
        Constant(0.1),
        binary(multiply, 2, 4),
        binary(multiply, 1, 5),
        // The mean.
        binary(add, 6, 7),
        binary(multiply, 1, 1),
        binary(multiply, 3, 4),
        binary(multiply, 9, 5),
        // The mean of squares.
        binary(add, 10, 11),
        unary(Unary::Sqrt, 12),
        Constant(1e-8),
        binary(add, 13, 14),
        binary(Binary::Divide, 8, 15),
        Constant(0.001),
        binary(multiply, 16, 17),
        // The weight.
        binary(Binary::Subtract, 0, 18),
    ];
    Elementwise::new(&[Points; 4], &body, &[19, 8, 12])
}

/// Returns sums and maxima along rows and along columns, of each size.
pub(super) fn reductions() -> impl Iterator<Item = Trial> {
    use Cover::{Points, Rows};
    let itself = || Elementwise::new(&[Points], &[], &[0]);
    let product = || {
        Elementwise::new(&[Points, Points], &[Instruction::Binary(Binary::Multiply, 0, 1)], &[2])
    };
    let square = || {
        let body = [
            Instruction::Binary(Binary::Subtract, 0, 1),
            Instruction::Binary(Binary::Multiply, 2, 2),
        ];
        Elementwise::new(&[Points, Rows], &body, &[3])
    };
    SIZES.into_iter().flat_map(move |size| {
        [
            reduction(&itself(), size, Combine::Sum, &[1, 0]),
            reduction(&itself(), size, Combine::Sum, &[0, 1]),
            reduction(&itself(), size, Combine::Max, &[1, 0]),
            reduction(&product(), size, Combine::Sum, &[0, 1]),
            reduction(&product(), size, Combine::Sum, &[0, 0]),
            reduction(&square(), size, Combine::Sum, &[1, 0]),
        ]
    })
}

fn reduction(
    body: &Elementwise,
    size: [usize; 2],
    combine: Combine,
    strides: &[usize; 2],
) -> Trial {
    let kept = size.iter().zip(strides).filter(|it| *it.1 > 0);
    let n_results = kept.map(|it| it.0).product();
    let result = Strides::new(strides);
    let kernel = Reduction { map: body.map(size), combine, result };
    Trial::new(kernel, &body.n_read(size), &[n_results])
}
