//! Bindings of the NCCL functions in use.
//!
//! cudarc binds them too, but the names that it tries do not include `libnccl.so.2`, the file that
//! NVIDIA ships.
#![expect(unsafe_code, reason = "NCCL is a C library")]

use std::ffi::{CStr, c_char, c_int, c_void};

use soybean_plan::{Combine, DType};

use crate::cuda::libraries::LoadedLibrary;

/// `ncclComm_t`: the communicator of one rank.
pub(super) type RawCommunicator = *mut c_void;

/// `ncclResult_t`; 0 for success.
pub(super) type NcclResult = c_int;

/// `ncclInProgress`: work continues in the background.
pub(super) const IN_PROGRESS: NcclResult = 7;

/// `ncclUniqueId`: identifies a group of ranks. One rank creates it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawUniqueId(pub(super) [u8; RawUniqueId::N_BYTES]);

impl RawUniqueId {
    pub(super) const N_BYTES: usize = 128;
}

/// `ncclConfig_t` of version 2.14, which all later versions accept.
#[repr(C)]
pub(super) struct Config {
    size: usize,
    magic: u32,
    version: u32,
    is_blocking: c_int,
    /// Part of a later field. Newer versions ignore it because of the version number.
    unused: u32,
}

impl Config {
    /// Calls do not wait for other processes. Longer work continues in the background.
    pub(super) const NON_BLOCKING: Self = Self {
        size: size_of::<Self>(),
        magic: 0xcafe_beef,
        version: 21_400,
        is_blocking: 0,
        unused: 0,
    };
}

type Pointer = *mut c_void;
/// Parameters: send, receive, count, type, operation, communicator, stream.
pub(super) type Reduce = unsafe extern "C" fn(
    Pointer,
    Pointer,
    usize,
    c_int,
    c_int,
    RawCommunicator,
    Pointer,
) -> NcclResult;

/// Parameters: communicator, group size, id, rank, configuration.
type InitRankConfig = unsafe extern "C" fn(
    *mut RawCommunicator,
    c_int,
    RawUniqueId,
    c_int,
    *const Config,
) -> NcclResult;

