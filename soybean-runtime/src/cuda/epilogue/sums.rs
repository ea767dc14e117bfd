//! Sums of an operand of a product along its depth, as a kernel of their own.

use soybean_plan::{Combine, Contraction, Map, Reduction, ScalarProgram, Shape, Strides};

use super::Epilogue;

/// Returns the reduction that writes the same sums as the epilogue of this product.
pub(crate) fn operand_sums(contraction: &Contraction, epilogue: Epilogue) -> Reduction {
    let Contraction { batch, rows, columns, depth, left, right, .. } = contraction;
    // The lines that are added up, and their strides in the operand.
    let (n_lines, line, along_depth, of_batch) = match epilogue.summed_operand() {
        Some(0) => (*rows, left.row, left.column, left.batch),
        _ => (*columns, right.column, right.row, right.batch),
    };
    let n_matrices = batch.n_elements();
    let extents = Shape::new(&[n_matrices, *depth, n_lines]);
    // A batch with an epilogue has one dim.
    let from_matrix = if n_matrices > 1 { of_batch.0[0] } else { 0 };
    let operand = Strides::new(&[from_matrix, along_depth, line]);
    let map = Map { extents, inputs: vec![operand].into(), program: ScalarProgram::identity() };
    let result = Strides::new(&[epilogue.bias_stride, 0, 1]);
    Reduction { map, combine: Combine::Sum, result }
}
