//! Class labels as probabilities of the classes.

use std::{fmt, sync::Arc};

use soybean_plan::DType;

use crate::{ColumnSpec, Dataset, Error, Numbering, Pass, ViewMut};

/// A dataset with a column of labels as probabilities, as [`Dataset::one_hot`] makes it.
#[derive(Clone)]
pub struct OneHot {
    dataset: Arc<dyn Dataset>,
    /// The position of the column.
    labels: usize,
    n_classes: usize,
    columns: Vec<ColumnSpec>,
}

impl OneHot {
    pub(super) fn new(
        dataset: Arc<dyn Dataset>,
        column: &str,
        n_classes: usize,
    ) -> Result<Self, Error> {
        let mut columns = dataset.columns().to_vec();
        let is_label =
            |it: &ColumnSpec| it.name == column && it.dtype == DType::I32 && it.row_elements() == 1;
        let Some(labels) = columns.iter().position(is_label) else {
            let known: Vec<String> = columns
                .iter()
                .map(|it| format!("{} of {} {:?}", it.name, it.dtype, it.row))
                .collect();
            let known = known.join(", ");
            return Err(Error::data(format!(
                "expected a column `{column}` of one i32 a row, found {known}"
            )));
        };
        if n_classes == 0 {
            return Err(Error::data("`n_classes` must be at least 1, found 0"));
        }
        columns[labels].row = vec![n_classes];
        columns[labels].dtype = DType::F32;
        Ok(Self { dataset, labels, n_classes, columns })
    }
}

impl Dataset for OneHot {
    fn n_rows(&self) -> usize {
        self.dataset.n_rows()
    }

    fn columns(&self) -> &[ColumnSpec] {
        &self.columns
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
        let mut labels = vec![0; rows.len()];
        // The labels have memory of their own.
        let mut views: Vec<ViewMut<'_>> = into.iter_mut().map(ViewMut::all).collect();
        views[self.labels] = ViewMut::I32(&mut labels);
        self.dataset.read_in_pass(pass, rows, &mut views)?;
        let all = into[self.labels].f32s().chunks_mut(self.n_classes.max(1));
        for ((probabilities, label), row) in all.zip(labels).zip(rows) {
            probabilities.fill(0.0);
            let probability = usize::try_from(label).ok().and_then(|it| probabilities.get_mut(it));
            *probability.ok_or_else(|| {
                let (name, n) = (&self.columns[self.labels].name, self.n_classes);
                Error::data(format!(
                    "row {row}: `{name}`: expected a label in 0..{n}, found {label}"
                ))
            })? = 1.0;
        }
        Ok(())
    }

    fn shuffled(&self, pass: Pass) -> Option<Vec<usize>> {
        self.dataset.shuffled(pass)
    }

    fn is_in_memory(&self) -> bool {
        self.dataset.is_in_memory()
    }
}

impl fmt::Debug for OneHot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneHot").field("columns", &self.columns).finish_non_exhaustive()
    }
}
