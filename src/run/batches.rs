//! Data sets as batches that fit the inputs of a model.

use std::sync::Arc;

use soybean_plan::{Input, fingerprint};
use soybean_runtime::{
    Error, View,
    data::{Batch, DataLoader, Dataset, LoaderOptions, Selected},
};

use super::columns::{match_columns, names_of_inputs};

/// Returns a loader of the columns that are the inputs, in their order. `part` names the data set
/// in errors.
pub(crate) fn loader(
    part: &str,
    dataset: &Arc<dyn Dataset>,
    inputs: &[Input],
    options: LoaderOptions,
) -> Result<DataLoader, Error> {
    let positions = match_columns(inputs, dataset.columns())
        .map_err(|message| Error::data(format!("the {part} data: {message}")))?;
    let dataset = match positions.is_sorted() {
        true => Arc::clone(dataset),
        false => Arc::new(Selected::at(Arc::clone(dataset), positions)?),
    };
    for (input, column) in inputs.iter().zip(dataset.columns()) {
        let (name, dtype, found) = (&input.name, input.dtype, column.dtype);
        let (row, found_row) = (&input.tile.shape[1..], &column.row);
        if dtype != found || row.iter().product::<usize>() != column.row_elements() {
            return Err(Error::data(format!(
                "the {part} data for `{name}`: expected rows of {dtype} {row:?}, found {found} {found_row:?}"
            )));
        }
    }
    DataLoader::new(dataset, options)
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
        let names = names_of_inputs(inputs);
        Error::data(format!("expected inputs that share dim 0, the batch; found {names}"))
    })
}

/// Returns a hash of all elements of a batch.
pub(crate) fn hash(batch: &Batch) -> u64 {
    fingerprint(batch.views().into_iter().flat_map(bytes))
}

fn bytes(view: View<'_>) -> Vec<u8> {
    match view {
        View::F32(values) => values.iter().flat_map(|it| it.to_le_bytes()).collect(),
        View::I32(values) => values.iter().flat_map(|it| it.to_le_bytes()).collect(),
    }
}
