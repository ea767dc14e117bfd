//! The model's own function, called with a trainer's batch and parameters.

use soybean_plan::Input;
use soybean_runtime::{Array, Error, Trainer, View};

use crate::{Tensor, command_line::CommandModel, eager};

/// The results of a model's function, called as ordinary Rust.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct EagerEvaluation {
    /// The tensors that the function returns: the loss, then the other outputs. All have `data`,
    /// also outputs of integers.
    pub outputs: Vec<Array>,
    /// The tensors that the function [probes](Tensor::probe), by name, in the order of the calls.
    pub probes: Vec<(String, Array)>,
}

/// Evaluates a model's function on a batch, with the parameters of a trainer.
pub(crate) fn eager_evaluation(
    model: &CommandModel,
    trainer: &mut Trainer,
    (entry, batch): (usize, &[View<'_>]),
) -> Result<EagerEvaluation, Error> {
    trainer.check_batch_of(entry, batch)?;
    let parameters = trainer.parameters()?;
    let parameters: Vec<Numbers> =
        parameters.iter().map(|(_, array)| Numbers::of_array(array)).collect();
    let oracle = Oracle::new(model, (entry, batch), &parameters, 0);
    let (outputs, probes) = eager::with_probes(|| oracle.evaluate(Tensor::to_array));
    Ok(EagerEvaluation { outputs, probes })
}

/// A shape and its elements in row-major order.
#[derive(Clone, Debug)]
pub(crate) struct Numbers {
    pub(crate) shape: Vec<usize>,
    pub(crate) elements: Vec<f64>,
    is_integer: bool,
}

impl Numbers {
    pub(crate) fn of_array(array: &Array) -> Self {
        let elements = array.data.iter().map(|it| f64::from(*it)).collect();
        Self { shape: array.shape.clone(), elements, is_integer: false }
    }

    fn of_view(view: &View<'_>, input: &Input) -> Self {
        let elements = match view {
            View::F32(data) => data.iter().map(|it| f64::from(*it)).collect(),
            View::I32(data) => data.iter().map(|it| f64::from(*it)).collect(),
        };
        let is_integer = matches!(view, View::I32(_));
        Self { shape: input.tile.shape.to_vec(), elements, is_integer }
    }

    fn of_tensor(tensor: Tensor) -> Self {
        Self { shape: tensor.shape(), elements: tensor.to_vec(), is_integer: false }
    }

    fn tensor(&self) -> Tensor {
        let tensor = Tensor::new(&self.shape, &self.elements);
        if self.is_integer { tensor.to_i32() } else { tensor }
    }
}

/// The model's function of its parameters, for a fixed batch.
pub(crate) struct Oracle {
    forward: fn(usize, &[Tensor]) -> Vec<Tensor>,
    entry: usize,
    inputs: Vec<Numbers>,
    parameters: Vec<Numbers>,
    /// The places among them of what the function asks for, call by call.
    calls: Vec<usize>,
    seed: u64,
}

impl Oracle {
    /// Returns the function of an entry on a batch. `parameters` are those of the model.
    pub(crate) fn new(
        model: &CommandModel,
        (entry, batch): (usize, &[View<'_>]),
        parameters: &[Numbers],
        seed: u64,
    ) -> Self {
        let tables = model.model.tables();
        let inputs = batch.iter().zip(tables.inputs_of(entry));
        let inputs = inputs.map(|(view, input)| Numbers::of_view(view, input)).collect();
        let distinct = tables.entries[entry].distinct_parameters();
        let place = |number: &usize| distinct.iter().position(|it| it == number);
        let calls = tables.entries[entry].parameters.iter().filter_map(place).collect();
        let parameters = distinct.iter().map(|it| parameters[*it].clone()).collect();
        Self { forward: model.forward, entry, inputs, parameters, calls, seed }
    }

    pub(crate) fn parameters(&self) -> &[Numbers] {
        &self.parameters
    }

    /// Returns the loss of a training step, counted from 1.
    pub(crate) fn training_loss(&self, step: u64) -> f64 {
        eager::in_training(self.seed, step, || self.evaluation())[0].elements[0]
    }

    /// Returns the loss and the other outputs of an evaluation.
    pub(crate) fn evaluation(&self) -> Vec<Numbers> {
        self.evaluate(Numbers::of_tensor)
    }

    fn evaluate<R>(&self, result: impl Fn(Tensor) -> R) -> Vec<R> {
        eager::scope(|| {
            let inputs: Vec<Tensor> = self.inputs.iter().map(Numbers::tensor).collect();
            let parameters: Vec<Tensor> = self.parameters.iter().map(Numbers::tensor).collect();
            let given: Vec<Tensor> = self.calls.iter().map(|it| parameters[*it]).collect();
            eager::with_parameters(&given, || {
                (self.forward)(self.entry, &inputs).into_iter().map(result).collect()
            })
        })
    }

    /// Returns the derivative of the mean loss of these training steps with respect to one element
    /// of a parameter, by central differences.
    pub(crate) fn slope(&mut self, parameter: usize, element: usize, steps: &[u64]) -> f64 {
        // In double precision the error of the difference is about 1e-10 for this distance, far
        // below that of single precision.
        const DISTANCE: f64 = 1e-5;
        let here = self.parameters[parameter].elements[element];
        let mut loss_at = |value| {
            self.parameters[parameter].elements[element] = value;
            let losses: f64 = steps.iter().map(|&it| self.training_loss(it)).sum();
            losses / steps.len() as f64
        };
        let slope = (loss_at(here + DISTANCE) - loss_at(here - DISTANCE)) / (2.0 * DISTANCE);
        self.parameters[parameter].elements[element] = here;
        slope
    }
}
