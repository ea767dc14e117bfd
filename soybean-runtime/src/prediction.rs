//! Predictions for any number of rows: the rows are split into batches of the model's size, and the
//! outputs are concatenated.

use std::{borrow::Cow, ops::Range};

use soybean_plan::{DType, Input, Mode, Output, Rows, Tables};

use crate::{
    Array, Error, ErrorKind, View,
    trainer::batch::{check_count, check_labels},
};

/// The inputs of a prediction: one tensor for each input of the model.
pub(crate) struct PredictionRequest<'a> {
    inputs: &'a [Input],
    given: &'a [View<'a>],
    /// The number of rows; `None` if the model takes only one whole batch.
    row_counts: Option<RowCounts>,
}

/// The numbers of rows of inputs that share dim 0.
#[derive(Clone, Copy)]
struct RowCounts {
    n_given: usize,
    /// The number of rows in a batch.
    n_rows: usize,
}

/// One batch of a request.
pub(crate) struct PredictionBatch<'a> {
    columns: Vec<Column<'a>>,
    /// The number of rows that were given, and of those in the batch; `None` as in the request.
    row_counts: Option<RowCounts>,
}

/// One input of a batch.
enum Column<'a> {
    F32(Cow<'a, [f32]>),
    I32(Cow<'a, [i32]>),
}

impl<'a> PredictionRequest<'a> {
    /// Creates and checks a request to an entry. Inputs that predictions do not need are ignored.
    /// `needed` are the rows of each batch that this process reads.
    pub(crate) fn new(
        tables: &'a Tables,
        entry: usize,
        given: &'a [View<'a>],
        needed: &[Range<usize>],
    ) -> Result<Self, Error> {
        let (inputs, predictions) = (tables.inputs_of(entry), tables.predictions(entry));
        if predictions.is_empty() {
            return error("expected a model with outputs beside its loss, found none".to_owned());
        }
        check_count(inputs, given)?;
        let pairs = inputs.iter().zip(given).filter(|(input, _)| input.is_queried);
        let queried: Vec<(&Input, &View<'_>)> = pairs.collect();
        let request = Self { inputs, given, row_counts: row_counts(&queried)? };
        let Some(RowCounts { n_given, n_rows }) = request.row_counts else { return Ok(request) };
        let has_states = tables.mode() == Mode::Inference && !tables.states.is_empty();
        if has_states && n_given != n_rows {
            return error(format!(
                "the model keeps states of the rows of its batch: expected {n_rows} rows, found {n_given}"
            ));
        }
        let is_mixed = |it: &&Output| it.rows == Rows::Mixed;
        let mixed = predictions.iter().find(is_mixed);
        if let Some(output) = mixed.filter(|_| n_given != n_rows) {
            let name = &output.name;
            return error(format!(
                "the rows of output `{name}` cannot be told apart: expected as many as a batch has, {n_rows}, found {n_given}"
            ));
        }
        let starts = || (0..n_given).step_by(n_rows);
        let needed: Vec<Range<usize>> = starts()
            .flat_map(|start| needed.iter().map(move |it| start + it.start..start + it.end))
            .collect();
        // All labels are checked before the first batch is computed.
        queried.iter().try_for_each(|(input, view)| check_labels(input, &needed, **view))?;
        Ok(request)
    }

    /// Returns the batches. The last is padded by repeating its last row.
    pub(crate) fn batches(&self) -> impl Iterator<Item = PredictionBatch<'a>> {
        let RowCounts { n_given, n_rows } =
            self.row_counts.unwrap_or(RowCounts { n_given: 1, n_rows: 1 });
        (0..n_given)
            .step_by(n_rows)
            .map(move |start| self.batch(start..n_given.min(start + n_rows)))
    }

    fn batch(&self, rows: Range<usize>) -> PredictionBatch<'a> {
        let column = |(input, view): (&Input, &View<'a>)| match (input.is_queried, self.row_counts)
        {
            (false, _) => Column::zeros(input),
            (true, Some(_)) if !input.tile.shape.is_empty() => Column::of_rows(*view, input, &rows),
            (true, Some(_) | None) => Column::whole(*view),
        };
        let columns = self.inputs.iter().zip(self.given).map(column).collect();
        let row_counts = self.row_counts.map(|it| RowCounts { n_given: rows.len(), ..it });
        PredictionBatch { columns, row_counts }
    }
}

impl PredictionBatch<'_> {
    /// Returns the tensors of the batch.
    pub(crate) fn views(&self) -> Vec<View<'_>> {
        self.columns.iter().map(Column::view).collect()
    }

    /// Removes the padding rows from an output.
    pub(crate) fn cut(&self, array: Array, rows: Rows) -> Array {
        match (rows, self.row_counts) {
            (Rows::Own { dim }, Some(RowCounts { n_given, n_rows })) if n_given < n_rows => {
                let n_kept = array.shape[dim] / n_rows * n_given;
                first_of_dim(array, dim, n_kept)
            }
            (Rows::Own { .. } | Rows::Fixed | Rows::Mixed, _) => array,
        }
    }
}

impl<'a> Column<'a> {
    fn zeros(input: &Input) -> Self {
        let n_elements = input.tile.shape.n_elements();
        match input.dtype {
            DType::F32 | DType::Bf16 => Self::F32(vec![0.0; n_elements].into()),
            DType::I32 => Self::I32(vec![0; n_elements].into()),
        }
    }

    fn whole(view: View<'a>) -> Self {
        match view {
            View::F32(given) => Self::F32(given.into()),
            View::I32(given) => Self::I32(given.into()),
        }
    }

