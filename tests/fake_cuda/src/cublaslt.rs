//! cuBLASLt: descriptors, and products on streams.

#![expect(unsafe_code, reason = "C finds functions by name")]

mod descriptor;
mod matmul;
mod matrix;
mod transform;

use std::ffi::{CStr, c_int};

use crate::ffi::{Address, Handle, In, Out, constant};
use crate::handles::Handles;
use crate::state::lock;
use descriptor::{MatmulDescriptor, MatmulPreference, MatrixLayout, TransformDescriptor};
use matmul::Matmul;
use transform::Transform;

static LIBRARIES: Handles<()> = Handles::new();
static DESCRIPTORS: Handles<MatmulDescriptor> = Handles::new();
static LAYOUTS: Handles<MatrixLayout> = Handles::new();
static PREFERENCES: Handles<MatmulPreference> = Handles::new();
static TRANSFORMS: Handles<TransformDescriptor> = Handles::new();

/// `cublasStatus_t`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Status(u32);

type ApiResult<T = ()> = Result<T, Status>;

impl Status {
    const SUCCESS: Self = Self(0);
    const NOT_INITIALIZED: Self = Self(1);
    const INVALID_VALUE: Self = Self(7);
    const EXECUTION_FAILED: Self = Self(13);
    const NOT_SUPPORTED: Self = Self(15);

    fn text(self) -> &'static CStr {
        match self {
            Self::SUCCESS => c"CUBLAS_STATUS_SUCCESS",
            Self::NOT_INITIALIZED => c"CUBLAS_STATUS_NOT_INITIALIZED",
            Self::INVALID_VALUE => c"CUBLAS_STATUS_INVALID_VALUE",
            Self::EXECUTION_FAILED => c"CUBLAS_STATUS_EXECUTION_FAILED",
            Self::NOT_SUPPORTED => c"CUBLAS_STATUS_NOT_SUPPORTED",
            _ => c"CUBLAS_STATUS unknown",
        }
    }
}

/// `cublasLtMatmulAlgo_t`: requirements of the product, and a mark that distinguishes it from
/// uninitialized memory.
#[repr(C)]
#[derive(Clone, Copy)]
struct Algorithm {
    mark: u64,
    workspace_bytes: u64,
    /// Alignments of A, B, C and D.
    alignments: [u32; 4],
    unused: [u64; 4],
}

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Suggestion {
    algorithm: Algorithm,
    workspace_bytes: usize,
    status: Status,
    waves: f32,
    reserved: [c_int; 4],
}

const MARK: u64 = 0x5aa5_0a11_9021_7e44;
/// Workspace that every second algorithm uses if allowed, so that callers must provide it.
const WORKSPACE_BYTES: u32 = 4096;
const VERSION: usize = 130_100;

macro_rules! cublaslt {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $type),*) -> Status {
            lock().count(stringify!($name));
            let body = || -> ApiResult { $body };
            body().err().unwrap_or(Status::SUCCESS)
        }
    )*};
}

