//! The traits of a device, as one rank uses it.

use soybean_plan::BufferId;

use crate::Error;

/// Device memory that the host writes, as one 4-byte word for each element. Elements of 2 bytes are
/// rounded.
pub(crate) trait Upload {
    /// Replaces the elements of a buffer by those that `fill` writes.
    fn upload(&mut self, buffer: BufferId, fill: &mut dyn FnMut(&mut [u32])) -> Result<(), Error>;
}

/// Device memory that the host reads, as one 4-byte word for each element. Elements of 2 bytes are
/// converted to `f32`.
pub(crate) trait Download {
    /// Calls `read` with the elements of a buffer, after all kernels that were queued before.
    fn download(&mut self, buffer: BufferId, read: &mut dyn FnMut(&[u32])) -> Result<(), Error>;
}

/// The kernels of one rank, by their numbers in the model's list. The implementation prepared them
/// when it was created.
pub(crate) trait Kernels {
    /// Runs a kernel that is not a collective.
    fn run(
        &mut self,
        kernel: usize,
        inputs: &[BufferId],
        results: &[BufferId],
    ) -> Result<(), Error>;

    /// Returns NaN if a buffer has one, otherwise its first infinity. Devices that only record
    /// their calls have no numbers.
    fn non_finite(&mut self, buffer: BufferId) -> Result<Option<f32>, Error>;
}

/// The collectives of one rank. All ranks of a group make the same calls in the same order.
pub(crate) trait Communicator {
    /// Runs the collectives with this kernel number, each from its input to its result. Returns the
    /// bytes that this rank received from others.
    fn communicate(
        &mut self,
        kernel: usize,
        inputs: &[BufferId],
        results: &[BufferId],
    ) -> Result<u64, Error>;
}
