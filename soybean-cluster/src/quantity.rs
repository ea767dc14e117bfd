//! Quantities: a number and its unit in one string, such as `"450 GB/s"`.
//! `soybean_plan::parse_bytes` reads sizes of memory, which are whole bytes.

/// A kind of quantity: its name, its unit, and an example.
pub(crate) struct Kind {
    pub(crate) noun: &'static str,
    unit: &'static str,
    prefixes: &'static [(&'static str, f64)],
    pub(crate) example: &'static str,
}

const DECIMAL: [(&str, f64); 6] =
    [("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12), ("P", 1e15)];

pub(crate) const FLOPS: Kind =
    Kind { noun: "speed of arithmetic", unit: "FLOP/s", prefixes: &DECIMAL, example: "67 TFLOP/s" };

pub(crate) const BYTES_PER_SECOND: Kind =
    Kind { noun: "bandwidth", unit: "B/s", prefixes: &DECIMAL, example: "450 GB/s" };

pub(crate) const SECONDS: Kind = Kind {
    noun: "time",
    unit: "s",
    prefixes: &[("", 1.0), ("m", 1e-3), ("u", 1e-6), ("n", 1e-9)],
    example: "2.5 us",
};

impl Kind {
    /// Parses a quantity as a number of base units.
    pub(crate) fn read(&self, text: &str) -> Option<f64> {
        let end = text.find(|it: char| !(it.is_ascii_digit() || it == '.'))?;
        let (number, unit) = (&text[..end], text[end..].trim_start());
        let prefix = unit.strip_suffix(self.unit)?;
        let &(_, factor) = self.prefixes.iter().find(|(it, _)| *it == prefix)?;
        Some(number.parse::<f64>().ok()? * factor)
    }

    /// Writes a number of base units with six digits, so that [`Self::read`] reads it.
    pub(crate) fn write(&self, number: f64) -> String {
        let largest = |it: &&(&str, f64)| number >= it.1;
        let fitting =
            self.prefixes.iter().filter(largest).max_by(|it, other| it.1.total_cmp(&other.1));
        let least = self.prefixes.iter().min_by(|it, other| it.1.total_cmp(&other.1));
        let (prefix, factor) = fitting.or(least).expect("every kind has units");
        let rounded: f64 = format!("{:.5e}", number / factor).parse().unwrap_or(0.0);
        format!("{rounded} {prefix}{}", self.unit)
    }
}