cublaslt! {
    fn cublasLtCreate(library: Out<Handle>) {
        lock().current_device().map_err(|_| Status::NOT_INITIALIZED)?;
        library.put(LIBRARIES.add(())).ok_or(Status::INVALID_VALUE)
    }
    fn cublasLtDestroy(library: Handle) { LIBRARIES.remove(library).ok_or(Status::NOT_INITIALIZED) }
    fn cublasLtMatmulDescCreate(descriptor: Out<Handle>, compute: u32, scale: u32) {
        descriptor.put(DESCRIPTORS.add(MatmulDescriptor::new(compute, scale)?)).ok_or(Status::INVALID_VALUE)
    }
    fn cublasLtMatmulDescDestroy(descriptor: Handle) { DESCRIPTORS.remove(descriptor).map(|_| ()).ok_or(Status::INVALID_VALUE) }
    fn cublasLtMatmulDescSetAttribute(descriptor: Handle, attribute: u32, value: Address, n_bytes: usize) {
        if attribute == MatmulDescriptor::BIAS_STRIDE && lock().settings.has_no_bias_stride {
            return Err(Status::INVALID_VALUE);
        }
        DESCRIPTORS.change(descriptor, |it| it.set(attribute, value, n_bytes)).unwrap_or(Err(Status::INVALID_VALUE))
    }
    fn cublasLtMatmulDescGetAttribute(descriptor: Handle, attribute: u32, value: Address, n_bytes: usize, written: Out<usize>) {
        let bytes = DESCRIPTORS.get(descriptor).ok_or(Status::INVALID_VALUE)?.bytes(attribute)?;
        if n_bytes != 0 && n_bytes < bytes.len() {
            return Err(Status::INVALID_VALUE);
        }
        if n_bytes != 0 {
            value.write(&bytes).ok_or(Status::INVALID_VALUE)?;
        }
        if written.is_null() { Ok(()) } else { written.put(bytes.len()).ok_or(Status::INVALID_VALUE) }
    }
    fn cublasLtMatrixLayoutCreate(layout: Out<Handle>, number: u32, rows: u64, columns: u64, leading: i64) {
        layout.put(LAYOUTS.add(MatrixLayout::new(number, rows, columns, leading)?)).ok_or(Status::INVALID_VALUE)
    }
    fn cublasLtMatrixLayoutDestroy(layout: Handle) { LAYOUTS.remove(layout).map(|_| ()).ok_or(Status::INVALID_VALUE) }
    fn cublasLtMatrixLayoutSetAttribute(layout: Handle, attribute: u32, value: Address, n_bytes: usize) {
        LAYOUTS.change(layout, |it| it.set(attribute, value, n_bytes)).unwrap_or(Err(Status::INVALID_VALUE))
    }
    fn cublasLtMatmulPreferenceCreate(preference: Out<Handle>) {
        preference.put(PREFERENCES.add(MatmulPreference::default())).ok_or(Status::INVALID_VALUE)
    }
    fn cublasLtMatmulPreferenceDestroy(preference: Handle) { PREFERENCES.remove(preference).map(|_| ()).ok_or(Status::INVALID_VALUE) }
    fn cublasLtMatmulPreferenceSetAttribute(preference: Handle, attribute: u32, value: Address, n_bytes: usize) {
        PREFERENCES.change(preference, |it| it.set(attribute, value, n_bytes)).unwrap_or(Err(Status::INVALID_VALUE))
    }
    fn cublasLtMatmulAlgoGetHeuristic(
        library: Handle, descriptor: Handle, a: Handle, b: Handle, c: Handle, d: Handle, preference: Handle, asked: c_int,
        suggestions: Out<Suggestion>, found: Out<c_int>,
    ) {
        LIBRARIES.get(library).ok_or(Status::NOT_INITIALIZED)?;
        let preference = PREFERENCES.get(preference).ok_or(Status::INVALID_VALUE)?;
        if asked < 1 {
            return Err(Status::INVALID_VALUE);
        }
        found.put(0).ok_or(Status::INVALID_VALUE)?;
        matmul(descriptor, [a, b, c, d])?;
        let n_found = lock().settings.n_algorithms.min(asked);
        let suggested: Vec<Suggestion> = (0..n_found).map(|number| suggestion(&preference, number)).collect();
        suggestions.put_list(&suggested).and(found.put(n_found)).ok_or(Status::INVALID_VALUE)
    }
    fn cublasLtMatmul(
        library: Handle, descriptor: Handle, alpha: In<f32>, a: u64, a_layout: Handle, b: u64, b_layout: Handle, beta: In<f32>,
        c: u64, c_layout: Handle, d: u64, d_layout: Handle, algorithm: In<Algorithm>, workspace: u64, workspace_bytes: usize, stream: Handle,
    ) {
        LIBRARIES.get(library).ok_or(Status::NOT_INITIALIZED)?;
        let mut matmul = matmul(descriptor, [a_layout, b_layout, c_layout, d_layout])?;
        matmul.alpha = alpha.get().ok_or(Status::INVALID_VALUE)?;
        matmul.beta = beta.get().ok_or(Status::INVALID_VALUE)?;
        matmul.addresses = [a, b, if matmul.beta == 0.0 { d } else { c }, d];
        if let Some(algorithm) = algorithm.get() {
            let is_aligned = matmul.addresses.iter().zip(algorithm.alignments).all(|(address, alignment)| address.is_multiple_of(alignment.into()));
            if algorithm.mark != MARK || algorithm.workspace_bytes > workspace_bytes as u64 || !is_aligned {
                return Err(Status::INVALID_VALUE);
            }
            matmul.workspace = (workspace, algorithm.workspace_bytes);
            matmul.relu_drops_nan = algorithm.workspace_bytes == 0 && lock().settings.relu_drops_nan;
        }
        matmul.submit(stream)
    }
    fn cublasLtMatrixTransformDescCreate(descriptor: Out<Handle>, scale: u32) {
        descriptor.put(TRANSFORMS.add(TransformDescriptor::new(scale)?)).ok_or(Status::INVALID_VALUE)
    }
    fn cublasLtMatrixTransformDescDestroy(descriptor: Handle) {
        TRANSFORMS.remove(descriptor).map(|_| ()).ok_or(Status::INVALID_VALUE)
    }
    fn cublasLtMatrixTransformDescSetAttribute(descriptor: Handle, attribute: u32, value: Address, n_bytes: usize) {
        TRANSFORMS.change(descriptor, |it| it.set(attribute, value, n_bytes)).unwrap_or(Err(Status::INVALID_VALUE))
    }
    fn cublasLtMatrixTransform(
        library: Handle, descriptor: Handle, alpha: In<f32>, a: u64, a_layout: Handle, beta: In<f32>, b: u64, _b_layout: Handle,
        c: u64, c_layout: Handle, stream: Handle,
    ) {
        LIBRARIES.get(library).ok_or(Status::NOT_INITIALIZED)?;
        let descriptor = TRANSFORMS.get(descriptor).ok_or(Status::INVALID_VALUE)?;
        let layout = |it: Handle| LAYOUTS.get(it).ok_or(Status::INVALID_VALUE);
        // Sums of two matrices, and multiples of one.
        if b != 0 || (alpha.get(), beta.get()) != (Some(1.0), Some(0.0)) {
            return Err(Status::NOT_SUPPORTED);
        }
        Transform::new(descriptor, (layout(a_layout)?, a), (layout(c_layout)?, c))?.submit(stream)
    }
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtGetVersion() -> usize {
    VERSION
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtGetCudartVersion() -> usize {
    13_000
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtGetStatusName(status: Status) -> Address {
    constant(status.text())
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtGetStatusString(status: Status) -> Address {
    constant(status.text())
}

/// Returns a suggestion. Every second one needs no workspace.
fn suggestion(preference: &MatmulPreference, number: c_int) -> Suggestion {
    let takes_workspace = number % 2 == 0 && preference.workspace_bytes >= WORKSPACE_BYTES.into();
    let n_bytes = if takes_workspace { WORKSPACE_BYTES } else { 0 };
    let alignments = preference.alignments;
    let algorithm =
        Algorithm { mark: MARK, workspace_bytes: n_bytes.into(), alignments, unused: [0; 4] };
    let workspace_bytes = n_bytes as usize;
    Suggestion { algorithm, workspace_bytes, status: Status::SUCCESS, waves: 1.0, reserved: [0; 4] }
}

/// Returns the product of these descriptors, without addresses.
fn matmul(descriptor: Handle, layouts: [Handle; 4]) -> ApiResult<Matmul> {
    let descriptor = DESCRIPTORS.get(descriptor).ok_or(Status::INVALID_VALUE)?;
    let [a, b, c, d] = layouts.map(|layout| LAYOUTS.get(layout).ok_or(Status::INVALID_VALUE));
    Matmul::new(descriptor, [a?, b?, c?, d?])
}
