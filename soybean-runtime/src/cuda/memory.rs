//! Memory of GPUs, and memory of the host that they read and write by themselves.
#![expect(unsafe_code, reason = "the driver is a C library")]

use std::{ptr::NonNull, sync::Arc};

use cudarc::driver::{DriverError, result, sys};

use super::{gpu::Gpu, stream::Stream};
use crate::{Error, ErrorKind};

/// A block of a GPU's memory.
pub(crate) struct DeviceMemory {
    gpu: Arc<Gpu>,
    start: sys::CUdeviceptr,
    n_bytes: usize,
}

impl DeviceMemory {
    /// A block of zeros; `what` names it where there is not enough memory.
    pub(crate) fn zeroed(gpu: &Arc<Gpu>, n_bytes: usize, what: &str) -> Result<Self, Error> {
        gpu.bind()?;
        let n_bytes = n_bytes.max(1);
        // SAFETY: freed when dropped.
        let start = match unsafe { result::malloc_sync(n_bytes) } {
            Ok(start) => start,
            Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => {
                let (free, all) = (gpu.free_bytes().unwrap_or(0), gpu.memory_bytes);
                let message = format!(
                    "{what}: expected {n_bytes} bytes on {gpu:?}, found {free} of {all} free"
                );
                return Err(Error::new(ErrorKind::Device, message));
            }
            Err(error) => return Err(gpu.fault(what, error)),
        };
        let memory = Self { gpu: Arc::clone(gpu), start, n_bytes };
        // SAFETY: the block has this many bytes.
        unsafe { result::memset_d8_sync(start, 0, n_bytes) }
            .map_err(|error| gpu.fault(what, error))?;
        memory.settle()?;
        Ok(memory)
    }

    /// The address of a byte of it.
    pub(crate) fn address(&self, offset: usize) -> sys::CUdeviceptr {
        debug_assert!(offset <= self.n_bytes, "within the block");
        self.start + offset as u64
    }

    /// Copies words there and waits until they are.
    pub(crate) fn write<T: Copy>(&self, offset: usize, from: &[T]) -> Result<(), Error> {
        self.check(offset, size_of_val(from))?;
        // SAFETY: the stretch lies within the block.
        unsafe { result::memcpy_htod_sync(self.address(offset), from) }
            .map_err(|error| self.gpu.fault("copying to the device", error))?;
        self.settle()
    }

    /// Copies words from there, after all work so far on this GPU's streams has been waited for.
    pub(crate) fn read<T: Copy>(&self, offset: usize, to: &mut [T]) -> Result<(), Error> {
        self.check(offset, size_of_val(to))?;
        // SAFETY: the stretch lies within the block, and numbers may have any bits.
        unsafe { result::memcpy_dtoh_sync(to, self.address(offset)) }
            .map_err(|error| self.gpu.fault("copying from the device", error))
    }

    /// Waits until the memory is as it was last set or written: these calls of the driver return when the host's part is done, and streams of ours do not wait for the rest.
    fn settle(&self) -> Result<(), Error> {
        // SAFETY: no handle stands for the stream that these calls use.
        unsafe { result::stream::synchronize(std::ptr::null_mut()) }
            .map_err(|error| self.gpu.fault("waiting for a copy to the device", error))
    }

    fn check(&self, offset: usize, n_bytes: usize) -> Result<(), Error> {
        self.gpu.bind()?;
        if offset.checked_add(n_bytes).is_some_and(|end| end <= self.n_bytes) {
            return Ok(());
        }
        let n_there = self.n_bytes;
        let message =
            format!("expected a stretch within {n_there} bytes, found {n_bytes} from {offset}");
        Err(Error::new(ErrorKind::Program, message))
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: allocated in `zeroed`. After a fatal error the driver refuses, and there is nothing left to free.
            let _refused = unsafe { result::free_sync(self.start) };
        }
    }
}

/// Words of the host's memory that stay in place, so that GPUs copy them while the host goes on.
pub(crate) struct PinnedWords {
    gpu: Arc<Gpu>,
    start: NonNull<u32>,
    n_words: usize,
}

// SAFETY: the words belong to this value alone.
unsafe impl Send for PinnedWords {}

