//! The functions of NCCL that are used.
//!
//! cudarc has them too, but looks for a file that NVIDIA does not ship: `libnccl.so.2` is not among the names that it tries.
#![expect(unsafe_code, reason = "NCCL is a C library")]

use std::ffi::{CStr, c_char, c_int, c_void};

use libloading::Library;
use soybean_plan::{Combine, DType};

/// A rank's part of a clique.
pub(super) type RawCommunicator = *mut c_void;

/// What a function returns; 0 for success.
pub(super) type NcclResult = c_int;

/// A communicator works on something in the background.
pub(super) const IN_PROGRESS: NcclResult = 7;

/// What the members of a clique know it by; made by one of them.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawUniqueId(pub(super) [u8; RawUniqueId::N_BYTES]);

impl RawUniqueId {
    pub(super) const N_BYTES: usize = 128;
}

/// How communicators are made: as version 2.14 knows them, which all later ones take.
#[repr(C)]
pub(super) struct Config {
    size: usize,
    magic: u32,
    version: u32,
    is_blocking: c_int,
    /// Later versions have something else here, and know by the version that this is nothing.
    unused: u32,
}

impl Config {
    /// No call waits for another process; what takes longer goes on in the background.
    pub(super) const NON_BLOCKING: Self = Self {
        size: size_of::<Self>(),
        magic: 0xcafe_beef,
        version: 21_400,
        is_blocking: 0,
        unused: 0,
    };
}

type Pointer = *mut c_void;
/// Sends, receives, count, type, operation, communicator, stream.
pub(super) type Reduce = unsafe extern "C" fn(
    Pointer,
    Pointer,
    usize,
    c_int,
    c_int,
    RawCommunicator,
    Pointer,
) -> NcclResult;

/// RawCommunicator, members, id, number of the member, settings.
type InitRankConfig = unsafe extern "C" fn(
    *mut RawCommunicator,
    c_int,
    RawUniqueId,
    c_int,
    *const Config,
) -> NcclResult;

