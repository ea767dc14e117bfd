//! Element types of libraries. Values are computed in f32.

use crate::memory::Memory;
use crate::status::DeviceError;

/// Storage type of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ElementType {
    F32,
    Bf16,
}

impl ElementType {
    pub(crate) fn n_bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }

    pub(crate) fn read(
        self,
        memory: &Memory,
        from: u64,
        count: usize,
    ) -> Result<Vec<f32>, DeviceError> {
        match self {
            Self::F32 => memory.read(from, count),
            Self::Bf16 => Ok(memory.read(from, count)?.into_iter().map(from_bf16).collect()),
        }
    }

    pub(crate) fn write(self, memory: &Memory, to: u64, values: &[f32]) -> Result<(), DeviceError> {
        match self {
            Self::F32 => memory.write(to, values),
            Self::Bf16 => {
                memory.write(to, &values.iter().map(|&value| to_bf16(value)).collect::<Vec<u16>>())
            }
        }
    }
}

pub(crate) fn from_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Rounds to nearest, ties to even. NaN stays NaN.
pub(crate) fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = if value.is_nan() { bits | 0x40_0000 } else { bits + 0x7fff + (bits >> 16 & 1) };
    let [_, _, low, high] = rounded.to_le_bytes();
    u16::from_le_bytes([low, high])
}

/// Rounds to the 10 mantissa bits of tf32, ties away from zero, as `cvt.rna.tf32.f32` does.
pub(crate) fn rounded_to_tf32(value: f32) -> f32 {
    if value.is_finite() { f32::from_bits((value.to_bits() + 0x1000) & !0x1fff) } else { value }
}
