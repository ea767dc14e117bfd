//! Vectors of elements of any type, which are copied at once.

use soybean_plan::DType;

/// Neighboring elements that are read and written as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    /// The number of elements.
    pub(crate) length: usize,
    /// The type of the vector.
    pub(crate) c_type: &'static str,
}

impl Unit {
    /// Returns the largest unit for elements of this type that divides all these numbers of
    /// elements.
    pub(crate) fn of(dtype: DType, numbers: &[usize]) -> Self {
        let fits = |length: &usize| numbers.iter().all(|it| it.is_multiple_of(*length));
        let most = 16 / dtype.bytes();
        let length = [8, 4, 2].into_iter().find(|it| *it <= most && fits(it)).unwrap_or(1);
        let c_type = match length * dtype.bytes() {
            2 => "unsigned short",
            4 => "unsigned",
            8 => "uint2",
            _ => "uint4",
        };
        Self { length, c_type }
    }

    /// Returns a unit whose elements are all this number.
    pub(crate) fn filled(self, dtype: DType, value: f64) -> String {
        #[expect(clippy::cast_possible_truncation, reason = "rounded to the type of the elements")]
        let word = match dtype {
            DType::F32 => (value as f32).to_bits(),
            DType::I32 => (value as i32).cast_unsigned(),
            DType::Bf16 => u32::from(bf16_bits(value as f32)),
        };
        let word = if dtype == DType::Bf16 && self.length > 1 { word | word << 16 } else { word };
        match self.length * dtype.bytes() {
            2 => format!("(unsigned short)0x{word:04x}u"),
            4 => format!("0x{word:08x}u"),
            8 => format!("make_uint2(0x{word:08x}u, 0x{word:08x}u)"),
            _ => format!("make_uint4({})", vec![format!("0x{word:08x}u"); 4].join(", ")),
        }
    }
}

/// Returns the bits of the nearest `bf16`, the even one of two.
fn bf16_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded =
        if value.is_nan() { bits >> 16 | 0x40 } else { (bits + 0x7fff + (bits >> 16 & 1)) >> 16 };
    u16::try_from(rounded).expect("half of a word")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_as_large_as_all_numbers_allow() {
        assert_eq!(Unit::of(DType::F32, &[8, 12]), Unit { length: 4, c_type: "uint4" });
        assert_eq!(Unit::of(DType::Bf16, &[8, 16]), Unit { length: 8, c_type: "uint4" });
        assert_eq!(Unit::of(DType::Bf16, &[2, 6]), Unit { length: 2, c_type: "unsigned" });
        assert_eq!(Unit::of(DType::I32, &[7]), Unit { length: 1, c_type: "unsigned" });
    }

    #[test]
    fn fillings_have_the_type_of_the_elements() {
        let filled =
            |dtype, numbers: &[usize], value| Unit::of(dtype, numbers).filled(dtype, value);
        assert_eq!(filled(DType::F32, &[1], 1.0), "0x3f800000u");
        assert_eq!(filled(DType::I32, &[2], -1.0), "make_uint2(0xffffffffu, 0xffffffffu)");
        assert_eq!(filled(DType::Bf16, &[1], 1.0), "(unsigned short)0x3f80u");
        assert_eq!(filled(DType::Bf16, &[2], f64::NEG_INFINITY), "0xff80ff80u");
    }
}
