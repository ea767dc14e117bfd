//! Random tensors.

use std::f64::consts::TAU;

use soybean_plan::noise;

use super::{Tensor, arena::Value, training::next_noise};

impl Tensor {
    /// Returns as many random numbers as the tensor has elements: in training independent and
    /// uniform from 0 to below 1, and in evaluation and inference their mean, 0.5. They depend on
    /// the seed, the step, the index of the call in the model and the element's position, but not
    /// on the tiling of the tensor, and on none of its elements.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// use soybean::eager::in_training;
    ///
    /// let x = Tensor::new([1000], &[3.0; 1000]);
    /// assert_eq!(x.rand_like().to_vec(), [0.5; 1000]);
    /// let (seed, step) = (0, 1);
    /// let numbers = in_training(seed, step, || x.rand_like());
    /// assert!((450.0..550.0).contains(&numbers.lt(0.5).sum(..).item()));
    /// ```
    #[must_use]
    pub fn rand_like(self) -> Self {
        self.random_like(0.5, f64::from)
    }

    /// Returns as many random numbers as the tensor has elements: in training independent and
    /// standard normal, and in evaluation and inference their mean, 0. They depend on the same as
    /// those of [`Self::rand_like`]. Source: Box and Muller 1958.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// use soybean::eager::in_training;
    ///
    /// let x = Tensor::new([1000], &[3.0; 1000]);
    /// assert_eq!(x.randn_like().to_vec(), [0.0; 1000]);
    /// let (seed, step) = (0, 1);
    /// let numbers = in_training(seed, step, || x.randn_like());
    /// assert!((0.9..1.1).contains(&numbers.square().mean(..).item()));
    /// ```
    #[must_use]
    pub fn randn_like(self) -> Self {
        self.random_like(0.0, |state| {
            let [u, v] = [0.0, 1.0].map(|number| f64::from(noise(state, number)));
            (-2.0 * (1.0 - u).ln()).sqrt() * (TAU * v).cos()
        })
    }

    fn random_like(self, mean: f64, number: impl Fn(f32) -> f64) -> Self {
        let shape = self.shape();
        let n_elements: usize = shape.iter().product();
        let data = match next_noise() {
            None => vec![mean; n_elements],
            Some((step, own_number)) => {
                (0..n_elements).map(|at| number(state(step, own_number, &shape, at))).collect()
            }
        };
        Self::from_value(Value { shape, data })
    }
}

/// Returns the random number of an element, by the numbers of the step and of the call.
pub(super) fn state(step: f32, own_number: u32, shape: &[usize], at: usize) -> f32 {
    let own = noise(step, own_number as f32);
    position(shape, at).fold(own, |state, index| noise(state, index as f32))
}

/// Returns the indices of an element, outermost first.
fn position(shape: &[usize], at: usize) -> impl Iterator<Item = usize> {
    (0..shape.len()).map(move |dim| {
        let inner: usize = shape[dim + 1..].iter().product();
        at / inner % shape[dim]
    })
}
