//! `f16`: half precision numbers, IEEE 754's `binary16`, as files contain them.

/// Converts the bits of a half precision number to single precision.
#[must_use]
pub fn to_f32(bits: u16) -> f32 {
    let (sign, magnitude) = (u32::from(bits & 0x8000) << 16, u32::from(bits & 0x7fff) << 13);
    // The exponent's field is moved to its place in single precision. The number is then too small
    // by the difference of the biases, 2^112. The same holds for subnormal numbers.
    let scaled = f32::from_bits(magnitude) * f32::from_bits((112 + 127) << 23);
    let is_finite = bits & 0x7c00 != 0x7c00;
    let magnitude = if is_finite { scaled.to_bits() } else { magnitude | 0x7f80_0000 };
    f32::from_bits(sign | magnitude)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_what_their_fields_say() {
        for bits in 0..=u16::MAX {
            let (exponent, fraction) =
                (i32::from(bits >> 10 & 31), f64::from(bits & 1023) / 1024.0);
            let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
            let expected = match exponent {
                0 => fraction * 2_f64.powi(-14),
                31 if fraction == 0.0 => f64::INFINITY,
                31 => f64::NAN,
                _ => (1.0 + fraction) * 2_f64.powi(exponent - 15),
            };
            let found = f64::from(to_f32(bits));
            assert!(
                found == sign * expected || found.is_nan() && expected.is_nan(),
                "{bits:x}: {found}"
            );
            assert_eq!(found.is_sign_negative(), bits >> 15 == 1);
        }
    }
}
