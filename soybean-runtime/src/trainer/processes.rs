//! What a trainer does where there are several processes.

use std::{iter, ops::Range};

use soybean_plan::{Input, Mesh};

use super::{Trainer, batch::check_batch};
#[cfg(feature = "mpi")]
use crate::processes;
use crate::{Config, Error, Process, View, model::AnyModel, ranks::Ranks};

impl Trainer {
    /// Which of the processes of the run this is. Trainers of all processes are told the same, and so give the same results.
    #[must_use]
    pub fn process(&self) -> Process {
        self.ranks.process()
    }

    /// Whether any process says yes, for decisions that all must take alike; without others, what this one says. All processes ask at the same time.
    ///
    /// # Errors
    /// If a process has failed.
    pub fn any(&mut self, flag: bool) -> Result<bool, Error> {
        if let Some(failure) = self.earlier_failure() {
            return Err(failure);
        }
        self.ranks.any(flag).inspect_err(|error| self.failure = Some(error.clone()))
    }

    /// What came of something that all processes have done each for itself: where it failed in one, all fail, and their trainers have ended. Without others, the outcome itself.
    ///
    /// # Errors
    /// That of this process, or of the first of the others that is heard of.
    pub fn together<T>(&mut self, outcome: Result<T, Error>) -> Result<T, Error> {
        match outcome {
            Ok(value) => self.any(false).map(|_| value),
            Err(error) => Err(self.report_error(error)),
        }
    }

    /// The rows of a batch, by their indices in dim 0 of the inputs, that the ranks of this process read: others may be left as they are. All rows where the inputs
    /// differ in dim 0.
    #[must_use]
    pub fn rows_needed(&self) -> Vec<Range<usize>> {
        self.rows.clone()
    }

    /// Where this process has no batch that fits, the others must not wait for it.
    pub(super) fn check_batch(&mut self, batch: &[View<'_>]) -> Result<(), Error> {
        let inputs = &self.model.get().tables().inputs;
        let checked = check_batch(inputs, &self.rows, batch);
        checked.map_err(|error| self.report_error(error))
    }
}

/// The ranks of this process, or all of them where it is the only one.
pub(super) fn start_ranks(model: &AnyModel, config: &Config) -> Result<Box<dyn Ranks>, Error> {
    #[cfg(feature = "mpi")]
    if Process::start()? != Process::ONLY {
        return processes::start_ranks(model, config);
    }
    #[cfg(not(feature = "mpi"))]
    Process::start()?;
    super::start_ranks(model, config)
}

/// The rows of dim 0 that these ranks read of any input, in order.
pub(super) fn rows_needed(inputs: &[Input], mesh: &Mesh, ranks: Range<usize>) -> Vec<Range<usize>> {
    let extent = |input: &Input| input.tile.shape.first().copied().unwrap_or(1);
    let n_rows = inputs.iter().map(extent).max().unwrap_or(0);
    let is_each = ranks.len() == mesh.n_ranks() || inputs.iter().any(|it| extent(it) != n_rows);
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

    /// The rows that ranks of a mesh of 2 x 2 need of inputs with these shapes and tilings.
    fn rows(inputs: &[(&[usize], [Placement; 2])], ranks: Range<usize>) -> String {
        let input = |(shape, tiling): &(&[usize], [Placement; 2])| Input {
            name: "x".into(),
            dtype: DType::F32,
            tile: Tile { shape: Shape::new(shape), tiling: Tiling::new(tiling) },
            buffer: 0,
            n_classes: None,
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
        // The first axis takes the first digit: split along the second, a rank has every other stretch.
        let by_second: (&[usize], _) = (&[8, 3], [whole, split]);
        assert_eq!(rows(&[by_second], 1..2), "2..4 6..8");
        assert_eq!(rows(&[by_second], 0..2), "0..8");
        let by_both: (&[usize], _) = (&[8, 3], [split, split]);
        assert_eq!(rows(&[by_both, by_first], 3..4), "4..8");
        // One input is needed whole, or has other rows.
        assert_eq!(rows(&[by_both, (&[8], [whole, whole])], 3..4), "0..8");
        assert_eq!(rows(&[by_both, (&[4], [split, split])], 3..4), "0..8");
    }
}
