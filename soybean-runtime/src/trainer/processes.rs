//! The trainer in a run of several processes.

use std::{iter, ops::Range};

use soybean_plan::{Input, Mesh};

use super::{Trainer, batch::check_batch};
#[cfg(feature = "mpi")]
use crate::processes;
use crate::{Config, Error, ErrorKind, Process, View, model::AnyModel, ranks::Ranks};

/// The length to which the texts of processes are padded or truncated.
const TEXT_BYTES: usize = 256;

impl Trainer {
    /// Returns the identity of this process. The trainers of all processes get the same calls, and
    /// return the same results.
    #[must_use]
    pub fn process(&self) -> Process {
        self.ranks.process()
    }

    /// Returns true if `flag` is true in any process. It is for decisions that all processes must
    /// take alike. All processes call this at the same time.
    ///
    /// # Errors
    /// If a process has failed.
    pub fn any(&mut self, flag: bool) -> Result<bool, Error> {
        if let Some(failure) = self.earlier_failure() {
            return Err(failure);
        }
        self.ranks.any(flag).inspect_err(|error| self.failure = Some(error.clone()))
    }

    /// Combines the outcomes of all processes. If one of them failed, all return an error, and none
    /// of their trainers can be used. A single process returns its outcome.
    ///
    /// # Errors
    /// The error of this process, or of the first other process whose error arrives.
    pub fn together<T>(&mut self, outcome: Result<T, Error>) -> Result<T, Error> {
        match outcome {
            Ok(value) => self.any(false).map(|_| value),
            Err(error) => Err(self.report_error(error)),
        }
    }

    /// Returns the text of the first process, truncated to 256 bytes, in all processes. All
    /// processes call this at the same time.
    ///
    /// # Errors
    /// If a process has failed.
    pub fn text_of_first(&mut self, own: &str) -> Result<String, Error> {
        let texts = self.texts(own)?;
        Ok(texts.into_iter().next().unwrap_or_default())
    }

    /// Checks that all processes give the same text, such as a checksum of a file that each of them
    /// reads. `what` names it in the error. All processes call this at the same time.
    ///
    /// # Errors
    /// If the texts differ, in all processes, or if a process has failed.
    pub fn agree(&mut self, what: &str, own: &str) -> Result<(), Error> {
        let texts = self.texts(own)?;
        let Some(other) = texts.iter().position(|it| *it != texts[0]) else { return Ok(()) };
        let (first, found) = (&texts[0], &texts[other]);
        Err(Error::new(
            ErrorKind::Process,
            format!(
                "expected the same {what} in all processes, found {first} in process 0, and {found} in process {other}"
            ),
        ))
    }

    /// Returns the texts of all processes, truncated.
    fn texts(&mut self, own: &str) -> Result<Vec<String>, Error> {
        if let Some(failure) = self.earlier_failure() {
            return Err(failure);
        }
        let mut bytes = [0; TEXT_BYTES];
        let own = &own[..own.floor_char_boundary(TEXT_BYTES)];
        bytes[..own.len()].copy_from_slice(own.as_bytes());
        let gathered = self.ranks.gather(&bytes);
        let gathered = gathered.inspect_err(|error| self.failure = Some(error.clone()))?;
        let text = |it: &[u8]| String::from_utf8_lossy(it).trim_end_matches('\0').to_owned();
        Ok(gathered.chunks(TEXT_BYTES).map(text).collect())
    }

    /// Returns the rows of a batch that the ranks of this process read, as indices in dim 0 of the
    /// inputs. Other rows may have any values. If the inputs differ in dim 0, all rows are read.
    #[must_use]
    pub fn rows_needed(&self) -> Vec<Range<usize>> {
        self.rows[0].clone()
    }

