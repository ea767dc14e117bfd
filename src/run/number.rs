//! Losses and metrics as text.

use std::fmt;

/// A number with four decimals, or with an exponent if it is large.
pub(crate) struct Decimal(pub(crate) f64);

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            number if number.is_finite() && number.abs() >= 1e6 => write!(f, "{number:.4e}"),
            number => write!(f, "{number:.4}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Decimal;

    #[test]
    fn large_numbers_have_an_exponent() {
        let texts = [0.25, -3e5, 1.5e30, f64::NAN, f64::INFINITY].map(|it| Decimal(it).to_string());
        assert_eq!(texts, ["0.2500", "-300000.0000", "1.5000e30", "NaN", "inf"]);
    }
}
