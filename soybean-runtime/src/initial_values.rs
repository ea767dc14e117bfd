//! Initial values of parameters. They depend only on the seed, the parameter and the element, so
//! they are the same for every tiling.

use std::f64::consts::TAU;

use soybean_plan::{Init, random::mixed};

/// The random stream of one parameter.
#[derive(Clone, Copy)]
pub(crate) struct RandomStream {
    key: u64,
}

impl RandomStream {
    /// Creates the stream of parameter `number` for a seed.
    pub(crate) const fn new(seed: u64, number: usize) -> Self {
        Self { key: mixed(mixed(seed ^ 0x5079_6265_616e_5eed).wrapping_add(number as u64)) }
    }

    /// Returns the initial value of element `index` of the whole parameter.
    pub(crate) fn value(self, init: Init, index: usize) -> f32 {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "rounded to the precision of parameters"
        )]
        match init {
            Init::Constant(value) => value as f32,
            Init::Normal { mean, std } => (mean + std * self.normal(index)) as f32,
            Init::TruncatedNormal { mean, std } => {
                (mean + std * self.truncated_normal(index)) as f32
            }
            Init::Uniform { low, high } => {
                let value = (low + (high - low) * self.uniform(index, 0)) as f32;
                // Rounding may yield the upper bound, which is excluded.
                if f64::from(value) < high { value } else { low as f32 }
            }
        }
    }

    /// Returns a uniform number in `0..1`, with 53 bits.
    fn uniform(self, index: usize, draw: u64) -> f64 {
        let word = mixed(self.key ^ mixed((index as u64) << 1 | draw));
        (word >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a standard normal number, by the Box-Muller transform.
    fn normal(self, index: usize) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform(index, 0)).ln()).sqrt();
        radius * (TAU * self.uniform(index, 1)).cos()
    }

    /// Returns a standard normal number within two standard deviations, by rejection. 19 of 20
    /// numbers are accepted.
    fn truncated_normal(self, index: usize) -> f64 {
        let mut stream = self;
        loop {
            let value = stream.normal(index);
            if value.abs() <= 2.0 {
                return value;
            }
            stream = Self { key: mixed(stream.key) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normals_and_uniforms_have_their_moments() {
        let stream = RandomStream::new(1, 2);
        let n = 100_000;
        let check = |init, mean: f64, std: f64| {
            let values: Vec<f64> = (0..n).map(|it| f64::from(stream.value(init, it))).collect();
            let found = values.iter().sum::<f64>() / f64::from(100_000);
            let variance =
                values.iter().map(|it| (it - found).powi(2)).sum::<f64>() / f64::from(100_000);
            // Tolerances are five standard errors of the mean, and about as many of the deviation.
            assert!((found - mean).abs() < 0.016 * std, "{init:?}: mean {found}");
            assert!((variance.sqrt() / std - 1.0).abs() < 0.012, "{init:?}: variance {variance}");
        };
        check(Init::Normal { mean: 1.0, std: 2.0 }, 1.0, 2.0);
        check(Init::Uniform { low: -1.0, high: 3.0 }, 1.0, 4.0 / 12_f64.sqrt());
        // 1 - 4 phi(2) / (2 Phi(2) - 1), with the density phi and the distribution Phi of the
        // standard normal.
        let truncated = Init::TruncatedNormal { mean: 1.0, std: 0.5 };
        check(truncated, 1.0, 0.5 * 0.773_741_f64.sqrt());
        assert!((0..n).all(|it| (stream.value(truncated, it) - 1.0).abs() <= 1.0));
        assert_eq!(stream.value(Init::Constant(0.5), 7), 0.5);
        let other = RandomStream::new(1, 3).value(Init::Uniform { low: 0.0, high: 1.0 }, 0);
        assert_ne!(stream.value(Init::Uniform { low: 0.0, high: 1.0 }, 0), other);
    }
}
