//! The regions that a kernel of attention takes.

use soybean_plan::DType;

use super::Heads;
use crate::{Error, ErrorKind, cpu::region::Region};

impl Heads {
    /// Checks the sizes and types of the regions.
    pub(super) fn check(&self, inputs: &[Region], results: &[Region]) -> Result<(), Error> {
        let fault = |message: String| Err(Error::new(ErrorKind::Program, message));
        if inputs.len() != self.inputs.len() {
            let (expected, found) = (self.inputs.len(), inputs.len());
            return fault(format!("expected {expected} inputs, found {found}"));
        }
        for (number, (input, expected)) in inputs.iter().zip(&self.inputs).enumerate() {
            let found = input.n_elements;
            if found < *expected {
                return fault(format!(
                    "input {number}: expected {expected} elements, found {found}"
                ));
            }
            if results.iter().any(|it| input.overlaps(it)) {
                return fault(format!("input {number}: expected memory apart from the result"));
            }
        }
        let segments = self.attention.segment_inputs().into_iter().flatten();
        let others = [self.attention.heads_input(), self.attention.positions_input()];
        for number in segments.chain(others.into_iter().flatten()) {
            let found = inputs[number].dtype;
            if found != DType::I32 {
                return fault(format!("input {number}: expected elements of i32, found {found}"));
            }
        }
        if results.len() != self.results.len() {
            let (expected, found) = (self.results.len(), results.len());
            return fault(format!("expected {expected} results, found {found}"));
        }
        for (number, (result, expected)) in results.iter().zip(&self.results).enumerate() {
            let found = result.n_elements;
            if found < *expected {
                return fault(format!(
                    "result {number}: expected {expected} elements, found {found}"
                ));
            }
        }
        Ok(())
    }
}
