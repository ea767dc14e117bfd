//! The trait of datasets: rows that are read by number, column by column.

use std::{ops::Range, sync::Arc};

use soybean_plan::DType;

use crate::{
    Augmentation, Error, Mixed, Mixing, Numbering, OneHot, Pass, RowRandom, Selected, Subset,
    Transformed, augmentation,
};

/// Rows that can be read in any order, from several threads at once.
///
/// An implementation returns the number of rows and the columns, and fills memory with the rows
/// that a loader asks for:
///
/// ```
/// use soybean_data::{ColumnSpec, DataLoader, Dataset, Error, LoaderOptions, ViewMut};
/// use soybean_plan::DType;
///
/// /// The squares of all numbers below a hundred.
/// struct Squares(Vec<ColumnSpec>);
///
/// impl Dataset for Squares {
///     fn n_rows(&self) -> usize {
///         100
///     }
///
///     fn columns(&self) -> &[ColumnSpec] {
///         &self.0
///     }
///
///     fn read(&self, rows: &[usize], into: &mut [ViewMut<'_>]) -> Result<(), Error> {
///         for (to, row) in into[0].f32s().iter_mut().zip(rows) {
///             *to = (row * row) as f32;
///         }
///         Ok(())
///     }
/// }
///
/// let column = ColumnSpec { name: "square".to_owned(), row: vec![], dtype: DType::F32 };
/// let squares = Squares(vec![column]);
/// let mut loader = DataLoader::new(squares, LoaderOptions::evaluation(32))?;
/// let first = loader.next().expect("there are four batches")?;
/// assert_eq!(first.f32s(0)[..4], [0.0, 1.0, 4.0, 9.0]);
/// # Ok::<(), Error>(())
/// ```
pub trait Dataset: Send + Sync {
    /// Returns the number of rows.
    fn n_rows(&self) -> usize;

    /// Returns the columns. Those with the names of a model's inputs are these inputs.
    fn columns(&self) -> &[ColumnSpec];

    /// Returns what the integers of a column mean, if a reader numbered them itself. A run compares
    /// its training data, its held-out data and its checkpoints by it. Datasets that read other
    /// datasets pass it on.
    fn numbering(&self, _column: usize) -> Option<Numbering> {
        None
    }

