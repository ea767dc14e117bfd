//! What a device must be able to do. The CPU is one implementation; whatever runs programs knows only these traits.

use soybean_plan::BufferId;

use crate::Error;

/// The memory and the kernels of one rank. Kernels go by their numbers in the model's list, from which the implementation prepared them when it was made.
pub(crate) trait Backend {
    /// Lets `fill` write the elements of a buffer, as 4-byte words.
    fn upload(&mut self, buffer: BufferId, fill: &mut dyn FnMut(&mut [u32])) -> Result<(), Error>;

    /// Lets `read` see the elements of a buffer, as 4-byte words, after all kernels so far.
    fn download(&mut self, buffer: BufferId, read: &mut dyn FnMut(&[u32])) -> Result<(), Error>;

    /// The values of the program's run-time scalars from here on.
    fn set_scalars(&mut self, scalars: &[f32]);

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
