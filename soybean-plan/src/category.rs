//! Categories of kernels, by which profiles and traces sum up time.

macro_rules! categories {
    ($($(#[$note:meta])* $category:ident = $name:literal,)*) => {
        /// The category of a kernel in profiles and traces.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum KernelCategory { $($(#[$note])* $category,)* }

        impl KernelCategory {
            /// All categories, in the order of their declaration.
            pub const ALL: &[Self] = &[$(Self::$category,)*];

            /// Returns the name in profiles.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$category => $name,)* }
            }
        }
    };
}

categories! {
    /// Matrix products.
    Contraction = "contraction",
    /// Fused elementwise kernels.
    Map = "map",
    /// Fused reductions.
    Reduction = "reduction",
    /// Copies with another order of dims.
    Permutation = "permutation",
    /// Convolutions and their gradients.
    Convolution = "convolution",
    /// Pooling and its gradients.
    Pooling = "pooling",
    /// Copies of windows of tensors, and concatenation.
    Copying = "copying",
    /// Lookups in embedding tables and their gradients.
    Embedding = "embedding",
    /// Elements by their indices along a dim, and places in the order of sizes.
    Indexing = "indexing",
    /// Attention and its gradients.
    Attention = "attention",
    /// Operators that users define.
    Custom = "custom",
    /// Collectives, with the time spent waiting for other ranks.
    Communication = "communication",
}
