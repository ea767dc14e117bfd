//! What ranks find in inspected training steps: the first tensors that are not finite.

use soybean_plan::BufferId;

/// A tensor that is not finite, in the memory of a rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NonFiniteTensor {
    /// The buffer of a rank's part of the tensor.
    pub buffer: BufferId,
    /// The number of the call of the training step that wrote it; `None` if it was not finite
    /// before the step.
    pub call: Option<usize>,
    /// NaN if any element is NaN, otherwise the first infinity.
    pub value: f32,
}

/// The first tensors of a rank that are not finite, in the order of the calls: the first of all,
/// and the first with NaN if that is another one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inspection {
    pub(crate) first: Option<NonFiniteTensor>,
    pub(crate) first_nan: Option<NonFiniteTensor>,
}

impl Inspection {
    /// Records a tensor, after all that were computed before it.
    pub(crate) fn add(&mut self, found: NonFiniteTensor) {
        self.first.get_or_insert(found);
        if found.value.is_nan() {
            self.first_nan.get_or_insert(found);
        }
    }

    /// Returns true if no later tensor can be the first.
    pub(crate) const fn is_complete(&self) -> bool {
        self.first_nan.is_some()
    }
}

/// Returns NaN if any of these numbers is NaN, otherwise the first infinity.
pub(crate) fn non_finite(numbers: impl Iterator<Item = f32>) -> Option<f32> {
    let mut first = None;
    for number in numbers.filter(|it| !it.is_finite()) {
        if number.is_nan() {
            return Some(number);
        }
        first.get_or_insert(number);
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_comes_before_infinities_of_the_same_tensor() {
        let of = |numbers: &[f32]| non_finite(numbers.iter().copied());
        assert_eq!(of(&[1.0, f32::MAX, -0.0]), None);
        assert_eq!(of(&[1.0, f32::NEG_INFINITY, f32::INFINITY]), Some(f32::NEG_INFINITY));
        assert!(of(&[f32::INFINITY, f32::NAN]).is_some_and(f32::is_nan));
    }
}
