//! cuDNN: convolutions, their gradients, and attention on streams.

#![expect(unsafe_code, reason = "C finds functions by name")]

mod attention;
mod backend;
mod convolution;
mod descriptor;

use std::ffi::{CStr, c_int};

use crate::ffi::{Address, Handle, In, Out, constant};
use crate::handles::Handles;
use crate::state::lock;
use convolution::{Convolution, Direction, Epilogue};
use descriptor::{ActivationDescriptor, ConvolutionDescriptor, TensorDescriptor};

/// The stream of each library handle. 0 is the null stream.
static LIBRARIES: Handles<Handle> = Handles::new();
/// Descriptors of tensors and filters. A filter's extents begin with outputs and inputs.
static TENSORS: Handles<Option<TensorDescriptor>> = Handles::new();
static ACTIVATIONS: Handles<Option<ActivationDescriptor>> = Handles::new();
static CONVOLUTIONS: Handles<Option<ConvolutionDescriptor>> = Handles::new();

/// `cudnnStatus_t` of version 9.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Status(u32);

type ApiResult<T = ()> = Result<T, Status>;

impl Status {
    const SUCCESS: Self = Self(0);
    const NOT_INITIALIZED: Self = Self(1001);
    const BAD_PARAM: Self = Self(2000);
    const NOT_SUPPORTED: Self = Self(3000);
    const EXECUTION_FAILED: Self = Self(5000);

    fn text(self) -> &'static CStr {
        match self {
            Self::SUCCESS => c"CUDNN_STATUS_SUCCESS",
            Self::NOT_INITIALIZED => c"CUDNN_STATUS_NOT_INITIALIZED",
            Self::BAD_PARAM => c"CUDNN_STATUS_BAD_PARAM",
            Self::NOT_SUPPORTED => c"CUDNN_STATUS_NOT_SUPPORTED",
            Self::EXECUTION_FAILED => c"CUDNN_STATUS_EXECUTION_FAILED",
            _ => c"CUDNN_STATUS unknown",
        }
    }
}

/// `cudnnConvolutionFwdAlgoPerf_t` and the types of the two gradients.
#[repr(C)]
#[derive(Clone, Copy)]
struct Suggestion {
    algorithm: u32,
    status: Status,
    milliseconds: f32,
    workspace_bytes: usize,
    is_deterministic: u32,
    mathematics: u32,
    reserved: [c_int; 3],
}

macro_rules! cudnn {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $type),*) -> Status {
            lock().count(stringify!($name));
            let body = || -> ApiResult { $body };
            body().err().unwrap_or(Status::SUCCESS)
        }
    )*};
}

