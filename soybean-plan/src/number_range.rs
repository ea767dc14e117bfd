//! The ranges of numbers that users set.

use std::fmt;

/// A range of numbers, as kernels take them in single precision. NaN and numbers that are not
/// finite in single precision are in no range.
///
/// ```
/// use soybean_plan::NumberRange;
///
/// assert!(NumberRange::SHARE.contains(0.0) && !NumberRange::SHARE.contains(f64::NAN));
/// let fault = NumberRange::SHARE.check("fraction", 1.5).unwrap_err();
/// assert_eq!(fault, "`fraction` must be a number from 0 to 1, found 1.5");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NumberRange {
    low: Bound,
    high: Bound,
    text: &'static str,
}

/// An end of a range.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    /// This number belongs to the range.
    At(f64),
    /// This number does not.
    Beyond(f64),
    /// The largest numbers of single precision.
    Finite,
}

use Bound::{At, Beyond, Finite};

impl NumberRange {
    /// All numbers.
    pub const FINITE: Self = Self { low: Finite, high: Finite, text: "from -3.4e38 to 3.4e38" };
    /// From 0 on.
    pub const NON_NEGATIVE: Self = Self { low: At(0.0), high: Finite, text: "from 0 to 3.4e38" };
    /// Up to 0.
    pub const NON_POSITIVE: Self = Self { low: Finite, high: At(0.0), text: "from -3.4e38 to 0" };
    /// Above 0.
    pub const POSITIVE: Self = Self {
        low: Beyond(0.0),
        high: Finite,
        text: "above 0 in single precision, so from 1e-45 to 3.4e38",
    };
    /// From 1 on.
    pub const AT_LEAST_ONE: Self = Self { low: At(1.0), high: Finite, text: "from 1 to 3.4e38" };
    /// From 0 to 1.
    pub const SHARE: Self = Self { low: At(0.0), high: At(1.0), text: "from 0 to 1" };
    /// From -1 to 1.
    pub const COSINE: Self = Self { low: At(-1.0), high: At(1.0), text: "from -1 to 1" };
    /// From 0 to below 1.
    pub const BELOW_ONE: Self =
        Self { low: At(0.0), high: Beyond(1.0), text: "from 0 to below 1 in single precision" };
    /// Above 0 and at most 1.
    pub const POSITIVE_SHARE: Self =
        Self { low: Beyond(0.0), high: At(1.0), text: "above 0 and at most 1" };
    /// Above 0 and below 1.
    pub const DECAY: Self = Self {
        low: Beyond(0.0),
        high: Beyond(1.0),
        text: "above 0 and below 1 in single precision",
    };
    /// The lengths whose squares are numbers of single precision above 0.
    pub const LENGTH: Self = Self { low: At(1e-18), high: Finite, text: "from 1e-18 to 3.4e38" };

    /// Returns whether the range has this number.
    #[must_use]
    pub const fn contains(&self, number: f64) -> bool {
        let is_above = match self.low {
            At(low) => number >= low,
            Beyond(low) => single(number) > single(low),
            Finite => true,
        };
        let is_below = match self.high {
            At(high) => number <= high,
            Beyond(high) => single(number) < single(high),
            Finite => true,
        };
        single(number).is_finite() && is_above && is_below
    }

    /// Checks the number of a setting.
    ///
    /// # Errors
    /// If the range does not have it. The message names the setting, the range and the number.
    pub fn check(&self, setting: &str, number: f64) -> Result<(), String> {
        match self.contains(number) {
            true => Ok(()),
            false => Err(format!("`{setting}` must be a number {self}, found {number}")),
        }
    }

    /// Returns numbers that the range does not have, on all sides of it, for tests of settings.
    #[must_use]
    pub fn outside(&self) -> Vec<f64> {
        let below = match self.low {
            At(low) => vec![low - 0.5 * low.abs().max(1e-3), -1e30],
            Beyond(low) => vec![low, -1e30],
            Finite => Vec::new(),
        };
        let above = match self.high {
            At(high) => vec![high + 0.5 * high.abs().max(1e-3), 1e30],
            Beyond(high) => vec![high, 1e30],
            Finite => Vec::new(),
        };
        let never = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e39, -1e39];
        [below, above, never.to_vec()].concat()
    }

    /// Returns numbers of the range, its ends among them, for tests of settings.
    #[must_use]
    pub fn inside(&self) -> Vec<f64> {
        let (low, high) = match (self.low, self.high) {
            (At(low) | Beyond(low), At(high) | Beyond(high)) => (low, high),
            (At(low) | Beyond(low), Finite) => (low, low + 2.0),
            (Finite, At(high) | Beyond(high)) => (high - 2.0, high),
            (Finite, Finite) => (-2.0, 2.0),
        };
        let candidates = [low, 0.5 * (low + high), high];
        candidates.into_iter().filter(|it| self.contains(*it)).collect()
    }
}

impl fmt::Display for NumberRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text)
    }
}

/// Rounds a number to single precision.
#[expect(clippy::cast_possible_truncation, reason = "kernels compute in single precision")]
const fn single(number: f64) -> f32 {
    number as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    // Guards: no range has NaN or what is not finite in single precision, and the ends are those
    // of the text.
    #[test]
    fn ranges_have_their_ends_and_nothing_that_is_not_finite() {
        for range in [
            NumberRange::FINITE,
            NumberRange::NON_NEGATIVE,
            NumberRange::NON_POSITIVE,
            NumberRange::POSITIVE,
            NumberRange::AT_LEAST_ONE,
            NumberRange::SHARE,
            NumberRange::COSINE,
            NumberRange::BELOW_ONE,
            NumberRange::POSITIVE_SHARE,
            NumberRange::DECAY,
            NumberRange::LENGTH,
        ] {
            for number in range.outside() {
                assert!(!range.contains(number), "{number} {range}");
                let fault = range.check("x", number).unwrap_err();
                assert!(fault.contains("`x`") && fault.contains(&format!("{number}")), "{fault}");
            }
            assert!(!range.inside().is_empty());
            assert!(range.inside().iter().all(|it| range.check("x", *it).is_ok()), "{range}");
        }
        assert!(!NumberRange::BELOW_ONE.contains(1.0 - 1e-12), "1 in single precision");
        assert!(!NumberRange::POSITIVE.contains(1e-60), "0 in single precision");
    }
}
