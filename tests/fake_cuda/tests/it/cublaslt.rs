//! Tests of cuBLASLt on virtual devices against plain loops.

use cudarc::cublaslt::result;
use cudarc::cublaslt::sys::{
    cublasComputeType_t as Compute, cublasLtEpilogue_t as Epilogue, cublasStatus_t as Status,
    cudaDataType_t as Type,
};
use cudarc::driver::CudaSlice;

use crate::child_process::with_devices;
use crate::matmul_reference::{
    Extras, Library, Matrix, PRECISE, Shape, assert_close, from_bytes, numbers, to_bytes,
};

#[test]
fn products_are_right_for_every_layout_and_type() {
    with_devices(&[], |_| {
        let library = Library::new();
        let (single, half) = (Type::CUDA_R_32F, Type::CUDA_R_16BF);
        for transposed in [[false, false], [false, true], [true, false], [true, true]] {
            for (operands, result, tolerance) in
                [(single, single, 1e-6), (half, single, 1e-6), (half, half, 0.01)]
            {
                let shape = Shape { m: 7, n: 5, k: 11, transposed, batch: 3 };
                let (a, b, c) =
                    (numbers(7 * 11 * 3, 1), numbers(11 * 5 * 3, 2), numbers(7 * 5 * 3, 3));
                let (a_matrix, b_matrix) = (
                    library.matrix(operands, shape.stored(0), 3, &a),
                    library.matrix(operands, shape.stored(1), 3, &b),
                );
                let d_matrix = library.matrix(result, (7, 5), 3, &c);
                let extras = Extras { scales: (2.0, 0.5), ..Extras::default() };
                library.multiply([&a_matrix, &b_matrix, &d_matrix], transposed, &extras).unwrap();
                let product = shape.product(&a, &b);
                let expected: Vec<f32> =
                    product.iter().zip(&c).map(|(product, c)| 2.0 * product + 0.5 * c).collect();
                assert_close(&d_matrix.read(&library.stream), &expected, tolerance);
            }
        }
    });
}

#[test]
fn copies_may_be_transposed() {
    with_devices(&[], |_| {
        let library = Library::new();
        for number in [Type::CUDA_R_32F, Type::CUDA_R_16BF] {
            let from = library.matrix(number, (7, 5), 3, &numbers(7 * 5 * 3, 1));
            let [same, turned] =
                [(7, 5), (5, 7)].map(|it| library.matrix(number, it, 3, &numbers(7 * 5 * 3, 2)));
            assert_eq!(library.copy(&from, &same, false), Status::CUBLAS_STATUS_SUCCESS);
            assert_eq!(library.copy(&from, &turned, true), Status::CUBLAS_STATUS_SUCCESS);
            let values = from.read(&library.stream);
            assert_eq!(same.read(&library.stream), values);
            for (at, value) in turned.read(&library.stream).into_iter().enumerate() {
                let (matrix, column, row) = (at / 35, at % 35 / 5, at % 5);
                assert_eq!(value, values[matrix * 35 + row * 7 + column]);
            }
            // The layouts must fit.
            assert_eq!(library.copy(&from, &turned, false), Status::CUBLAS_STATUS_INVALID_VALUE);
        }
    });
}

#[test]
fn fast_products_round_their_operands() {
    with_devices(&[], |_| {
        let library = Library::new();
        let single = Type::CUDA_R_32F;
        let tf32 = Compute::CUBLAS_COMPUTE_32F_FAST_TF32;
        let b = library.matrix(single, (1, 1), 1, &[1.0]);
        for (a, compute, expected) in [
            // 1 + 2^-11 is the midpoint of two tf32 numbers, and rounds away from zero.
            (1.000_488_3, PRECISE, 1.000_488_3),
            (1.000_488_3, tf32, 1.000_976_6),
            (f32::NEG_INFINITY, tf32, f32::NEG_INFINITY),
        ] {
            let a = library.matrix(single, (1, 1), 1, &[a]);
            let d = library.matrix(single, (1, 1), 1, &[0.0]);
            library
                .multiply([&a, &b, &d], [false; 2], &Extras { compute, ..Extras::default() })
                .unwrap();
            assert_eq!(d.read(&library.stream), [expected]);
        }
    });
}

