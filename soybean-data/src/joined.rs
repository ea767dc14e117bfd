//! Datasets joined column by column.

use std::{fmt, sync::Arc};

use crate::{ColumnSpec, Dataset, Error, Numbering, Pass, ViewMut};

/// The columns of several datasets with the same rows, such as a file of images and one of labels.
#[derive(Clone)]
pub struct Joined {
    parts: Vec<Arc<dyn Dataset>>,
    columns: Vec<ColumnSpec>,
    n_rows: usize,
}

impl Joined {
    /// Joins the columns of these datasets, in their order.
    ///
    /// # Errors
    /// If there is no dataset, or their numbers of rows differ.
    pub fn new(parts: Vec<Arc<dyn Dataset>>) -> Result<Self, Error> {
        let Some(first) = parts.first() else {
            return Err(Error::data("expected at least one dataset to join, found none"));
        };
        let n_rows = first.n_rows();
        if let Some(other) = parts.iter().find(|it| it.n_rows() != n_rows) {
            let (found, column) = (other.n_rows(), other.columns().first());
            let name = column.map_or("", |it| &it.name);
            return Err(Error::data(format!(
                "dataset of `{name}`: expected {n_rows} rows, as the first one has, found {found}"
            )));
        }
        let columns = parts.iter().flat_map(|it| it.columns()).cloned().collect();
        Ok(Self { columns, n_rows, parts })
    }
}

impl Dataset for Joined {
    fn n_rows(&self) -> usize {
        self.n_rows
    }

    fn columns(&self) -> &[ColumnSpec] {
        &self.columns
    }

    fn numbering(&self, mut column: usize) -> Option<Numbering> {
        for part in &self.parts {
            let n_columns = part.columns().len();
            if column < n_columns {
                return part.numbering(column);
            }
            column -= n_columns;
        }
        None
    }

    fn read(&self, rows: &[usize], into: &mut [ViewMut<'_>]) -> Result<(), Error> {
        self.read_in_pass(Pass::default(), rows, into)
    }

    fn read_in_pass(
        &self,
        pass: Pass,
        rows: &[usize],
        into: &mut [ViewMut<'_>],
    ) -> Result<(), Error> {
        let mut rest = into;
        for part in &self.parts {
            let (columns, others) = rest.split_at_mut(part.columns().len());
            part.read_in_pass(pass, rows, columns)?;
            rest = others;
        }
        Ok(())
    }

    fn shuffled(&self, pass: Pass) -> Option<Vec<usize>> {
        self.parts.iter().find_map(|it| it.shuffled(pass))
    }

    fn is_in_memory(&self) -> bool {
        self.parts.iter().all(|it| it.is_in_memory())
    }
}

impl fmt::Debug for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joined").field("columns", &self.columns).finish_non_exhaustive()
    }
}
