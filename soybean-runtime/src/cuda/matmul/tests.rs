//! Tests of the decisions before a cuBLASLt call, and of products on a virtual GPU against plain
//! loops.
#![expect(unsafe_code, reason = "products run on raw memory")]

mod alternatives;
mod batches;

use soybean_fake_cuda::virtual_gpus::on_virtual_gpus;
use soybean_plan::{MatrixStrides, Shape, Strides};

use super::*;
use crate::cuda::{
    epilogue::Function,
    host_tensor::{HostTensor, gpus},
    memory::DeviceMemory,
    stream::Priority,
};

#[test]
fn alignments_hold_for_all_calls() {
    assert_eq!(alignments(&[[0, 0, 0]]), [64, 64, 64]);
    assert_eq!(alignments(&[[0, 128, 0], [48, 256, 4], [96, 384, 8]]), [16, 64, 4]);
}

#[test]
fn products_are_summed_in_single_precision() {
    use DType::{Bf16, F32, I32};
    assert_eq!(compute([F32; 3], Precision::F32), Some(Compute::CUBLAS_COMPUTE_32F));
    assert_eq!(compute([F32; 3], Precision::Tf32), Some(Compute::CUBLAS_COMPUTE_32F_FAST_TF32));
    assert_eq!(compute([Bf16, Bf16, F32], Precision::Bf16), Some(Compute::CUBLAS_COMPUTE_32F));
    assert_eq!(compute([Bf16; 3], Precision::F32), Some(Compute::CUBLAS_COMPUTE_32F));
    assert_eq!(compute([F32, Bf16, F32], Precision::Bf16), None);
    assert_eq!(compute([F32, F32, Bf16], Precision::Bf16), None);
    assert_eq!(compute([I32; 3], Precision::F32), None);
}

/// A product with the operands of its epilogue, on one GPU.
#[derive(Debug)]
struct Case {
    contraction: Contraction,
    types: [DType; 3],
    precision: Precision,
    epilogue: Epilogue,
}

/// Results of a run.
struct Outcome {
    result: Vec<f32>,
    bias: Vec<f32>,
    aux: Vec<u8>,
}

/// Returns the number of elements that a batch of matrices spans.
fn reach(batch: &Shape, rows: usize, columns: usize, strides: &MatrixStrides) -> usize {
    let outer: usize = (0..batch.len()).map(|dim| (batch[dim] - 1) * strides.batch.0[dim]).sum();
    outer + (rows - 1) * strides.row + (columns - 1) * strides.column + 1
}

impl Case {
    fn operands(&self) -> [HostTensor; 4] {
        let Contraction { batch, rows, columns, depth, left, right, result } = &self.contraction;
        let [of_left, of_right, of_result] = self.types;
        [
            HostTensor::new(of_left, reach(batch, *rows, *depth, left), 1),
            HostTensor::new(of_right, reach(batch, *depth, *columns, right), 2),
            HostTensor::new(of_result, reach(batch, *rows, *columns, result), 3),
            HostTensor::new(self.epilogue.bias.unwrap_or(DType::F32), *columns, 4),
        ]
    }

    /// Runs the product with this initial content of the auxiliary buffer, by the first algorithm.
    fn run(&self, aux: &[u8]) -> Option<Outcome> {
        self.run_algorithm(0, 0, aux)
    }

    /// Runs the algorithm of this number, if there is one with at most so many bytes for copies of
    /// operands.
    fn run_algorithm(
        &self,
        number: usize,
        max_workspace_bytes: usize,
        aux: &[u8],
    ) -> Option<Outcome> {
        let gpu = &gpus(1)[0];
        let (lt, stream) =
            (CublasLt::new(gpu).unwrap(), Stream::new(gpu, Priority::Normal).unwrap());
        let Self { contraction, types, precision, epilogue } = self;
        let product = MatmulPlan::new(&lt, contraction, *types, *precision, *epilogue).unwrap();
        let mut product = product?;
        product.add_alternatives(&lt, max_workspace_bytes).unwrap();
        product.algorithms.get(number)?;
        product.chosen = number;
        let [left, right, mut result, mut bias] = self.operands();
        let memories = [&left, &right, &result, &bias].map(|it| it.upload(gpu));
        let aux_memory = DeviceMemory::zeroed(gpu, aux.len(), "what is aux").unwrap();
        aux_memory.write(0, aux).unwrap();
        let workspace =
            DeviceMemory::zeroed(gpu, product.workspace_bytes(), "the workspace").unwrap();
        let [at_left, at_right, at_result, at_bias] = memories.each_ref().map(|it| it.address(0));
        let operands = MatmulOperands {
            left: at_left,
            right: at_right,
            result: at_result,
            bias: at_bias,
            aux: aux_memory.address(0),
        };
        // SAFETY: the allocations are as large as the contraction requires, and live until the
        // stream is done.
        unsafe { product.run(&lt, &stream, operands, workspace.address(0)) }.unwrap();
        stream.synchronize().unwrap();
        let [_, _, of_result, of_bias] = &memories;
        result.download(of_result);
        bias.download(of_bias);
        let mut after = vec![0; aux.len()];
        aux_memory.read(0, &mut after).unwrap();
        Some(Outcome { result: result.values, bias: bias.values, aux: after })
    }

