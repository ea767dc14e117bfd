//! `bf16`: the upper half of a single precision number.

/// Returns the nearest `bf16`, the even one of two equally near ones. NaN stays NaN.
#[must_use]
pub const fn from_f32(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        // Sets the quiet bit, because the part of the payload that is kept may be zero.
        return (bits >> 16) as u16 | 0x40;
    }
    // Adding a half, less one if the upper half is even, carries exactly if the number rounds up.
    // Beyond the largest number the result is infinity.
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// Returns the number with these bits.
#[must_use]
pub const fn to_f32(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_bf16_stay_as_they_are() {
        for bits in 0..=u16::MAX {
            let value = to_f32(bits);
            match value.is_nan() {
                true => assert!(to_f32(from_f32(value)).is_nan(), "{bits:x}"),
                false => assert_eq!(from_f32(value), bits),
            }
        }
    }

    #[test]
    fn others_go_to_the_nearest_and_from_the_middle_to_the_even_one() {
        for bits in 0..0x7f7f_u16 {
            let (low, high) = (to_f32(bits), to_f32(bits + 1));
            let middle = f32::from_bits(low.to_bits() + 0x8000);
            let even = bits + (bits & 1);
            for sign in [1.0, -1.0] {
                let rounded = |value: f32| from_f32(sign * value) & 0x7fff;
                assert_eq!(rounded(middle.next_down()), bits, "{low} {high}");
                assert_eq!(rounded(middle), even, "{low} {high}");
                assert_eq!(rounded(middle.next_up()), bits + 1, "{low} {high}");
            }
        }
        assert_eq!(from_f32(f32::MAX), from_f32(f32::INFINITY));
        assert!(to_f32(from_f32(f32::from_bits(0x7f80_0001))).is_nan());
    }
}
