//! Matrix products.

use soybean_plan::Shape;

use super::{Arguments, Row, SampleArgument, broadcast::broadcast_shape, einsum, layout};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::contract::Contract,
    signature::factor_id,
    value::Value,
};

const fn tensor(shape: &'static [usize]) -> SampleArgument {
    SampleArgument::tensor(shape)
}

pub(super) const TABLE: &[Row] = &[Row {
    name: "matmul",
    doc: "The product of matrices `[.., m, k]` and `[k, n]` or `[.., k, n]`, whose leading dims are broadcast. A vector `[k]` is a row on the left and a column on the right, which the result lacks.",
    arguments: &["left", "right"],
    build: matmul,
    samples: &[
        &[tensor(&[4, 6]), tensor(&[6, 2])],
        &[tensor(&[2, 4, 6]), tensor(&[6, 8])],
        &[tensor(&[2, 4, 6]), tensor(&[2, 6, 8])],
        &[tensor(&[4, 6]), tensor(&[2, 6, 3])],
        &[tensor(&[2, 3, 4, 5]), tensor(&[3, 5, 2])],
        &[tensor(&[2, 1, 4, 3]), tensor(&[1, 2, 3, 4])],
        &[tensor(&[6]), tensor(&[6])],
        &[tensor(&[4, 6]), tensor(&[6])],
        &[tensor(&[2, 3, 4]), tensor(&[4])],
        &[tensor(&[6]), tensor(&[6, 4])],
        &[tensor(&[4]), tensor(&[2, 4, 3])],
    ],
}];

/// Multiplies `[.., m, k] x [k, n]`, or `[.., m, k] x [.., k, n]` with leading dims that broadcast,
/// or by a vector.
fn matmul(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let (left, right) = (arguments.tensor(builder, 0)?, arguments.tensor(builder, 1)?);
    let (of_left, of_right) = (builder.shape(left), builder.shape(right));
    for (position, shape) in [&of_left, &of_right].into_iter().enumerate() {
        if shape.is_empty() {
            let message = "takes tensors of at least 1 dim, found a scalar";
            return Err(arguments.fault(position, message).with_help("`x * y` multiplies by it"));
        }
    }
    if of_left.len() == 1 || of_right.len() == 1 {
        return product_with_vector(builder, arguments, [left, right]);
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
        return broadcast_product(builder, arguments, [left, right]);
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

/// Multiplies by a vector: a row on the left, a column on the right.
fn product_with_vector(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    [left, right]: [Value; 2],
) -> Result<Argument, CallDiagnostic> {
    let (of_left, of_right) = (builder.shape(left), builder.shape(right));
    let inner = of_right.len().saturating_sub(2);
    let (inner_left, inner_right) = (of_left[of_left.len() - 1], of_right[inner]);
    if inner_left != inner_right {
        let message = format!("inner dimensions differ: {inner_left} vs {inner_right}");
        let help = "[k] x [k], [.., m, k] x [k], or [k] x [.., k, n]";
        return Err(arguments.fault(1, message).with_help(help));
    }
    let letters: Vec<u8> = (b'a'..).take(of_left.len().max(of_right.len())).collect();
    let mut lettered = [of_left.len(), of_right.len()].map(|rank| letters[..rank].to_vec());
    lettered[0][of_left.len() - 1] = b'z';
    lettered[1][inner] = b'z';
    let all = lettered.iter().flatten().copied();
    let result: Vec<u8> = all.filter(|it| *it != b'z').collect();
    let [of_left, of_right] = lettered;
    Ok(Argument::Tensor(einsum::product(builder, (left, of_left), (right, of_right), &result)))
}

/// Multiplies matrices whose leading dims broadcast: each operand is read without the dims along
/// which it is repeated.
fn broadcast_product(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    operands: [Value; 2],
) -> Result<Argument, CallDiagnostic> {
    let leading = operands.map(|it| {
        let shape = builder.shape(it);
        Shape::new(&shape[..shape.len() - 2])
    });
    let Some(batch) = broadcast_shape(&leading[0], &leading[1]) else {
        let [left, right] = leading;
        let message = format!("batch dimensions differ: {left} vs {right}");
        return Err(arguments.fault(1, message).with_help(
            "aligned at the last one, leading dims must be equal, or one of them 1 or missing",
        ));
    };
    let letters: Vec<u8> = (b'a'..).take(batch.len()).collect();
    let mut lettered = |position: usize, matrix: [u8; 2]| {
        let (value, leading) = (operands[position], &leading[position]);
        let n_missing = batch.len() - leading.len();
        let kept: Vec<usize> =
            (0..leading.len()).filter(|dim| leading[*dim] == batch[dim + n_missing]).collect();
        let shape = builder.shape(value);
        let extents: Shape = kept
            .iter()
            .map(|dim| leading[*dim])
            .chain(shape[shape.len() - 2..].iter().copied())
            .collect();
        let value = match extents == shape {
            true => value,
            false => layout::reshaped(builder, value, extents),
        };
        (value, kept.iter().map(|dim| letters[dim + n_missing]).chain(matrix).collect())
    };
    let (left, right) = (lettered(0, *b"xy"), lettered(1, *b"yz"));
    let result = [&letters[..], b"xz"].concat();
    Ok(Argument::Tensor(einsum::product(builder, left, right, &result)))
}
