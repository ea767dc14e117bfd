//! Generated kernels: functions, and the operations that run them.

use soybean_plan::{DType, Kernel, Precision};

/// A kernel, with the element types of its buffers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// The types of the buffers that it reads.
    pub inputs: &'a [DType],
    /// The types of the buffers that it writes.
    pub results: &'a [DType],
    /// The precision of products.
    pub precision: Precision,
}

/// A kernel as CUDA C, and the operations that run it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Generated {
    /// The functions, which rely on [`prelude`](crate::prelude()) alone.
    pub text: String,
    /// The operations, one after another.
    pub operations: Vec<Operation>,
    /// The bytes of scratch space that the operations use.
    pub workspace_bytes: usize,
}

/// One operation on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Runs a function.
    Launch(Launch),
    /// Fills memory with a byte.
    Fill {
        /// The start.
        target: Address,
        /// The number of bytes.
        n_bytes: usize,
        /// The value of each byte.
        value: u8,
    },
}

/// A function, its threads, and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The name of the function.
    pub function: String,
    /// The number of blocks, along x, y and z.
    pub grid: [u32; 3],
    /// The threads of a block, along x.
    pub block: u32,
    /// The dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// The arguments, all of them pointers.
    pub arguments: Vec<Address>,
}

/// An address on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// The start of an input of the kernel.
    Input(usize),
    /// The start of a result of the kernel.
    Result(usize),
    /// The run-time scalars of the program, as `f32`.
    Scalars,
    /// The word of the checked result of this number: `u32::MAX` less the number of its first
    /// element that is not finite, or 0.
    FirstNonFinite(usize),
    /// An offset in the workspace in bytes, a multiple of 256.
    Workspace(usize),
}

/// A kernel that can be written as CUDA C.
///
/// Each file of this crate that is named after a kernel implements it for that descriptor.
pub(crate) trait CudaKernel {
    /// Returns the functions and the operations that run them. The names of all functions begin
    /// with `prefix`.
    ///
    /// Returns none for kernels that only libraries compute.
    fn generate(&self, call: &Call<'_>, prefix: &str) -> Option<Generated>;

    /// Returns the number of variants, which compute the same in other tiles.
    fn n_variants(&self, _call: &Call<'_>) -> usize {
        1
    }

    /// Returns the functions and operations of a variant; of [`Self::generate`] for the first.
    fn generate_variant(
        &self,
        call: &Call<'_>,
        _variant: usize,
        prefix: &str,
    ) -> Option<Generated> {
        self.generate(call, prefix)
    }
}

macro_rules! generate_any {
    ($($file:ident: $variant:ident($($type:ident),*),)*) => {
        /// Returns the text of a kernel. The names of all its functions begin with `prefix`.
        ///
        /// Returns none for collectives, and for products that only libraries compute.
        #[must_use]
        pub fn generate(call: &Call<'_>, prefix: &str) -> Option<Generated> {
            generate_variant(call, 0, prefix)
        }

        /// Returns the number of variants of a kernel: texts that compute the same in other tiles.
        /// Which is the fastest depends on the GPU. Last bits of results may differ.
        #[must_use]
        pub fn n_variants(call: &Call<'_>) -> usize {
            match call.kernel {
                $(Kernel::$variant(it) => it.n_variants(call),)*
                Kernel::Communicate(_) => 1,
            }
        }

        /// Returns the text of a variant of a kernel, as [`generate`] does for the first.
        #[must_use]
        pub fn generate_variant(
            call: &Call<'_>,
            variant: usize,
            prefix: &str,
        ) -> Option<Generated> {
            match call.kernel {
                $(Kernel::$variant(it) => it.generate_variant(call, variant, prefix),)*
                Kernel::Communicate(_) => None,
            }
        }
    };
}

soybean_plan::for_each_kernel!(generate_any);
