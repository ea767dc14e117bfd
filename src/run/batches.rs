//! Data sets as batches that fit the inputs of a model.

use std::sync::Arc;

use soybean_plan::Input;
use soybean_runtime::{
    Error,
    data::{Batch, DataLoader, Dataset, LoaderOptions},
};

/// Returns a loader after checking that the columns fit the inputs. `part` names the data set in
/// errors.
pub(crate) fn loader(
    part: &str,
    dataset: &Arc<dyn Dataset>,
    inputs: &[Input],
    options: LoaderOptions,
) -> Result<DataLoader, Error> {
    let (names, n_columns) = (names(inputs), dataset.columns().len());
    if n_columns != inputs.len() {
        let n_inputs = inputs.len();
        return Err(Error::data(format!(
            "the {part} data: expected {n_inputs} columns ({names}), found {n_columns}"
        )));
    }
    for (input, column) in inputs.iter().zip(dataset.columns()) {
        let (name, dtype, found) = (&input.name, input.dtype, column.dtype);
        let (row, found_row) = (&input.tile.shape[1..], &column.row);
        if dtype != found || row.iter().product::<usize>() != column.row_elements() {
            return Err(Error::data(format!(
                "the {part} data for `{name}`: expected rows of {dtype} {row:?}, found {found} {found_row:?}"
            )));
        }
    }
    DataLoader::new(Arc::clone(dataset), options)
}

/// Returns the first batch of a data set.
pub(crate) fn first(
    part: &str,
    dataset: &Arc<dyn Dataset>,
    inputs: &[Input],
) -> Result<Batch, Error> {
    let options = LoaderOptions { n_threads: 0, ..LoaderOptions::evaluation(batch_size(inputs)?) };
    let batch = loader(part, dataset, inputs, options)?.next();
    batch.ok_or_else(|| Error::data("expected data, found no rows"))?
}

/// Returns the extent of dim 0, the batch, which all inputs must share.
pub(crate) fn batch_size(inputs: &[Input]) -> Result<usize, Error> {
    let extent = |input: &Input| input.tile.shape.first().copied();
    let first = inputs.first().and_then(extent);
    first.filter(|size| inputs.iter().all(|input| extent(input) == Some(*size))).ok_or_else(|| {
        let names = names(inputs);
        Error::data(format!("expected inputs that share dim 0, the batch; found {names}"))
    })
}

fn names(inputs: &[Input]) -> String {
    let name = |input: &Input| format!("{} {}", input.name, input.tile.shape);
    inputs.iter().map(name).collect::<Vec<_>>().join(", ")
}
