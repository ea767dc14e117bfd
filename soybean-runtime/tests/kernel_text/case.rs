//! One kernel with its operands, and the tolerance of its results.

use soybean_plan::{DType, Kernel, Precision};

/// A kernel and its operands.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) kernel: Kernel,
    pub(crate) inputs: Vec<Data>,
    /// Type and number of elements of each result.
    pub(crate) results: Vec<(DType, usize)>,
    /// Results, and the inputs whose buffers they reuse.
    pub(crate) reused: Vec<[usize; 2]>,
    pub(crate) precision: Precision,
    /// The variant of the text, modulo their number.
    pub(crate) variant: usize,
    /// The largest allowed difference, relative for numbers greater than 1.
    pub(crate) tolerance: f32,
}

/// The elements of a buffer: whole numbers for integers, and numbers that `bf16` can represent for
/// `bf16`.
#[derive(Clone)]
pub(crate) struct Data {
    pub(crate) dtype: DType,
    pub(crate) numbers: Vec<f32>,
}

impl std::fmt::Debug for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}[{}]", self.dtype, self.numbers.len())
    }
}

/// The distance of neighboring `bf16` numbers at 1.
pub(crate) const BF16_TOLERANCE: f32 = 1e-2;

impl Case {
    /// Returns the input whose buffer a result reuses, if it reuses any.
    pub(crate) fn reused_by(&self, result: usize) -> Option<usize> {
        self.reused.iter().find(|it| it[0] == result).map(|it| it[1])
    }

    /// Returns a case of one kernel in single precision whose results have separate buffers.
    pub(crate) fn new(
        kernel: impl Into<Kernel>,
        inputs: Vec<Data>,
        results: Vec<(DType, usize)>,
        tolerance: f32,
    ) -> Self {
        let kernel = kernel.into();
        let (precision, variant) = (Precision::F32, 0);
        Self { kernel, inputs, results, reused: Vec::new(), precision, variant, tolerance }
    }

    /// Compares results with the expected ones.
    pub(crate) fn compare(&self, found: &[Vec<f32>], expected: &[Vec<f32>]) -> Result<(), String> {
        for (number, (dtype, n_elements)) in self.results.iter().enumerate() {
            let (found, expected) = (&found[number], &expected[number]);
            if (found.len(), expected.len()) != (*n_elements, *n_elements) {
                return Err(format!("result {number} has another number of elements"));
            }
            for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
                if !self.is_near(*dtype, *found, *expected) {
                    return Err(format!("result {number} at {place}: {found:e}, not {expected:e}"));
                }
            }
        }
        Ok(())
    }

    fn is_near(&self, dtype: DType, found: f32, expected: f32) -> bool {
        let difference = (found - expected).abs() / expected.abs().max(1.0);
        let is_same = found == expected || found.is_nan() && expected.is_nan();
        is_same
            || match dtype {
                DType::F32 => difference <= self.tolerance,
                DType::Bf16 => difference <= self.tolerance.max(BF16_TOLERANCE),
                // Two numbers that are nearly equal may be truncated to neighbors.
                DType::I32 => self.tolerance > 0.0 && (found - expected).abs() <= 1.0,
            }
    }
}

/// Returns the number rounded to `bf16`.
pub(crate) fn to_bf16(number: f32) -> f32 {
    let bits = number.to_bits();
    if number.is_nan() {
        number
    } else {
        f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
    }
}

/// Returns the bytes of numbers in memory.
pub(crate) fn encoded(data: &Data) -> Vec<u8> {
    #[expect(clippy::cast_possible_truncation, reason = "whole numbers")]
    let bytes = |it: &f32| match data.dtype {
        DType::F32 => it.to_bits().to_le_bytes().to_vec(),
        DType::I32 => (*it as i32).to_le_bytes().to_vec(),
        DType::Bf16 => it.to_bits().to_le_bytes()[2..].to_vec(),
    };
    data.numbers.iter().flat_map(bytes).collect()
}

/// Returns the numbers of bytes in memory.
pub(crate) fn decoded(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    let number = |it: &[u8]| match dtype {
        DType::F32 => f32::from_le_bytes(it.try_into().unwrap()),
        DType::I32 => i32::from_le_bytes(it.try_into().unwrap()) as f32,
        DType::Bf16 => f32::from_le_bytes([0, 0, it[0], it[1]]),
    };
    bytes.chunks_exact(dtype.bytes()).map(number).collect()
}
