//! The check that the numbers of a checkpoint are finite: a run that went on with others could only
//! fail.

use soybean_plan::GRADIENT_SUM;

use crate::{Error, naming, tensor_file::checkpoint_error};

/// The numbers of one tensor, as far as they were seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FiniteCheck {
    has_nan: bool,
    has_infinity: bool,
}

impl FiniteCheck {
    /// Looks at some elements.
    pub(crate) fn add(&mut self, elements: impl Iterator<Item = f32>) {
        for it in elements {
            self.has_nan |= it.is_nan();
            self.has_infinity |= it.is_infinite();
        }
    }

    /// Returns an error if a tensor in a file of this name cannot have these numbers.
    ///
    /// A buffer of the model, such as a mask, may have infinities. Sums of gradients may be
    /// anything, since a model may drop those that are not finite.
    pub(crate) fn finish(self, file: &str, tensor: &str) -> Result<(), Error> {
        let is_of_model = naming::is_shard(file, naming::MODEL);
        let is_sum = !is_of_model && tensor.ends_with(GRADIENT_SUM);
        let found = match (self.has_nan, self.has_infinity) {
            (true, _) if !is_sum => "NaN",
            (_, true) if !is_sum && !is_of_model => "an infinity",
            (true | false, _) => return Ok(()),
        };
        Err(checkpoint_error(format!("`{tensor}`: expected finite numbers, found {found}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Guards: numbers that are not finite pass only where a run can go on with them.
    #[test]
    fn numbers_that_are_not_finite_are_named() {
        let check = |file: &str, tensor: &str, numbers: &[f32]| {
            let mut check = FiniteCheck::default();
            check.add(numbers.iter().copied());
            check.finish(file, tensor).map_err(|it| it.to_string()).err()
        };
        let (model, optimizer) = ("model.safetensors", "optimizer.safetensors");
        assert_eq!(check(model, "w", &[1.0, f32::MAX, -0.0]), None);
        assert_eq!(check(model, "mask", &[f32::NEG_INFINITY]), None);
        let found = check("model-00001-of-00002.safetensors", "w", &[1.0, f32::NAN]);
        assert_eq!(found.as_deref(), Some("`w`: expected finite numbers, found NaN"));
        let found = check(optimizer, "w.variance", &[0.0, f32::INFINITY]);
        assert_eq!(
            found.as_deref(),
            Some("`w.variance`: expected finite numbers, found an infinity")
        );
        assert_eq!(check(optimizer, "w.gradient_sum", &[f32::NAN]), None);
    }
}
