//! The trait of models: programs that ranks run, as generated code or as values.
#![expect(unsafe_code, reason = "models make calls on raw memory")]

use std::sync::Arc;

use soybean_plan::{Executable, Kernel, Step, Tables};

use crate::Rank;

/// A compiled model. Generated code implements it with straight-line calls. An [`Executable`]
/// implements it with a loop over its steps.
///
/// Safe code cannot implement it, because ranks run these calls on raw memory:
///
/// ```compile_fail,E0200
/// # use soybean_plan::{Kernel, Tables};
/// # use soybean_runtime::{Model, Rank};
/// struct Changing { first: Tables, later: Tables }
///
/// impl Model for Changing {
/// #   fn tables(&self) -> &Tables { &self.first }
/// #   fn kernels(&self) -> &[Kernel] { &[] }
/// #   fn train(&self, _: usize, _: &mut Rank<'_>) {}
/// #   fn evaluate(&self, _: usize, _: &mut Rank<'_>) {}
/// }
/// ```
///
/// # Safety
/// Tables, kernels and calls are those of one [`Executable`], whenever a rank asks for them. A rank
/// may make fewer calls, if it then fails.
pub unsafe trait Model: Send + Sync {
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

// SAFETY: the program does not change, and somebody has vouched for it.
unsafe impl Model for Executable {
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
