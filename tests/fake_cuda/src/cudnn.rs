//! cuDNN's graph API: convolutions, their gradients, and attention on streams.

#![expect(unsafe_code, reason = "C finds functions by name")]

mod attention;
mod backend;
mod convolution;
mod descriptor;
mod engine;
mod graph;
mod launch;
mod pointwise;

use std::ffi::CStr;

use crate::ffi::{Address, Handle, Out, constant};
use crate::handles::Handles;
use crate::state::lock;

/// The stream of each library handle. 0 is the null stream.
static LIBRARIES: Handles<Handle> = Handles::new();

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
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetVersion() -> usize {
    lock().settings.cudnn_version
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetErrorString(status: Status) -> Address {
    constant(status.text())
}
