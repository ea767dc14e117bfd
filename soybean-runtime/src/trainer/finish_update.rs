//! Updates by the gradients of fewer steps than usually share one.

use soybean_plan::{DType, Input};

use super::{Trainer, updates::DroppedUpdate};
use crate::{
    Counters, Error, View,
    config::check_learning_rate,
    ranks::{BatchSource, Command, StepContext, TrainStep},
};

impl Trainer {
    /// Updates the parameters by the gradients of the steps since the last update, if there are
    /// any: with their mean, although fewer steps share the update than the model says. Returns
    /// their number. It is no step, so [`Self::n_steps`] stays.
    ///
    /// # Errors
    /// If the learning rate or the gradients are not finite, the steps counted nothing that the
    /// loss is a mean over, or a rank fails.
    pub fn finish_update(&mut self) -> Result<u64, Error> {
        let before = self.counters();
        let n_shared = before.n_accumulated;
        if n_shared == 0 {
            return Ok(0);
        }
        let learning_rate = self.learning_rate;
        check_learning_rate(learning_rate).map_err(|error| self.report_error(error))?;
        // To the ranks it is the last step of an update, on a batch that has no effect.
        let n_accumulated = self.tables().accumulate - 1;
        self.history.counters = Counters { n_accumulated, ..before };
        let context = self.context(0, learning_rate);
        let context = StepContext { n_shared, has_batch: false, ..context };
        let zeros: Vec<Zeros> = self.tables().inputs_of(0).iter().map(Zeros::of).collect();
        let views: Vec<View<'_>> = zeros.iter().map(Zeros::view).collect();
        let batch = BatchSource::Batch(&views);
        let (trace_from, is_inspected) = (None, false);
        self.call(Command::Train(TrainStep {
            entry: 0,
            batch,
            context,
            trace_from,
            is_inspected,
        }))?;
        let finished = self.finish_step(0, DroppedUpdate::default());
        let counters = &mut self.history.counters;
        counters.n_steps = before.n_steps;
        if counters.n_accumulated > 0 {
            counters.n_accumulated = n_shared;
        }
        finished.map(|_| n_shared)
    }
}

/// A tensor of zeros in place of one of a batch.
enum Zeros {
    F32(Vec<f32>),
    I32(Vec<i32>),
}

impl Zeros {
    fn of(input: &Input) -> Self {
        let n = input.tile.shape.n_elements();
        match input.dtype {
            DType::F32 | DType::Bf16 => Self::F32(vec![0.0; n]),
            DType::I32 => Self::I32(vec![0; n]),
        }
    }

    fn view(&self) -> View<'_> {
        match self {
            Self::F32(zeros) => View::F32(zeros),
            Self::I32(zeros) => View::I32(zeros),
        }
    }
}