cudnn! {
    fn cudnnBackendCreateDescriptor(kind: u32, descriptor: Out<Handle>) { backend::create(kind, descriptor) }
    fn cudnnBackendDestroyDescriptor(descriptor: Handle) { backend::destroy(descriptor) }
    fn cudnnBackendSetAttribute(descriptor: Handle, name: u32, of_type: u32, n: i64, values: Address) {
        backend::set(descriptor, name, of_type, n, values)
    }
    fn cudnnBackendGetAttribute(descriptor: Handle, name: u32, of_type: u32, capacity: i64, n: Out<i64>, values: Address) {
        backend::get(descriptor, name, of_type, capacity, n, values)
    }
    fn cudnnBackendFinalize(descriptor: Handle) { backend::finalize(descriptor) }
    fn cudnnBackendExecute(library: Handle, plan: Handle, pack: Handle) { backend::execute(library, plan, pack) }
    fn cudnnCreate(library: Out<Handle>) {
        lock().current_device().map_err(|_| Status::NOT_INITIALIZED)?;
        lock().settings.cudnn_status.map_or(Ok(()), |it| Err(Status(it)))?;
        library.put(LIBRARIES.add(Handle(0))).ok_or(Status::BAD_PARAM)
    }
    fn cudnnDestroy(library: Handle) {
        LIBRARIES.remove(library).ok_or(Status::NOT_INITIALIZED)?;
        // cuDNN's documentation: it waits for the device.
        let mut state = lock();
        let device = state.current_device().map_err(|_| Status::NOT_INITIALIZED)?;
        state.refuse_in_captures_on(device).map_err(|_| Status::EXECUTION_FAILED)
    }
    fn cudnnSetStream(library: Handle, stream: Handle) {
        lock().stream(stream).map_err(|_| Status::BAD_PARAM)?;
        LIBRARIES.change(library, |known| *known = stream).ok_or(Status::NOT_INITIALIZED)
    }
    fn cudnnCreateTensorDescriptor(tensor: Out<Handle>) { tensor.put(TENSORS.add(None)).ok_or(Status::BAD_PARAM) }
    fn cudnnDestroyTensorDescriptor(tensor: Handle) { TENSORS.remove(tensor).map(|_| ()).ok_or(Status::BAD_PARAM) }
    fn cudnnSetTensor4dDescriptor(tensor: Handle, format: u32, number: u32, n: c_int, c: c_int, h: c_int, w: c_int) {
        set_tensor(tensor, TensorDescriptor::new(number, format, [n, c, h, w])?)
    }
    fn cudnnSetTensor4dDescriptorEx(
        tensor: Handle, number: u32, n: c_int, c: c_int, h: c_int, w: c_int, n_stride: c_int, c_stride: c_int, h_stride: c_int, w_stride: c_int,
    ) {
        set_tensor(tensor, TensorDescriptor::with_strides(number, [n, c, h, w], [n_stride, c_stride, h_stride, w_stride])?)
    }
    fn cudnnCreateFilterDescriptor(filter: Out<Handle>) { filter.put(TENSORS.add(None)).ok_or(Status::BAD_PARAM) }
    fn cudnnDestroyFilterDescriptor(filter: Handle) { TENSORS.remove(filter).map(|_| ()).ok_or(Status::BAD_PARAM) }
    fn cudnnSetFilter4dDescriptor(filter: Handle, number: u32, format: u32, k: c_int, c: c_int, h: c_int, w: c_int) {
        set_tensor(filter, TensorDescriptor::new(number, format, [k, c, h, w])?)
    }
    fn cudnnCreateActivationDescriptor(activation: Out<Handle>) { activation.put(ACTIVATIONS.add(None)).ok_or(Status::BAD_PARAM) }
    fn cudnnDestroyActivationDescriptor(activation: Handle) { ACTIVATIONS.remove(activation).map(|_| ()).ok_or(Status::BAD_PARAM) }
    fn cudnnSetActivationDescriptor(activation: Handle, mode: u32, of_nan: u32, _coefficient: f64) {
        let made = ActivationDescriptor::new(mode, of_nan)?;
        ACTIVATIONS.change(activation, |known| *known = Some(made)).ok_or(Status::BAD_PARAM)
    }
    fn cudnnCreateConvolutionDescriptor(descriptor: Out<Handle>) { descriptor.put(CONVOLUTIONS.add(None)).ok_or(Status::BAD_PARAM) }
    fn cudnnDestroyConvolutionDescriptor(descriptor: Handle) { CONVOLUTIONS.remove(descriptor).map(|_| ()).ok_or(Status::BAD_PARAM) }
    fn cudnnSetConvolution2dDescriptor(
        descriptor: Handle, pad_h: c_int, pad_w: c_int, stride_h: c_int, stride_w: c_int, dilation_h: c_int, dilation_w: c_int, mode: u32, compute: u32,
    ) {
        let made = ConvolutionDescriptor::new([pad_h, pad_w], [stride_h, stride_w], [dilation_h, dilation_w], mode, compute)?;
        CONVOLUTIONS.change(descriptor, |known| *known = Some(made)).ok_or(Status::BAD_PARAM)
    }
    fn cudnnSetConvolutionMathType(descriptor: Handle, mathematics: u32) {
        if mathematics > 3 {
            return Err(Status::BAD_PARAM);
        }
        change_convolution(descriptor, |known| known.mathematics = mathematics)
    }
    fn cudnnSetConvolutionGroupCount(descriptor: Handle, count: c_int) {
        let count = usize::try_from(count).ok().filter(|&count| count > 0).ok_or(Status::BAD_PARAM)?;
        change_convolution(descriptor, |known| known.groups = count)
    }
    fn cudnnGetConvolutionForwardAlgorithm_v7(
        library: Handle, x: Handle, w: Handle, descriptor: Handle, y: Handle, asked: c_int, found: Out<c_int>, suggestions: Out<Suggestion>,
    ) {
        suggest(library, Direction::Forward, [x, w, y], descriptor, asked, found, suggestions)
    }
    fn cudnnGetConvolutionBackwardDataAlgorithm_v7(
        library: Handle, w: Handle, y: Handle, descriptor: Handle, x: Handle, asked: c_int, found: Out<c_int>, suggestions: Out<Suggestion>,
    ) {
        suggest(library, Direction::BackwardData, [x, w, y], descriptor, asked, found, suggestions)
    }
    fn cudnnGetConvolutionBackwardFilterAlgorithm_v7(
        library: Handle, x: Handle, y: Handle, descriptor: Handle, w: Handle, asked: c_int, found: Out<c_int>, suggestions: Out<Suggestion>,
    ) {
        suggest(library, Direction::BackwardFilter, [x, w, y], descriptor, asked, found, suggestions)
    }
    fn cudnnGetConvolutionForwardWorkspaceSize(
        library: Handle, x: Handle, w: Handle, descriptor: Handle, y: Handle, algorithm: u32, n_bytes: Out<usize>,
    ) {
        put_workspace(library, Direction::Forward, [x, w, y], descriptor, algorithm, n_bytes)
    }
    fn cudnnGetConvolutionBackwardDataWorkspaceSize(
        library: Handle, w: Handle, y: Handle, descriptor: Handle, x: Handle, algorithm: u32, n_bytes: Out<usize>,
    ) {
        put_workspace(library, Direction::BackwardData, [x, w, y], descriptor, algorithm, n_bytes)
    }
    fn cudnnGetConvolutionBackwardFilterWorkspaceSize(
        library: Handle, x: Handle, y: Handle, descriptor: Handle, w: Handle, algorithm: u32, n_bytes: Out<usize>,
    ) {
        put_workspace(library, Direction::BackwardFilter, [x, w, y], descriptor, algorithm, n_bytes)
    }
    fn cudnnConvolutionForward(
        library: Handle, alpha: In<f32>, x: Handle, x_data: u64, w: Handle, w_data: u64, descriptor: Handle, algorithm: u32,
        workspace: u64, workspace_bytes: usize, beta: In<f32>, y: Handle, y_data: u64,
    ) {
        let convolution = convolution(Direction::Forward, [x, w, y], descriptor)?;
        run(library, convolution, [x_data, w_data, y_data], [alpha, beta], algorithm, (workspace, workspace_bytes))
    }
    fn cudnnConvolutionBiasActivationForward(
        library: Handle, alpha: In<f32>, x: Handle, x_data: u64, w: Handle, w_data: u64, descriptor: Handle, algorithm: u32,
        workspace: u64, workspace_bytes: usize, beta: In<f32>, z: Handle, z_data: u64, bias: Handle, bias_data: u64,
        activation: Handle, y: Handle, y_data: u64,
    ) {
        let tensor = |handle: Handle| TENSORS.get(handle).flatten().ok_or(Status::BAD_PARAM);
        let activation = ACTIVATIONS.get(activation).flatten().ok_or(Status::BAD_PARAM)?;
        let mut convolution = convolution(Direction::Forward, [x, w, y], descriptor)?;
        if tensor(z)? != tensor(y)? || x_data == y_data || x_data == z_data {
            return Err(Status::BAD_PARAM);
        }
        if lock().settings.refuses_activations {
            return Err(Status::NOT_SUPPORTED);
        }
        convolution.epilogue = Some(Epilogue::new(activation, (tensor(w)?, tensor(bias)?), algorithm, [bias_data, z_data])?);
        run(library, convolution, [x_data, w_data, y_data], [alpha, beta], algorithm, (workspace, workspace_bytes))
    }
    fn cudnnConvolutionBackwardData(
        library: Handle, alpha: In<f32>, w: Handle, w_data: u64, y: Handle, y_data: u64, descriptor: Handle, algorithm: u32,
        workspace: u64, workspace_bytes: usize, beta: In<f32>, x: Handle, x_data: u64,
    ) {
        let convolution = convolution(Direction::BackwardData, [x, w, y], descriptor)?;
        run(library, convolution, [x_data, w_data, y_data], [alpha, beta], algorithm, (workspace, workspace_bytes))
    }
    fn cudnnConvolutionBackwardFilter(
        library: Handle, alpha: In<f32>, x: Handle, x_data: u64, y: Handle, y_data: u64, descriptor: Handle, algorithm: u32,
        workspace: u64, workspace_bytes: usize, beta: In<f32>, w: Handle, w_data: u64,
    ) {
        let convolution = convolution(Direction::BackwardFilter, [x, w, y], descriptor)?;
        run(library, convolution, [x_data, w_data, y_data], [alpha, beta], algorithm, (workspace, workspace_bytes))
    }
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetVersion() -> usize {
    lock().settings.cudnn_version
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetCudartVersion() -> usize {
    13_000
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetErrorString(status: Status) -> Address {
    constant(status.text())
}

fn set_tensor(handle: Handle, tensor: TensorDescriptor) -> ApiResult {
    TENSORS.change(handle, |known| *known = Some(tensor)).ok_or(Status::BAD_PARAM)
}

fn change_convolution(
    handle: Handle,
    change: impl FnOnce(&mut ConvolutionDescriptor),
) -> ApiResult {
    CONVOLUTIONS
        .change(handle, |known| known.as_mut().map(change))
        .flatten()
        .ok_or(Status::BAD_PARAM)
}

/// Returns the convolution of these descriptors: images, filters and results in every direction.
fn convolution(
    direction: Direction,
    tensors: [Handle; 3],
    descriptor: Handle,
) -> ApiResult<Convolution> {
    let [x, w, y] = tensors.map(|tensor| TENSORS.get(tensor).flatten().ok_or(Status::BAD_PARAM));
    let descriptor = CONVOLUTIONS.get(descriptor).flatten().ok_or(Status::BAD_PARAM)?;
    Convolution::new(direction, [x?, w?, y?], descriptor)
}

fn suggest(
    library: Handle,
    direction: Direction,
    tensors: [Handle; 3],
    descriptor: Handle,
    asked: c_int,
    found: Out<c_int>,
    suggestions: Out<Suggestion>,
) -> ApiResult {
    LIBRARIES.get(library).ok_or(Status::NOT_INITIALIZED)?;
    let convolution = convolution(direction, tensors, descriptor)?;
    let asked = usize::try_from(asked).ok().filter(|&asked| asked > 0).ok_or(Status::BAD_PARAM)?;
    let suggestion = |(place, algorithm): (u16, u32)| Suggestion {
        algorithm,
        status: Status::SUCCESS,
        milliseconds: 1.0 + f32::from(place),
        // As with the real library, the heuristic's number need not be the workspace's size.
        workspace_bytes: convolution.workspace_bytes(algorithm) / 2,
        is_deterministic: u32::from(convolution.is_deterministic(algorithm)),
        mathematics: convolution.mathematics(),
        reserved: [0; 3],
    };
    let possible: Vec<Suggestion> =
        (0..).zip(convolution.algorithms()).map(suggestion).take(asked).collect();
    let count = c_int::try_from(possible.len()).map_err(|_| Status::BAD_PARAM)?;
    suggestions.put_list(&possible).and(found.put(count)).ok_or(Status::BAD_PARAM)
}

fn put_workspace(
    library: Handle,
    direction: Direction,
    tensors: [Handle; 3],
    descriptor: Handle,
    algorithm: u32,
    n_bytes: Out<usize>,
) -> ApiResult {
    LIBRARIES.get(library).ok_or(Status::NOT_INITIALIZED)?;
    let convolution = convolution(direction, tensors, descriptor)?;
    convolution.check(algorithm)?;
    n_bytes.put(convolution.workspace_bytes(algorithm)).ok_or(Status::BAD_PARAM)
}

fn run(
    library: Handle,
    mut convolution: Convolution,
    data: [u64; 3],
    [alpha, beta]: [In<f32>; 2],
    algorithm: u32,
    (workspace, workspace_bytes): (u64, usize),
) -> ApiResult {
    let stream = LIBRARIES.get(library).ok_or(Status::NOT_INITIALIZED)?;
    convolution.check(algorithm)?;
    if workspace_bytes < convolution.workspace_bytes(algorithm) {
        return Err(Status::BAD_PARAM);
    }
    convolution.data = data;
    convolution.scales =
        [alpha.get().ok_or(Status::BAD_PARAM)?, beta.get().ok_or(Status::BAD_PARAM)?];
    convolution.workspace = (workspace, convolution.workspace_bytes(algorithm));
    convolution.submit(stream)
}
