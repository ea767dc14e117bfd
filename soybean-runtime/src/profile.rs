//! Profiles: the time that each category of kernels takes.

use std::time::Duration;

use soybean_plan::KernelCategory;

/// The time that one rank spent in training steps and evaluations since the start or the last
/// [`crate::Trainer::reset_profile`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The number of steps and evaluations.
    pub n_steps: u64,
    /// The time of whole steps, including input and output.
    pub total: Duration,
    /// The time that the host took to submit training steps to a device that runs them
    /// asynchronously; zero on the CPU.
    pub handing_over: Duration,
    spent: [Duration; KernelCategory::ALL.len()],
    calls: [u64; KernelCategory::ALL.len()],
}

impl Profile {
    /// Returns the time spent in kernels of this category.
    #[must_use]
    pub const fn spent(&self, work: KernelCategory) -> Duration {
        self.spent[work as usize]
    }

    /// Returns the number of kernels or collectives of this category that ran.
    #[must_use]
    pub const fn calls(&self, work: KernelCategory) -> u64 {
        self.calls[work as usize]
    }

    /// Returns the share of the total that was spent in kernels of this category, from 0 to 1.
    #[must_use]
    pub fn share(&self, work: KernelCategory) -> f64 {
        self.spent(work).as_secs_f64() / self.total.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// The number of words of a serialized profile.
    #[cfg(feature = "mpi")]
    pub(crate) const N_WORDS: usize = 3 + 2 * KernelCategory::ALL.len();

    /// Returns the profile as words, with times in nanoseconds.
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

    /// Returns the profile of these words.
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

    pub(crate) fn add(&mut self, work: KernelCategory, spent: Duration) {
        self.spent[work as usize] += spent;
        self.calls[work as usize] += 1;
    }
}