    /// Checks that a batch fits the model. An error is reported to the other processes, so that
    /// they do not wait.
    ///
    /// # Errors
    /// If the number of tensors, their types or their sizes do not fit, or a label is out of range.
    pub fn check_batch(&mut self, batch: &[View<'_>]) -> Result<(), Error> {
        self.check_batch_of(0, batch)
    }

    /// Does the same for a batch of the entry of this number.
    ///
    /// # Errors
    /// As [`Self::check_batch`].
    pub fn check_batch_of(&mut self, entry: usize, batch: &[View<'_>]) -> Result<(), Error> {
        let inputs = self.model.get().tables().inputs_of(entry);
        let checked = check_batch(inputs, &self.rows[entry], batch);
        checked.map_err(|error| self.report_error(error))
    }
}

/// Starts the ranks of this process, or all ranks if it is the only one.
pub(super) fn start_ranks(model: &AnyModel, config: &Config) -> Result<Box<dyn Ranks>, Error> {
    #[cfg(feature = "mpi")]
    if Process::start()? != Process::ONLY {
        return processes::start_ranks(model, config);
    }
    #[cfg(not(feature = "mpi"))]
    Process::start()?;
    super::start_ranks(model, config)
}

/// Returns the rows of dim 0 that these ranks read of any input, in order. Scalars have none.
pub(super) fn rows_needed(inputs: &[Input], mesh: &Mesh, ranks: Range<usize>) -> Vec<Range<usize>> {
    let extents = || inputs.iter().filter_map(|it| it.tile.shape.first().copied());
    let n_rows = extents().max().unwrap_or(0);
    let is_each = ranks.len() == mesh.n_ranks() || extents().any(|it| it != n_rows);
    if is_each {
        return iter::once(0..n_rows).collect();
    }
    let mut is_needed = vec![false; n_rows];
    for input in inputs.iter().filter(|it| !it.tile.shape.is_empty()) {
        for rank in ranks.clone() {
            let coordinates = mesh.coordinates(rank);
            for row in input.tile.indices(0, mesh, &coordinates) {
                is_needed[row] = true;
            }
        }
    }
    let mut rows: Vec<Range<usize>> = Vec::new();
    for row in (0..n_rows).filter(|it| is_needed[*it]) {
        match rows.last_mut().filter(|it| it.end == row) {
            Some(last) => last.end = row + 1,
            None => rows.push(row..row + 1),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use soybean_plan::{DType, Placement, Shape, Tile, Tiling};

    use super::*;

    /// Returns the rows that ranks of a 2 x 2 mesh need of inputs with these shapes and tilings.
    fn rows(inputs: &[(&[usize], [Placement; 2])], ranks: Range<usize>) -> String {
        let input = |(shape, tiling): &(&[usize], [Placement; 2])| Input {
            name: "x".into(),
            dtype: DType::F32,
            tile: Tile::new(Shape::new(shape), Tiling::new(tiling)),
            buffer: 0,
            n_classes: None,
            ignored_label: None,
            is_queried: true,
        };
        let inputs: Vec<Input> = inputs.iter().map(input).collect();
        let rows = rows_needed(&inputs, &Mesh::new(4), ranks);
        rows.iter().map(|it| format!("{it:?} ")).collect::<String>().trim().to_owned()
    }

    #[test]
    fn a_process_needs_the_rows_of_its_ranks() {
        let (split, whole) = (Placement::Split(0), Placement::Replicated);
        let by_first: (&[usize], _) = (&[8, 3], [split, whole]);
        assert_eq!(rows(&[by_first], 0..2), "0..4");
        assert_eq!(rows(&[by_first], 2..4), "4..8");
        assert_eq!(rows(&[by_first], 0..4), "0..8");
        // The first axis takes the first digit. Split along the second, a rank has every other
        // range.
        let by_second: (&[usize], _) = (&[8, 3], [whole, split]);
        assert_eq!(rows(&[by_second], 1..2), "2..4 6..8");
        assert_eq!(rows(&[by_second], 0..2), "0..8");
        let by_both: (&[usize], _) = (&[8, 3], [split, split]);
        assert_eq!(rows(&[by_both, by_first], 3..4), "4..8");
        // If one input is needed whole or has another number of rows, all rows are needed.
        assert_eq!(rows(&[by_both, (&[8], [whole, whole])], 3..4), "0..8");
        assert_eq!(rows(&[by_both, (&[4], [split, split])], 3..4), "0..8");
        assert_eq!(rows(&[by_both, (&[], [whole, whole])], 3..4), "6..8");
    }
}
