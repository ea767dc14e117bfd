//! Device memory and pinned host memory.
#![expect(unsafe_code, reason = "the driver is a C library")]

use std::{ops::Range, ptr::NonNull, sync::Arc};

use cudarc::driver::{DriverError, result, sys};

use super::{capture_lock::not_capturing, gpu::Gpu, stream::Stream};
use crate::{Error, ErrorKind};

/// An allocation of device memory.
pub(crate) struct DeviceMemory {
    gpu: Arc<Gpu>,
    start: sys::CUdeviceptr,
    n_bytes: usize,
}

impl DeviceMemory {
    /// Allocates zeroed memory. `what` names it in the error if memory runs out.
    pub(crate) fn zeroed(gpu: &Arc<Gpu>, n_bytes: usize, what: &str) -> Result<Self, Error> {
        gpu.bind()?;
        let n_bytes = n_bytes.max(1);
        let allocated = {
            let _no_capture = not_capturing();
            // SAFETY: freed when dropped.
            unsafe { result::malloc_sync(n_bytes) }
        };
        let start = match allocated {
            Ok(start) => start,
            Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => {
                let (free, all) = (gpu.free_bytes().unwrap_or(0), gpu.memory_bytes);
                let message = format!(
                    "{what}: expected {n_bytes} bytes on {gpu:?}, found {free} of {all} free"
                );
                return Err(Error::new(ErrorKind::Device, message));
            }
            Err(error) => return Err(gpu.error(what, error)),
        };
        let memory = Self { gpu: Arc::clone(gpu), start, n_bytes };
        memory.fill(0)?;
        Ok(memory)
    }

    /// Sets all bytes. All earlier work on the memory must be complete.
    pub(crate) fn fill(&self, byte: u8) -> Result<(), Error> {
        self.gpu.bind()?;
        // SAFETY: the allocation has this many bytes.
        unsafe { result::memset_d8_sync(self.start, byte, self.n_bytes) }
            .map_err(|error| self.gpu.error("setting memory", error))?;
        self.wait_for_default_stream()
    }

    /// Repeats a pattern from start to end. All earlier work on the memory must be complete.
    pub(crate) fn repeat(&self, pattern: &[u8]) -> Result<(), Error> {
        let mut n_written = pattern.len().min(self.n_bytes);
        self.write(0, &pattern[..n_written])?;
        while n_written > 0 && n_written < self.n_bytes {
            let n_copied = n_written.min(self.n_bytes - n_written);
            // SAFETY: both ranges lie within the allocation, and the second follows the first.
            unsafe { result::memcpy_dtod_sync(self.address(n_written), self.start, n_copied) }
                .map_err(|error| self.gpu.error("copying on the device", error))?;
            n_written += n_copied;
        }
        self.wait_for_default_stream()
    }

    /// Returns the size in bytes.
    pub(crate) const fn n_bytes(&self) -> usize {
        self.n_bytes
    }

    /// Returns the device address of a byte offset.
    pub(crate) fn address(&self, offset: usize) -> sys::CUdeviceptr {
        debug_assert!(offset <= self.n_bytes, "within the block");
        self.start + offset as u64
    }

    /// Copies values to the device and waits for the copy.
    pub(crate) fn write<T: Copy>(&self, offset: usize, from: &[T]) -> Result<(), Error> {
        self.check(offset, size_of_val(from))?;
        // SAFETY: the range lies within the allocation.
        unsafe { result::memcpy_htod_sync(self.address(offset), from) }
            .map_err(|error| self.gpu.error("copying to the device", error))?;
        self.wait_for_default_stream()
    }

    /// Copies values from the device. All earlier work on its streams must be complete.
    pub(crate) fn read<T: Copy>(&self, offset: usize, to: &mut [T]) -> Result<(), Error> {
        self.check(offset, size_of_val(to))?;
        // SAFETY: the range lies within the allocation, and numbers may have any bits.
        unsafe { result::memcpy_dtoh_sync(to, self.address(offset)) }
            .map_err(|error| self.gpu.error("copying from the device", error))
    }

    /// Waits until a synchronous write or memset has reached the device. These driver calls may
    /// return earlier, and non-blocking streams do not wait for the null stream.
    fn wait_for_default_stream(&self) -> Result<(), Error> {
        // SAFETY: the null handle is the default stream.
        unsafe { result::stream::synchronize(std::ptr::null_mut()) }
            .map_err(|error| self.gpu.error("waiting for a copy to the device", error))
    }

    fn check(&self, offset: usize, n_bytes: usize) -> Result<(), Error> {
        self.gpu.bind()?;
        if offset.checked_add(n_bytes).is_some_and(|end| end <= self.n_bytes) {
            return Ok(());
        }
        let n_there = self.n_bytes;
        let message =
            format!("expected a range within {n_there} bytes, found {n_bytes} from {offset}");
        Err(Error::new(ErrorKind::Program, message))
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            let _no_capture = not_capturing();
            // SAFETY: allocated in `zeroed`. After a fatal error the driver refuses, and there is
            // nothing left to free.
            let _refused = unsafe { result::free_sync(self.start) };
        }
    }
}

/// Pinned host memory, which GPUs access while the host continues.
pub(crate) struct PinnedWords {
    gpu: Arc<Gpu>,
    start: NonNull<u32>,
    n_words: usize,
}

