//! Layers for models of other crates, for the tests of `#[soybean::layer]`.

pub use dense::dense;

mod dense {
    use soybean::prelude::*;

    /// A dense layer.
    #[soybean::layer]
    #[must_use]
    pub fn dense(x: Tensor, units: usize) -> Tensor {
        let w = param("w", [units, x.dim(1)], he_normal());
        x.matmul(w.transpose()) + param("b", [units], zeros())
    }
}

/// Layers that call layers.
pub mod blocks {
    use soybean::prelude::*;

    use crate::dense as linear;

    /// The ratio of the inner to the outer width of a block.
    #[soybean::constant]
    pub const EXPANSION: usize = 2 * HALF;

    #[soybean::constant]
    const HALF: usize = 1;

    /// Two layers with a shortcut.
    #[soybean::layer]
    pub fn residual(x: Tensor) -> Tensor {
        const SLOPE: f64 = 0.1;
        let width = x.dim(1);
        x + linear(linear(x, width * EXPANSION).leaky_relu(SLOPE), width)
    }

    /// Multiplies by a trained number.
    #[soybean::layer]
    pub fn scale(x: Tensor) -> Tensor {
        x * param("factor", [], ones())
    }
}

/// Layers with the names of others.
pub mod others {
    use soybean::prelude::*;

    /// Adds a trained number; another layer is also called `scale`.
    #[soybean::layer]
    pub fn scale(x: Tensor) -> Tensor {
        x + param("shift", [], zeros())
    }
}
