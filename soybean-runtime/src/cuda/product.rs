//! Matrix products by cuBLASLt.
//!
//! Everything that can be decided before a step is: descriptions are made and an algorithm is found once for each contraction of a program.
#![expect(unsafe_code, reason = "cuBLASLt is a C library")]

mod arrange;
mod description;

use std::{mem::MaybeUninit, sync::Arc};

use cudarc::cublaslt::{
    result::{self, CublasError},
    sys::{
        self, cublasComputeType_t as Compute, cublasLtMatmulDescAttributes_t as Attribute,
        cublasStatus_t as Status,
    },
};
use soybean_plan::{Contraction, DType, Precision};

use self::{
    arrange::{Arrangement, Order, arrangements},
    description::{Description, Layout, NOT_SUPPORTED, Preference, number, to_i64},
};
use super::{
    epilogue::{Epilogue, Function},
    gpu::Gpu,
    libraries::find,
    stream::Stream,
};
use crate::{Error, ErrorKind};

/// The most memory that an algorithm may ask for: what cuBLAS itself takes on recent GPUs.
pub(crate) const MOST_WORKSPACE_BYTES: usize = 32 << 20;

/// Every buffer begins at a multiple of this many bytes.
const BUFFER_ALIGNMENT: usize = 64;

/// How many algorithms are asked for; the first that fits is taken.
const N_ALGORITHMS: u8 = 8;

/// cuBLASLt on one GPU.
pub(crate) struct Lt {
    gpu: Arc<Gpu>,
    raw: sys::cublasLtHandle_t,
}

// SAFETY: a handle may be used from any thread whose context is the handle's, which every call here makes current.
unsafe impl Send for Lt {}

impl Lt {
    /// Opens the library for a GPU.
    pub(crate) fn new(gpu: &Arc<Gpu>) -> Result<Self, Error> {
        find().cublaslt()?;
        gpu.bind()?;
        let raw = result::create_handle()
            .map_err(|error| fault(&format!("starting cuBLASLt on {gpu:?}"), error))?;
        Ok(Self { gpu: Arc::clone(gpu), raw })
    }
}

impl Drop for Lt {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: made in `new`. After a fatal error cuBLASLt refuses, and there is nothing left to destroy.
            let _refused = unsafe { result::destroy_handle(self.raw) };
        }
    }
}

/// A contraction of a program, ready to run.
pub(crate) struct Product {
    description: Description,
    /// Of cuBLASLt's first and second operand and of the result.
    layouts: [Layout; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
    workspace_bytes: usize,
    order: Order,
    /// For each call, where left, right and result begin, in bytes.
    calls: Vec<[u64; 3]>,
    epilogue: Epilogue,
}

// SAFETY: the descriptions belong to this value alone.
unsafe impl Send for Product {}

/// Where a product finds its matrices: addresses on the GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Operands {
    /// The left operand.
    pub(crate) left: u64,
    /// The right operand.
    pub(crate) right: u64,
    /// The result.
    pub(crate) result: u64,
    /// The vector of [`Epilogue::bias`]; 0 if there is none.
    pub(crate) bias: u64,
    /// What [`Epilogue::kept`] speaks of; 0 if there is none.
    pub(crate) kept: u64,
}

impl Product {
    /// The contraction with these types of left operand, right operand and result; `None` if cuBLASLt cannot compute it, with this epilogue, in one pass over
    /// the operands as they lie.
    pub(crate) fn new(
        lt: &Lt,
        contraction: &Contraction,
        types: [DType; 3],
        precision: Precision,
        epilogue: Epilogue,
    ) -> Result<Option<Self>, Error> {
        lt.gpu.bind()?;
        let Some(compute) = compute(types, precision) else { return Ok(None) };
        for arrangement in arrangements(contraction) {
            if !epilogue.is_plain() && !takes_epilogue(&arrangement) {
                continue;
            }
            match Self::with(lt, &arrangement, types, compute, epilogue) {
                Ok(product) => return Ok(Some(product)),
                // Another kernel computes what cuBLASLt does not.
                Err(CublasError(
                    Status::CUBLAS_STATUS_NOT_SUPPORTED | Status::CUBLAS_STATUS_INVALID_VALUE,
                )) => {}
                Err(error) => return Err(fault("planning a matrix product", error)),
            }
        }
        Ok(None)
    }

