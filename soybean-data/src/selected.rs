//! Columns of another dataset, chosen by name or under other names.

use std::{fmt, sync::Arc};

use crate::{ColumnSpec, Dataset, Error, Numbering, Pass, Values, ViewMut};

/// Columns of a dataset, as [`Dataset::select`] and [`Dataset::rename`] make them.
#[derive(Clone)]
pub struct Selected {
    dataset: Arc<dyn Dataset>,
    /// The position of each column in the dataset.
    positions: Vec<usize>,
    columns: Vec<ColumnSpec>,
}

impl Selected {
    pub(super) fn by_name(dataset: Arc<dyn Dataset>, names: &[&str]) -> Result<Self, Error> {
        let columns = dataset.columns();
        let position = |name: &&str| {
            let mut found = columns.iter().enumerate().filter(|it| it.1.name == **name);
            match (found.next(), found.next()) {
                (Some((position, _)), None) => Ok(position),
                (first, _) => {
                    let found = if first.is_some() { "several" } else { "none" };
                    let of = listed(columns.iter().map(|it| &it.name));
                    Err(Error::data(format!(
                        "expected one column `{name}`, found {found} among {of}"
                    )))
                }
            }
        };
        let positions = names.iter().map(position).collect::<Result<Vec<_>, Error>>()?;
        Self::at(dataset, positions)
    }

    /// Takes the columns at these positions.
    ///
    /// # Errors
    /// If there is none, or one is given twice.
    pub fn at(dataset: Arc<dyn Dataset>, positions: Vec<usize>) -> Result<Self, Error> {
        let all = dataset.columns();
        let n_columns = all.len();
        let is_wrong =
            |(place, it): (usize, &usize)| *it >= n_columns || positions[..place].contains(it);
        if positions.is_empty() || positions.iter().enumerate().any(is_wrong) {
            return Err(Error::data(format!(
                "expected different columns in 0..{n_columns}, found {positions:?}"
            )));
        }
        let columns = positions.iter().map(|it| all[*it].clone()).collect();
        Ok(Self { dataset, positions, columns })
    }

    pub(super) fn renamed(dataset: Arc<dyn Dataset>, names: &[&str]) -> Result<Self, Error> {
        let n_columns = dataset.columns().len();
        if names.len() != n_columns {
            let (n, names) = (names.len(), listed(names.iter()));
            return Err(Error::data(format!(
                "expected {n_columns} names, one for each column, found {n}: {names}"
            )));
        }
        let mut selected = Self::at(dataset, (0..n_columns).collect())?;
        for (column, name) in selected.columns.iter_mut().zip(names) {
            (*name).clone_into(&mut column.name);
        }
        Ok(selected)
    }
}

fn listed(names: impl Iterator<Item: AsRef<str>>) -> String {
    names.map(|it| format!("`{}`", it.as_ref())).collect::<Vec<_>>().join(", ")
}

impl Dataset for Selected {
    fn n_rows(&self) -> usize {
        self.dataset.n_rows()
    }

    fn columns(&self) -> &[ColumnSpec] {
        &self.columns
    }

    fn numbering(&self, column: usize) -> Option<Numbering> {
        self.dataset.numbering(self.positions[column])
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
        let all = self.dataset.columns();
        let mut views: Vec<Option<ViewMut<'_>>> = all.iter().map(|_| None).collect();
        for (position, view) in self.positions.iter().zip(into) {
            views[*position] = Some(view.all());
        }
        // The dataset also reads the columns that are not selected.
        let unused = views.iter().zip(all).filter(|it| it.0.is_none());
        let unused = unused.map(|it| Values::zeros(it.1.dtype, rows.len() * it.1.row_elements()));
        let mut unused = unused.collect::<Result<Vec<Values>, Error>>()?;
        let mut unused = unused.iter_mut().map(Values::view_mut);
        let views = views.into_iter().map(|it| it.or_else(|| unused.next()));
        let mut views: Vec<ViewMut<'_>> = views.flatten().collect();
        self.dataset.read_in_pass(pass, rows, &mut views)
    }

    fn shuffled(&self, pass: Pass) -> Option<Vec<usize>> {
        self.dataset.shuffled(pass)
    }

    fn is_in_memory(&self) -> bool {
        self.dataset.is_in_memory()
    }
}

impl fmt::Debug for Selected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Selected")
            .field("columns", &self.columns)
            .field("positions", &self.positions)
            .finish_non_exhaustive()
    }
}
