//! The choice of a token by its probability.

use std::cmp::Ordering;

use soybean_plan::{NumberRange, random::mixed};
use soybean_runtime::{Error, ErrorKind};

/// How a token is chosen from the logits of all tokens.
///
/// Tokens are ordered by probability. Of the first `top_k`, those before the one at which the
/// probabilities add up to `top_p`, and that one, are candidates (nucleus sampling, Holtzman et al.
/// 2020). One of them is drawn by its probability.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Logits are divided by it: below 1, probable tokens become more probable. With 0, the most
    /// probable token is always chosen. 1 by default.
    pub temperature: f64,
    /// The most candidates, if there is a limit.
    pub top_k: Option<usize>,
    /// The probability of all candidates together; 1 by default.
    pub top_p: f64,
    /// The same seed gives the same tokens for the same logits.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 1.0, top_k: None, top_p: 1.0, seed: 0 }
    }
}

impl Sampling {
    /// Always chooses the most probable token.
    #[must_use]
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let Self { temperature, top_k, top_p, seed: _ } = self;
        let check = || {
            NumberRange::NON_NEGATIVE.check("temperature", *temperature)?;
            if *top_k == Some(0) {
                return Err("`top_k` must be at least 1, found 0".to_owned());
            }
            NumberRange::POSITIVE_SHARE.check("top_p", *top_p)
        };
        check().map_err(|fault| Error::new(ErrorKind::Choice, fault))
    }

    /// Returns the number of a token. Calls with different numbers draw independently.
    pub(super) fn token(&self, logits: &[f32], number: [u64; 2]) -> usize {
        let mut ordered: Vec<usize> = (0..logits.len()).collect();
        let is_before = |one: &usize, other: &usize| -> Ordering {
            logits[*other].total_cmp(&logits[*one]).then(one.cmp(other))
        };
        let n_candidates = match self.temperature == 0.0 {
            true => 1,
            false => self.top_k.unwrap_or(logits.len()).min(logits.len()),
        };
        if n_candidates < logits.len() {
            ordered.select_nth_unstable_by(n_candidates - 1, is_before);
            ordered.truncate(n_candidates);
        }
        ordered.sort_unstable_by(is_before);
        let largest = f64::from(logits[ordered[0]]);
        let weight = |it: &usize| match f64::from(logits[*it]) {
            logit if logit >= largest => 1.0,
            logit => ((logit - largest) / self.temperature).exp(),
        };
        let weights: Vec<f64> = ordered.iter().map(weight).collect();
        let limit = self.top_p * weights.iter().sum::<f64>();
        let mut sum = 0.0;
        let reaches_limit = |weight: &f64| {
            sum += weight;
            sum >= limit
        };
        let last = weights.iter().position(reaches_limit).unwrap_or(weights.len() - 1);
        let candidates = &weights[..=last];
        let mut rest = self.share(number) * candidates.iter().sum::<f64>();
        let is_drawn = |weight: &f64| {
            rest -= weight;
            rest < 0.0
        };
        ordered[candidates.iter().position(is_drawn).unwrap_or(last)]
    }

    /// Returns a random number from 0 to 1.
    fn share(&self, [one, two]: [u64; 2]) -> f64 {
        let word = mixed(mixed(mixed(self.seed) ^ one) ^ two);
        (word >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 5] = [0.0, 2.0, f32::NEG_INFINITY, 1.0, 2.0];

    /// Returns how often each token is drawn.
    fn shares(sampling: &Sampling) -> [f64; 5] {
        let mut shares = [0.0; 5];
        for number in 0..20_000 {
            shares[sampling.token(&LOGITS, [1, number])] += 1.0 / 20_000.0;
        }
        shares
    }

    fn check(sampling: &Sampling, weights: [f64; 5]) {
        let sum: f64 = weights.iter().sum();
        for (found, weight) in shares(sampling).into_iter().zip(weights) {
            // Four standard deviations are at most 0.015.
            assert!((found - weight / sum).abs() < 0.015, "{sampling:?}: {found} of {weights:?}");
        }
    }

    #[test]
    fn tokens_are_drawn_by_their_probability() {
        let e = |it: f64| it.exp();
        check(&Sampling::default(), [1.0, e(2.0), 0.0, e(1.0), e(2.0)]);
        let cold = Sampling { temperature: 0.5, seed: 3, ..Sampling::default() };
        check(&cold, [1.0, e(4.0), 0.0, e(2.0), e(4.0)]);
        check(&Sampling::greedy(), [0.0, 1.0, 0.0, 0.0, 0.0]);
        let three = Sampling { top_k: Some(3), ..Sampling::default() };
        check(&three, [0.0, e(2.0), 0.0, e(1.0), e(2.0)]);
        // The first has 0.4 of the probability, and the first two have 0.8.
        let first = Sampling { top_p: 0.35, ..Sampling::default() };
        check(&first, [0.0, 1.0, 0.0, 0.0, 0.0]);
        check(&Sampling { top_p: 0.6, ..first }, [0.0, 1.0, 0.0, 0.0, 1.0]);
    }

    #[test]
    fn impossible_settings_are_errors() {
        let fault = |it: Sampling| it.check().map_err(|it| it.to_string());
        let default = Sampling::default;
        assert_eq!(fault(default()), Ok(()));
        assert_eq!(fault(Sampling::greedy()), Ok(()));
        let expected = |it: &str| Err(it.to_owned());
        let cold = Sampling { temperature: -1.0, ..default() };
        assert_eq!(
            fault(cold),
            expected("`temperature` must be a number from 0 to 3.4e38, found -1")
        );
        let none = Sampling { top_k: Some(0), ..default() };
        assert_eq!(fault(none), expected("`top_k` must be at least 1, found 0"));
        let nothing = Sampling { top_p: f64::NAN, ..default() };
        assert_eq!(
            fault(nothing),
            expected("`top_p` must be a number above 0 and at most 1, found NaN")
        );
    }
}