    /// Returns the elements of the product by plain loops, with their offsets.
    fn expected(&self) -> Vec<(usize, f64)> {
        let Contraction { batch, rows, columns, depth, left, right, result } = &self.contraction;
        let [of_left, of_right, ..] = self.operands();
        let mut elements = Vec::new();
        for number in 0..batch.n_elements() {
            let (mut rest, mut starts) = (number, [0; 3]);
            for dim in (0..batch.len()).rev() {
                for (start, strides) in starts.iter_mut().zip([left, right, result]) {
                    *start += rest % batch[dim] * strides.batch.0[dim];
                }
                rest /= batch[dim];
            }
            for i in 0..*rows {
                for j in 0..*columns {
                    let term = |k: usize| {
                        let one = of_left.values[starts[0] + i * left.row + k * left.column];
                        let other = of_right.values[starts[1] + k * right.row + j * right.column];
                        f64::from(one) * f64::from(other)
                    };
                    let place = starts[2] + i * result.row + j * result.column;
                    elements.push((place, (0..*depth).map(term).sum()));
                }
            }
        }
        elements
    }

    /// Returns the tolerance against results in double precision.
    fn tolerance(&self) -> f64 {
        // Sums of up to 24 products below 1: a few units in the last place of the result or the
        // operands.
        match (self.types[2], self.precision) {
            (DType::Bf16, _) => 24.0 * 2_f64.powi(-9),
            (_, Precision::Tf32) => 24.0 * 2_f64.powi(-11),
            _ => 24.0 * 2_f64.powi(-22),
        }
    }

    #[track_caller]
    fn check(&self, aux: &[u8], function: impl Fn(usize, usize, f64) -> f64) -> Outcome {
        let outcome = self.run(aux).expect("cuBLASLt has such products");
        let columns = self.contraction.columns;
        for (number, (place, element)) in self.expected().into_iter().enumerate() {
            let expected = function(number / columns, number % columns, element);
            let found = f64::from(outcome.result[place]);
            let fits = (found - expected).abs() <= self.tolerance();
            assert!(
                fits,
                "{:?} {:?} {:?}: element {number} is {found}, not {expected}",
                self.contraction, self.types, self.epilogue
            );
        }
        outcome
    }
}

fn matrix(row: usize, column: usize, batch: &[usize]) -> MatrixStrides {
    MatrixStrides { batch: Strides::new(batch), row, column }
}

fn plain(rows: usize, depth: usize, columns: usize) -> Contraction {
    let (left, right) = (matrix(depth, 1, &[]), matrix(columns, 1, &[]));
    let result = matrix(columns, 1, &[]);
    Contraction { batch: Shape::new(&[]), rows, columns, depth, left, right, result }
}

const PLAIN: Epilogue = Epilogue::new(Function::Identity, None);

/// All combinations of types and precision.
const TYPES: [([DType; 3], Precision); 4] = [
    ([DType::F32; 3], Precision::F32),
    ([DType::F32; 3], Precision::Tf32),
    ([DType::Bf16; 3], Precision::Bf16),
    ([DType::Bf16, DType::Bf16, DType::F32], Precision::Bf16),
];

#[test]
fn products_of_all_layouts_and_types() {
    on_virtual_gpus("cuda::matmul::tests::products_of_all_layouts_and_types", &[], |_| {
        let contractions = [
            plain(8, 16, 24),
            Contraction { left: matrix(1, 8, &[]), ..plain(8, 16, 24) },
            Contraction { right: matrix(1, 16, &[]), ..plain(8, 16, 24) },
            Contraction { result: matrix(1, 8, &[]), ..plain(8, 16, 24) },
            Contraction {
                left: matrix(24, 1, &[]),
                result: matrix(40, 1, &[]),
                ..plain(8, 16, 24)
            },
            plain(1, 24, 8),
            plain(5, 7, 1),
            plain(3, 1, 5),
            Contraction {
                batch: Shape::new(&[2, 3]),
                left: matrix(16, 1, &[3 * 128, 128]),
                right: matrix(24, 1, &[0, 384]),
                result: matrix(24, 1, &[3 * 192, 192]),
                ..plain(8, 16, 24)
            },
            // Attention heads, between the dims of the batch and the queries.
            Contraction {
                batch: Shape::new(&[2, 4]),
                left: matrix(64, 1, &[8 * 64, 16]),
                right: matrix(1, 64, &[10 * 64, 16]),
                result: matrix(10, 1, &[320, 80]),
                ..plain(8, 16, 10)
            },
        ];
        for contraction in contractions {
            for (types, precision) in TYPES {
                let case = Case { contraction, types, precision, epilogue: PLAIN };
                case.check(&[], |_, _, element| element);
            }
        }
    });
}

