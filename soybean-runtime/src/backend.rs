//! What a device must be able to do for one rank.

use soybean_plan::BufferId;

use crate::Error;

/// Memory that the host writes: 4-byte words, one for each element; elements of 2 bytes are rounded on the way.
pub(crate) trait Upload {
    /// Lets `fill` write the elements of a buffer.
    fn upload(&mut self, buffer: BufferId, fill: &mut dyn FnMut(&mut [u32])) -> Result<(), Error>;
}

/// Memory that the host reads: 4-byte words, one for each element; elements of 2 bytes are widened to `f32` on the way.
pub(crate) trait Download {
    /// Lets `read` see the elements of a buffer, after all kernels so far.
    fn download(&mut self, buffer: BufferId, read: &mut dyn FnMut(&[u32])) -> Result<(), Error>;
}

/// The kernels of one rank. They go by their numbers in the model's list, from which the implementation prepared them when it was made.
pub(crate) trait Kernels {
    /// Runs a kernel, of any kind but a collective.
    fn run(
        &mut self,
        kernel: usize,
        inputs: &[BufferId],
        results: &[BufferId],
    ) -> Result<(), Error>;
}

/// How one rank takes part in collectives. Every rank of the group makes the same calls in the same order.
pub(crate) trait Communicator {
    /// Runs the collective that is the kernel with this number; returns the bytes that this rank received from others.
    fn communicate(
        &mut self,
        kernel: usize,
        input: BufferId,
        result: BufferId,
    ) -> Result<u64, Error>;
}
