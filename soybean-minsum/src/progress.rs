//! The pace of a search: the progress of the lower bound, and the aims of mini-buckets.

/// The number of passes after which progress is judged.
pub(crate) const N_PASSES: u64 = 4;
/// The number of entries of the first mini-buckets.
const FIRST_BUCKET: u64 = 1 << 14;
/// The factor by which mini-buckets grow.
const BUCKET_GROWTH: u64 = 8;
/// The first aim is above the bound by this fraction of the gap: 1/128.
const FIRST_AIM: i64 = 128;

/// The next aim of mini-buckets.
pub(crate) struct Aim {
    /// The number of entries of a mini-bucket.
    pub(crate) bucket: u64,
    /// The aim is above the bound by 1/`fraction` of the gap.
    fraction: i64,
    /// The lower bound that the last mini-buckets gave for the labels below their aim.
    pub(crate) expected: i64,
}

impl Aim {
    pub(crate) fn new() -> Self {
        Self { bucket: FIRST_BUCKET, fraction: FIRST_AIM, expected: i64::MIN }
    }

    /// Returns the cost to aim at, between the lower bound and the limit.
    pub(crate) fn target(&self, least: i64, most: i64) -> i64 {
        let near = least + ((most - least) / self.fraction).max(1);
        near.max(self.expected).min(most)
    }

    /// Moves the next aim farther away, after the bound rose to the last one.
    pub(crate) fn was_proved(&mut self) {
        self.fraction = (self.fraction / 4).max(1);
    }

    /// Moves the next aim farther away and lets mini-buckets grow, after neither the bound rose to
    /// the last aim nor a better assignment was found.
    pub(crate) fn was_missed(&mut self) {
        self.fraction = (self.fraction / 2).max(1);
        self.bucket *= BUCKET_GROWTH;
    }
}

/// The progress of the lower bound.
pub(crate) struct Progress {
    gap: i64,
    n_passes: u64,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { gap: i64::MAX, n_passes: 0 }
    }

    /// Returns true if the last passes have not closed an eighth of the gap.
    pub(crate) fn is_slow(&mut self, gap: i64) -> bool {
        self.n_passes += 1;
        if self.n_passes < N_PASSES {
            return false;
        }
        let is_slow = gap > self.gap / 8 * 7;
        *self = Self { gap, n_passes: 0 };
        is_slow
    }
}
