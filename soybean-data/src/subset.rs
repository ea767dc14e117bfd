//! Some rows of another dataset, by their numbers.

use std::{fmt, sync::Arc};

use soybean_plan::{NumberRange, random::mixed};

use crate::{ColumnSpec, Dataset, Error, Numbering, Pass, ViewMut, order::shuffle};

/// Some rows of a dataset, in any order. Nothing is copied.
#[derive(Clone)]
pub struct Subset {
    dataset: Arc<dyn Dataset>,
    rows: Arc<[usize]>,
    /// The fault of the split, which readers are told.
    fault: Option<Arc<str>>,
}

impl Subset {
    /// Selects the rows with these numbers.
    ///
    /// # Errors
    /// If a number is not that of a row.
    pub fn new(dataset: Arc<dyn Dataset>, rows: Vec<usize>) -> Result<Self, Error> {
        let n_rows = dataset.n_rows();
        match rows.iter().find(|it| **it >= n_rows) {
            Some(found) => Err(Error::data(format!("expected rows in 0..{n_rows}, found {found}"))),
            None => Ok(Self { dataset, rows: rows.into(), fault: None }),
        }
    }

    /// Splits the rows at random into those for training and a held-out `fraction`, from 0 to 1.
    /// Reading parts of another fraction is an error.
    pub(super) fn split(dataset: Arc<dyn Dataset>, fraction: f64, seed: u64) -> (Self, Self) {
        let n_rows = dataset.n_rows();
        let mut rows: Vec<usize> = (0..n_rows).collect();
        if let Err(fault) = NumberRange::SHARE.check("fraction", fraction) {
            let all = Self { dataset, rows: rows.into(), fault: Some(fault.into()) };
            return (all.clone(), all);
        }
        shuffle(&mut rows, mixed(seed));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a fraction of a number of rows"
        )]
        let n_held_out = (n_rows as f64 * fraction).round() as usize;
        let (held_out, train) = rows.split_at(n_held_out);
        (
            Self { dataset: Arc::clone(&dataset), rows: train.into(), fault: None },
            Self { dataset, rows: held_out.into(), fault: None },
        )
    }
}

impl Dataset for Subset {
    fn n_rows(&self) -> usize {
        self.rows.len()
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
        if let Some(fault) = &self.fault {
            return Err(Error::data(fault.to_string()));
        }
        let rows: Vec<usize> = rows.iter().map(|row| self.rows[*row]).collect();
        self.dataset.read_in_pass(pass, &rows, into)
    }

    fn shuffled(&self, pass: Pass) -> Option<Vec<usize>> {
        let order = self.dataset.shuffled(pass)?;
        let mut places = vec![0; order.len()];
        for (place, row) in order.into_iter().enumerate() {
            places[row] = place;
        }
        let mut own: Vec<usize> = (0..self.rows.len()).collect();
        own.sort_by_key(|it| places[self.rows[*it]]);
        Some(own)
    }

    fn is_in_memory(&self) -> bool {
        self.dataset.is_in_memory()
    }
}

impl fmt::Debug for Subset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subset").field("rows", &self.rows).finish_non_exhaustive()
    }
}
