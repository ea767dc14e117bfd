//! Results of driver functions.

use std::ffi::CStr;

use crate::ffi::{Address, constant};

/// `CUresult`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) u32);

impl Status {
    /// No result of CUDA: the call goes on when another one has made room.
    pub(crate) const WAITS: Self = Self(u32::MAX);
}

/// Result of a driver function.
pub(crate) type ApiResult<T = ()> = Result<T, Status>;

macro_rules! statuses {
    ($($name:ident = $number:literal $full:literal $text:literal;)*) => {
        impl Status {
            $(pub(crate) const $name: Self = Self($number);)*

            /// Returns the name and description of a result, if it is known.
            pub(crate) fn texts(self) -> Option<(Address, Address)> {
                let texts: (&'static CStr, &'static CStr) = match self {
                    $(Self::$name => ($full, $text),)*
                    _ => return None,
                };
                Some((constant(texts.0), constant(texts.1)))
            }
        }
    };
}

statuses! {
    SUCCESS = 0 c"CUDA_SUCCESS" c"no error";
    INVALID_VALUE = 1 c"CUDA_ERROR_INVALID_VALUE" c"invalid argument";
    OUT_OF_MEMORY = 2 c"CUDA_ERROR_OUT_OF_MEMORY" c"out of memory";
    NO_DEVICE = 100 c"CUDA_ERROR_NO_DEVICE" c"no CUDA-capable device is detected";
    INVALID_DEVICE = 101 c"CUDA_ERROR_INVALID_DEVICE" c"invalid device ordinal";
    INVALID_IMAGE = 200 c"CUDA_ERROR_INVALID_IMAGE" c"device kernel image is invalid";
    INVALID_CONTEXT = 201 c"CUDA_ERROR_INVALID_CONTEXT" c"invalid device context";
    PEER_ACCESS_UNSUPPORTED = 217 c"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED" c"peer access is not supported between these two devices";
    INVALID_HANDLE = 400 c"CUDA_ERROR_INVALID_HANDLE" c"invalid resource handle";
    ILLEGAL_STATE = 401 c"CUDA_ERROR_ILLEGAL_STATE" c"the operation cannot be performed in the present state";
    NOT_FOUND = 500 c"CUDA_ERROR_NOT_FOUND" c"named symbol not found";
    NOT_READY = 600 c"CUDA_ERROR_NOT_READY" c"device not ready";
    ILLEGAL_ADDRESS = 700 c"CUDA_ERROR_ILLEGAL_ADDRESS" c"an illegal memory access was encountered";
    LAUNCH_TIMEOUT = 702 c"CUDA_ERROR_LAUNCH_TIMEOUT" c"the launch timed out and was terminated";
    PEER_ACCESS_ALREADY_ENABLED = 704 c"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED" c"peer access is already enabled";
    LAUNCH_FAILED = 719 c"CUDA_ERROR_LAUNCH_FAILED" c"unspecified launch failure";
    NOT_SUPPORTED = 801 c"CUDA_ERROR_NOT_SUPPORTED" c"operation not supported";
    STREAM_CAPTURE_UNSUPPORTED = 900 c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED" c"operation not permitted when stream is capturing";
    STREAM_CAPTURE_INVALIDATED = 901 c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED" c"operation failed due to a previous error during capture";
    STREAM_CAPTURE_MERGE = 902 c"CUDA_ERROR_STREAM_CAPTURE_MERGE" c"operation would result in a merge of separate capture sequences";
    STREAM_CAPTURE_UNMATCHED = 903 c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED" c"capture was not ended in the same stream as it began";
    STREAM_CAPTURE_UNJOINED = 904 c"CUDA_ERROR_STREAM_CAPTURE_UNJOINED" c"capturing stream has unjoined work";
    STREAM_CAPTURE_ISOLATION = 905 c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION" c"dependency created on uncaptured work in another stream";
    CAPTURED_EVENT = 907 c"CUDA_ERROR_CAPTURED_EVENT" c"operation not permitted on an event last recorded in a capturing stream";
}

/// An asynchronous error of a device, with the status that all later calls return.
#[derive(Debug)]
pub(crate) struct DeviceError {
    pub(crate) status: Status,
    pub(crate) message: String,
}

impl DeviceError {
    pub(crate) fn new(status: Status, message: String) -> Self {
        Self { status, message }
    }

    /// Returns what becomes of work that never ends. It is no error: no call reports it.
    pub(crate) const fn never_ends() -> Self {
        Self { status: Status::NOT_READY, message: String::new() }
    }

    pub(crate) fn is_endless(&self) -> bool {
        self.status == Status::NOT_READY
    }
}