/// Functions for non-blocking communicators, which older versions lack.
#[derive(Clone, Copy)]
pub(super) struct NonBlocking {
    /// Starts the initialization of a rank's communicator.
    pub(super) init_rank: InitRankConfig,
    /// Starts to finalize a communicator.
    pub(super) finalize: unsafe extern "C" fn(RawCommunicator) -> NcclResult,
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident: $symbol:literal = fn($($argument:ty),*) -> $result:ty;)*) => {
        /// The loaded library with its functions.
        pub(crate) struct Binding {
            $($(#[$doc])* pub(super) $name: unsafe extern "C" fn($($argument),*) -> $result,)*
            pub(super) non_blocking: Option<NonBlocking>,
            /// Returns the last error as text. Older versions lack it.
            last_error: Option<unsafe extern "C" fn(RawCommunicator) -> *const c_char>,
        }

        impl Binding {
            /// Names of the functions that all versions have.
            pub(crate) const FUNCTIONS: &[&str] = &[$($symbol),*];

            /// Looks up the functions in the library, which has been checked for those.
            pub(crate) fn new(library: &LoadedLibrary) -> Self {
                $(
                    // SAFETY: the type matches the function in NCCL's header.
                    let $name = unsafe { library.function($symbol) };
                )*
                // SAFETY: as above.
                let last_error = unsafe { library.function("ncclGetLastError") };
                // SAFETY: as above.
                let init_rank = unsafe { library.function("ncclCommInitRankConfig") };
                // SAFETY: as above.
                let finalize = unsafe { library.function("ncclCommFinalize") };
                let non_blocking = init_rank.zip(finalize);
                let non_blocking = non_blocking.map(|(init_rank, finalize)| NonBlocking { init_rank, finalize });
                $(let $name = $name.expect("it was found when the library was opened");)*
                Self { $($name,)* non_blocking, last_error }
            }
        }
    };
}

functions! {
    /// Returns the name of a result.
    error_string: "ncclGetErrorString" = fn(NcclResult) -> *const c_char;
    /// Creates a new unique id.
    unique_id: "ncclGetUniqueId" = fn(*mut RawUniqueId) -> NcclResult;
    /// Initializes a rank's communicator on the current device and waits for all ranks. Its calls
    /// block. Parameters: communicator, group size, id, rank.
    init_rank: "ncclCommInitRank" = fn(*mut RawCommunicator, c_int, RawUniqueId, c_int) -> NcclResult;
    /// Destroys a communicator after its work is complete.
    destroy: "ncclCommDestroy" = fn(RawCommunicator) -> NcclResult;
    /// Aborts a communicator and its work.
    abort: "ncclCommAbort" = fn(RawCommunicator) -> NcclResult;
    /// Writes the first asynchronous error.
    async_error: "ncclCommGetAsyncError" = fn(RawCommunicator, *mut NcclResult) -> NcclResult;
    /// Starts a group of calls.
    group_start: "ncclGroupStart" = fn() -> NcclResult;
    /// Submits the calls of the group.
    group_end: "ncclGroupEnd" = fn() -> NcclResult;
    /// Parameters: send, receive, count, type, operation, communicator, stream.
    all_reduce: "ncclAllReduce" = fn(Pointer, Pointer, usize, c_int, c_int, RawCommunicator, Pointer) -> NcclResult;
    /// Parameters: send, receive, count, type, communicator, stream.
    all_gather: "ncclAllGather" = fn(Pointer, Pointer, usize, c_int, RawCommunicator, Pointer) -> NcclResult;
    /// Parameters: send, receive, count, type, operation, communicator, stream.
    reduce_scatter: "ncclReduceScatter" = fn(Pointer, Pointer, usize, c_int, c_int, RawCommunicator, Pointer) -> NcclResult;
    /// Parameters: send, count, type, peer, communicator, stream.
    send: "ncclSend" = fn(Pointer, usize, c_int, c_int, RawCommunicator, Pointer) -> NcclResult;
    /// Parameters: receive, count, type, peer, communicator, stream.
    receive: "ncclRecv" = fn(Pointer, usize, c_int, c_int, RawCommunicator, Pointer) -> NcclResult;
}

impl Binding {
    /// Returns the text of an error.
    pub(super) fn error_text(&self, result: NcclResult) -> String {
        // SAFETY: returns a static C string.
        let name = text(unsafe { (self.error_string)(result) });
        // SAFETY: without a communicator it returns the text of this thread's last error.
        let last = self.last_error.map(|it| text(unsafe { it(std::ptr::null_mut()) }));
        match last.filter(|it| !it.is_empty()) {
            Some(last) => format!("{name}: {last}"),
            None => name,
        }
    }
}

/// Converts a text of NCCL. Empty for a null pointer.
fn text(start: *const c_char) -> String {
    if start.is_null() {
        return String::new();
    }
    // SAFETY: NCCL's texts are null-terminated and do not change before the next error.
    unsafe { CStr::from_ptr(start) }.to_string_lossy().trim().to_owned()
}

/// Returns the value of `ncclDataType_t`.
pub(super) fn data_type(dtype: DType) -> c_int {
    match dtype {
        DType::I32 => 2,
        DType::F32 => 7,
        DType::Bf16 => 9,
    }
}

/// Returns the value of `ncclRedOp_t`.
pub(super) fn reduce_op(combine: Combine) -> c_int {
    match combine {
        Combine::Sum => 0,
        Combine::Max => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::headers::Asserts;

    #[test]
    fn numbers_are_those_of_the_header() {
        let mut asserts = Asserts::about("nccl.h");
        asserts.equal("ncclInProgress", IN_PROGRESS);
        asserts.equal("ncclInt32", data_type(DType::I32));
        asserts.equal("ncclFloat32", data_type(DType::F32));
        asserts.equal("ncclBfloat16", data_type(DType::Bf16));
        asserts.equal("ncclSum", reduce_op(Combine::Sum));
        asserts.equal("ncclMax", reduce_op(Combine::Max));
        asserts.equal("sizeof(ncclUniqueId)", size_of::<RawUniqueId>());
        // The header's struct has further fields, which NCCL sets by the version.
        let Config { magic, version, .. } = Config::NON_BLOCKING;
        asserts.equal("ncclConfig_t(NCCL_CONFIG_INITIALIZER).magic", magic);
        asserts.equal("NCCL_VERSION(2, 14, 0)", version);
        asserts.equal("offsetof(ncclConfig_t, size)", std::mem::offset_of!(Config, size));
        asserts.equal("offsetof(ncclConfig_t, magic)", std::mem::offset_of!(Config, magic));
        asserts.equal("offsetof(ncclConfig_t, version)", std::mem::offset_of!(Config, version));
        let blocking = std::mem::offset_of!(Config, is_blocking);
        asserts.equal("offsetof(ncclConfig_t, blocking)", blocking);
        asserts.check("nccl");
    }
}