    /// Reads the rows with these numbers, which are all below [`n_rows`](Self::n_rows). `into` has
    /// memory for each column; the rows are stored there one after the other.
    ///
    /// # Errors
    /// If the rows cannot be read or have unexpected contents; [`Error::data`] creates such an
    /// error.
    fn read(&self, rows: &[usize], into: &mut [ViewMut<'_>]) -> Result<(), Error>;

    /// Reads rows as [`read`](Self::read) does, in this pass over the data. The loader calls it.
    /// Datasets whose rows differ from pass to pass implement it, and those that read other
    /// datasets hand the pass on. The rows may depend on the pass and on their numbers alone.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn read_in_pass(
        &self,
        _pass: Pass,
        rows: &[usize],
        into: &mut [ViewMut<'_>],
    ) -> Result<(), Error> {
        self.read(rows, into)
    }

    /// Returns all rows in the random order in which a shuffled epoch visits them, or `None` if any
    /// order is as good. Datasets of several files implement it to read few files at a time, and
    /// those that read other datasets pass it on. The order may depend on the pass alone.
    fn shuffled(&self, _pass: Pass) -> Option<Vec<usize>> {
        None
    }

    /// Returns true if reading costs no more than a copy of memory. Small batches of such data are
    /// read by the caller, because waking a thread takes longer.
    fn is_in_memory(&self) -> bool {
        false
    }

    /// Transforms each row as it is read. The function changes the columns of a row in place. Its
    /// random numbers depend only on the pass, the stream and the number of the row, so they do not
    /// depend on threads, and a resumed run sees the same rows. Transforms of the same rows take
    /// different streams, such as 0, 1 and 2.
    ///
    /// ```
    /// use soybean_data::{Column, Dataset, Table, Values};
    ///
    /// // Mirrors half of the images, [height, width], in each epoch.
    /// let images = Values::F32(vec![0.5; 10 * 8 * 8]);
    /// let images = Column { name: "image".to_owned(), row: vec![8, 8], values: images };
    /// let augmented = Table::new(vec![images])?.transform(0, |row, random| {
    ///     if random.chance(0.5) {
    ///         row[0].f32s().chunks_mut(8).for_each(<[f32]>::reverse);
    ///     }
    /// });
    /// # Ok::<(), soybean_data::Error>(())
    /// ```
    fn transform(
        self,
        stream: u64,
        transform: impl Fn(&mut [ViewMut<'_>], &mut RowRandom) + Send + Sync + 'static,
    ) -> Transformed
    where
        Self: Sized + 'static,
    {
        Transformed::new(Arc::new(self), stream, transform)
    }

    /// Changes the images in column 0 at random as they are read, in this order.
    ///
    /// ```
    /// use soybean_data::{Augmentation, Column, Dataset, Table, Values};
    ///
    /// let images = Values::F32(vec![0.5; 10 * 3 * 8 * 8]);
    /// let images = Column { name: "image".to_owned(), row: vec![3, 8, 8], values: images };
    /// let augmented = Table::new(vec![images])?.augment(0, vec![
    ///     Augmentation::Crop { padding: 1, fill: 0.0 },
    ///     Augmentation::HorizontalFlip { probability: 0.5 },
    ///     Augmentation::Brightness { most: 0.2 },
    /// ])?;
    /// # Ok::<(), soybean_data::Error>(())
    /// ```
    ///
    /// # Errors
    /// If column 0 has no images `[height, width]` or `[channels, height, width]`, or a change does
    /// not fit them.
    fn augment(self, stream: u64, changes: Vec<Augmentation>) -> Result<Transformed, Error>
    where
        Self: Sized + 'static,
    {
        augmentation::augment(self, stream, changes)
    }

    /// Makes probabilities of the labels of a column: rows `[n_classes]` with 1 at the label and 0
    /// elsewhere. Labels are compared with the number of classes when they are read.
    ///
    /// # Errors
    /// If there is no such column with one `i32` in each row.
    fn one_hot(self, column: &str, n_classes: usize) -> Result<OneHot, Error>
    where
        Self: Sized + 'static,
    {
        OneHot::new(Arc::new(self), column, n_classes)
    }

    /// Mixes each row with another one of the same dataset. All columns must have numbers;
    /// [`one_hot`](Self::one_hot) makes some of labels.
    ///
    /// # Errors
    /// If a column has integers, `alpha` is not above 0, or `CutMix` finds no images in column 0.
    fn mix(self, stream: u64, mixing: Mixing) -> Result<Mixed, Error>
    where
        Self: Sized + 'static,
    {
        Mixed::new(Arc::new(self), stream, mixing)
    }

    /// Selects columns by name, in this order. The dataset also reads the others, to drop them.
    ///
    /// # Errors
    /// If there is no such column, several have the name, or one is selected twice.
    fn select(self, names: &[&str]) -> Result<Selected, Error>
    where
        Self: Sized + 'static,
    {
        Selected::by_name(Arc::new(self), names)
    }

    /// Gives the columns other names, in their order.
    ///
    /// # Errors
    /// If there are not as many names as columns.
    fn rename(self, names: &[&str]) -> Result<Selected, Error>
    where
        Self: Sized + 'static,
    {
        Selected::renamed(Arc::new(self), names)
    }

    /// Splits the rows at random into those for training and a held-out `fraction`, from 0 to 1.
    /// The split depends only on the number of rows and the seed. With another fraction, the first
    /// read of either part is an error.
    fn split(self, fraction: f64, seed: u64) -> (Subset, Subset)
    where
        Self: Sized + 'static,
    {
        Subset::split(Arc::new(self), fraction, seed)
    }
}

impl<D: Dataset + ?Sized> Dataset for Arc<D> {
    fn n_rows(&self) -> usize {
        (**self).n_rows()
    }

    fn columns(&self) -> &[ColumnSpec] {
        (**self).columns()
    }

    fn numbering(&self, column: usize) -> Option<Numbering> {
        (**self).numbering(column)
    }

    fn read(&self, rows: &[usize], into: &mut [ViewMut<'_>]) -> Result<(), Error> {
        (**self).read(rows, into)
    }

    fn read_in_pass(
        &self,
        pass: Pass,
        rows: &[usize],
        into: &mut [ViewMut<'_>],
    ) -> Result<(), Error> {
        (**self).read_in_pass(pass, rows, into)
    }

    fn shuffled(&self, pass: Pass) -> Option<Vec<usize>> {
        (**self).shuffled(pass)
    }

    fn is_in_memory(&self) -> bool {
        (**self).is_in_memory()
    }
}

/// The description of a column, which has one tensor for each row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnSpec {
    /// The name. A column with the name of a model's input is that input.
    pub name: String,
    /// The shape of one row's tensor; empty for a scalar.
    pub row: Vec<usize>,
    /// The type of the elements: `f32` or `i32`.
    pub dtype: DType,
}

impl ColumnSpec {
    /// Returns the number of elements of one row.
    #[must_use]
    pub fn row_elements(&self) -> usize {
        self.row.iter().product()
    }
}

/// Borrowed memory for elements of one type.
#[derive(Debug, PartialEq)]
pub enum ViewMut<'a> {
    /// Single precision numbers.
    F32(&'a mut [f32]),
    /// Integers, such as class labels.
    I32(&'a mut [i32]),
}

impl ViewMut<'_> {
    /// Borrows all elements.
    pub const fn all(&mut self) -> ViewMut<'_> {
        match self {
            Self::F32(elements) => ViewMut::F32(elements),
            Self::I32(elements) => ViewMut::I32(elements),
        }
    }

    /// Borrows a range of the elements.
    ///
    /// # Panics
    /// If the range is out of bounds.
    pub fn part(&mut self, range: Range<usize>) -> ViewMut<'_> {
        match self {
            Self::F32(elements) => ViewMut::F32(&mut elements[range]),
            Self::I32(elements) => ViewMut::I32(&mut elements[range]),
        }
    }

    /// Returns the memory of a column of `f32`.
    ///
    /// # Panics
    /// If the column has another type.
    pub fn f32s(&mut self) -> &mut [f32] {
        match self {
            Self::F32(elements) => elements,
            Self::I32(_) => unreachable!("expected a column of f32, found i32"),
        }
    }

    /// Returns the memory of a column of `i32`.
    ///
    /// # Panics
    /// If the column has another type.
    pub fn i32s(&mut self) -> &mut [i32] {
        match self {
            Self::I32(elements) => elements,
            Self::F32(_) => unreachable!("expected a column of i32, found f32"),
        }
    }
}
