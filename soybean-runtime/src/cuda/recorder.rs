//! Recording of a model's calls as a list of steps.

use std::cell::RefCell;

use soybean_plan::{BufferId, Step};

use crate::{
    Error, Model, Profile, Rank,
    backend::{Communicator, Kernels},
};

/// Records the steps of a phase, which are the same for every rank.
pub(crate) fn record(
    model: &dyn Model,
    phase: impl Fn(&dyn Model, &mut Rank<'_>),
) -> Result<Vec<Step>, Error> {
    let steps = RefCell::new(Vec::new());
    let (mut kernels, mut collectives) = (Recorder(&steps), Recorder(&steps));
    let mut profile = Profile::default();
    let mut rank = Rank::new(model.kernels(), &mut kernels, &mut collectives, &mut profile, None);
    phase(model, &mut rank);
    rank.finish()?;
    Ok(steps.into_inner())
}

struct Recorder<'a>(&'a RefCell<Vec<Step>>);

impl Kernels for Recorder<'_> {
    fn run(
        &mut self,
        kernel: usize,
        inputs: &[BufferId],
        results: &[BufferId],
    ) -> Result<(), Error> {
        let (inputs, results) = (inputs.to_vec(), results.to_vec());
        self.0.borrow_mut().push(Step { kernel, inputs, results });
        Ok(())
    }

    fn non_finite(&mut self, _: BufferId) -> Result<Option<f32>, Error> {
        Ok(None)
    }
}

impl Communicator for Recorder<'_> {
    fn communicate(
        &mut self,
        kernel: usize,
        inputs: &[BufferId],
        results: &[BufferId],
    ) -> Result<u64, Error> {
        self.run(kernel, inputs, results)?;
        Ok(0)
    }
}
