//! cuBLASLt on virtual devices, against products computed plainly.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys::{
    self, cublasComputeType_t as Compute, cublasStatus_t as Status, cudaDataType_t as Type,
};
use cudarc::cublaslt::sys::{
    cublasLtEpilogue_t as Epilogue, cublasLtMatmulDescAttributes_t as Attribute,
};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr};

use crate::child::with_devices;

/// A product of `A [m, k]` and `B [k, n]`, one or both of them stored transposed, all by columns.
#[derive(Clone, Copy)]
struct Shape {
    m: usize,
    n: usize,
    k: usize,
    transposed: [bool; 2],
    batch: usize,
}

struct Library {
    stream: Arc<CudaStream>,
    handle: sys::cublasLtHandle_t,
}

/// A matrix on the device, with a gap of 3 after each column.
struct Matrix {
    memory: CudaSlice<u8>,
    number: Type,
    rows: usize,
    columns: usize,
    batch: usize,
}

const GAP: usize = 3;
const PRECISE: Compute = Compute::CUBLAS_COMPUTE_32F;

fn numbers(count: usize, seed: u32) -> Vec<f32> {
    (0..count as u32)
        .map(|i| {
            ((i.wrapping_mul(2_654_435_761) ^ seed.wrapping_mul(40_503)) >> 9 & 0xff) as f32 / 64.0
                - 2.0
        })
        .collect()
}

fn size(number: Type) -> usize {
    if number == Type::CUDA_R_32F { 4 } else { 2 }
}

fn to_bytes(values: &[f32], number: Type) -> Vec<u8> {
    match size(number) {
        4 => values.iter().flat_map(|value| value.to_ne_bytes()).collect(),
        // The numbers of these tests have few bits.
        _ => {
            values.iter().flat_map(|value| ((value.to_bits() >> 16) as u16).to_ne_bytes()).collect()
        }
    }
}

fn from_bytes(bytes: &[u8], number: Type) -> Vec<f32> {
    match size(number) {
        4 => bytes.as_chunks().0.iter().map(|&bytes| f32::from_ne_bytes(bytes)).collect(),
        _ => bytes
            .as_chunks()
            .0
            .iter()
            .map(|&bytes| f32::from_bits(u32::from(u16::from_ne_bytes(bytes)) << 16))
            .collect(),
    }
}

impl Matrix {
    fn new(
        stream: &Arc<CudaStream>,
        number: Type,
        rows: usize,
        columns: usize,
        batch: usize,
        values: &[f32],
    ) -> Self {
        let mut all = vec![f32::NAN; batch * columns * (rows + GAP)];
        for (column, values) in all.chunks_mut(rows + GAP).zip(values.chunks(rows)) {
            column[..rows].copy_from_slice(values);
        }
        Self {
            memory: stream.clone_htod(&to_bytes(&all, number)).unwrap(),
            number,
            rows,
            columns,
            batch,
        }
    }

    fn layout(&self) -> sys::cublasLtMatrixLayout_t {
        let layout = result::create_matrix_layout(
            self.number,
            self.rows as u64,
            self.columns as u64,
            (self.rows + GAP) as i64,
        )
        .unwrap();
        let set = |attribute, value: *const c_void, n_bytes| {
            // SAFETY: the layout is there, and the value has that size.
            unsafe { result::set_matrix_layout_attribute(layout, attribute, value, n_bytes) }
                .unwrap();
        };
        let (count, stride) = (self.batch as i32, (self.columns * (self.rows + GAP)) as i64);
        set(
            sys::cublasLtMatrixLayoutAttribute_t::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
            (&raw const count).cast(),
            4,
        );
        set(
            sys::cublasLtMatrixLayoutAttribute_t::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
            (&raw const stride).cast(),
            8,
        );
        layout
    }

    /// The values without the gaps, which must still be NaN.
    fn read(&self, stream: &Arc<CudaStream>) -> Vec<f32> {
        let all = from_bytes(&stream.clone_dtoh(&self.memory).unwrap(), self.number);
        let columns = all.chunks(self.rows + GAP);
        columns
            .flat_map(|column| {
                assert!(column[self.rows..].iter().all(|it| it.is_nan()), "a gap has been written");
                column[..self.rows].to_vec()
            })
            .collect()
    }
}

fn pointer(memory: &CudaSlice<u8>) -> *mut c_void {
    memory.device_ptr(memory.stream()).0 as *mut c_void
}

/// What a product is told besides its matrices.
struct Extras<'a> {
    compute: Compute,
    epilogue: Epilogue,
    bias: Option<&'a CudaSlice<u8>>,
    auxiliary: Option<(&'a CudaSlice<u8>, i64)>,
    scales: (f32, f32),
}

impl Default for Extras<'_> {
    fn default() -> Self {
        Self {
            compute: PRECISE,
            epilogue: Epilogue::CUBLASLT_EPILOGUE_DEFAULT,
            bias: None,
            auxiliary: None,
            scales: (1.0, 0.0),
        }
    }
}

