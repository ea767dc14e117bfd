//! Matrices on a virtual device, products by cuBLASLt, and the same products by plain loops.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys::{self, cublasComputeType_t as Compute, cudaDataType_t as Type};
use cudarc::cublaslt::sys::{
    cublasLtEpilogue_t as Epilogue, cublasLtMatmulDescAttributes_t as Attribute,
};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr};

/// A product of `A [m, k]` and `B [k, n]`, which may be stored transposed, in column-major order.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) transposed: [bool; 2],
    pub(crate) batch: usize,
}

pub(crate) struct Library {
    pub(crate) stream: Arc<CudaStream>,
    pub(crate) handle: sys::cublasLtHandle_t,
}

/// A matrix on the device, with a gap of 3 after each column.
pub(crate) struct Matrix {
    pub(crate) memory: CudaSlice<u8>,
    pub(crate) number: Type,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) batch: usize,
}

pub(crate) const GAP: usize = 3;
pub(crate) const PRECISE: Compute = Compute::CUBLAS_COMPUTE_32F;

pub(crate) fn numbers(count: usize, seed: u32) -> Vec<f32> {
    (0..count as u32)
        .map(|i| {
            ((i.wrapping_mul(2_654_435_761) ^ seed.wrapping_mul(40_503)) >> 9 & 0xff) as f32 / 64.0
                - 2.0
        })
        .collect()
}

pub(crate) fn size(number: Type) -> usize {
    if number == Type::CUDA_R_32F { 4 } else { 2 }
}

pub(crate) fn to_bytes(values: &[f32], number: Type) -> Vec<u8> {
    match size(number) {
        4 => values.iter().flat_map(|value| value.to_ne_bytes()).collect(),
        // The numbers of these tests have few bits.
        _ => {
            values.iter().flat_map(|value| ((value.to_bits() >> 16) as u16).to_ne_bytes()).collect()
        }
    }
}