#[test]
fn results_in_bf16_round_to_nearest() {
    with_devices(&[], |_| {
        let library = Library::new();
        let half = Type::CUDA_R_16BF;
        let ones = library.matrix(half, (2, 1), 1, &[1.0; 2]);
        let half_of_last_bit = 0.003_906_25;
        for (terms, expected) in [
            // The midpoint between 1 and 1 + 2^-7 rounds to the even one.
            ([1.0, half_of_last_bit], 1.0),
            ([1.0, 3.0 * half_of_last_bit], 1.015_625),
            ([-1.0, -0.003_94], -1.007_812_5),
            // The largest finite number and half of its last bit.
            ([3.389_531_4e38, 6.646_14e35], f32::INFINITY),
            ([f32::NAN, 0.0], f32::NAN),
        ] {
            let terms = library.matrix(half, (1, 2), 1, &terms);
            let sum = library.matrix(half, (1, 1), 1, &[0.0]);
            library.multiply([&terms, &ones, &sum], [false; 2], &Extras::default()).unwrap();
            let found = sum.read(&library.stream)[0];
            assert!(found == expected || found.is_nan() && expected.is_nan(), "{found}");
        }
    });
}

// gelu(x) = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
fn gelu(x: f32) -> f32 {
    0.5 * x * (1.0 + (0.797_884_6 * (x + 0.044_715 * x.powi(3))).tanh())
}

/// A product of `[20, 4]` and `[4, 6]` with a bias, for epilogues.
struct Setting {
    library: Library,
    a: Vec<f32>,
    b: Vec<f32>,
    bias: CudaSlice<u8>,
    /// The product without and with the bias.
    product: Vec<f32>,
    argument: Vec<f32>,
    /// Buffers for auxiliary outputs and bias gradients.
    kept: CudaSlice<u8>,
    sums: CudaSlice<u8>,
}

impl Setting {
    fn new() -> Self {
        let library = Library::new();
        let (a, b, bias) = (numbers(80, 1), numbers(24, 2), numbers(20, 3));
        let product = Shape { m: 20, n: 6, k: 4, transposed: [false; 2], batch: 1 }.product(&a, &b);
        let argument =
            product.iter().enumerate().map(|(place, it)| it + bias[place % 20]).collect();
        let bias = library.stream.clone_htod(&to_bytes(&bias, Type::CUDA_R_32F)).unwrap();
        let kept = library.stream.alloc_zeros::<u8>(6 * 24 * 4).unwrap();
        let sums = library.stream.alloc_zeros::<u8>(20 * 4).unwrap();
        Self { library, a, b, bias, product, argument, kept, sums }
    }

    /// Computes the product with this epilogue.
    fn run(&self, epilogue: Epilogue, bias: &CudaSlice<u8>, leading: i64) -> Vec<f32> {
        let matrix =
            |shape, values: &[f32]| self.library.matrix(Type::CUDA_R_32F, shape, 1, values);
        let (a, b, d) =
            (matrix((20, 4), &self.a), matrix((4, 6), &self.b), matrix((20, 6), &[0.0; 120]));
        let auxiliary = (leading > 0).then_some((&self.kept, leading));
        let extras = Extras { epilogue, bias: Some(bias), auxiliary, ..Extras::default() };
        self.library.multiply([&a, &b, &d], [false; 2], &extras).unwrap();
        d.read(&self.library.stream)
    }

    fn mapped(&self, function: fn(f32) -> f32) -> Vec<f32> {
        self.argument.iter().map(|&x| function(x)).collect()
    }

    /// Returns the product, each element times a function of its argument.
    fn scaled(&self, function: fn(f32) -> f32) -> Vec<f32> {
        self.product.iter().zip(&self.argument).map(|(it, &x)| it * function(x)).collect()
    }

    fn read_sums(&self) -> Vec<f32> {
        from_bytes(&self.library.stream.clone_dtoh(&self.sums).unwrap(), Type::CUDA_R_32F)
    }
}

/// Returns the row sums of a matrix with 20 rows.
fn along_rows(values: &[f32]) -> Vec<f32> {
    (0..20).map(|row| values.iter().skip(row).step_by(20).sum()).collect()
}

fn relu(x: f32) -> f32 {
    x.max(0.0)
}

#[test]
fn epilogues_add_a_vector_and_apply_functions() {
    with_devices(&[], |_| {
        let it = Setting::new();
        assert_close(&it.run(Epilogue::CUBLASLT_EPILOGUE_BIAS, &it.bias, 0), &it.argument, 1e-6);
        assert_close(
            &it.run(Epilogue::CUBLASLT_EPILOGUE_RELU_BIAS, &it.bias, 0),
            &it.mapped(relu),
            1e-6,
        );
        assert_close(
            &it.run(Epilogue::CUBLASLT_EPILOGUE_GELU_BIAS, &it.bias, 0),
            &it.mapped(gelu),
            1e-5,
        );
    });
}

