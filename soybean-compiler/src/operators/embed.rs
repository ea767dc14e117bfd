//! `embed`: rows of a table by their numbers, and the gradient of the table.

use std::fmt;

use soybean_plan::{Combine, Embedding, EmbeddingForm, Kernel, Shape};

use crate::{
    operator::{GradientBuilder, Operator, OperatorCall, Rounding, Rules},
    signature::{FactorId, Signature, factor_id},
    value::Value,
};

/// A look-up. Its operands are indices `[..]`, then the table `[vocabulary, width]` or the gradient
/// of its rows `[.., width]`, then the indices below `vocabulary`, which number a rank's rows.
/// Every dim can be split: rows of other ranks contribute zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Embed {
    /// Gather or scatter-add.
    pub form: EmbeddingForm,
    /// The rows of the table.
    pub vocabulary: usize,
}

impl Rules for Embed {
    // The dims of the indices, then the rows of the table, then their elements: gather
    // ij,kl,k->ijl, scatter-add ij,ijl,k->kl.
    fn signature(&self, operands: &[Shape]) -> Signature {
        let (indices, other) = (&operands[0], &operands[1]);
        let of_indices: Vec<FactorId> = (0..indices.len()).map(factor_id).collect();
        let (row, column) = (factor_id(indices.len()), factor_id(indices.len() + 1));
        let width = other[other.len() - 1];
        let factors = indices.iter().copied().chain([self.vocabulary, width]).collect();
        let of_rows = [&of_indices[..], &[column]].concat();
        let table = vec![row, column];
        let (other, result) = match self.form {
            EmbeddingForm::Gather => (table, of_rows),
            EmbeddingForm::ScatterAdd => (of_rows, table),
        };
        Signature::plain(factors, &[of_indices, other, vec![row]], &result, Combine::Sum)
    }

    // Each form is the other's gradient; through indices none flows.
    fn gradient(
        &self,
        call: &OperatorCall<'_>,
        builder: &mut dyn GradientBuilder,
    ) -> Vec<Option<Value>> {
        let form = match self.form {
            EmbeddingForm::Gather => EmbeddingForm::ScatterAdd,
            EmbeddingForm::ScatterAdd => EmbeddingForm::Gather,
        };
        let operands = [call.operands[0], call.gradient, call.operands[2]];
        let gradient = builder
            .needs_gradient(call.operands[1])
            .then(|| builder.add(Self { form, ..self.clone() }.into(), &operands));
        vec![None, gradient, None]
    }

    fn resized(&self, factors: &[usize], _result: Shape) -> Option<Operator> {
        // The rows of the table come before their elements.
        Some(Self { vocabulary: factors[factors.len() - 2], ..self.clone() }.into())
    }

    // Indices name rows that are there, so the rest of a table is not read.
    fn adds_up(&self, position: usize) -> bool {
        self.form == EmbeddingForm::ScatterAdd && position == 1
    }

    // Of each of the points one in `vocabulary` is an addition at most.
    fn flops_per_point(&self) -> u64 {
        0
    }

    fn rounding(&self) -> Rounding {
        match self.form {
            EmbeddingForm::Gather => Rounding::Rounded,
            EmbeddingForm::ScatterAdd => Rounding::Exact,
        }
    }

    fn kernel(&self, operands: &[Shape], result: &Shape) -> Option<Kernel> {
        let table = match self.form {
            EmbeddingForm::Gather => &operands[1],
            EmbeddingForm::ScatterAdd => result,
        };
        let kernel = Embedding {
            form: self.form,
            n_indices: operands[0].n_elements(),
            rows: table[0],
            vocabulary: self.vocabulary,
            width: table[1],
        };
        Some(kernel.into())
    }
}

impl fmt::Display for Embed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.form.name())
    }
}