#[test]
fn unsupported_products_are_left_to_generated_kernels() {
    let test = "cuda::matmul::tests::unsupported_products_are_left_to_generated_kernels";
    on_virtual_gpus(test, &[], |_| {
        let types = [DType::F32; 3];
        let is_unsupported = |contraction: Contraction, types: [DType; 3], function: Function| {
            let epilogue = Epilogue::new(function, None);
            Case { contraction, types, precision: Precision::F32, epilogue }.run(&[]).is_none()
        };
        let spread = Contraction { left: matrix(32, 2, &[]), ..plain(8, 16, 24) };
        assert!(is_unsupported(spread, types, Function::Identity));
        assert!(is_unsupported(
            plain(8, 16, 24),
            [DType::F32, DType::Bf16, DType::F32],
            Function::Identity
        ));
        let columns_apart = Contraction { result: matrix(1, 8, &[]), ..plain(8, 16, 24) };
        assert!(!is_unsupported(columns_apart, types, Function::Identity));
        assert!(is_unsupported(columns_apart, types, Function::Relu));
    });
}

fn gelu(x: f64) -> f64 {
    x / 2.0 * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044_715 * x.powi(3))).tanh())
}

/// Returns the central difference, whose error is of second order.
fn gelu_derivative(x: f64) -> f64 {
    (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5
}

#[test]
fn functions_follow_the_bias() {
    on_virtual_gpus("cuda::matmul::tests::functions_follow_the_bias", &[], |_| {
        for (types, precision) in TYPES {
            for has_bias in [false, true] {
                for function in [Function::Identity, Function::Relu, Function::Gelu] {
                    let epilogue = Epilogue::new(function, has_bias.then_some(types[2]));
                    let case = Case { contraction: plain(6, 16, 24), types, precision, epilogue };
                    if !epilogue.is_accurate_in(precision) {
                        assert!(case.run(&[]).is_none());
                        continue;
                    }
                    let [.., bias] = case.operands();
                    case.check(&[], |_, column, element| {
                        let element =
                            element + if has_bias { f64::from(bias.values[column]) } else { 0.0 };
                        match function {
                            Function::Relu => element.max(0.0),
                            Function::Gelu => gelu(element),
                            _ => element,
                        }
                    });
                }
            }
        }
    });
}

#[test]
fn gradients_use_auxiliary_buffers() {
    on_virtual_gpus("cuda::matmul::tests::gradients_use_auxiliary_buffers", &[], |_| {
        for (types, precision) in TYPES {
            let epilogue = Epilogue::new(Function::GeluAux, None);
            if epilogue.is_accurate_in(precision) {
                check_gelu_and_its_gradient(types, precision);
            }
        }
    });
}

/// The gradient of a weight with those of the bias, which is on either side.
#[test]
fn sums_of_operands_are_along_the_depth() {
    on_virtual_gpus("cuda::matmul::tests::sums_of_operands_are_along_the_depth", &[], |_| {
        // Both operands lie as in a batch of rows: the depth is their outer dim.
        let contraction = Contraction { left: matrix(1, 6, &[]), ..plain(6, 16, 24) };
        for (types, precision) in TYPES {
            for function in [Function::LeftSums, Function::RightSums] {
                let epilogue = Epilogue::new(function, Some(types[2]));
                let case = Case { contraction, types, precision, epilogue };
                let [left, right, ..] = case.operands();
                let outcome = case.check(&[], |_, _, element| element);
                let (values, n) = match function {
                    Function::LeftSums => (left.values, 6),
                    _ => (right.values, 24),
                };
                for line in 0..n {
                    let expected: f32 = values.iter().skip(line).step_by(n).sum();
                    let error = f64::from((expected - outcome.bias[line]).abs());
                    assert!(error <= case.tolerance(), "{function:?} {line}: {error}");
                }
            }
        }
    });
}

fn check_gelu_and_its_gradient(types: [DType; 3], precision: Precision) {
    let (rows, columns, dtype) = (6, 24, types[2]);
    let epilogue = Epilogue::new(Function::GeluAux, Some(dtype));
    let case = Case { contraction: plain(rows, 16, columns), types, precision, epilogue };
    let n_bytes = epilogue.aux(rows, columns, dtype).unwrap().n_bytes;
    let [.., bias] = case.operands();
    let mut arguments = Vec::new();
    for (number, (_, element)) in case.expected().into_iter().enumerate() {
        arguments.push(element + f64::from(bias.values[number % columns]));
    }
    let aux =
        case.check(&vec![0; n_bytes], |row, column, _| gelu(arguments[row * columns + column]));
    for has_sums in [false, true] {
        let epilogue = Epilogue::new(Function::GeluGradient, has_sums.then_some(dtype));
        let case = Case { contraction: plain(rows, 8, columns), types, precision, epilogue };
        let outcome = case.check(&aux.aux, |row, column, element| {
            element * gelu_derivative(arguments[row * columns + column])
        });
        for column in (0..columns).filter(|_| has_sums) {
            let sum: f32 = outcome.result.iter().skip(column).step_by(columns).sum();
            let error = f64::from((sum - outcome.bias[column]).abs());
            assert!(
                error <= 6.0 * case.tolerance(),
                "column {column}: {} for {sum}",
                outcome.bias[column]
            );
        }
    }
}
