//! Requirements of candidates besides speed. Each candidate runs once for each of them before any
//! is timed.

use crate::{Error, cuda::memory::DeviceMemory};

/// A property of results. Numbers are those of blocks of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Requirement {
    /// NaN in all operands gives NaN at the start of the result. Some algorithms that apply ReLU
    /// make 0 of it, but the loss should tell that a model has diverged.
    KeepsNan { result: usize },
    /// Products of numbers in `f32` have all their bits. An engine of cuDNN 9.14 for gradients of
    /// filters is too fast for that, although its notes say nothing of tensor cores.
    KeepsSinglePrecision { operands: [usize; 2], result: usize },
}

/// The mantissa of this number has 12 bits, and that of `tf32` has 10.
const NUMBER: f32 = 1.0 + 1.0 / 4096.0;
/// Less than `tf32` changes the number, and more than all other ways to compute.
const TOLERANCE: f32 = 1.0 / 16384.0;
/// Elements at the start of the blocks that are written and read.
const MAX_ELEMENTS: usize = 1 << 18;

impl Requirement {
    /// Returns what tells kernels with this requirement from others.
    pub(super) const fn key(self) -> &'static str {
        match self {
            Self::KeepsNan { .. } => " keeps NaN",
            Self::KeepsSinglePrecision { .. } => " keeps f32",
        }
    }

    /// Writes the operands.
    pub(super) fn prepare(self, blocks: &[DeviceMemory]) -> Result<(), Error> {
        match self {
            // All bits of a number are 1 in these bytes, which is NaN in every type.
            Self::KeepsNan { .. } => blocks.iter().try_for_each(|it| it.fill(u8::MAX)),
            // Each sum has at most one term other than 0, so its order does not matter.
            Self::KeepsSinglePrecision { operands: [numbers, one], .. } => {
                blocks.iter().try_for_each(|it| it.fill(0))?;
                blocks[numbers].write(0, &vec![NUMBER; n_elements(&blocks[numbers])])?;
                blocks[one].write(0, &[1.0_f32])
            }
        }
    }

    /// Returns true if the result has the property. A result of zeros alone tells nothing about
    /// single precision, and is accepted.
    pub(super) fn is_met(self, blocks: &[DeviceMemory]) -> Result<bool, Error> {
        match self {
            Self::KeepsNan { result } => {
                let mut first = vec![0_u8; blocks[result].n_bytes().min(size_of::<f32>())];
                blocks[result].read(0, &mut first)?;
                Ok(first.iter().any(|it| *it != 0))
            }
            Self::KeepsSinglePrecision { result, .. } => {
                let mut found = vec![0.0_f32; n_elements(&blocks[result])];
                blocks[result].read(0, &mut found)?;
                let is_right = |it: f32| it.abs() < 0.5 || (it - NUMBER).abs() < TOLERANCE;
                Ok(found.into_iter().all(is_right))
            }
        }
    }
}

/// Returns the number of elements in `f32` that are written or read.
fn n_elements(block: &DeviceMemory) -> usize {
    MAX_ELEMENTS.min(block.n_bytes() / size_of::<f32>())
}
