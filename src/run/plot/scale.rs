//! Scales: positions of numbers along an axis, and round numbers for its ticks.

/// The least number of ticks, if the range has as many round numbers.
const MIN_TICKS: f64 = 4.0;
/// The largest number of ticks of a logarithmic scale.
const MAX_TICKS: usize = 7;

/// The progression of a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progression {
    /// Equal distances are equal differences.
    Linear,
    /// Equal distances are equal ratios, if all numbers are positive.
    Logarithmic,
}

/// An axis from a least to a greatest number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    progression: Progression,
}

/// A round number on an axis, with its text.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    pub(super) value: f64,
    pub(super) label: String,
}

impl Scale {
    /// Returns the linear scale of a range.
    pub(super) const fn of_range(low: f64, high: f64) -> Self {
        Self { low, high, progression: Progression::Linear }
    }

    /// Returns a scale with some space around these numbers.
    pub(super) fn around(values: impl Iterator<Item = f64>, progression: Progression) -> Self {
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |range, it| {
            (range.0.min(it), range.1.max(it))
        });
        if progression == Progression::Logarithmic && low > 0.0 {
            let ratio = (high / low).powf(0.05).max(1.01);
            return Self { low: low / ratio, high: high * ratio, progression };
        }
        // A constant curve is drawn in the middle.
        let least = match high {
            0.0 => 1e-6,
            _ if high == low => 0.1 * high.abs(),
            _ => 1e-3 * high.abs(),
        };
        let margin = (0.05 * (high - low)).max(least);
        Self::of_range(low - margin, high + margin)
    }

    /// Returns the position of a number: 0 at the low end, 1 at the high one.
    pub(super) fn position(&self, value: f64) -> f64 {
        match self.progression {
            Progression::Linear => (value - self.low) / (self.high - self.low),
            Progression::Logarithmic => (value / self.low).ln() / (self.high / self.low).ln(),
        }
    }

    /// Returns ticks, no two of which have the same text.
    pub(super) fn ticks(&self) -> Vec<Tick> {
        match self.progression {
            Progression::Linear => self.even_ticks(),
            Progression::Logarithmic => {
                // The digits of each power of ten, from many to few.
                let ticks = [&[1, 2, 5][..], &[1, 3], &[1]].map(|digits| self.decades(digits, 1));
                let few = |it: &Vec<Tick>| it.len() <= MAX_TICKS;
                match ticks.into_iter().find(few) {
                    Some(ticks) if ticks.len() < 3 => self.even_ticks(),
                    Some(ticks) => ticks,
                    None => self.wide_decades(),
                }
            }
        }
    }

    /// Returns multiples of a round number.
    #[expect(clippy::cast_possible_truncation, reason = "an axis has few ticks")]
    fn even_ticks(&self) -> Vec<Tick> {
        let range = self.high - self.low;
        let power = exponent(range / MIN_TICKS);
        let unit = 10_f64.powi(power);
        let fits = |it: &i64| range / (*it as f64 * unit) >= MIN_TICKS;
        let digit = [5, 2].into_iter().find(fits).unwrap_or(1);
        let step = digit as f64 * unit;
        let (first, last) = ((self.low / step).ceil() as i64, (self.high / step).floor() as i64);
        let notation = match self.low.abs().max(self.high.abs()) {
            largest if largest < 1e-3 || power > 4 => Notation::Scientific,
            _ => Notation::Decimal,
        };
        (first..=last).map(|it| Tick::new(it * digit, power, notation)).collect()
    }

    /// Returns these digits times every `n`-th power of ten.
    fn decades(&self, digits: &[i64], n: usize) -> Vec<Tick> {
        let powers = (exponent(self.low)..=exponent(self.high)).step_by(n);
        let tick = |digit: i64, power: i32| {
            let is_short = (-4..=4).contains(&power);
            let notation = if is_short { Notation::Decimal } else { Notation::Scientific };
            Tick::new(digit, power, notation)
        };
        let ticks = powers.flat_map(|power| digits.iter().map(move |it| tick(*it, power)));
        ticks.filter(|it| (self.low..=self.high).contains(&it.value)).collect()
    }

    fn wide_decades(&self) -> Vec<Tick> {
        let ticks = (2..).map(|n| self.decades(&[1], n)).find(|it| it.len() <= MAX_TICKS);
        ticks.expect("a large distance leaves few ticks")
    }
}

