//! `embed-update`: the next values of an embedding table, or of a state of its optimizer, which
//! differ from those before only in the rows that a batch looked up.

use std::{borrow::Cow, fmt};

use soybean_plan::{Combine, EmbeddingUpdate, Kernel, Map, ScalarProgram, Shape, Strides};

use crate::{
    operator::{GradientBuilder, OperatorCall, Rounding, Rules},
    signature::{Dim, FactorId, Signature},
    value::Value,
};

/// The next values of a table. The operands are those of the gradient of a table
/// ([`Embed`](super::embed::Embed)): indices `[..]`, the gradients of the gathered rows
/// `[.., width]`, and the indices below `vocabulary`. Then follow the table before the update, and
/// other tensors of its shape `[vocabulary, width]`.
///
/// The rows and columns of the table can be split. Each rank reads all indices, because an update
/// is not linear in the gradient.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbedUpdate {
    /// The rows of the table.
    pub vocabulary: usize,
    /// The next value of an element. It reads the gradient, then the tensors from the fourth
    /// operand on. Where the gradient is 0, it leaves the element as it is.
    pub program: ScalarProgram,
}

const ROW: FactorId = 0;
const COLUMN: FactorId = 1;

impl EmbedUpdate {
    /// Returns the kernel with this program of a rank's part, given the shape of the part of the
    /// indices and of the table. Inputs of the program that are marked are one number.
    pub(crate) fn local(
        &self,
        indices: &Shape,
        extents: Shape,
        program: ScalarProgram,
        is_number: &[bool],
    ) -> EmbeddingUpdate {
        let strides = |it: &bool| if *it { Strides::default() } else { extents.dense_strides() };
        let inputs = Cow::Owned(is_number.iter().map(strides).collect());
        let map = Map { extents, inputs, program };
        EmbeddingUpdate { n_indices: indices.n_elements(), vocabulary: self.vocabulary, map }
    }
}

impl Rules for EmbedUpdate {
    // _,_j,i,ij,ij->ij: the dims of the indices are not split.
    fn signature(&self, operands: &[Shape]) -> Signature {
        let (indices, gradients) = (&operands[0], &operands[1]);
        let width = gradients[gradients.len() - 1];
        let [row, column] = [(self.vocabulary, ROW), (width, COLUMN)]
            .map(|(extent, factor)| Dim::new(extent, Some(factor)));
        let of_indices: Vec<Dim> = indices.iter().map(|it| Dim::new(*it, None)).collect();
        let of_gradients = of_indices.iter().copied().chain([column]).collect();
        let table = vec![row, column];
        let own = [of_indices, of_gradients, vec![row]];
        let tables = operands[own.len()..].iter().map(|_| table.clone());
        let all = own.into_iter().chain(tables).collect();
        Signature::new(vec![self.vocabulary, width], all, table, Combine::Sum)
    }

    fn gradient(
        &self,
        call: &OperatorCall<'_>,
        _builder: &mut dyn GradientBuilder,
    ) -> Vec<Option<Value>> {
        vec![None; call.operands.len()]
    }

    fn flops_per_point(&self) -> u64 {
        0
    }

    fn rounding(&self) -> Rounding {
        Rounding::Exact
    }

    fn may_repeat(&self) -> bool {
        true
    }

    fn kernel(&self, operands: &[Shape], result: &Shape) -> Option<Kernel> {
        let is_number = vec![false; operands.len() + 1 - EmbeddingUpdate::N_OWN_INPUTS];
        Some(self.local(&operands[0], *result, self.program.clone(), &is_number).into())
    }
}

impl fmt::Display for EmbedUpdate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "embed-update {{{}}}", self.program)
    }
}