impl Library {
    fn new() -> Self {
        let context = CudaContext::new(0).unwrap();
        Self { stream: context.new_stream().unwrap(), handle: result::create_handle().unwrap() }
    }

    fn matrix(&self, number: Type, shape: (usize, usize), batch: usize, values: &[f32]) -> Matrix {
        Matrix::new(&self.stream, number, shape.0, shape.1, batch, values)
    }

    /// `d = a b`, with what `extras` say.
    fn multiply(
        &self,
        [a, b, d]: [&Matrix; 3],
        transposed: [bool; 2],
        extras: &Extras<'_>,
    ) -> Result<(), CublasError> {
        let description = result::create_matmul_desc(extras.compute, Type::CUDA_R_32F)?;
        let set = |attribute, value: *const c_void, n_bytes| {
            // SAFETY: the description is there, and the value has that size.
            unsafe { result::set_matmul_desc_attribute(description, attribute, value, n_bytes) }
        };
        for (attribute, transposed) in
            [Attribute::CUBLASLT_MATMUL_DESC_TRANSA, Attribute::CUBLASLT_MATMUL_DESC_TRANSB]
                .into_iter()
                .zip(transposed)
        {
            set(attribute, (&raw const *&i32::from(transposed)).cast(), 4)?;
        }
        set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, (&raw const extras.epilogue).cast(), 4)?;
        if let Some(bias) = extras.bias {
            set(
                Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                (&raw const *&pointer(bias)).cast(),
                8,
            )?;
        }
        if let Some((auxiliary, leading)) = extras.auxiliary {
            set(
                Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                (&raw const *&pointer(auxiliary)).cast(),
                8,
            )?;
            set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, (&raw const leading).cast(), 8)?;
        }
        let layouts = [a.layout(), b.layout(), d.layout()];
        let preference = result::create_matmul_pref()?;
        let workspace_bytes = 1_usize << 16;
        let limit =
            sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        // SAFETY: the preference is there.
        unsafe {
            result::set_matmul_pref_attribute(
                preference,
                limit,
                (&raw const workspace_bytes).cast(),
                8,
            )
        }?;
        // SAFETY: all descriptions are there.
        let found = unsafe {
            result::get_matmul_algo_heuristic(
                self.handle,
                description,
                layouts[0],
                layouts[1],
                layouts[2],
                layouts[2],
                preference,
            )
        }?;
        let workspace = self.stream.alloc_zeros::<u8>(workspace_bytes).unwrap();
        let (alpha, beta) = extras.scales;
        // SAFETY: all matrices are as their layouts say.
        unsafe {
            result::matmul(
                self.handle,
                description,
                (&raw const alpha).cast(),
                (&raw const beta).cast(),
                pointer(&a.memory),
                layouts[0],
                pointer(&b.memory),
                layouts[1],
                pointer(&d.memory),
                layouts[2],
                pointer(&d.memory),
                layouts[2],
                &raw const found.algo,
                pointer(&workspace),
                workspace_bytes,
                self.stream.cu_stream().cast(),
            )
        }
    }
}

impl Shape {
    fn stored(self, operand: usize) -> (usize, usize) {
        let extents = if operand == 0 { (self.m, self.k) } else { (self.k, self.n) };
        if self.transposed[operand] { (extents.1, extents.0) } else { extents }
    }

    /// The element of an operand as it is multiplied.
    fn at(self, operand: usize, values: &[f32], batch: usize, row: usize, column: usize) -> f32 {
        let (rows, columns) = self.stored(operand);
        let (row, column) = if self.transposed[operand] { (column, row) } else { (row, column) };
        values[batch * rows * columns + column * rows + row]
    }

    /// The product, computed plainly.
    fn product(self, a: &[f32], b: &[f32]) -> Vec<f32> {
        let element = |place: usize| {
            let (batch, column, row) =
                (place / (self.m * self.n), place / self.m % self.n, place % self.m);
            (0..self.k)
                .map(|i| self.at(0, a, batch, row, i) * self.at(1, b, batch, i, column))
                .sum()
        };
        (0..self.batch * self.m * self.n).map(element).collect()
    }
}

fn assert_close(found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len());
    for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(
            (found - expected).abs() <= tolerance * expected.abs().max(1.0),
            "element {place} is {found}, not {expected}"
        );
    }
}

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
fn fast_products_round_their_operands() {
    with_devices(&[], |_| {
        let library = Library::new();
        let single = Type::CUDA_R_32F;
        // 1 + 2^-11 is between two numbers of tf32, and goes to the greater.
        let (a, b) = (
            library.matrix(single, (1, 1), 1, &[1.000_488_3]),
            library.matrix(single, (1, 1), 1, &[1.0]),
        );
        for (compute, expected) in
            [(PRECISE, 1.000_488_3), (Compute::CUBLAS_COMPUTE_32F_FAST_TF32, 1.000_976_6)]
        {
            let d = library.matrix(single, (1, 1), 1, &[0.0]);
            library
                .multiply([&a, &b, &d], [false; 2], &Extras { compute, ..Extras::default() })
                .unwrap();
            assert_eq!(d.read(&library.stream), [expected]);
        }
    });
}