    fn with(
        lt: &Lt,
        arrangement: &Arrangement,
        [left, right, result]: [DType; 3],
        compute: Compute,
        epilogue: Epilogue,
    ) -> Result<Self, CublasError> {
        let Arrangement { order, operands: [first, second], n_batch, .. } = arrangement;
        let types = match order {
            Order::RightLeft => [right, left],
            Order::LeftRight => [left, right],
        };
        let description = describe(arrangement, compute, epilogue, result)?;
        let layouts = [
            Layout::new(types[0], first, *n_batch)?,
            Layout::new(types[1], second, *n_batch)?,
            Layout::new(result, &arrangement.result, *n_batch)?,
        ];
        let in_bytes = |[at_left, at_right, at_result]: &[usize; 3]| {
            [at_left * left.bytes(), at_right * right.bytes(), at_result * result.bytes()]
        };
        let calls: Vec<[usize; 3]> = arrangement.calls.iter().map(in_bytes).collect();
        let [at_left, at_right, at_result] = alignments(&calls);
        let preference = match order {
            Order::RightLeft => [at_right, at_left, at_result],
            Order::LeftRight => [at_left, at_right, at_result],
        };
        let preference = Preference::new(MOST_WORKSPACE_BYTES, preference)?;
        let found = search(lt, &description, &layouts, &preference)?;
        Ok(Self {
            description,
            layouts,
            algorithm: found.algo,
            workspace_bytes: found.workspaceSize,
            order: *order,
            calls: calls.into_iter().map(|it| it.map(|it| it as u64)).collect(),
            epilogue,
        })
    }

    /// The memory that [`Self::run`] needs besides its operands.
    pub(crate) fn workspace_bytes(&self) -> usize {
        self.workspace_bytes
    }

    /// Computes the product when the stream comes to it.
    ///
    /// # Safety
    /// The handle is the one that the product was made with, and the stream is of the same GPU. Until the product is computed there are at these addresses, of that
    /// GPU, the matrices that its contraction describes, at multiples of 64 bytes, and whatever its epilogue needs; nobody else uses the result, nor the workspace, which has
    /// as many bytes as [`Self::workspace_bytes`] says.
    pub(crate) unsafe fn run(
        &self,
        lt: &Lt,
        stream: &Stream,
        operands: Operands,
        workspace: u64,
    ) -> Result<(), Error> {
        let refused = |error| fault("a matrix product", error);
        let raw = stream.raw()?;
        if self.epilogue.bias.is_some() {
            self.description
                .set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &operands.bias)
                .map_err(refused)?;
        }
        if self.epilogue.keeps() {
            self.description
                .set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &operands.kept)
                .map_err(refused)?;
        }
        let (one, zero) = (1.0_f32, 0.0_f32);
        let [first_layout, second_layout, result_layout] = self.layouts.each_ref().map(Layout::raw);
        for [at_left, at_right, at_result] in &self.calls {
            let (left, right) = (operands.left + at_left, operands.right + at_right);
            let (first, second) = match self.order {
                Order::RightLeft => (right, left),
                Order::LeftRight => (left, right),
            };
            let result = operands.result + at_result;
            // SAFETY: descriptions and algorithm were found together for this handle; what the addresses must be is required of the caller.
            unsafe {
                result::matmul(
                    lt.raw,
                    self.description.raw(),
                    std::ptr::from_ref(&one).cast(),
                    std::ptr::from_ref(&zero).cast(),
                    first as *const _,
                    first_layout,
                    second as *const _,
                    second_layout,
                    result as *const _,
                    result_layout,
                    result as *mut _,
                    result_layout,
                    &raw const self.algorithm,
                    workspace as *mut _,
                    self.workspace_bytes,
                    raw.cast(),
                )
            }
            .map_err(refused)?;
        }
        Ok(())
    }
}

/// With which numbers products of these types are summed; none if cuBLASLt has no such product.
fn compute([left, right, result]: [DType; 3], precision: Precision) -> Option<Compute> {
    match (left, right, result) {
        (DType::F32, DType::F32, DType::F32) => Some(match precision {
            Precision::F32 => Compute::CUBLAS_COMPUTE_32F,
            Precision::Tf32 | Precision::Bf16 => Compute::CUBLAS_COMPUTE_32F_FAST_TF32,
        }),
        (DType::Bf16, DType::Bf16, DType::F32 | DType::Bf16) => Some(Compute::CUBLAS_COMPUTE_32F),
        _ => None,
    }
}

/// Whether a vector along the columns is one that cuBLASLt can add, and what is kept is one matrix.
fn takes_epilogue(arrangement: &Arrangement) -> bool {
    arrangement.order == Order::RightLeft
        && arrangement.n_batch == 1
        && arrangement.calls.len() == 1
}

