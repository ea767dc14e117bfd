//! Random contractions of operands with any layout.

use soybean_plan::{Contraction, MatrixStrides, Shape, Strides};

use crate::{
    case::Case,
    dice::{Dice, n_needed},
    operands::{Types, scaled},
};

pub(crate) fn case(dice: &mut Dice) -> Case {
    let sides = [1, 2, 3, 7, 8, 9, 16, 33, 64, 65, 100, 130];
    let batch = dice.pick(&[&[][..], &[], &[2], &[3, 2], &[1, 2, 2]]);
    let (rows, columns) = (dice.pick(&sides), dice.pick(&sides));
    // If there are few results, a great depth is split between blocks.
    let depth = dice.pick(&[0, 1, 2, 5, 16, 31, 33, 64, 100, 300, 800]);
    let is_long = rows * columns * depth > 500_000;
    of(dice, Shape::new(if is_long { &[] } else { batch }), rows, columns, depth)
}

/// Enough tiles that they may be large.
pub(crate) fn many_tiles(dice: &mut Dice) -> Case {
    let (rows, columns) = (dice.pick(&[120, 128]), dice.pick(&[100, 128]));
    of(dice, Shape::new(&[256]), rows, columns, 17)
}

fn of(dice: &mut Dice, batch: Shape, rows: usize, columns: usize, depth: usize) -> Case {
    let (left, n_left) = operand(dice, &batch, rows, depth);
    let (right, n_right) = operand(dice, &batch, depth, columns);
    let n_result = batch.n_elements() * rows * columns;
    let result = matrix(&batch, rows, columns, dice.below(2) == 0);
    let types = Types::new(dice, 2);
    let inputs = vec![
        scaled(dice, types.inputs[0], n_left, depth),
        scaled(dice, types.inputs[1], n_right, 1),
    ];
    let contraction = Contraction { batch, rows, columns, depth, left, right, result };
    let tolerance = types.tolerance();
    let results = vec![(types.result, n_result)];
    Case { precision: types.precision, ..Case::new(contraction, inputs, results, tolerance) }
}

/// Returns a matrix for each batch with random strides, and the number of its elements.
fn operand(dice: &mut Dice, batch: &Shape, rows: usize, columns: usize) -> (MatrixStrides, usize) {
    let shape: Shape = batch.iter().copied().chain([rows, columns]).collect();
    let Strides(mut steps) = dice.strides(&shape);
    let n_elements = n_needed(&shape, &Strides(steps));
    let (row, column) = (steps[batch.len()], steps[batch.len() + 1]);
    steps[batch.len()..].fill(0);
    (MatrixStrides { batch: Strides(steps), row, column }, n_elements)
}

/// Returns dense matrices, by rows or by columns.
fn matrix(batch: &Shape, rows: usize, columns: usize, is_by_row: bool) -> MatrixStrides {
    let (row, column) = if is_by_row { (columns, 1) } else { (1, rows) };
    let Strides(steps) = batch.dense_strides();
    MatrixStrides { batch: Strides(steps.map(|it| it * rows * columns)), row, column }
}
