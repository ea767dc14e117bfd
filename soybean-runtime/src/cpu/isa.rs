//! Instruction sets, detected at run time, so that a plain build uses what the processor supports.

/// The widest vector instructions that the processor supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isa {
    /// The instructions that every processor of the architecture supports.
    Baseline,
    /// 8 lanes and fused multiply-add.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 16 lanes and fused multiply-add.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Isa {
    /// Returns the best instruction set of this processor.
    pub(crate) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let has_avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            let has_avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            if has_avx2 && has_avx512 {
                return Self::Avx512;
            }
            if has_avx2 {
                return Self::Avx2;
            }
        }
        Self::Baseline
    }

    /// Returns all instruction sets of this processor, for tests that compare them.
    #[cfg(test)]
    pub(crate) fn all() -> Vec<Self> {
        #[cfg(target_arch = "x86_64")]
        match Self::detect() {
            Self::Baseline => vec![Self::Baseline],
            Self::Avx2 => vec![Self::Baseline, Self::Avx2],
            Self::Avx512 => vec![Self::Baseline, Self::Avx2, Self::Avx512],
        }
        #[cfg(not(target_arch = "x86_64"))]
        vec![Self::Baseline]
    }
}

/// Compiles one function body for every instruction set, and returns the pointer to the right
/// version.
///
/// The body is an `#[inline(always)]` function whose first type parameter says whether multiply-add
/// is one instruction.
macro_rules! for_each_isa {
    ($(#[$doc:meta])* $visibility:vis $choose:ident [$($generics:tt)*] [$($names:tt)*] $pointer:ty, $body:ident ($($argument:ident: $type:ty),*)) => {
        $(#[$doc])*
        $visibility fn $choose<$($generics)*>(isa: Isa) -> $pointer {
            /// # Safety
            /// As the body.
            unsafe fn baseline<$($generics)*>($($argument: $type),*) {
                // SAFETY: passed on to the caller.
                unsafe { $body::<Separate, $($names)*>($($argument),*) }
            }
            /// # Safety
            /// As the body, and the processor has these features.
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            unsafe fn avx2<$($generics)*>($($argument: $type),*) {
                // SAFETY: passed on to the caller.
                unsafe { $body::<Fused, $($names)*>($($argument),*) }
            }
            /// # Safety
            /// As the body, and the processor has these features.
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
            unsafe fn avx512<$($generics)*>($($argument: $type),*) {
                // SAFETY: passed on to the caller.
                unsafe { $body::<Fused, $($names)*>($($argument),*) }
            }
            match isa {
                Isa::Baseline => baseline::<$($names)*>,
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => avx2::<$($names)*>,
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => avx512::<$($names)*>,
            }
        }
    };
}
pub(crate) use for_each_isa;
