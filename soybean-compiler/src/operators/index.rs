//! `gather-elements` and `scatter-elements`: elements by their indices along a dim, and the sums of
//! elements with equal indices. Each is the other's gradient.

use std::fmt;

use soybean_plan::{Combine, Indexing, IndexingForm, Kernel, Shape};

use crate::{
    operator::{GradientBuilder, Operator, OperatorCall, Rounding, Rules},
    signature::{FactorId, Signature, factor_id},
    value::Value,
};

/// A choice of elements. Its operands are indices, then the lines or the elements to be summed,
/// then the indices below `extent`, which number a rank's elements of a line. All have the same
/// other dims. Every dim can be split: elements of other ranks contribute zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// Gather or scatter-add.
    pub form: IndexingForm,
    /// The dim along which elements are chosen.
    pub dim: usize,
    /// The elements of a line.
    pub extent: usize,
}

impl Rules for Index {
    // The dims of the indices, then that of the lines; for dim 1 of 2, gather ij,ik,k->ij and
    // scatter-add ij,ij,k->ik.
    fn signature(&self, operands: &[Shape]) -> Signature {
        let of_indices: Vec<FactorId> = (0..operands[0].len()).map(factor_id).collect();
        let row = factor_id(operands[0].len());
        let mut of_lines = of_indices.clone();
        of_lines[self.dim] = row;
        let factors = operands[0].iter().copied().chain([self.extent]).collect();
        let (elements, result) = match self.form {
            IndexingForm::Gather => (of_lines, of_indices.clone()),
            IndexingForm::ScatterAdd => (of_indices.clone(), of_lines),
        };
        let operands = [of_indices, elements, vec![row]];
        Signature::plain(factors, &operands, &result, Combine::Sum).linear_in(vec![vec![1]])
    }

    // Each form is the other's gradient; through indices none flows.
    fn gradient(
        &self,
        call: &OperatorCall<'_>,
        builder: &mut dyn GradientBuilder,
    ) -> Vec<Option<Value>> {
        let form = match self.form {
            IndexingForm::Gather => IndexingForm::ScatterAdd,
            IndexingForm::ScatterAdd => IndexingForm::Gather,
        };
        let operands = [call.operands[0], call.gradient, call.operands[2]];
        let gradient = builder
            .needs_gradient(call.operands[1])
            .then(|| builder.add(Self { form, ..self.clone() }.into(), &operands));
        vec![None, gradient, None]
    }

    fn resized(&self, factors: &[usize], _result: Shape) -> Option<Operator> {
        // The elements of a line come last.
        Some(Self { extent: factors[factors.len() - 1], ..self.clone() }.into())
    }

    // Indices may be beyond the elements that are there, but in the padding.
    fn adds_up(&self, position: usize) -> bool {
        position == 1
    }

    // Of each of the points one in `extent` is an addition at most.
    fn flops_per_point(&self) -> u64 {
        0
    }

    fn rounding(&self) -> Rounding {
        match self.form {
            IndexingForm::Gather => Rounding::Map,
            IndexingForm::ScatterAdd => Rounding::Exact,
        }
    }

    fn kernel(&self, operands: &[Shape], result: &Shape) -> Option<Kernel> {
        let (indices, dim) = (&operands[0], self.dim);
        let lines = match self.form {
            IndexingForm::Gather => &operands[1],
            IndexingForm::ScatterAdd => result,
        };
        let kernel = Indexing {
            form: self.form,
            outer: indices[..dim].iter().product(),
            n_indices: indices[dim],
            rows: lines[dim],
            extent: self.extent,
            inner: indices[dim + 1..].iter().product(),
        };
        Some(kernel.into())
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.form.name(), self.dim)
    }
}
