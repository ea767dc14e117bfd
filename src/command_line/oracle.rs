//! The model's own function, called with a trainer's batch and parameters.

use soybean_plan::Input;
use soybean_runtime::{Array, View};

use super::CommandModel;
use crate::{Tensor, eager};

/// A shape and its elements in row-major order.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    pub(super) shape: Vec<usize>,
    pub(super) elements: Vec<f64>,
}

impl Numbers {
    pub(super) fn of_array(array: &Array) -> Self {
        let elements = array.data.iter().map(|it| f64::from(*it)).collect();
        Self { shape: array.shape.clone(), elements }
    }

    fn of_view(view: &View<'_>, input: &Input) -> Self {
        let elements = match view {
            View::F32(data) => data.iter().map(|it| f64::from(*it)).collect(),
            View::I32(data) => data.iter().map(|it| f64::from(*it)).collect(),
        };
        Self { shape: input.tile.shape.to_vec(), elements }
    }

    fn of_tensor(tensor: Tensor) -> Self {
        Self { shape: tensor.shape(), elements: tensor.to_vec() }
    }

    fn tensor(&self) -> Tensor {
        Tensor::new(&self.shape, &self.elements)
    }
}

/// The model's function of its parameters, for a fixed batch.
pub(super) struct Oracle {
    forward: fn(&[Tensor]) -> Vec<Tensor>,
    inputs: Vec<Numbers>,
    parameters: Vec<Numbers>,
    seed: u64,
}

impl Oracle {
    pub(super) fn new(
        model: &CommandModel,
        batch: &[View<'_>],
        parameters: Vec<Numbers>,
        seed: u64,
    ) -> Self {
        let inputs = batch.iter().zip(model.model.tables().inputs.iter());
        let inputs = inputs.map(|(view, input)| Numbers::of_view(view, input)).collect();
        Self { forward: model.forward, inputs, parameters, seed }
    }

    pub(super) fn parameters(&self) -> &[Numbers] {
        &self.parameters
    }

    /// Returns the loss of a training step, counted from 1.
    pub(super) fn training_loss(&self, step: u64) -> f64 {
        eager::in_training(self.seed, step, || self.evaluation())[0].elements[0]
    }

    /// Returns the loss and the other outputs of an evaluation.
    pub(super) fn evaluation(&self) -> Vec<Numbers> {
        eager::scope(|| {
            let inputs: Vec<Tensor> = self.inputs.iter().map(Numbers::tensor).collect();
            let parameters: Vec<Tensor> = self.parameters.iter().map(Numbers::tensor).collect();
            eager::with_parameters(&parameters, || {
                (self.forward)(&inputs).into_iter().map(Numbers::of_tensor).collect()
            })
        })
    }

    /// Returns the derivative of the mean loss of these training steps with respect to one element
    /// of a parameter, by central differences.
    pub(super) fn slope(&mut self, parameter: usize, element: usize, steps: &[u64]) -> f64 {
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