// gelu(x) = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
fn gelu(x: f32) -> f32 {
    0.5 * x * (1.0 + (0.797_884_6 * (x + 0.044_715 * x.powi(3))).tanh())
}

#[test]
fn epilogues_keep_what_their_gradients_need() {
    with_devices(&[], |_| {
        let library = Library::new();
        let single = Type::CUDA_R_32F;
        let shape = Shape { m: 20, n: 6, k: 4, transposed: [false; 2], batch: 1 };
        let (a, b, bias) = (numbers(80, 1), numbers(24, 2), numbers(20, 3));
        let matrices =
            (library.matrix(single, (20, 4), 1, &a), library.matrix(single, (4, 6), 1, &b));
        let bias_memory = library.stream.clone_htod(&to_bytes(&bias, single)).unwrap();
        let product = shape.product(&a, &b);
        let argument: Vec<f32> =
            product.iter().enumerate().map(|(place, it)| it + bias[place % 20]).collect();
        let run = |epilogue, bias, auxiliary| {
            let d = library.matrix(single, (20, 6), 1, &[0.0; 120]);
            library
                .multiply(
                    [&matrices.0, &matrices.1, &d],
                    [false; 2],
                    &Extras { epilogue, bias, auxiliary, ..Extras::default() },
                )
                .unwrap();
            d.read(&library.stream)
        };
        let mapped = |function: fn(f32) -> f32| -> Vec<f32> {
            argument.iter().map(|&x| function(x)).collect()
        };
        assert_close(
            &run(Epilogue::CUBLASLT_EPILOGUE_BIAS, Some(&bias_memory), None),
            &argument,
            1e-6,
        );
        assert_close(
            &run(Epilogue::CUBLASLT_EPILOGUE_RELU_BIAS, Some(&bias_memory), None),
            &mapped(|x| x.max(0.0)),
            1e-6,
        );
        assert_close(
            &run(Epilogue::CUBLASLT_EPILOGUE_GELU_BIAS, Some(&bias_memory), None),
            &mapped(gelu),
            1e-5,
        );

        let kept = library.stream.alloc_zeros::<u8>(6 * 24 * 4).unwrap();
        let sums = library.stream.alloc_zeros::<u8>(20 * 4).unwrap();
        let read_sums = || from_bytes(&library.stream.clone_dtoh(&sums).unwrap(), single);
        let along_rows = |values: &[f32]| -> Vec<f32> {
            (0..20).map(|row| values.iter().skip(row).step_by(20).sum()).collect()
        };
        let auxiliary = Some((&kept, 128));
        assert_close(
            &run(Epilogue::CUBLASLT_EPILOGUE_RELU_AUX_BIAS, Some(&bias_memory), auxiliary),
            &mapped(|x| x.max(0.0)),
            1e-6,
        );
        let gradient: Vec<f32> =
            product.iter().zip(&argument).map(|(it, &x)| if x > 0.0 { *it } else { 0.0 }).collect();
        assert_close(
            &run(Epilogue::CUBLASLT_EPILOGUE_DRELU_BGRAD, Some(&sums), auxiliary),
            &gradient,
            1e-6,
        );
        assert_close(&read_sums(), &along_rows(&gradient), 1e-5);

        let auxiliary = Some((&kept, 24));
        assert_close(
            &run(Epilogue::CUBLASLT_EPILOGUE_GELU_AUX_BIAS, Some(&bias_memory), auxiliary),
            &mapped(gelu),
            1e-5,
        );
        // The derivative by differences: an error of h^2 / 6 gelu''' and of rounding over h.
        let slope = |x: f32| (gelu(x + 0.01) - gelu(x - 0.01)) / 0.02;
        let gradient: Vec<f32> =
            product.iter().zip(&argument).map(|(it, &x)| it * slope(x)).collect();
        assert_close(
            &run(Epilogue::CUBLASLT_EPILOGUE_DGELU_BGRAD, Some(&sums), auxiliary),
            &gradient,
            1e-3,
        );
        assert_close(&read_sums(), &along_rows(&gradient), 1e-2);

        run(Epilogue::CUBLASLT_EPILOGUE_BGRADA, Some(&sums), None);
        assert_close(&read_sums(), &along_rows(&a), 1e-6);
        run(Epilogue::CUBLASLT_EPILOGUE_BGRADB, Some(&sums), None);
        let sums_of_b: Vec<f32> = b.chunks(4).map(|column| column.iter().sum()).collect();
        assert_close(&read_sums()[..6], &sums_of_b, 1e-6);
    });
}

#[test]
fn what_no_algorithm_can_do_is_refused() {
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
    });
}
