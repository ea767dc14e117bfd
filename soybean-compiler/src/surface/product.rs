//! Matrix products.

use super::{Arguments, Row, SampleArgument};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::contract::Contract,
    signature::factor_id,
};

const fn tensor(shape: &'static [usize]) -> SampleArgument {
    SampleArgument::tensor(shape)
}

pub(super) const TABLE: &[Row] = &[Row {
    name: "matmul",
    doc: "The product of matrices `[.., m, k]` and `[k, n]` or `[.., k, n]`.",
    arguments: &["left", "right"],
    build: matmul,
    samples: &[
        &[tensor(&[4, 6]), tensor(&[6, 2])],
        &[tensor(&[2, 4, 6]), tensor(&[6, 8])],
        &[tensor(&[2, 4, 6]), tensor(&[2, 6, 8])],
    ],
}];

/// Multiplies `[.., m, k] x [k, n]`, or `[.., m, k] x [.., k, n]` with equal leading dims.
fn matmul(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let (left, right) = (arguments.tensor(builder, 0)?, arguments.tensor(builder, 1)?);
    let (of_left, of_right) = (builder.shape(left), builder.shape(right));
    for (position, shape) in [&of_left, &of_right].into_iter().enumerate() {
        if shape.len() < 2 {
            let message = format!("takes tensors of at least 2 dims, found {shape}");
            return Err(arguments
                .fault(position, message)
                .with_help("reshape a vector to one row or column"));
        }
    }
    let n_batch = of_left.len() - 2;
    let (inner_left, inner_right) = (of_left[n_batch + 1], of_right[of_right.len() - 2]);
    if inner_left != inner_right {
        let message = format!("inner dimensions differ: {inner_left} vs {inner_right}");
        let fits = of_right.len() == 2 && of_right[1] == inner_left;
        let help = if fits {
            "[.., m, k] x [k, n]; transpose the right operand"
        } else {
            "[.., m, k] x [k, n]"
        };
        return Err(arguments.fault(1, message).with_help(help));
    }
    let is_batched = of_right.len() > 2;
    if is_batched && of_left[..n_batch] != of_right[..of_right.len() - 2] {
        let (left, right) = (&of_left[..n_batch], &of_right[..of_right.len() - 2]);
        let message = format!("batch dimensions differ: {left:?} vs {right:?}");
        return Err(arguments
            .fault(1, message)
            .with_help("[.., m, k] x [k, n] or equal leading dims"));
    }
    // Factors: batch dims first, then i, k, j; a plain product is written ik,kj->ij.
    let batch: Vec<u8> = (0..n_batch).map(|dim| factor_id(dim + 3)).collect();
    let with =
        |batch: &[u8], rest: [u8; 2]| -> Vec<u8> { batch.iter().copied().chain(rest).collect() };
    let of_right = if is_batched { with(&batch, [2, 1]) } else { vec![2, 1] };
    let contract =
        Contract { left: with(&batch, [0, 2]), right: of_right, result: with(&batch, [0, 1]) };
    Ok(Argument::Tensor(builder.graph.add(contract.into(), &[left, right])))
}