// SAFETY: this value owns the memory.
unsafe impl Send for PinnedWords {}
// SAFETY: shared values only read the words or queue copies, and their callers rule out races.
unsafe impl Sync for PinnedWords {}

impl PinnedWords {
    /// Allocates zeroed words.
    pub(crate) fn zeroed(gpu: &Arc<Gpu>, n_words: usize) -> Result<Self, Error> {
        gpu.bind()?;
        let n_bytes = n_words.max(1) * 4;
        let _no_capture = not_capturing();
        // The host reads and writes the words, so they are cached. All contexts may use them.
        // SAFETY: freed when dropped.
        let start = unsafe { result::malloc_host(n_bytes, sys::CU_MEMHOSTALLOC_PORTABLE) }
            .map_err(|error| gpu.error("allocating pinned memory", error))?;
        let start = NonNull::new(start.cast::<u32>()).ok_or_else(|| {
            Error::new(ErrorKind::Device, format!("expected {n_bytes} bytes of pinned memory"))
        })?;
        // SAFETY: the memory was just allocated with this size, aligned to pages.
        unsafe { start.write_bytes(0, n_words.max(1)) };
        Ok(Self { gpu: Arc::clone(gpu), start, n_words })
    }

    /// Returns the words.
    ///
    /// # Safety
    /// No GPU writes them.
    pub(crate) unsafe fn words(&self) -> &[u32] {
        // SAFETY: the words are initialized; the rest is required of the caller.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.n_words) }
    }

    /// Returns the words for writing.
    ///
    /// # Safety
    /// No GPU reads or writes them.
    pub(crate) unsafe fn words_mut(&mut self) -> &mut [u32] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.n_words) }
    }

    /// Queues a copy of a range of the words to the device.
    ///
    /// # Safety
    /// The memory at `to` belongs to the stream's GPU and has that many words. Until the copy
    /// completes, the words do not change, and this value lives.
    ///
    /// # Panics
    /// If the words end before the range does.
    pub(crate) unsafe fn copy_to(
        &self,
        to: sys::CUdeviceptr,
        range: Range<usize>,
        stream: &Stream,
    ) -> Result<(), Error> {
        let raw = stream.raw()?;
        // SAFETY: the words are initialized.
        let words = unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.n_words) };
        let words = &words[range];
        // SAFETY: required of the caller.
        unsafe { result::memcpy_htod_async(to, words, raw) }
            .map_err(|error| self.gpu.error("copying to the device", error))
    }

    /// Queues a copy from the device into the words.
    ///
    /// # Safety
    /// The memory at `from` belongs to the stream's GPU and has that many words. Until the copy
    /// completes, nothing accesses the words, and this value lives.
    pub(crate) unsafe fn copy_from(
        &self,
        from: sys::CUdeviceptr,
        stream: &Stream,
    ) -> Result<(), Error> {
        let raw = stream.raw()?;
        // SAFETY: the words are initialized; exclusive access is required of the caller.
        let words = unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.n_words) };
        // SAFETY: required of the caller.
        unsafe { result::memcpy_dtoh_async(words, from, raw) }
            .map_err(|error| self.gpu.error("copying from the device", error))
    }
}

impl Drop for PinnedWords {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            let _no_capture = not_capturing();
            // SAFETY: allocated in `zeroed`. After a fatal error the driver refuses, and there is
            // nothing left to free.
            let _refused = unsafe { result::free_host(self.start.as_ptr().cast()) };
        }
    }
}

/// Queues a memset.
///
/// # Safety
/// The memory belongs to the stream's GPU and stays allocated until the memset completes.
pub(crate) unsafe fn fill(
    stream: &Stream,
    to: sys::CUdeviceptr,
    value: u8,
    n_bytes: usize,
) -> Result<(), Error> {
    let raw = stream.raw()?;
    // SAFETY: required of the caller.
    unsafe { result::memset_d8_async(to, value, n_bytes, raw) }
        .map_err(|error| stream.gpu.error("setting memory", error))
}

/// Queues a copy within a GPU.
///
/// # Safety
/// Both ranges belong to the stream's GPU, do not overlap, and stay allocated until the copy
/// completes.
pub(crate) unsafe fn copy(
    stream: &Stream,
    to: sys::CUdeviceptr,
    from: sys::CUdeviceptr,
    n_bytes: usize,
) -> Result<(), Error> {
    let raw = stream.raw()?;
    // SAFETY: required of the caller.
    unsafe { result::memcpy_dtod_async(to, from, n_bytes, raw) }
        .map_err(|error| stream.gpu.error("copying on the device", error))
}

#[cfg(test)]
mod tests {
    use soybean_fake_cuda::virtual_gpus::on_virtual_gpus;

    use super::*;
    use crate::cuda::host_tensor::gpus;

    #[test]
    fn patterns_are_repeated_to_the_end() {
        on_virtual_gpus("cuda::memory::tests::patterns_are_repeated_to_the_end", &[], |_| {
            let pattern = [1_u8, 2, 3];
            for n_bytes in [1, 2, 3, 4, 7, 24, 25] {
                let memory = DeviceMemory::zeroed(&gpus(1)[0], n_bytes, "a block").unwrap();
                memory.repeat(&pattern).unwrap();
                let mut found = vec![0; n_bytes];
                memory.read(0, &mut found).unwrap();
                assert!(found.iter().eq(pattern.iter().cycle().take(n_bytes)), "{found:?}");
            }
        });
    }
}
