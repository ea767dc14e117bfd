//! Kernels: the computations of one rank over its own buffers.
//!
//! All shapes are local and all strides are in elements. A kernel is declared in one file of this
//! folder and in one line of [`for_each_kernel`]. The declaration owns its fields, its name, its
//! text form, its cost and its reference implementation.

use std::fmt;

use crate::{
    Bucket, Collective, CollectiveKind, KernelCategory, WorkKind,
    const_expression::{ConstExpression, wrapper_expression},
};

/// Passes the list of all kernels that one rank runs by itself to a macro.
///
/// Each line has the file of a kernel, its variant of [`Kernel`], and its descriptor. Other types
/// that the same file declares for the descriptor follow. Crates that do something for every kernel
/// generate their dispatch from this list, so the compiler reports a missing implementation.
#[macro_export]
macro_rules! for_each_kernel {
    ($macro:ident) => {
        $macro! {
            contraction: Contract(Contraction, MatrixStrides),
            map: Map(Map),
            reduction: Reduce(Reduction),
            row_fusion: FuseRows(RowFusion, RowStage, RowStageForm),
            permutation: Permute(Permutation),
            convolution: Convolve(Convolution, ConvolutionForm, ImageLayout),
            pooling: Pool(Pooling, PoolingForm),
            padding: Pad(Padding),
            concatenation: Concatenate(Concatenation),
            embedding: Embed(Embedding, EmbeddingForm),
            embedding_update: UpdateEmbedding(EmbeddingUpdate),
            indexing: Index(Indexing, IndexingForm),
            ranking: Rank(Ranking, RankingForm),
            attention: Attend(Attention, AttentionForm, AttentionBias, AttentionLayout, ScoreFunction),
            custom: Custom(Custom, HostFunction, TensorMut, TensorRef),
        }
    };
}

/// The properties that every kernel declares about itself.
///
/// [`Display`](fmt::Display) is its text form in programs.
pub trait KernelDescriptor: fmt::Display + ConstExpression {
    /// Returns the name in messages.
    fn name(&self) -> &'static str;

    /// Returns the name of the computation, if the descriptor has several.
    fn form(&self) -> &'static str {
        self.name()
    }

    /// Returns the category in profiles.
    fn category(&self) -> KernelCategory;

    /// Returns the kind of units that the kernel computes with.
    fn work_kind(&self) -> WorkKind;

    /// Returns the number of floating-point operations.
    ///
    /// A multiplication and an addition are two; a function of a number is one.
    fn n_operations(&self) -> u64;

    /// Returns the bytes read and written, given the bytes of all operands and results.
    fn bytes_touched(&self, bytes: u64) -> u64 {
        bytes
    }

    /// Computes the results from the inputs in double precision, as plainly as possible.
    ///
    /// Tests compare the implementations for devices with it. Inputs and results are elements in
    /// the order of memory; `scalars` are the run-time scalars of the program.
    fn evaluate(&self, inputs: &[&[f64]], scalars: &[f64]) -> Vec<Vec<f64>>;
}

macro_rules! kernel_enum {
    ($($file:ident: $variant:ident($descriptor:ident $(, $part:ident)*),)*) => {
        $(
            mod $file;
            pub use $file::{$descriptor $(, $part)*};
        )*
        pub use custom::CustomFunction;

        /// The computation of a rank in one step of a program.
        ///
        /// The buffers that it reads and writes are listed in the [`Step`](crate::Step).
        #[derive(Clone, Debug, PartialEq)]
        pub enum Kernel {
            $(#[doc = concat!("See [`", stringify!($descriptor), "`].")] $variant($descriptor),)*
            /// Reads tensors in the tilings before; no result is a buffer that it reads.
            Communicate(Bucket),
        }

        impl Kernel {
            /// The names of all types that descriptors of kernels contain.
            pub const TYPES: &[&str] =
                &[$(stringify!($descriptor), $(stringify!($part),)*)*
                    "Bucket", "Collective"];

            /// Returns the descriptor of a kernel that a rank runs by itself, none for collectives.
            #[must_use]
            pub fn local(&self) -> Option<&dyn KernelDescriptor> {
                match self {
                    $(Self::$variant(it) => Some(it),)*
                    Self::Communicate(_) => None,
                }
            }
        }

        $(impl From<$descriptor> for Kernel {
            fn from(descriptor: $descriptor) -> Self {
                Self::$variant(descriptor)
            }
        })*

        impl fmt::Display for Kernel {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant(it) => it.fmt(f),)*
                    Self::Communicate(it) => it.fmt(f),
                }
            }
        }

        wrapper_expression!(Kernel { $($variant)* Communicate });
    };
}

for_each_kernel!(kernel_enum);

impl From<Bucket> for Kernel {
    fn from(bucket: Bucket) -> Self {
        Self::Communicate(bucket)
    }
}

impl From<Collective> for Kernel {
    fn from(collective: Collective) -> Self {
        Self::Communicate(collective.into())
    }
}

impl Kernel {
    /// Returns the number of the kernel in a list, to which it is added if it is not there.
    #[must_use]
    pub fn number_in(self, kernels: &mut Vec<Self>) -> usize {
        kernels.iter().position(|it| *it == self).unwrap_or_else(|| {
            kernels.push(self);
            kernels.len() - 1
        })
    }

    /// Returns the name of the kind of kernel.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.local().map_or("communication", KernelDescriptor::name)
    }

    /// Returns the name of the computation, by which measured times are looked up:
    /// `contraction`, `max-pool-gradient`, `all-reduce`.
    #[must_use]
    pub fn form(&self) -> &'static str {
        match self {
            Self::Communicate(it) => it.kind().name(),
            _ => self.local().map_or("communication", KernelDescriptor::form),
        }
    }

    /// Returns the category in profiles.
    #[must_use]
    pub fn category(&self) -> KernelCategory {
        self.local().map_or(KernelCategory::Communication, KernelDescriptor::category)
    }

    /// Returns the kind of units that the kernel computes with.
    #[must_use]
    pub fn work_kind(&self) -> WorkKind {
        self.local().map_or(WorkKind::Other, KernelDescriptor::work_kind)
    }

    /// Returns the number of floating-point operations.
    ///
    /// A multiplication and an addition are two; a function of a number is one.
    #[must_use]
    pub fn n_operations(&self) -> u64 {
        self.local().map_or(0, KernelDescriptor::n_operations)
    }

    /// Returns the bucket if the kernel moves data between ranks; slices move none.
    #[must_use]
    pub fn transfer(&self) -> Option<&Bucket> {
        match self {
            Self::Communicate(bucket) if bucket.kind() != CollectiveKind::Slice => Some(bucket),
            _ => None,
        }
    }
}
