//! Random numbers of rows, which depend on the pass over the data.

use soybean_plan::random::{mixed, next_state};

/// A pass over the data: the epoch, and the seed of the run.
///
/// Datasets whose rows differ from pass to pass compute them from this and the number of the row
/// alone. Then the rows do not depend on threads, processes and devices, and a run that resumes in
/// the middle of an epoch reads the same ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// The epoch, from 0.
    pub epoch: u64,
    /// The seed of all epochs.
    pub seed: u64,
}

impl Pass {
    /// Returns the random numbers of a row in this pass. Different streams are independent, so two
    /// random changes of the same row take one each.
    ///
    /// ```
    /// use soybean_data::Pass;
    ///
    /// let pass = Pass { epoch: 3, seed: 7 };
    /// assert_eq!(pass.random(0, 12).bits(), pass.random(0, 12).bits());
    /// assert_ne!(pass.random(0, 12).bits(), pass.random(1, 12).bits());
    /// ```
    #[must_use]
    pub const fn random(self, stream: u64, row: usize) -> RowRandom {
        let key = mixed(mixed(self.seed).wrapping_add(self.epoch));
        RowRandom { state: mixed(mixed(key.wrapping_add(stream)).wrapping_add(row as u64)) }
    }
}

/// Random numbers of one row, as [`Pass::random`] returns them.
#[derive(Clone, Debug)]
pub struct RowRandom {
    state: u64,
}

impl RowRandom {
    /// Returns 64 random bits.
    pub const fn bits(&mut self) -> u64 {
        let bits = mixed(self.state);
        self.state = next_state(self.state);
        bits
    }

    /// Returns a whole number in `0..bound`, or 0 if `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        // The high half of the product is below the bound. Source: Lemire 2019.
        #[expect(clippy::cast_possible_truncation, reason = "below a `usize`")]
        let number = ((u128::from(self.bits()) * bound as u128) >> 64) as usize;
        number
    }

    /// Returns a number from 0 up to, but not including, 1.
    pub fn uniform(&mut self) -> f32 {
        // The 24 high bits are exact in single precision.
        (self.bits() >> 40) as f32 / (1 << 24) as f32
    }

    /// Returns a number of the standard normal distribution, by the method of Box and Muller.
    pub fn normal(&mut self) -> f32 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f32::consts::TAU * self.uniform()).cos()
    }

    /// Returns a number from 0 to 1 of the distribution Beta(`alpha`, `alpha`), or 0 or 1 if
    /// `alpha` is not above 0.
    pub fn beta(&mut self, alpha: f32) -> f32 {
        let (one, other) = (self.gamma(alpha), self.gamma(alpha));
        let total = one + other;
        // Both numbers may be too small for double precision.
        if total > 0.0 {
            #[expect(clippy::cast_possible_truncation, reason = "rounded to single precision")]
            let share = (one / total) as f32;
            share
        } else {
            f32::from(u8::from(self.chance(0.5)))
        }
    }

    /// Returns a number of the Gamma distribution of this shape. Source: Marsaglia & Tsang 2000.
    fn gamma(&mut self, shape: f32) -> f64 {
        let shape = f64::from(shape);
        if shape <= 0.0 {
            return 0.0;
        }
        if shape < 1.0 {
            // x u^(1/a) has the shape `a`, if x has the shape a + 1.
            let power = (1.0 - f64::from(self.uniform())).powf(1.0 / shape);
            return power * self.large_gamma(shape + 1.0);
        }
        self.large_gamma(shape)
    }

    /// Returns a number of the Gamma distribution of a shape of at least 1.
    fn large_gamma(&mut self, shape: f64) -> f64 {
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = f64::from(self.normal());
            let v = (1.0 + c * x).powi(3);
            let u = 1.0 - f64::from(self.uniform());
            if v > 0.0 && u.ln() < 0.5 * x * x + d * (1.0 - v + v.ln()) {
                return d * v;
            }
        }
    }

    /// Returns true with this probability.
    pub fn chance(&mut self, probability: f32) -> bool {
        self.uniform() < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_depend_on_seed_epoch_stream_and_row() {
        let first = |seed, epoch, stream, row| Pass { epoch, seed }.random(stream, row).bits();
        let all = [0_u64, 1, 2, 4, 8, 3, 6, 12, 9].map(|bits| {
            let row = usize::from(bits & 8 > 0);
            first(bits & 1, bits >> 1 & 1, bits >> 2 & 1, row)
        });
        for (position, one) in all.iter().enumerate() {
            assert!(!all[..position].contains(one));
        }
        assert_eq!(first(3, 2, 1, 0), first(3, 2, 1, 0));
    }

    #[test]
    fn numbers_have_their_distributions() {
        let mut random = Pass { epoch: 0, seed: 7 }.random(0, 0);
        let (mut uniform, mut square, mut n_below) = (0.0, 0.0, [0; 3]);
        for _ in 0..30_000 {
            uniform += f64::from(random.uniform());
            square += f64::from(random.normal()).powi(2);
            n_below[random.below(3)] += 1;
        }
        // The deviations of the means are 0.0017 and 0.008, that of the counts is 82.
        assert!((uniform / 30_000.0 - 0.5).abs() < 0.01);
        assert!((square / 30_000.0 - 1.0).abs() < 0.05);
        assert!(n_below.iter().all(|it| (9_500..10_500).contains(it)), "{n_below:?}");
        assert_eq!(random.below(0), 0);
    }
    #[test]
    fn shares_have_the_variance_of_their_distribution() {
        let mut random = Pass { epoch: 0, seed: 7 }.random(0, 0);
        for alpha in [0.2_f32, 1.0, 4.0] {
            let shares: Vec<f64> = (0..30_000).map(|_| f64::from(random.beta(alpha))).collect();
            assert!(shares.iter().all(|it| (0.0..=1.0).contains(it)));
            let mean = shares.iter().sum::<f64>() / 30_000.0;
            let variance = shares.iter().map(|it| (it - mean).powi(2)).sum::<f64>() / 30_000.0;
            // The variance is 1 / (4 (2 alpha + 1)), at most 0.18. The deviation of the mean is at
            // most 0.0025, and that of the variance less.
            assert!((mean - 0.5).abs() < 0.01, "{alpha}: {mean}");
            let expected = 0.25 / (2.0 * f64::from(alpha) + 1.0);
            assert!((variance - expected).abs() < 0.01, "{alpha}: {variance}, not {expected}");
        }
        assert!((0..100).all(|_| [0.0, 1.0].contains(&random.beta(0.0))));
        assert!((0..100).all(|_| (0.0..=1.0).contains(&random.beta(1e-30))));
    }
}