#[test]
fn epilogues_store_auxiliary_outputs_for_gradients() {
    with_devices(&[], |_| {
        let it = Setting::new();
        assert_close(
            &it.run(Epilogue::CUBLASLT_EPILOGUE_RELU_AUX_BIAS, &it.bias, 128),
            &it.mapped(relu),
            1e-6,
        );
        let gradient = it.scaled(|x| if x > 0.0 { 1.0 } else { 0.0 });
        assert_close(
            &it.run(Epilogue::CUBLASLT_EPILOGUE_DRELU_BGRAD, &it.sums, 128),
            &gradient,
            1e-6,
        );
        assert_close(&it.read_sums(), &along_rows(&gradient), 1e-5);

        assert_close(
            &it.run(Epilogue::CUBLASLT_EPILOGUE_GELU_AUX_BIAS, &it.bias, 24),
            &it.mapped(gelu),
            1e-5,
        );
        // The central difference: its error is h^2 / 6 times the third derivative, plus rounding
        // over h.
        let gradient = it.scaled(|x| (gelu(x + 0.01) - gelu(x - 0.01)) / 0.02);
        assert_close(
            &it.run(Epilogue::CUBLASLT_EPILOGUE_DGELU_BGRAD, &it.sums, 24),
            &gradient,
            1e-3,
        );
        assert_close(&it.read_sums(), &along_rows(&gradient), 1e-2);
    });
}

#[test]
fn epilogues_sum_operands() {
    with_devices(&[], |_| {
        let it = Setting::new();
        it.run(Epilogue::CUBLASLT_EPILOGUE_BGRADA, &it.sums, 0);
        assert_close(&it.read_sums(), &along_rows(&it.a), 1e-6);
        it.run(Epilogue::CUBLASLT_EPILOGUE_BGRADB, &it.sums, 0);
        let sums_of_b: Vec<f32> = it.b.chunks(4).map(|column| column.iter().sum()).collect();
        assert_close(&it.read_sums()[..6], &sums_of_b, 1e-6);
    });
}

#[test]
fn unsupported_products_are_rejected() {
    with_devices(&[], |_| {
        let library = Library::new();
        let (single, half) = (Type::CUDA_R_32F, Type::CUDA_R_16BF);
        let matrix = |number, rows, columns| {
            library.matrix(number, (rows, columns), 1, &vec![1.0; rows * columns])
        };
        let refused = |matrices: [&Matrix; 3], extras: &Extras<'_>| {
            library.multiply(matrices, [false; 2], extras).unwrap_err().0
        };
        let plain = Extras::default();
        let (a, b, d) = (matrix(single, 4, 3), matrix(single, 3, 5), matrix(single, 4, 5));
        library.multiply([&a, &b, &d], [false; 2], &plain).unwrap();
        assert_eq!(
            refused([&a, &matrix(single, 2, 5), &d], &plain),
            Status::CUBLAS_STATUS_INVALID_VALUE
        );
        assert_eq!(
            refused([&a, &b, &matrix(single, 5, 4)], &plain),
            Status::CUBLAS_STATUS_INVALID_VALUE
        );
        assert_eq!(
            refused([&matrix(half, 4, 3), &b, &d], &plain),
            Status::CUBLAS_STATUS_NOT_SUPPORTED
        );
        let memory = library.stream.alloc_zeros::<u8>(1024).unwrap();
        let auxiliary = Some((&memory, 100));
        let narrow = Extras {
            epilogue: Epilogue::CUBLASLT_EPILOGUE_RELU_AUX,
            auxiliary,
            ..Extras::default()
        };
        assert_eq!(refused([&a, &b, &d], &narrow), Status::CUBLAS_STATUS_INVALID_VALUE);
        let without_bias =
            Extras { epilogue: Epilogue::CUBLASLT_EPILOGUE_BIAS, ..Extras::default() };
        assert_eq!(refused([&a, &b, &d], &without_bias), Status::CUBLAS_STATUS_INVALID_VALUE);
        assert!(result::create_matrix_layout(Type::CUDA_R_64F, 1, 1, 1).is_err());
        // The sums of a batch would be at one place.
        let of_two = |rows, columns| {
            library.matrix(single, (rows, columns), 2, &vec![1.0; 2 * rows * columns])
        };
        let sums = Extras {
            epilogue: Epilogue::CUBLASLT_EPILOGUE_BGRADA,
            bias: Some(&memory),
            ..Extras::default()
        };
        assert_eq!(
            refused([&of_two(4, 3), &of_two(3, 5), &of_two(4, 5)], &sums),
            Status::CUBLAS_STATUS_INVALID_VALUE
        );
    });
}
