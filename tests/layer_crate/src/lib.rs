//! Layers and operators for models of other crates, for the tests of `#[soybean::layer]` and
//! `#[soybean::operator]`.
#![forbid(unsafe_code)]

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

    /// The difference of what one block makes of two tensors.
    #[soybean::layer]
    pub fn siamese(a: Tensor, b: Tensor) -> Tensor {
        scope("tower", || residual(a)) - scope("tower", || residual(b))
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

/// Operators of this crate, and a layer that calls one.
pub mod operators {
    use soybean::{
        operator::{Float, TensorMut, TensorRef},
        prelude::*,
    };

    /// The sums of absolute differences between the rows of two matrices.
    #[soybean::operator(
        "bk, jk -> bj",
        gradient = distances_gradient,
        cuda = "float sum = 0;
                for (int k = 0; k < n_k; ++k) sum += fabsf(x(b, k) - y(j, k));
                return sum;"
    )]
    pub fn distances<F: Float>(x: TensorRef<'_, F>, y: TensorRef<'_, F>, out: TensorMut<'_, F>) {
        let (n_rows, width) = (y.shape[0], x.shape[1]);
        for (at, element) in out.data.iter_mut().enumerate() {
            let left = &x.data[at / n_rows * width..][..width];
            let right = &y.data[at % n_rows * width..][..width];
            let terms = left.iter().zip(right).map(|(x, y)| (*x - *y).abs());
            *element = terms.fold(F::zero(), |sum, term| sum + term);
        }
    }

    // d |x - y| / dx = sign(x - y) = -d |x - y| / dy
    #[soybean::layer]
    fn distances_gradient(
        x: Tensor,
        y: Tensor,
        _result: Tensor,
        gradient: Tensor,
    ) -> (Tensor, Tensor) {
        let signs = (x.unsqueeze(1) - y.unsqueeze(0)).sign() * gradient.unsqueeze(2);
        (signs.sum(1), -signs.sum(0))
    }

    /// The distances from trained centers.
    #[soybean::layer]
    pub fn distances_from_centers(x: Tensor, n_centers: usize) -> Tensor {
        distances(x, param("centers", [n_centers, x.dim(1)], normal(1.0)))
    }
}
