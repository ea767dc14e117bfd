//! `scope` in a model's function: names of parameters, and parameters that calls share.

/// Calls the closure; in a model, the names of the parameters in it begin with this name.
///
/// The same scope has the same parameters. A function that calls one scope several times, or in a
/// loop, so shares them, and their gradients add up. Their shapes and initial values must agree. In
/// ordinary Rust, the closure is called and nothing else.
///
/// ```
/// #[soybean::model(gpus = 2)]
/// mod towers {
///     use soybean::{nn, prelude::*};
///
///     fn tower(x: Tensor) -> Tensor {
///         nn::linear(nn::linear(x, 6).relu(), 3)
///     }
///
///     pub(crate) fn forward(a: Tensor<f32, 4, 8>, b: Tensor<f32, 4, 8>) -> Tensor {
///         let first = scope("tower", || tower(a));
///         let second = scope("tower", || tower(b));
///         // Without the scope, these calls would be `linear.0` and `linear.1`.
///         let scale = scope("scale", || nn::linear(first, 3));
///         (first * scale).mse(second)
///     }
/// }
///
/// fn main() -> Result<(), soybean::Error> {
///     let mut trainer = towers::Trainer::new(soybean::Config::default())?;
///     let parameters = trainer.parameters()?;
///     let names: Vec<&str> = parameters.iter().map(|it| &it.0[..]).collect();
///     assert_eq!(names, [
///         "tower.tower.linear.0.weight",
///         "tower.tower.linear.0.bias",
///         "tower.tower.linear.1.weight",
///         "tower.tower.linear.1.bias",
///         "scale.linear.weight",
///         "scale.linear.bias",
///     ]);
///     Ok(())
/// }
/// ```
pub fn scope<R>(_name: &str, compute: impl FnOnce() -> R) -> R {
    compute()
}