pub(crate) fn from_bytes(bytes: &[u8], number: Type) -> Vec<f32> {
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
    pub(crate) fn new(
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

    pub(crate) fn layout(&self) -> sys::cublasLtMatrixLayout_t {
        let layout = result::create_matrix_layout(
            self.number,
            self.rows as u64,
            self.columns as u64,
            (self.rows + GAP) as i64,
        )
        .unwrap();
        let set = |attribute, value: *const c_void, n_bytes| {
            // SAFETY: the layout is valid, and the value has that size.
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

    /// Reads the values without the gaps, which must still be NaN.
    pub(crate) fn read(&self, stream: &Arc<CudaStream>) -> Vec<f32> {
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

pub(crate) fn pointer(memory: &CudaSlice<u8>) -> *mut c_void {
    memory.device_ptr(memory.stream()).0 as *mut c_void
}

/// Parameters of a product besides its matrices.
pub(crate) struct Extras<'a> {
    pub(crate) compute: Compute,
    pub(crate) epilogue: Epilogue,
    pub(crate) bias: Option<&'a CudaSlice<u8>>,
    pub(crate) auxiliary: Option<(&'a CudaSlice<u8>, i64)>,
    pub(crate) scales: (f32, f32),
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
    pub(crate) fn new() -> Self {
        let context = CudaContext::new(0).unwrap();
        Self { stream: context.new_stream().unwrap(), handle: result::create_handle().unwrap() }
    }

    pub(crate) fn matrix(
        &self,
        number: Type,
        shape: (usize, usize),
        batch: usize,
        values: &[f32],
    ) -> Matrix {
        Matrix::new(&self.stream, number, shape.0, shape.1, batch, values)
    }

    pub(crate) fn descriptor(
        transposed: [bool; 2],
        extras: &Extras<'_>,
    ) -> Result<sys::cublasLtMatmulDesc_t, CublasError> {
        let description = result::create_matmul_desc(extras.compute, Type::CUDA_R_32F)?;
        let set = |attribute, value: *const c_void, n_bytes| {
            // SAFETY: the descriptor is valid, and the value has that size.
            unsafe { result::set_matmul_desc_attribute(description, attribute, value, n_bytes) }
        };
        for (attribute, transposed) in
            [Attribute::CUBLASLT_MATMUL_DESC_TRANSA, Attribute::CUBLASLT_MATMUL_DESC_TRANSB]
                .into_iter()
                .zip(transposed)
        {
            let transposed = i32::from(transposed);
            set(attribute, (&raw const transposed).cast(), 4)?;
        }
        set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, (&raw const extras.epilogue).cast(), 4)?;
        if let Some(bias) = extras.bias {
            let bias = pointer(bias);
            set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, (&raw const bias).cast(), 8)?;
        }
        if let Some((auxiliary, leading)) = extras.auxiliary {
            let auxiliary = pointer(auxiliary);
            set(
                Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                (&raw const auxiliary).cast(),
                8,
            )?;
            set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, (&raw const leading).cast(), 8)?;
        }
        Ok(description)
    }

    /// Copies a batch of matrices, transposed or not.
    pub(crate) fn copy(
        &self,
        from: &Matrix,
        to: &Matrix,
        is_transposed: bool,
    ) -> sys::cublasStatus_t {
        let attribute =
            sys::cublasLtMatrixTransformDescAttributes_t::CUBLASLT_MATRIX_TRANSFORM_DESC_TRANSA;
        let (one, zero, operation) = (1.0_f32, 0.0_f32, i32::from(is_transposed));
        let mut descriptor = std::ptr::null_mut();
        // SAFETY: the result is a local variable.
        let made =
            unsafe { sys::cublasLtMatrixTransformDescCreate(&mut descriptor, Type::CUDA_R_32F) };
        let value = (&raw const operation).cast();
        // SAFETY: the value has 4 bytes, and a descriptor that was not made is refused.
        let set = unsafe {
            sys::cublasLtMatrixTransformDescSetAttribute(descriptor, attribute, value, 4)
        };
        assert_eq!([made, set], [sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS; 2]);
        // SAFETY: both matrices match their layouts, and there is no second operand.
        unsafe {
            sys::cublasLtMatrixTransform(
                self.handle,
                descriptor,
                (&raw const one).cast(),
                pointer(&from.memory),
                from.layout(),
                (&raw const zero).cast(),
                std::ptr::null(),
                std::ptr::null_mut(),
                pointer(&to.memory),
                to.layout(),
                self.stream.cu_stream().cast(),
            )
        }
    }

    /// Computes `d = a b` with these parameters.
    pub(crate) fn multiply(
        &self,
        [a, b, d]: [&Matrix; 3],
        transposed: [bool; 2],
        extras: &Extras<'_>,
    ) -> Result<(), CublasError> {
        let description = Self::descriptor(transposed, extras)?;
        let layouts = [a.layout(), b.layout(), d.layout()];
        let preference = result::create_matmul_pref()?;
        let workspace_bytes = 1_usize << 16;
        let limit =
            sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        // SAFETY: the preference is valid.
        unsafe {
            result::set_matmul_pref_attribute(
                preference,
                limit,
                (&raw const workspace_bytes).cast(),
                8,
            )
        }?;
        // SAFETY: all descriptors are valid.
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
        // SAFETY: all matrices match their layouts.
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
    pub(crate) fn stored(self, operand: usize) -> (usize, usize) {
        let extents = if operand == 0 { (self.m, self.k) } else { (self.k, self.n) };
        if self.transposed[operand] { (extents.1, extents.0) } else { extents }
    }

    /// Returns an element of an operand as it is multiplied.
    pub(crate) fn at(
        self,
        operand: usize,
        values: &[f32],
        batch: usize,
        row: usize,
        column: usize,
    ) -> f32 {
        let (rows, columns) = self.stored(operand);
        let (row, column) = if self.transposed[operand] { (column, row) } else { (row, column) };
        values[batch * rows * columns + column * rows + row]
    }

    /// Computes the product by plain loops.
    pub(crate) fn product(self, a: &[f32], b: &[f32]) -> Vec<f32> {
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

pub(crate) fn assert_close(found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len());
    for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(
            (found - expected).abs() <= tolerance * expected.abs().max(1.0),
            "element {place} is {found}, not {expected}"
        );
    }
}
