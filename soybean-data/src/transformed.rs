//! Datasets whose rows are transformed as they are read.

use std::{fmt, sync::Arc};

use crate::{ColumnSpec, Dataset, Error, Numbering, Pass, RowRandom, ViewMut};

/// A function of the columns of one row, which it changes in place.
type RowTransform = dyn Fn(&mut [ViewMut<'_>], &mut RowRandom) + Send + Sync;

/// A dataset whose rows are transformed as they are read, as [`Dataset::transform`] makes it.
#[derive(Clone)]
pub struct Transformed {
    dataset: Arc<dyn Dataset>,
    stream: u64,
    transform: Arc<RowTransform>,
}

impl Transformed {
    pub(super) fn new(
        dataset: Arc<dyn Dataset>,
        stream: u64,
        transform: impl Fn(&mut [ViewMut<'_>], &mut RowRandom) + Send + Sync + 'static,
    ) -> Self {
        Self { dataset, stream, transform: Arc::new(transform) }
    }
}

impl Dataset for Transformed {
    fn n_rows(&self) -> usize {
        self.dataset.n_rows()
    }

    fn columns(&self) -> &[ColumnSpec] {
        self.dataset.columns()
    }

    fn numbering(&self, column: usize) -> Option<Numbering> {
        self.dataset.numbering(column)
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
        self.dataset.read_in_pass(pass, rows, into)?;
        let sizes: Vec<usize> = self.columns().iter().map(ColumnSpec::row_elements).collect();
        for (position, row) in rows.iter().enumerate() {
            let columns = into.iter_mut().zip(&sizes);
            let mut columns: Vec<ViewMut<'_>> =
                columns.map(|(view, n)| view.part(position * n..(position + 1) * n)).collect();
            (self.transform)(&mut columns, &mut pass.random(self.stream, *row));
        }
        Ok(())
    }

    fn shuffled(&self, pass: Pass) -> Option<Vec<usize>> {
        self.dataset.shuffled(pass)
    }
}

impl fmt::Debug for Transformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transformed")
            .field("columns", &self.columns())
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}
