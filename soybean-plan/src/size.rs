//! Sizes of memory in text, such as `80GiB`, `24 GB` or `512MB`, for attributes, flags and cluster
//! files.

/// The units and their bytes, powers of 1000 before powers of 1024.
const UNITS: [(&str, u64); 9] = [
    ("B", 1),
    ("kB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// The number of units that are powers of 1000.
const N_DECIMAL: usize = 5;

/// Parses a size such as `80GiB` or `1.5 GB`, a decimal number and a unit, into bytes.
///
/// ```
/// assert_eq!(soybean_plan::parse_bytes("80GiB"), Ok(80 << 30));
/// assert_eq!(soybean_plan::parse_bytes("1.5 MB"), Ok(1_500_000));
/// assert!(soybean_plan::parse_bytes("80").is_err());
/// ```
///
/// # Errors
/// Returns a message if the number or the unit is malformed, or the size is not between 1 and 2^63
/// bytes.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let is_of_number = |character: char| character.is_ascii_digit() || character == '.';
    let text = text.trim();
    let end = text.find(|it| !is_of_number(it)).unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim_start());
    let names = UNITS.map(|(name, _)| name).join(", ");
    let Some(&(_, of_unit)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(match unit {
            "" => format!("a unit is missing; the units are {names}"),
            _ => format!("unknown unit `{unit}`; the units are {names}"),
        });
    };
    match bytes(number, of_unit) {
        Some(bytes) if (1..1 << 63).contains(&bytes) => {
            Ok(u64::try_from(bytes).unwrap_or(u64::MAX))
        }
        Some(_) => Err("it must lie between 1 B and 2^63 B".to_owned()),
        None => Err(format!("`{number}` is no decimal number of {unit}")),
    }
}

/// Returns a decimal number of units in whole bytes, rounded down, or none if it is malformed.
fn bytes(number: &str, of_unit: u64) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    // More digits make no difference, and the number would be out of range.
    if whole.is_empty() || fraction.is_empty() || whole.len() > 19 || fraction.len() > 18 {
        return None;
    }
    let parts = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let digits = whole.parse::<u128>().ok()? * parts + fraction.parse::<u128>().ok()?;
    // A product that saturates is out of range.
    Some(digits.saturating_mul(u128::from(of_unit)) / parts)
}

/// Returns a number of bytes for people: `402.7 MB`, with 1 MB = 10^6 bytes.
#[must_use]
pub fn readable_bytes(bytes: u64) -> String {
    match UNITS[1..N_DECIMAL].iter().rev().find(|(_, of_unit)| bytes >= *of_unit) {
        Some((name, of_unit)) => format!("{:.1} {name}", bytes as f64 / *of_unit as f64),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::{parse_bytes, readable_bytes};

    #[test]
    fn sizes_are_read_and_written() {
        for (text, bytes) in [
            ("1B", 1),
            ("7kB", 7000),
            ("0.5KiB", 512),
            ("24 GB", 24_000_000_000),
            ("79.5GiB", 85_362_475_008),
            (" 2 TiB ", 2 << 40),
            ("0.0015 MB", 1500),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        assert_eq!(readable_bytes(999), "999 B");
        assert_eq!(readable_bytes(80 << 30), "85.9 GB");
        assert_eq!(readable_bytes(1_500_000), "1.5 MB");
    }

    #[test]
    fn what_is_no_size_is_said() {
        let fault = |text: &str| parse_bytes(text).expect_err("no size");
        let units = "the units are B, kB, MB, GB, TB, KiB, MiB, GiB, TiB";
        assert_eq!(fault("80"), format!("a unit is missing; {units}"));
        assert_eq!(fault("80gb"), format!("unknown unit `gb`; {units}"));
        assert_eq!(fault("-1GB"), format!("unknown unit `-1GB`; {units}"));
        assert_eq!(fault("GiB"), "`` is no decimal number of GiB");
        assert_eq!(fault("1.2.3GiB"), "`1.2.3` is no decimal number of GiB");
        assert_eq!(fault("0B"), "it must lie between 1 B and 2^63 B");
        assert_eq!(fault("9999999999TB"), "it must lie between 1 B and 2^63 B");
        let digits_of_128_bits = "400000000.000000000000000000TB";
        assert_eq!(fault(digits_of_128_bits), "it must lie between 1 B and 2^63 B");
    }
}
