//! Queries: what a prediction is asked of, made a batch of the model's size.

use std::borrow::Cow;

use soybean_plan::{DType, Input, Output, Rows, Tables};

use crate::{Array, Error, ErrorKind, View, trainer::batch::check_count};

/// The tensors of a prediction, one for each of the model's inputs.
pub(crate) struct Query<'a> {
    columns: Vec<Column<'a>>,
    /// How many rows are given of how many that the batch has, where that is fewer.
    part: Option<Part>,
}

/// A part of the rows of a batch.
#[derive(Clone, Copy)]
struct Part {
    n_given: usize,
    n_rows: usize,
}

/// A whole tensor of a batch.
enum Column<'a> {
    F32(Cow<'a, [f32]>),
    I32(Cow<'a, [i32]>),
}

impl<'a> Query<'a> {
    /// The batch of these tensors, of which those that predictions do not need are not read but zero. Where fewer rows are given than a batch has, the last is
    /// repeated.
    pub(crate) fn new(tables: &Tables, given: &[View<'a>]) -> Result<Self, Error> {
        if tables.predictions().is_empty() {
            return fault("expected a model with outputs beside its loss, found none".to_owned());
        }
        check_count(&tables.inputs, given)?;
        let pairs = || tables.inputs.iter().zip(given);
        let part = part(&pairs().filter(|(input, _)| input.is_queried).collect::<Vec<_>>())?;
        if let Some(Part { n_given, n_rows }) = part {
            let is_mixed = |it: &&Output| it.rows == Rows::Mixed;
            if let Some(output) = tables.predictions().iter().find(is_mixed) {
                let name = &output.name;
                return fault(format!(
                    "output `{name}` is computed of several rows together: expected all {n_rows} rows of a batch, found {n_given}"
                ));
            }
        }
        let column = |(input, view): (&Input, &View<'a>)| match input.is_queried {
            true => Column::of(*view, input, part),
            false => Column::zeros(input),
        };
        Ok(Self { columns: pairs().map(column).collect(), part })
    }

    /// What ranks are fed with.
    pub(crate) fn views(&self) -> Vec<View<'_>> {
        self.columns.iter().map(Column::view).collect()
    }

    /// An output without what belongs to the rows that were not given.
    pub(crate) fn cut(&self, array: Array, rows: Rows) -> Array {
        match (rows, self.part) {
            (Rows::Own { dim }, Some(Part { n_given, n_rows })) => {
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

    /// The rows of an input, the last of which is repeated where a part of the batch is given.
    fn of(view: View<'a>, input: &Input, part: Option<Part>) -> Self {
        match (view, part) {
            (View::F32(given), None) => Self::F32(given.into()),
            (View::I32(given), None) => Self::I32(given.into()),
            (View::F32(given), Some(_)) => Self::F32(padded(given, input)),
            (View::I32(given), Some(_)) => Self::I32(padded(given, input)),
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
    let last = &given[given.len().saturating_sub(row(input))..];
    given.iter().chain(last.iter().cycle().take(n_missing)).copied().collect()
}

/// The elements of a row.
fn row(input: &Input) -> usize {
    input.tile.shape.iter().skip(1).product()
}

/// How many rows are given; none if it is a whole batch, or what is given has another type and is refused later.
fn part(queried: &[(&Input, &View<'_>)]) -> Result<Option<Part>, Error> {
    let is_whole =
        |(input, view): &(&Input, &View<'_>)| view.n_elements() == input.tile.shape.n_elements();
    if queried.iter().all(is_whole) {
        return Ok(None);
    }
    let extent = |it: &(&Input, &View<'_>)| it.0.tile.shape.first().copied();
    let shared = queried.first().and_then(extent);
    let Some(n_rows) = shared.filter(|it| queried.iter().all(|other| extent(other) == Some(*it)))
    else {
        // The check of the whole batch says which tensor has another size.
        return Ok(None);
    };
    let mut known: Option<(usize, &str)> = None;
    for (input, view) in queried {
        let (name, row, n_elements) = (input.name.as_ref(), row(input), view.n_elements());
        let n_given = n_elements / row;
        if n_elements % row != 0 || n_given == 0 || n_given > n_rows {
            return fault(format!(
                "input `{name}`: expected from 1 to {n_rows} rows of {row} elements, found {n_elements} elements"
            ));
        }
        match known {
            Some((other, first)) if other != n_given => {
                return fault(format!(
                    "input `{name}`: expected {other} rows, as many as `{first}` has, found {n_given}"
                ));
            }
            Some(_) | None => known = Some((n_given, name)),
        }
    }
    Ok(known.map(|(n_given, _)| Part { n_given, n_rows }))
}

/// The first indices of a dim.
fn first_of_dim(array: Array, dim: usize, n_kept: usize) -> Array {
    let Array { mut shape, data } = array;
    let inner: usize = shape[dim + 1..].iter().product();
    let (block, kept) = (shape[dim] * inner, n_kept * inner);
    let data = data.chunks(block.max(1)).flat_map(|it| &it[..kept]).copied().collect();
    shape[dim] = n_kept;
    Array { shape, data }
}

fn fault<T>(message: String) -> Result<T, Error> {
    Err(Error::new(ErrorKind::Batch, message))
}
