//! The trait of models: programs that ranks run, as generated code or as values.

use std::sync::Arc;

use soybean_plan::{Kernel, Program, Step, Tables};

use crate::Rank;

/// A compiled model. Generated code implements it with straight-line calls. A [`Program`]
/// implements it with a loop over its steps.
pub trait Model: Send + Sync {
    /// Returns the memory layout, inputs, parameters and outputs.
    fn tables(&self) -> &Tables;
    /// Returns the descriptors of all kernels and collectives.
    fn kernels(&self) -> &[Kernel];
    /// Runs one training step of the entry of this number, as calls on `rank`.
    fn train(&self, entry: usize, rank: &mut Rank<'_>);
    /// Runs one step that adds its gradients to those of earlier steps, as calls on `rank`. Only
    /// models of which several steps share an update have it.
    fn accumulate(&self, _rank: &mut Rank<'_>) {
        unreachable!("models of which several steps share an update accumulate gradients")
    }
    /// Runs the forward computation of the entry of this number, as calls on `rank`.
    fn evaluate(&self, entry: usize, rank: &mut Rank<'_>);
}

/// An owned or static model, which lives as long as its ranks.
#[derive(Clone)]
pub(crate) enum AnyModel {
    /// Generated code.
    Static(&'static dyn Model),
    /// A value, such as a program.
    Shared(Arc<dyn Model>),
}

impl AnyModel {
    /// Returns the model.
    pub(crate) fn get(&self) -> &dyn Model {
        match self {
            Self::Static(model) => *model,
            Self::Shared(model) => &**model,
        }
    }
}

impl Model for Program {
    fn tables(&self) -> &Tables {
        &self.tables
    }

    fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    fn train(&self, entry: usize, rank: &mut Rank<'_>) {
        run(&self.train[entry], rank);
    }

    fn accumulate(&self, rank: &mut Rank<'_>) {
        run(&self.accumulate, rank);
    }

    fn evaluate(&self, entry: usize, rank: &mut Rank<'_>) {
        run(&self.evaluate[entry], rank);
    }
}

fn run(steps: &[Step], rank: &mut Rank<'_>) {
    for step in steps {
        if rank.is_failed() {
            return;
        }
        rank.run(step.kernel, &step.inputs, &step.results);
    }
}
