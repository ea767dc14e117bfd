//! Standardization: columns with mean 0 and standard deviation 1.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::{
    ColumnSpec, Dataset, Error, Transformed, Values, ViewMut,
    file::{named, read_json},
};

/// The rows that are read at a time.
const CHUNK_ROWS: usize = 1024;

/// The means and standard deviations of a column of numbers, one for each element of a row.
///
/// They are computed from the training data, and applied to all data, also those of predictions.
///
/// ```
/// use soybean_data::{Column, Dataset, Standardization, Table, Values};
///
/// let values = Values::F32(vec![1.0, 10.0, 3.0, 30.0]);
/// let table = Table::new(vec![Column { name: "x".to_owned(), row: vec![2], values }])?;
/// let scaling = Standardization::of(&table, "x")?;
/// assert_eq!((&scaling.mean[..], &scaling.deviation[..]), (&[2.0, 20.0][..], &[1.0, 10.0][..]));
/// let standardized = scaling.apply(table)?;
/// let mut row = [2.5, 25.0];
/// scaling.standardize(&mut row);
/// assert_eq!(row, [0.5, 0.5]);
/// # Ok::<(), soybean_data::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Standardization {
    /// The name of the column.
    pub column: String,
    /// The mean of each element.
    pub mean: Vec<f32>,
    /// The standard deviation of each element; 1 where all rows have the same number.
    pub deviation: Vec<f32>,
}

impl Standardization {
    /// Computes means and standard deviations of the column of this name. They are those of all
    /// rows of the dataset, which is the training part.
    ///
    /// # Errors
    /// If there is no such column of `f32`, or its rows cannot be read.
    pub fn of(dataset: &impl Dataset, column: &str) -> Result<Self, Error> {
        let (position, n_each) = place(dataset, column)?;
        let n_rows = dataset.n_rows();
        // Welford 1962: the mean and the sum of squared differences from it, row by row.
        let (mut means, mut squares) = (vec![0.0; n_each], vec![0.0; n_each]);
        let mut n_read = 0.0;
        for first in (0..n_rows).step_by(CHUNK_ROWS) {
            let rows: Vec<usize> = (first..n_rows.min(first + CHUNK_ROWS)).collect();
            let zeros = |it: &ColumnSpec| Values::zeros(it.dtype, rows.len() * it.row_elements());
            let mut values = dataset.columns().iter().map(zeros).collect::<Result<Vec<_>, _>>()?;
            let mut views: Vec<ViewMut<'_>> = values.iter_mut().map(Values::view_mut).collect();
            dataset.read(&rows, &mut views)?;
            for row in views[position].f32s().chunks(n_each.max(1)) {
                n_read += 1.0;
                for ((mean, square), number) in means.iter_mut().zip(&mut squares).zip(row) {
                    let difference = f64::from(*number) - *mean;
                    *mean += difference / n_read;
                    *square += difference * (f64::from(*number) - *mean);
                }
            }
        }
        let deviation = |square: &f64| match (square / n_read).sqrt() {
            deviation if deviation > 0.0 => deviation,
            _ => 1.0,
        };
        Ok(Self {
            column: column.to_owned(),
            mean: means.into_iter().map(single).collect(),
            deviation: squares.iter().map(|it| single(deviation(it))).collect(),
        })
    }

    /// Returns the dataset with this column standardized.
    ///
    /// # Errors
    /// If there is no such column of `f32`, or its rows have another number of elements.
    pub fn apply(&self, dataset: impl Dataset + 'static) -> Result<Transformed, Error> {
        let (position, found) = place(&dataset, &self.column)?;
        let expected = self.mean.len();
        if found != expected {
            let column = &self.column;
            return Err(Error::data(format!(
                "column `{column}`: expected rows of {expected} elements, found {found}"
            )));
        }
        if !self.is_good() {
            let column = &self.column;
            return Err(Error::data(format!(
                "column `{column}`: expected finite means and as many deviations, finite and above 0, found {:?} and {:?}",
                self.mean, self.deviation
            )));
        }
        let scaling = self.clone();
        Ok(dataset.transform(0, move |row, _| scaling.standardize(row[position].f32s())))
    }

    /// Writes the means and deviations to a file of JSON, for programs that predict.
    ///
    /// # Errors
    /// If the file cannot be written. The error names it.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let Self { column, mean, deviation } = self;
        let text = json!({ "column": column, "mean": mean, "deviation": deviation });
        fs::write(path, format!("{text}\n")).map_err(|error| {
            named(path, &format!("expected a file that can be written, found: {error}"))
        })
    }

    /// Reads what [`save`](Self::save) wrote. All numbers are the same.
    ///
    /// # Errors
    /// If the file cannot be read or has other contents. The error names it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let value = read_json(path)?;
        Self::from_json(&value).ok_or_else(|| {
            named(
                path,
                "expected `column`, and in `mean` and `deviation` finite numbers for each element, with no deviation of 0, found others",
            )
        })
    }

    fn from_json(value: &Value) -> Option<Self> {
        let numbers = |key: &str| -> Option<Vec<f32>> {
            value.get(key)?.as_array()?.iter().map(|it| it.as_f64().map(single)).collect()
        };
        let (mean, deviation) = (numbers("mean")?, numbers("deviation")?);
        let column = value.get("column")?.as_str()?.to_owned();
        Some(Self { column, mean, deviation }).filter(Self::is_good)
    }

    /// Returns whether rows can be divided by the deviations.
    fn is_good(&self) -> bool {
        self.mean.len() == self.deviation.len()
            && self.mean.iter().all(|it| it.is_finite())
            && self.deviation.iter().all(|it| it.is_finite() && *it > 0.0)
    }

    /// Standardizes rows: `(x - mean) / deviation`.
    pub fn standardize(&self, rows: &mut [f32]) {
        self.for_each(rows, |x, mean, deviation| (x - mean) / deviation);
    }

    /// Reverses [`Self::standardize`], for predictions of a column that was standardized.
    pub fn restore(&self, rows: &mut [f32]) {
        self.for_each(rows, |x, mean, deviation| x * deviation + mean);
    }

    fn for_each(&self, rows: &mut [f32], function: impl Fn(f32, f32, f32) -> f32) {
        for row in rows.chunks_mut(self.mean.len().max(1)) {
            for ((x, mean), deviation) in row.iter_mut().zip(&self.mean).zip(&self.deviation) {
                *x = function(*x, *mean, *deviation);
            }
        }
    }
}

/// Returns the position of a column of numbers, and the number of elements of its rows.
fn place(dataset: &impl Dataset, column: &str) -> Result<(usize, usize), Error> {
    let columns = dataset.columns();
    let found = columns.iter().position(|it| it.name == column);
    let is_f32 = |it: &usize| columns[*it].dtype == soybean_plan::DType::F32;
    match found.filter(is_f32) {
        Some(position) => Ok((position, columns[position].row_elements())),
        None => {
            let known: Vec<String> =
                columns.iter().map(|it| format!("{} of {}", it.name, it.dtype)).collect();
            let known = known.join(", ");
            Err(Error::data(format!("expected a column `{column}` of f32, found {known}")))
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "rounded to the precision of columns")]
const fn single(number: f64) -> f32 {
    number as f32
}
