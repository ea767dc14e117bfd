//! Learning rate schedules, as pure functions of the step's number.

use std::{f64::consts::PI, fmt, str::FromStr};

/// The learning rate of each step. The learning rate of the run is the peak.
///
/// ```
/// use soybean::{Curve, Schedule};
///
/// let schedule =
///     Schedule { curve: Curve::Cosine, warm_up: 10, floor: 0.01, ..Schedule::default() };
/// assert_eq!(schedule.rate(1.0, 0, 110), 0.1);
/// assert_eq!(schedule.rate(1.0, 10, 110), 1.0);
/// assert_eq!(schedule.rate(1.0, 60, 110), 0.505);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// The curve after the warm-up.
    pub curve: Curve,
    /// Steps of the linear warm-up from 0 to the peak.
    pub warm_up: u64,
    /// Minimum rate after the warm-up.
    pub floor: f32,
    /// Steps between decays of [`Curve::Step`], which needs it.
    pub decay_every: Option<u64>,
    /// The factor of each decay of [`Curve::Step`].
    pub decay: f32,
}

/// The curves of learning rates, with PyTorch's definitions. `t` counts the `n` steps after the
/// warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Curve {
    /// The peak in every step.
    #[default]
    Constant,
    /// `peak * decay^floor(t / decay_every)`, as `StepLR`.
    Step,
    /// Linear from the peak to the floor, as `LinearLR`: `peak + (floor - peak) t / n`.
    Linear,
    /// Half a cosine from the peak to the floor, as `CosineAnnealingLR`: `floor + (peak - floor) (1
    /// + cos(pi t / n)) / 2`.
    Cosine,
    /// Half a cosine from 1/25 of the peak to the peak in 3/10 of the steps, then another to
    /// 1/250,000 of the peak or to the floor, whichever is higher, as `OneCycleLR` (Smith & Topin
    /// 2017).
    OneCycle,
}

/// All curves with their names.
const CURVES: [(&str, Curve); 5] = [
    ("constant", Curve::Constant),
    ("step", Curve::Step),
    ("linear", Curve::Linear),
    ("cosine", Curve::Cosine),
    ("one-cycle", Curve::OneCycle),
];

impl Default for Schedule {
    fn default() -> Self {
        Self { curve: Curve::Constant, warm_up: 0, floor: 0.0, decay_every: None, decay: 0.1 }
    }
}

impl Schedule {
    /// Returns the learning rate of a step, counted from 0, in a run of `n_steps`.
    #[must_use]
    pub fn rate(&self, peak: f32, step: u64, n_steps: u64) -> f32 {
        let (peak, floor) = (f64::from(peak), f64::from(self.floor));
        if step < self.warm_up {
            return single(peak * (step + 1) as f64 / self.warm_up as f64);
        }
        let n = n_steps.saturating_sub(self.warm_up).max(1) as f64;
        // Steps after the end of the schedule keep the last rate.
        let t = ((step - self.warm_up) as f64).min(n);
        single(match self.curve {
            Curve::Constant => peak,
            Curve::Step => {
                let n_decays = self.decay_every.map_or(0.0, |every| (t / every as f64).floor());
                (peak * f64::from(self.decay).powf(n_decays)).max(floor)
            }
            Curve::Linear => peak + (floor - peak) * t / n,
            Curve::Cosine => half_cosine(peak, floor, t / n),
            Curve::OneCycle => one_cycle(peak, floor, t, n),
        })
    }
}

/// Interpolates along half a cosine; `share` is from 0 to 1.
fn half_cosine(from: f64, to: f64, share: f64) -> f64 {
    to + (from - to) * (1.0 + libm::cos(PI * share)) / 2.0
}

fn one_cycle(peak: f64, floor: f64, t: f64, n: f64) -> f64 {
    let first = peak / 25.0;
    let last = (first / 1e4).max(floor);
    let (top, end) = (0.3 * n - 1.0, n - 1.0);
    let t = t.min(end);
    if t <= top {
        return half_cosine(first, peak, if top > 0.0 { t / top } else { 1.0 });
    }
    half_cosine(peak, last, (t - top) / (end - top))
}

#[expect(clippy::cast_possible_truncation, reason = "rates are in single precision")]
fn single(rate: f64) -> f32 {
    rate as f32
}

impl Curve {
    /// Returns the names of all curves in declaration order.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        CURVES.iter().map(|it| it.0)
    }
}