    /// Takes some rows of an input. The last is repeated up to a whole batch.
    fn of_rows(view: View<'a>, input: &Input, rows: &Range<usize>) -> Self {
        let elements = rows.start * row(input)..rows.end * row(input);
        match view {
            View::F32(given) => Self::F32(padded(&given[elements], input)),
            View::I32(given) => Self::I32(padded(&given[elements], input)),
        }
    }

    fn view(&self) -> View<'_> {
        match self {
            Self::F32(it) => View::F32(it),
            Self::I32(it) => View::I32(it),
        }
    }
}

fn padded<'a, T: Copy>(given: &'a [T], input: &Input) -> Cow<'a, [T]> {
    let n_missing = input.tile.shape.n_elements().saturating_sub(given.len());
    if n_missing == 0 {
        return given.into();
    }
    let last = &given[given.len().saturating_sub(row(input))..];
    given.iter().chain(last.iter().cycle().take(n_missing)).copied().collect()
}

/// Returns the number of elements of a row.
fn row(input: &Input) -> usize {
    input.tile.shape.iter().skip(1).product()
}

/// Returns the number of rows that are given, or `None` if the inputs that have rows do not share
/// dim 0.
fn row_counts(queried: &[(&Input, &View<'_>)]) -> Result<Option<RowCounts>, Error> {
    let of_batch = |it: &(&Input, &View<'_>)| it.0.tile.shape.first().copied();
    let mut extents = queried.iter().filter_map(of_batch);
    let Some(n_rows) = extents.next().filter(|first| extents.all(|it| it == *first)) else {
        // The check of the whole batch then names a tensor of another size.
        return Ok(None);
    };
    let mut known: Option<(usize, &str)> = None;
    for (input, view) in queried.iter().filter(|it| of_batch(it).is_some()) {
        let (name, row, n_elements) = (input.name.as_ref(), row(input), view.n_elements());
        let n_given = n_elements / row;
        if n_elements % row != 0 || n_given == 0 {
            return error(format!(
                "input `{name}`: expected one or more rows of {row} elements, found {n_elements} elements"
            ));
        }
        match known {
            Some((other, first)) if other != n_given => {
                return error(format!(
                    "input `{name}`: expected {other} rows, as many as `{first}` has, found {n_given}"
                ));
            }
            Some(_) | None => known = Some((n_given, name)),
        }
    }
    Ok(known.map(|(n_given, _)| RowCounts { n_given, n_rows }))
}

/// Takes the first `n_kept` indices of a dim.
fn first_of_dim(array: Array, dim: usize, n_kept: usize) -> Array {
    let Array { mut shape, data, integers, use_hash } = array;
    let inner: usize = shape[dim + 1..].iter().product();
    let (block, kept) = (shape[dim] * inner, n_kept * inner);
    shape[dim] = n_kept;
    Array {
        shape,
        data: first_of_blocks(&data, block, kept),
        integers: first_of_blocks(&integers, block, kept),
        use_hash,
    }
}

fn first_of_blocks<T: Copy>(elements: &[T], block: usize, n_kept: usize) -> Vec<T> {
    elements.chunks(block.max(1)).flat_map(|it| &it[..n_kept]).copied().collect()
}

/// Concatenates the outputs of all batches of a request.
pub(crate) fn concatenated(mut parts: Vec<Array>, rows: Rows) -> Array {
    let dim = match rows {
        Rows::Own { dim } if parts.len() > 1 => dim,
        // The output is the same for all batches.
        Rows::Own { .. } | Rows::Fixed | Rows::Mixed => return parts.swap_remove(0),
    };
    let mut shape = parts[0].shape.clone();
    let (outer, inner) = (shape[..dim].iter(), shape[dim + 1..].iter());
    let (n_blocks, inner): (usize, usize) = (outer.product(), inner.product());
    shape[dim] = parts.iter().map(|it| it.shape[dim]).sum();
    let blocks: Vec<usize> = parts.iter().map(|it| it.shape[dim] * inner).collect();
    let data: Vec<&[f32]> = parts.iter().map(|it| &it.data[..]).collect();
    let integers: Vec<&[i32]> = parts.iter().map(|it| &it.integers[..]).collect();
    Array {
        shape,
        data: joined(&data, &blocks, n_blocks),
        integers: joined(&integers, &blocks, n_blocks),
        ..Array::default()
    }
}

/// Returns the first block of each part, then the second of each, and so on. Empty parts have none.
fn joined<T: Copy>(parts: &[&[T]], blocks: &[usize], n_blocks: usize) -> Vec<T> {
    let mut all = Vec::with_capacity(parts.iter().map(|it| it.len()).sum());
    for at in 0..n_blocks {
        for (part, &n) in parts.iter().zip(blocks) {
            if let Some(block) = part.get(at * n..(at + 1) * n) {
                all.extend_from_slice(block);
            }
        }
    }
    all
}

fn error<T>(message: String) -> Result<T, Error> {
    Err(Error::new(ErrorKind::Batch, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_joined_along_the_dim_of_rows() {
        // The rows are in dim 1. Elements are numbered by their indices.
        let part = |columns: Range<usize>| {
            let line = |it: usize| columns.clone().map(move |column| (10 * it + column) as f32);
            Array {
                shape: vec![2, columns.len(), 1],
                data: (0..2).flat_map(line).collect(),
                ..Array::default()
            }
        };
        let parts = || vec![part(0..3), part(3..6), part(6..7)];
        assert_eq!(concatenated(parts(), Rows::Own { dim: 1 }), part(0..7));
        assert_eq!(concatenated(parts(), Rows::Fixed), part(0..3));
    }
}
