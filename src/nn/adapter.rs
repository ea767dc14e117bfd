//! Adapters: small trained layers beside frozen ones. Source: LoRA, Hu et al. 2021.

use super::linear;
use crate::prelude::*;

/// The options of [`lora`] and [`linear_with_lora`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lora {
    /// The features between the two factors, `r` in the paper.
    pub rank: usize,
    /// The factor of the adapter's result, `alpha / r` in the paper.
    pub scale: f64,
}

/// Computes what a low-rank adapter adds to the result of another layer of `x [.., in]`: `scale * x
/// a^T b^T`, `[.., out_features]`, with `a [rank, in]`, uniform within `1 / sqrt(in)` of 0, and `b
/// [out_features, rank]`, zeros. At first the result is 0.
///
/// The attribute's `freeze` names the parameters of the other layers, so that adapters alone are
/// trained. The names of the others stay those of a model without adapters.
///
/// ```
/// #[soybean::model(gpus = 2, optimizer = adam(), freeze = ["linear.*"])]
/// mod classifier {
///     use soybean::{nn, prelude::*};
///
///     pub(crate) fn forward(x: Tensor<f32, 8, 16>, y: Tensor<i32, 8>) -> Tensor {
///         let adapter = nn::Lora { rank: 2, scale: 4.0 };
///         let h = nn::linear(x, 32) + nn::lora(x, 32, adapter);
///         nn::linear(h.relu(), 4).cross_entropy(y)
///     }
/// }
///
/// fn main() -> Result<(), soybean::Error> {
///     let mut trainer = classifier::Trainer::new(soybean::Config::default())?;
///     trainer.step(&classifier::Batch { x: &[0.5; 8 * 16], y: &[3; 8] })?;
///     let adapters = trainer.trained_parameters()?;
///     let names: Vec<&str> = adapters.iter().map(|it| it.0.as_str()).collect();
///     assert_eq!(names, ["lora.a", "lora.b"]);
///     Ok(())
/// }
/// ```
#[crate::layer]
pub fn lora(x: Tensor, out_features: usize, options: Lora) -> Tensor {
    let Lora { rank, scale } = options;
    let bound = 1.0 / (x.dim(-1) as f64).sqrt();
    let a = param("a", [rank, x.dim(-1)], uniform(-bound, bound));
    let b = param("b", [out_features, rank], zeros());
    x.matmul(a.transpose()).matmul(b.transpose()) * scale
}

/// Applies [`linear`], and adds [`lora`]. The attribute's `freeze = ["*.linear.*"]` trains the
/// adapter alone.
#[crate::layer]
pub fn linear_with_lora(x: Tensor, out_features: usize, options: Lora) -> Tensor {
    linear(x, out_features) + lora(x, out_features, options)
}
