//! Functions of one number, applied to every element.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};

use super::{Tensor, arena::Value};

impl Tensor {
    /// Computes `max(x, 0)`.
    #[must_use]
    pub fn relu(self) -> Self {
        self.map(|x| if x > 0.0 || x.is_nan() { x } else { 0.0 })
    }

    /// Returns `x` where `x > 0`, else `slope * x`.
    #[must_use]
    pub fn leaky_relu(self, slope: f64) -> Self {
        self.map(|x| if x > 0.0 { x } else { slope * x })
    }

    /// Computes the hyperbolic tangent.
    #[must_use]
    pub fn tanh(self) -> Self {
        self.map(f64::tanh)
    }

    /// Computes `1 / (1 + e^-x)`.
    #[must_use]
    pub fn sigmoid(self) -> Self {
        self.map(sigmoid)
    }

    /// Computes `x * (1 + erf(x / sqrt(2))) / 2`. Source: Hendrycks & Gimpel 2016.
    #[must_use]
    pub fn gelu(self) -> Self {
        self.map(|x| 0.5 * x * (1.0 + libm::erf(x * FRAC_1_SQRT_2)))
    }

    /// Computes `x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2`, the approximation of
    /// [`gelu`](Self::gelu).
    #[must_use]
    pub fn gelu_tanh(self) -> Self {
        self.map(|x| 0.5 * x * (1.0 + (FRAC_2_PI.sqrt() * (x + 0.044_715 * x.powi(3))).tanh()))
    }

    /// Computes `x * sigmoid(x)`.
    #[must_use]
    pub fn silu(self) -> Self {
        self.map(|x| x * sigmoid(x))
    }

    /// Computes `e^x`.
    #[must_use]
    pub fn exp(self) -> Self {
        self.map(f64::exp)
    }

    /// Computes the natural logarithm.
    #[must_use]
    pub fn log(self) -> Self {
        self.map(f64::ln)
    }

    /// Computes the square root.
    #[must_use]
    pub fn sqrt(self) -> Self {
        self.map(f64::sqrt)
    }

    /// Computes `1 / sqrt(x)`.
    #[must_use]
    pub fn rsqrt(self) -> Self {
        self.map(|x| 1.0 / x.sqrt())
    }

    /// Computes `x^2`.
    #[must_use]
    pub fn square(self) -> Self {
        self.map(|x| x * x)
    }

    /// Computes the absolute value. Its gradient at 0 is 0.
    #[must_use]
    pub fn abs(self) -> Self {
        self.map(f64::abs)
    }

    /// Returns 1 where `x > 0`, -1 where `x < 0`, else 0. No gradient flows through it.
    #[must_use]
    pub fn sign(self) -> Self {
        self.map(|x| f64::from(i8::from(x > 0.0) - i8::from(x < 0.0)))
    }

    /// Computes `x^n` for an integer `n`.
    #[must_use]
    pub fn powi(self, n: i32) -> Self {
        self.map(|x| x.powi(n))
    }

    /// Returns the same elements; in a trainer, no gradient flows through it.
    #[must_use]
    pub fn detach(self) -> Self {
        self
    }

    /// Returns the tensor itself. A trainer stores it in this tiling: `"P0 r"`, an entry for each
    /// axis of the mesh, or one for all. The macro checks it.
    #[must_use]
    pub fn tiled(self, _tiling: &str) -> Self {
        self
    }

    /// Returns the same numbers, as `f32` in a trainer: PyTorch's `float()`.
    #[must_use]
    pub fn to_f32(self) -> Self {
        self
    }

    /// Truncates towards zero, to `i32` in a trainer: PyTorch's `int()`. No gradient flows through
    /// it.
    #[must_use]
    pub fn to_i32(self) -> Self {
        self.map(f64::trunc)
    }

    pub(super) fn map(self, function: impl Fn(f64) -> f64) -> Self {
        let value = self.value();
        let data = value.data.iter().map(|x| function(*x)).collect();
        Self::from_value(Value { shape: value.shape.clone(), data })
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}