/// What communicators that never wait for other processes have of their own; older versions have none.
#[derive(Clone, Copy)]
pub(super) struct NonBlocking {
    /// Begins to make a member's communicator.
    pub(super) init_rank: InitRankConfig,
    /// Begins to end a communicator whose work is done.
    pub(super) finalize: unsafe extern "C" fn(RawCommunicator) -> NcclResult,
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident: $symbol:literal = fn($($argument:ty),*) -> $result:ty;)*) => {
        /// NCCL, open as long as this is there.
        pub(crate) struct Binding {
            $($(#[$doc])* pub(super) $name: unsafe extern "C" fn($($argument),*) -> $result,)*
            pub(super) non_blocking: Option<NonBlocking>,
            /// What was said last, in words; older versions say nothing.
            last_error: Option<unsafe extern "C" fn(RawCommunicator) -> *const c_char>,
            _library: Library,
        }

        impl Binding {
            /// Finds the functions in the library.
            ///
            /// # Errors
            /// Names a function that it lacks.
            pub(crate) fn new(library: Library) -> Result<Self, String> {
                $(
                    // SAFETY: the type is that of the function in NCCL's header.
                    let found = unsafe { library.get::<unsafe extern "C" fn($($argument),*) -> $result>($symbol) };
                    let $name = *found.map_err(|_| format!("NCCL: expected {} in the library, found no such function", $symbol))?;
                )*
                // SAFETY: as above.
                let found = unsafe { library.get::<unsafe extern "C" fn(RawCommunicator) -> *const c_char>("ncclGetLastError") };
                let last_error = found.ok().map(|it| *it);
                // SAFETY: as above.
                let init_rank = unsafe { library.get::<InitRankConfig>("ncclCommInitRankConfig") };
                // SAFETY: as above.
                let finalize = unsafe { library.get::<unsafe extern "C" fn(RawCommunicator) -> NcclResult>("ncclCommFinalize") };
                let non_blocking = init_rank.ok().zip(finalize.ok());
                let non_blocking = non_blocking.map(|(init_rank, finalize)| NonBlocking { init_rank: *init_rank, finalize: *finalize });
                Ok(Self { $($name,)* non_blocking, last_error, _library: library })
            }
        }
    };
}

functions! {
    /// Writes the version.
    version: "ncclGetVersion" = fn(*mut c_int) -> NcclResult;
    /// The name of an outcome.
    outcome_text: "ncclGetErrorString" = fn(NcclResult) -> *const c_char;
    /// Writes an id that no other clique has.
    unique_id: "ncclGetUniqueId" = fn(*mut RawUniqueId) -> NcclResult;
    /// Makes a member's communicator, on the device whose context is current, and waits for all other members: communicator, members, id, number of the member.
    init_rank: "ncclCommInitRank" = fn(*mut RawCommunicator, c_int, RawUniqueId, c_int) -> NcclResult;
    /// Ends a communicator whose work is done.
    destroy: "ncclCommDestroy" = fn(RawCommunicator) -> NcclResult;
    /// Ends a communicator and its work.
    abort: "ncclCommAbort" = fn(RawCommunicator) -> NcclResult;
    /// Writes what has gone wrong since.
    async_error: "ncclCommGetAsyncError" = fn(RawCommunicator, *mut NcclResult) -> NcclResult;
    /// Calls from here on are made together.
    group_start: "ncclGroupStart" = fn() -> NcclResult;
    /// Makes the calls.
    group_end: "ncclGroupEnd" = fn() -> NcclResult;
    /// Sends, receives, count, type, operation, communicator, stream.
    all_reduce: "ncclAllReduce" = fn(Pointer, Pointer, usize, c_int, c_int, RawCommunicator, Pointer) -> NcclResult;
    /// Sends, receives, count, type, communicator, stream.
    all_gather: "ncclAllGather" = fn(Pointer, Pointer, usize, c_int, RawCommunicator, Pointer) -> NcclResult;
    /// Sends, receives, count, type, operation, communicator, stream.
    reduce_scatter: "ncclReduceScatter" = fn(Pointer, Pointer, usize, c_int, c_int, RawCommunicator, Pointer) -> NcclResult;
    /// Sends, count, type, peer, communicator, stream.
    send: "ncclSend" = fn(Pointer, usize, c_int, c_int, RawCommunicator, Pointer) -> NcclResult;
    /// Receives, count, type, peer, communicator, stream.
    receive: "ncclRecv" = fn(Pointer, usize, c_int, c_int, RawCommunicator, Pointer) -> NcclResult;
}

impl Binding {
    /// The version as NCCL counts: 22809 is 2.28.9.
    pub(crate) fn version_number(&self) -> Option<usize> {
        let mut version = 0;
        // SAFETY: the result is a place of this function.
        let asked = unsafe { (self.version)(&mut version) };
        usize::try_from(version).ok().filter(|_| asked == 0)
    }

    /// What NCCL says of a failure.
    pub(super) fn explain(&self, outcome: NcclResult) -> String {
        // SAFETY: gives a text that stays.
        let name = text(unsafe { (self.outcome_text)(outcome) });
        // SAFETY: without a communicator it gives the text of this thread's last failure.
        let last = self.last_error.map(|it| text(unsafe { it(std::ptr::null_mut()) }));
        match last.filter(|it| !it.is_empty()) {
            Some(last) => format!("{name}: {last}"),
            None => name,
        }
    }
}

/// A text of NCCL's; empty if there is none.
fn text(start: *const c_char) -> String {
    if start.is_null() {
        return String::new();
    }
    // SAFETY: NCCL's texts end in zero bytes and are not changed before the next failure.
    unsafe { CStr::from_ptr(start) }.to_string_lossy().trim().to_owned()
}

/// The number of an element type in NCCL's header.
pub(super) fn type_number(dtype: DType) -> c_int {
    match dtype {
        DType::I32 => 2,
        DType::F32 => 7,
        DType::Bf16 => 9,
    }
}

/// The number of an operation in NCCL's header.
pub(super) fn operation_number(combine: Combine) -> c_int {
    match combine {
        Combine::Sum => 0,
        Combine::Max => 2,
    }
}
