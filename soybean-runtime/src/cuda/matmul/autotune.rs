//! Choice of a product's algorithm by measurement.
#![expect(unsafe_code, reason = "products run on raw memory")]

use soybean_plan::{Contraction, DType, MatrixStrides};

use super::{CublasLt, MatmulOperands, MatmulPlan};
use crate::{
    Error,
    cuda::{
        autotune::{Attempt, Autotuner, Requirement},
        epilogue::Function,
        generated_operations::{GeneratedOperations, Remaining},
        kernels::KernelOperands,
        stream::Stream,
    },
};

impl MatmulPlan {
    /// Chooses the fastest algorithm for this product, which the plan was made for. `generated` has
    /// the sums of an operand.
    pub(crate) fn autotune(
        &mut self,
        lt: &CublasLt,
        tuner: &mut Autotuner<'_>,
        contraction: &Contraction,
        generated: &GeneratedOperations,
    ) -> Result<(), Error> {
        let types = self.types;
        let Contraction { rows, columns, ref batch, .. } = *contraction;
        let [left, right, result] = operand_bytes(contraction, types);
        let biases = batch.n_elements().saturating_sub(1) * self.epilogue.bias_stride;
        let bias = self.epilogue.bias.map_or(0, |it| (biases + columns.max(rows)) * it.bytes());
        let aux = self.epilogue.aux(rows, columns, types[2]).map_or(0, |it| it.n_bytes);
        let workspace = self.algorithms.iter().map(|it| self.workspace_bytes_of(it)).max();
        let workspace = workspace.unwrap_or(0).max(generated.remaining_workspace_bytes());
        // Their numbers mean the same only if there are as many of each variant.
        let variants: Vec<usize> = self.algorithms.iter().map(|it| it.variant_number).collect();
        let n_of_each: Vec<usize> =
            variants.chunk_by(|one, next| one == next).map(<[usize]>::len).collect();
        let Self { compute, epilogue, layout, .. } = self;
        let order = layout.order;
        let kernel =
            format!("{contraction} {types:?} {compute:?} {epilogue:?} {order:?} {n_of_each:?}");
        let run = |number: usize, stream: &Stream, blocks: &[u64]| {
            let &[left, right, result, bias, aux, workspace] = blocks else {
                return Ok(Attempt::Refused);
            };
            let operands = MatmulOperands { left, right, result, bias, aux };
            // SAFETY: the blocks are as large as the operands, and nothing else uses them.
            let remaining = unsafe { self.run_algorithm(number, lt, stream, operands, workspace) }?;
            if remaining == Remaining::Operations {
                let (inputs, results) = ([left, right], [result, bias]);
                let operands = KernelOperands::plain(&inputs, &results, workspace);
                // SAFETY: as above.
                unsafe { generated.run_remaining(stream, operands) }?;
            }
            Ok(Attempt::Queued)
        };
        let n_algorithms = self.algorithms.len();
        let blocks = || vec![left, right, result, bias, aux, workspace];
        let is_relu = self.epilogue.function == Function::Relu;
        let of_relu = is_relu.then_some(Requirement::KeepsNan { result: 2 });
        self.chosen = tuner.fastest(&kernel, n_algorithms, (blocks, of_relu.as_slice()), run)?;
        Ok(())
    }
}

/// Returns the bytes of left operand, right operand and result.
fn operand_bytes(contraction: &Contraction, [left, right, result]: [DType; 3]) -> [usize; 3] {
    let Contraction { batch, rows, columns, depth, .. } = contraction;
    let bytes = |extents: [usize; 2], strides: &MatrixStrides, dtype: DType| {
        let of_batch = batch.iter().copied().zip(strides.batch.0);
        let of_matrix = extents.into_iter().zip([strides.row, strides.column]);
        let last = of_batch.chain(of_matrix).map(|(n, stride)| n.saturating_sub(1) * stride);
        (last.sum::<usize>() + 1) * dtype.bytes()
    };
    [
        bytes([*rows, *depth], &contraction.left, left),
        bytes([*depth, *columns], &contraction.right, right),
        bytes([*rows, *columns], &contraction.result, result),
    ]
}
