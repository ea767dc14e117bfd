//! The batches of a dataset whose columns are known to fit the inputs of a model.

use soybean_plan::{DType, Input};
use soybean_runtime::{
    View,
    data::{Batch, Batches, Column, Dataset, Values},
};

use super::Failure;

/// Batches of the size that the model takes. `part` names the dataset in errors.
pub(super) fn batches<'a>(
    part: &str,
    dataset: &'a Dataset,
    inputs: &[Input],
) -> Result<Batches<'a>, Failure> {
    let batch_size = batch_size(inputs)?;
    let (names, n_columns) = (names(inputs), dataset.columns().len());
    if n_columns != inputs.len() {
        let n_inputs = inputs.len();
        return Err(Failure::Work(format!(
            "the {part} data: expected {n_inputs} columns ({names}), found {n_columns}"
        )));
    }
    for (input, column) in inputs.iter().zip(dataset.columns()) {
        let (name, dtype, found) = (&input.name, input.dtype, dtype(column));
        let (row, found_row) = (&input.tile.shape[1..], &column.row);
        if dtype != found || row.iter().product::<usize>() != column.row_elements() {
            return Err(Failure::Work(format!(
                "the {part} data for `{name}`: expected rows of {dtype} {row:?}, found {found} {found_row:?}"
            )));
        }
    }
    Ok(dataset.batches(batch_size)?)
}

/// The first batch of a dataset, for commands that need one alone.
pub(super) fn first<'b>(batches: &'b mut Batches<'_>) -> Result<Batch<'b>, Failure> {
    batches.next_padded().ok_or_else(|| Failure::Work("expected data, found no rows".to_owned()))
}

/// What the runtime takes.
pub(super) fn views<'b>(batch: &Batch<'b>) -> Vec<View<'b>> {
    (0..batch.n_columns()).map(|column| batch.view(column)).collect()
}

/// The extent of dim 0, which all inputs must share for rows to be samples.
pub(super) fn batch_size(inputs: &[Input]) -> Result<usize, Failure> {
    let extent = |input: &Input| input.tile.shape.first().copied();
    let first = inputs.first().and_then(extent);
    first.filter(|size| inputs.iter().all(|input| extent(input) == Some(*size))).ok_or_else(|| {
        let names = names(inputs);
        Failure::Work(format!("expected inputs that share dim 0, the batch; found {names}"))
    })
}

fn dtype(column: &Column) -> DType {
    match column.values {
        Values::F32(_) => DType::F32,
        Values::I32(_) => DType::I32,
    }
}

fn names(inputs: &[Input]) -> String {
    let name = |input: &Input| format!("{} {}", input.name, input.tile.shape);
    inputs.iter().map(name).collect::<Vec<_>>().join(", ")
}