impl PinnedWords {
    /// This many words, all zero.
    pub(crate) fn zeroed(gpu: &Arc<Gpu>, n_words: usize) -> Result<Self, Error> {
        gpu.bind()?;
        let n_bytes = n_words.max(1) * 4;
        // The host reads and writes them, so they are cached, and every context may use them.
        // SAFETY: freed when dropped.
        let start = unsafe { result::malloc_host(n_bytes, sys::CU_MEMHOSTALLOC_PORTABLE) }
            .map_err(|error| gpu.fault("pinning memory of the host", error))?;
        let start = NonNull::new(start.cast::<u32>()).ok_or_else(|| {
            Error::new(ErrorKind::Device, format!("expected {n_bytes} bytes of pinned memory"))
        })?;
        // SAFETY: the memory has just been allocated with this size, aligned to pages.
        unsafe { start.write_bytes(0, n_words.max(1)) };
        Ok(Self { gpu: Arc::clone(gpu), start, n_words })
    }

    /// The words.
    ///
    /// # Safety
    /// No GPU writes them.
    pub(crate) unsafe fn words(&self) -> &[u32] {
        // SAFETY: they are there and initialised; the caller vouches for the rest.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.n_words) }
    }

    /// The words, to be written.
    ///
    /// # Safety
    /// No GPU reads or writes them.
    pub(crate) unsafe fn words_mut(&mut self) -> &mut [u32] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.n_words) }
    }

    /// Copies the first words to a device when the stream comes to it.
    ///
    /// # Safety
    /// There are as many at `to`, of the stream's GPU. Until the copy has run the words stay as they are, and this value lives.
    pub(crate) unsafe fn copy_to(
        &self,
        to: sys::CUdeviceptr,
        n_words: usize,
        stream: &Stream,
    ) -> Result<(), Error> {
        let raw = stream.raw()?;
        // SAFETY: they are there and initialised.
        let words =
            unsafe { std::slice::from_raw_parts(self.start.as_ptr(), n_words.min(self.n_words)) };
        // SAFETY: required of the caller.
        unsafe { result::memcpy_htod_async(to, words, raw) }
            .map_err(|error| self.gpu.fault("copying to the device", error))
    }

    /// Fills the words from a device when the stream comes to it.
    ///
    /// # Safety
    /// There are as many at `from`, of the stream's GPU. Until the copy has run nobody touches the words, and this value lives.
    pub(crate) unsafe fn copy_from(
        &self,
        from: sys::CUdeviceptr,
        stream: &Stream,
    ) -> Result<(), Error> {
        let raw = stream.raw()?;
        // SAFETY: they are there and initialised; the caller says that nobody else uses them.
        let words = unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.n_words) };
        // SAFETY: required of the caller.
        unsafe { result::memcpy_dtoh_async(words, from, raw) }
            .map_err(|error| self.gpu.fault("copying from the device", error))
    }
}

impl Drop for PinnedWords {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: allocated in `zeroed`. After a fatal error the driver refuses, and there is nothing left to free.
            let _refused = unsafe { result::free_host(self.start.as_ptr().cast()) };
        }
    }
}

/// Sets bytes when the stream comes to it.
///
/// # Safety
/// They are there, of the stream's GPU, and stay until they are set.
pub(crate) unsafe fn fill(
    stream: &Stream,
    to: sys::CUdeviceptr,
    value: u8,
    n_bytes: usize,
) -> Result<(), Error> {
    let raw = stream.raw()?;
    // SAFETY: required of the caller.
    unsafe { result::memset_d8_async(to, value, n_bytes, raw) }
        .map_err(|error| stream.gpu.fault("setting memory", error))
}

/// Copies bytes within a GPU when the stream comes to it.
///
/// # Safety
/// Both stretches are there, of the stream's GPU, do not overlap, and stay until they are copied.
pub(crate) unsafe fn copy(
    stream: &Stream,
    to: sys::CUdeviceptr,
    from: sys::CUdeviceptr,
    n_bytes: usize,
) -> Result<(), Error> {
    let raw = stream.raw()?;
    // SAFETY: required of the caller.
    unsafe { result::memcpy_dtod_async(to, from, n_bytes, raw) }
        .map_err(|error| stream.gpu.fault("copying on the device", error))
}