fn describe(
    arrangement: &Arrangement,
    compute: Compute,
    epilogue: Epilogue,
    result: DType,
) -> Result<Description, CublasError> {
    let description = Description::new(compute)?;
    // cuBLAS's numbers for a matrix and its transpose, which the bindings lack.
    let transposed = arrangement.operands.map(|it| i32::from(it.is_transposed));
    description.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &transposed[0])?;
    description.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, &transposed[1])?;
    description.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue_number(epilogue))?;
    // The search wants to see that there will be addresses, though not yet which.
    let some_address = 256_u64;
    if let Some(dtype) = epilogue.bias {
        description.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &number(dtype)?)?;
        description.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &some_address)?;
    }
    let (rows, columns) = (arrangement.result.columns, arrangement.result.rows);
    if let Some(kept) = epilogue.kept(rows, columns, result) {
        description.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &to_i64(kept.row)?)?;
        description.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &some_address)?;
    }
    Ok(description)
}

fn epilogue_number(epilogue: Epilogue) -> sys::cublasLtEpilogue_t {
    use sys::cublasLtEpilogue_t as Number;
    let (without, with) = match epilogue.function {
        Function::Identity => (Number::CUBLASLT_EPILOGUE_DEFAULT, Number::CUBLASLT_EPILOGUE_BIAS),
        Function::Relu => (Number::CUBLASLT_EPILOGUE_RELU, Number::CUBLASLT_EPILOGUE_RELU_BIAS),
        Function::Gelu => (Number::CUBLASLT_EPILOGUE_GELU, Number::CUBLASLT_EPILOGUE_GELU_BIAS),
        Function::ReluKept => {
            (Number::CUBLASLT_EPILOGUE_RELU_AUX, Number::CUBLASLT_EPILOGUE_RELU_AUX_BIAS)
        }
        Function::GeluKept => {
            (Number::CUBLASLT_EPILOGUE_GELU_AUX, Number::CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
        }
        Function::ReluGradient => {
            (Number::CUBLASLT_EPILOGUE_DRELU, Number::CUBLASLT_EPILOGUE_DRELU_BGRAD)
        }
        Function::GeluGradient => {
            (Number::CUBLASLT_EPILOGUE_DGELU, Number::CUBLASLT_EPILOGUE_DGELU_BGRAD)
        }
    };
    if epilogue.bias.is_some() { with } else { without }
}

/// The bytes at whose multiples left operand, right operand and result begin in all calls.
fn alignments(calls: &[[usize; 3]]) -> [u32; 3] {
    [0, 1, 2].map(|operand| {
        let places = calls.iter().fold(BUFFER_ALIGNMENT, |all, call| all | call[operand]);
        // The lowest bit that any place has.
        1 << places.trailing_zeros()
    })
}

/// The first algorithm that can compute the product.
fn search(
    lt: &Lt,
    description: &Description,
    layouts: &[Layout; 3],
    preference: &Preference,
) -> Result<sys::cublasLtMatmulHeuristicResult_t, CublasError> {
    // SAFETY: it is made of numbers, for all of which 0 is a value.
    let mut found: [sys::cublasLtMatmulHeuristicResult_t; N_ALGORITHMS as usize] =
        unsafe { MaybeUninit::zeroed().assume_init() };
    let mut n_found = 0;
    let [first, second, result] = layouts.each_ref().map(Layout::raw);
    // SAFETY: all handles are alive, and there is room for as many results as are asked for.
    let asked = unsafe {
        sys::cublasLtMatmulAlgoGetHeuristic(
            lt.raw,
            description.raw(),
            first,
            second,
            result,
            result,
            preference.raw(),
            N_ALGORITHMS.into(),
            found.as_mut_ptr(),
            &mut n_found,
        )
    };
    asked.result()?;
    let n_found = usize::try_from(n_found).unwrap_or(0);
    let fits = |it: &&sys::cublasLtMatmulHeuristicResult_t| {
        it.state == Status::CUBLAS_STATUS_SUCCESS && it.workspaceSize <= MOST_WORKSPACE_BYTES
    };
    found.iter().take(n_found).find(fits).copied().ok_or(NOT_SUPPORTED)
}

/// What cuBLASLt says of a failure.
fn fault(what: &str, error: CublasError) -> Error {
    Error::new(ErrorKind::Device, format!("{what}: {error}"))
}

#[cfg(test)]
mod tests;