impl fmt::Display for Curve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = CURVES.iter().find(|it| it.1 == *self);
        f.write_str(found.expect("the table has every curve").0)
    }
}

impl FromStr for Curve {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = CURVES.iter().find(|it| it.0 == name);
        found.map(|it| it.1).ok_or_else(|| {
            let known = Self::names().collect::<Vec<_>>().join(", ");
            format!("expected one of {known}, found `{name}`")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the rates of a whole run, to six digits.
    fn check(schedule: Schedule, n_steps: u64, expected: &[f64]) {
        assert_eq!(expected.len() as u64, n_steps);
        for (step, expected) in (0..).zip(expected) {
            let found = f64::from(schedule.rate(1.0, step, n_steps));
            // Single precision, and the expected values have six digits.
            let tolerance = 6e-6 * expected.abs();
            assert!((found - expected).abs() < tolerance, "{schedule:?}, step {step}: {found}");
        }
    }

    fn of(curve: Curve) -> Schedule {
        Schedule { curve, ..Schedule::default() }
    }

    #[test]
    fn constant_rates_stay() {
        check(of(Curve::Constant), 3, &[1.0, 1.0, 1.0]);
    }

    #[test]
    fn warm_up_comes_before_any_curve() {
        let constant = Schedule { warm_up: 4, ..Schedule::default() };
        check(constant, 6, &[0.25, 0.5, 0.75, 1.0, 1.0, 1.0]);
        let linear = Schedule { warm_up: 2, ..of(Curve::Linear) };
        check(linear, 6, &[0.5, 1.0, 1.0, 0.75, 0.5, 0.25]);
    }

    #[test]
    fn step_decays_as_steplr() {
        let schedule = Schedule { decay_every: Some(2), decay: 0.5, ..of(Curve::Step) };
        check(schedule, 7, &[1.0, 1.0, 0.5, 0.5, 0.25, 0.25, 0.125]);
        let floored = Schedule { floor: 0.3, ..schedule };
        check(floored, 7, &[1.0, 1.0, 0.5, 0.5, 0.3, 0.3, 0.3]);
    }

    /// `LinearLR(start_factor=1, end_factor=0.2, total_iters=5)`.
    #[test]
    fn linear_rates_fall_in_equal_parts() {
        check(Schedule { floor: 0.2, ..of(Curve::Linear) }, 5, &[1.0, 0.84, 0.68, 0.52, 0.36]);
    }

    /// NumPy: `0.1 + 0.9 * (1 + np.cos(np.pi * np.arange(6) / 6)) / 2`.
    #[test]
    fn cosine_falls_to_the_floor() {
        let expected = [1.0, 0.939711, 0.775, 0.55, 0.325, 0.160289];
        let schedule = Schedule { floor: 0.1, ..of(Curve::Cosine) };
        check(schedule, 6, &expected);
        assert_eq!(schedule.rate(1.0, 6, 6), 0.1);
        assert_eq!(schedule.rate(1.0, 60, 6), 0.1, "behind the end");
    }

    /// The formulas of `OneCycleLR(max_lr=1, total_steps=..)` with its defaults, computed in
    /// Python.
    #[test]
    fn one_cycle_rises_and_falls_as_onecyclelr() {
        let ten =
            [0.04, 0.52, 1.0, 0.950485, 0.811746, 0.611262, 0.388742, 0.188258, 0.0495194, 4e-6];
        check(of(Curve::OneCycle), 10, &ten);
        let seven = [0.04, 0.980557, 0.919044, 0.672684, 0.357739, 0.0992968, 4e-6];
        check(of(Curve::OneCycle), 7, &seven);
        // Short runs have no rise.
        for n_steps in 1..4 {
            assert!(of(Curve::OneCycle).rate(1.0, 0, n_steps).is_finite());
        }
        let floored = Schedule { floor: 0.01, ..of(Curve::OneCycle) };
        assert_eq!(floored.rate(1.0, 9, 10), 0.01);
    }

    #[test]
    fn curves_have_names() {
        for (name, curve) in CURVES {
            assert_eq!((name.parse(), curve.to_string().as_str()), (Ok(curve), name));
        }
        let expected = "expected one of constant, step, linear, cosine, one-cycle, found `sine`";
        assert_eq!("sine".parse::<Curve>().unwrap_err(), expected);
    }
}
