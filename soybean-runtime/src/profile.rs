//! Where the time of a run goes.

use std::time::Duration;

use soybean_plan::Kernel;

/// The kinds of work of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// Matrix products.
    Contraction,
    /// Fused elementwise kernels.
    Map,
    /// Fused reductions.
    Reduction,
    /// Copies in another order of dims.
    Permutation,
    /// Convolutions and their gradients.
    Convolution,
    /// Pooling and its gradients.
    Pooling,
    /// Windows of tensors, and tensors one after another.
    Copying,
    /// Rows of tables by their numbers, and their gradients.
    Embedding,
    /// Attention and its gradients.
    Attention,
    /// Collectives, with the waiting for other ranks.
    Communication,
}

impl Work {
    /// All kinds, in the order of their declaration.
    pub const ALL: &[Self] = &[
        Self::Contraction,
        Self::Map,
        Self::Reduction,
        Self::Permutation,
        Self::Convolution,
        Self::Pooling,
        Self::Copying,
        Self::Embedding,
        Self::Attention,
        Self::Communication,
    ];

    /// The kind of a kernel's work.
    pub(crate) const fn of(kernel: &Kernel) -> Self {
        match kernel {
            Kernel::Contract(_) => Self::Contraction,
            Kernel::Map(_) => Self::Map,
            Kernel::Reduce(_) => Self::Reduction,
            Kernel::Permute(_) => Self::Permutation,
            Kernel::Convolve(_) => Self::Convolution,
            Kernel::Pool(_) => Self::Pooling,
            Kernel::Pad(_) | Kernel::Concatenate(_) => Self::Copying,
            Kernel::Embed(_) => Self::Embedding,
            Kernel::Attend(_) => Self::Attention,
            Kernel::Communicate(_) => Self::Communication,
        }
    }

    /// The name for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Contraction => "contraction",
            Self::Map => "map",
            Self::Reduction => "reduction",
            Self::Permutation => "permutation",
            Self::Convolution => "convolution",
            Self::Pooling => "pooling",
            Self::Copying => "copying",
            Self::Embedding => "embedding",
            Self::Attention => "attention",
            Self::Communication => "communication",
        }
    }
}

/// The time that one rank spent in training steps and evaluations since the start or the last [`crate::Trainer::reset_profile`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The number of steps and evaluations.
    pub n_steps: u64,
    /// The time of whole steps, feeding and fetching included.
    pub total: Duration,
    /// The time that the host took to hand training steps to a device that runs them by itself; zero on the CPU.
    pub handing_over: Duration,
    spent: [Duration; Work::ALL.len()],
    calls: [u64; Work::ALL.len()],
}

impl Profile {
    /// The time spent in work of this kind.
    #[must_use]
    pub const fn spent(&self, work: Work) -> Duration {
        self.spent[work as usize]
    }

    /// The number of kernels or collectives of this kind that ran.
    #[must_use]
    pub const fn calls(&self, work: Work) -> u64 {
        self.calls[work as usize]
    }

    /// The share of the total that was spent in work of this kind, from 0 to 1.
    #[must_use]
    pub fn share(&self, work: Work) -> f64 {
        self.spent(work).as_secs_f64() / self.total.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// The number of words that hold a profile.
    #[cfg(feature = "mpi")]
    pub(crate) const N_WORDS: usize = 3 + 2 * Work::ALL.len();

    /// The profile as words, times in nanoseconds.
    #[cfg(feature = "mpi")]
    pub(crate) fn words(&self) -> [u64; Self::N_WORDS] {
        let nanoseconds = |it: Duration| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX);
        let mut words = [0; Self::N_WORDS];
        words[0] = self.n_steps;
        words[1] = nanoseconds(self.total);
        words[2] = nanoseconds(self.handing_over);
        let kinds = self.spent.iter().zip(&self.calls);
        for (words, (spent, calls)) in words[3..].chunks_exact_mut(2).zip(kinds) {
            words.copy_from_slice(&[nanoseconds(*spent), *calls]);
        }
        words
    }

    /// The profile of these words.
    #[cfg(feature = "mpi")]
    pub(crate) fn from_words(words: &[u64; Self::N_WORDS]) -> Self {
        Self {
            n_steps: words[0],
            total: Duration::from_nanos(words[1]),
            handing_over: Duration::from_nanos(words[2]),
            spent: std::array::from_fn(|it| Duration::from_nanos(words[3 + 2 * it])),
            calls: std::array::from_fn(|it| words[4 + 2 * it]),
        }
    }

    pub(crate) fn add(&mut self, work: Work, spent: Duration) {
        self.spent[work as usize] += spent;
        self.calls[work as usize] += 1;
    }
}