/// Returns the power of ten at or below a positive number.
#[expect(clippy::cast_possible_truncation, reason = "powers of f64 are small numbers")]
fn exponent(value: f64) -> i32 {
    value.log10().floor() as i32
}

/// The form of a number as text.
#[derive(Clone, Copy)]
enum Notation {
    /// `0.05`.
    Decimal,
    /// `5e-2`.
    Scientific,
}

impl Tick {
    /// Returns the tick at `digits * 10^power`.
    fn new(digits: i64, power: i32, notation: Notation) -> Self {
        let text = format!("{digits}e{power}");
        let value: f64 = text.parse().expect("these are a number's digits");
        let n_decimals = usize::try_from(-power).unwrap_or(0);
        let label = match notation {
            _ if digits == 0 => "0".to_owned(),
            Notation::Decimal => format!("{value:.n_decimals$}"),
            Notation::Scientific => format!("{value:e}"),
        };
        Self { value, label }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(low: f64, high: f64, progression: Progression, expected: &[&str]) {
        let ticks = Scale { low, high, progression }.ticks();
        let labels: Vec<&str> = ticks.iter().map(|it| it.label.as_str()).collect();
        assert_eq!(labels, expected, "{low} to {high}");
    }

    #[test]
    fn ticks_are_round_numbers() {
        use Progression::{Linear, Logarithmic};
        check(0.0, 1000.0, Linear, &["0", "200", "400", "600", "800", "1000"]);
        check(0.0, 7.0, Linear, &["0", "1", "2", "3", "4", "5", "6", "7"]);
        check(0.0, 1.0, Linear, &["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        check(-0.1, 0.25, Linear, &["-0.10", "-0.05", "0", "0.05", "0.10", "0.15", "0.20", "0.25"]);
        check(
            0.9995,
            1.0011,
            Linear,
            &["0.9996", "0.9998", "1.0000", "1.0002", "1.0004", "1.0006", "1.0008", "1.0010"],
        );
        check(9.9e-6, 1.21e-5, Linear, &["1e-5", "1.05e-5", "1.1e-5", "1.15e-5", "1.2e-5"]);
        check(0.0, 2e6, Linear, &["0", "5e5", "1e6", "1.5e6", "2e6"]);
        check(0.15, 3.0, Logarithmic, &["0.2", "0.5", "1", "2"]);
        check(1e-4, 9.0, Logarithmic, &["0.0001", "0.001", "0.01", "0.1", "1"]);
        check(0.05, 20.0, Logarithmic, &["0.1", "0.3", "1", "3", "10"]);
        check(0.61, 0.72, Logarithmic, &["0.62", "0.64", "0.66", "0.68", "0.70", "0.72"]);
        let wide = ["1e-22", "1e-14", "1e-6", "100", "1e10", "1e18", "1e26"];
        check(2e-30, 5e30, Logarithmic, &wide);
        check(0.01989, 0.02011, Linear, &["0.01990", "0.01995", "0.02000", "0.02005", "0.02010"]);
    }

    #[test]
    fn no_two_ticks_have_the_same_text() {
        for power in -12..12 {
            for (low, width) in [(0.0, 1.0), (1.0, 0.01), (0.3, 2.7), (7.0, 90.0)] {
                for progression in [Progression::Linear, Progression::Logarithmic] {
                    let unit = 10_f64.powi(power);
                    let values = [low * unit, (low + width) * unit];
                    let ticks = Scale::around(values.into_iter(), progression).ticks();
                    assert!((2..=12).contains(&ticks.len()), "{values:?}: {ticks:?}");
                    let mut labels: Vec<&String> = ticks.iter().map(|it| &it.label).collect();
                    labels.dedup();
                    assert_eq!(labels.len(), ticks.len(), "{values:?}: {ticks:?}");
                }
            }
        }
    }

    #[test]
    fn positions_are_from_0_to_1() {
        let scale = Scale::around([0.1, 10.0].into_iter(), Progression::Logarithmic);
        assert!((scale.position(1.0) - 0.5).abs() < 1e-12);
        let scale = Scale::around([0.0, 10.0].into_iter(), Progression::Logarithmic);
        assert!((scale.position(5.0) - 0.5).abs() < 1e-12, "the logarithm of 0 is no position");
        let scale = Scale::around([3.0, 3.0].into_iter(), Progression::Linear);
        assert!((scale.position(3.0) - 0.5).abs() < 1e-9);
    }
}
