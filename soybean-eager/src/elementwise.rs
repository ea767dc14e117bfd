//! Functions of one number, applied to every element.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};

use super::{Operand, Tensor, arena::Value, arithmetic::zip};

impl Tensor {
    /// Computes `max(x, 0)`.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([3], &[-1.0, 0.0, 2.0]);
    /// assert_eq!(x.relu().to_vec(), [0.0, 0.0, 2.0]);
    /// ```
    #[must_use]
    pub fn relu(self) -> Self {
        self.map(|x| if x > 0.0 || x.is_nan() { x } else { 0.0 })
    }

    /// Computes `min(max(x, 0), 6)`. Its gradient at 0 and 6 is 0.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([3], &[-1.0, 3.0, 8.0]);
    /// assert_eq!(x.relu6().to_vec(), [0.0, 3.0, 6.0]);
    /// ```
    #[must_use]
    pub fn relu6(self) -> Self {
        self.map(|x| {
            if x > 6.0 {
                6.0
            } else if x > 0.0 || x.is_nan() {
                x
            } else {
                0.0
            }
        })
    }

    /// Returns `x` where `x > 0`, else `slope * x`.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2], &[-2.0, 3.0]);
    /// assert_eq!(x.leaky_relu(0.25).to_vec(), [-0.5, 3.0]);
    /// ```
    #[must_use]
    pub fn leaky_relu(self, slope: f64) -> Self {
        self.map(|x| if x > 0.0 { x } else { slope * x })
    }

    /// Computes the hyperbolic tangent.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([3], &[-1.0, 0.0, 1.0]);
    /// assert_eq!(format!("{:.3?}", x.tanh().to_vec()), "[-0.762, 0.000, 0.762]");
    /// ```
    #[must_use]
    pub fn tanh(self) -> Self {
        self.map(f64::tanh)
    }

    /// Computes `1 / (1 + e^-x)`.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([3], &[-2.0, 0.0, 2.0]);
    /// assert_eq!(format!("{:.3?}", x.sigmoid().to_vec()), "[0.119, 0.500, 0.881]");
    /// ```
    #[must_use]
    pub fn sigmoid(self) -> Self {
        self.map(sigmoid)
    }

    /// Computes `x * (1 + erf(x / sqrt(2))) / 2`. Source: Hendrycks & Gimpel 2016.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([3], &[-1.0, 0.0, 1.0]);
    /// assert_eq!(format!("{:.3?}", x.gelu().to_vec()), "[-0.159, 0.000, 0.841]");
    /// ```
    #[must_use]
    pub fn gelu(self) -> Self {
        self.map(|x| 0.5 * x * (1.0 + libm::erf(x * FRAC_1_SQRT_2)))
    }

    /// Computes `x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2`, the approximation of
    /// [`gelu`](Self::gelu).
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::scalar(1.0);
    /// let [exact, approximate] = [x.gelu(), x.gelu_tanh()].map(|it| format!("{:.4}", it.item()));
    /// assert_eq!((&exact[..], &approximate[..]), ("0.8413", "0.8412"));
    /// ```
    #[must_use]
    pub fn gelu_tanh(self) -> Self {
        self.map(|x| 0.5 * x * (1.0 + (FRAC_2_PI.sqrt() * (x + 0.044_715 * x.powi(3))).tanh()))
    }

    /// Computes `x * sigmoid(x)`.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([3], &[-2.0, 0.0, 2.0]);
    /// assert_eq!(format!("{:.3?}", x.silu().to_vec()), "[-0.238, 0.000, 1.762]");
    /// ```
    #[must_use]
    pub fn silu(self) -> Self {
        self.map(|x| x * sigmoid(x))
    }

    /// Computes `e^x`.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2], &[0.0, 1.0]);
    /// assert_eq!(format!("{:.3?}", x.exp().to_vec()), "[1.000, 2.718]");
    /// ```
    #[must_use]
    pub fn exp(self) -> Self {
        self.map(f64::exp)
    }

    /// Computes the natural logarithm.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2], &[1.0, 100.0]);
    /// assert_eq!(format!("{:.3?}", x.log().to_vec()), "[0.000, 4.605]");
    /// ```
    #[must_use]
    pub fn log(self) -> Self {
        self.map(f64::ln)
    }

    /// Computes `e^x - 1`, exact also near 0.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::scalar(1e-12);
    /// assert_eq!(format!("{:.6e}", x.expm1().item()), "1.000000e-12");
    /// ```
    #[must_use]
    pub fn expm1(self) -> Self {
        self.map(f64::exp_m1)
    }

    /// Computes `log(1 + x)`, exact also near 0.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::scalar(1e-12);
    /// assert_eq!(format!("{:.6e}", x.log1p().item()), "1.000000e-12");
    /// ```
    #[must_use]
    pub fn log1p(self) -> Self {
        self.map(f64::ln_1p)
    }

    /// Computes the sine.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2], &[0.0, 1.0]);
    /// assert_eq!(format!("{:.3?}", x.sin().to_vec()), "[0.000, 0.841]");
    /// ```
    #[must_use]
    pub fn sin(self) -> Self {
        self.map(f64::sin)
    }

    /// Computes the cosine.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2], &[0.0, 1.0]);
    /// assert_eq!(format!("{:.3?}", x.cos().to_vec()), "[1.000, 0.540]");
    /// ```
    #[must_use]
    pub fn cos(self) -> Self {
        self.map(f64::cos)
    }

    /// Computes the error function.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2], &[0.0, 1.0]);
    /// assert_eq!(format!("{:.3?}", x.erf().to_vec()), "[0.000, 0.843]");
    /// ```
    #[must_use]
    pub fn erf(self) -> Self {
        self.map(libm::erf)
    }

    /// Computes the square root.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2], &[4.0, 9.0]);
    /// assert_eq!(x.sqrt().to_vec(), [2.0, 3.0]);
    /// ```
    #[must_use]
    pub fn sqrt(self) -> Self {
        self.map(f64::sqrt)
    }

    /// Computes `1 / sqrt(x)`.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2], &[4.0, 0.25]);
    /// assert_eq!(x.rsqrt().to_vec(), [0.5, 2.0]);
    /// ```
    #[must_use]
    pub fn rsqrt(self) -> Self {
        self.map(|x| 1.0 / x.sqrt())
    }

    /// Computes `x^2`.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2], &[-3.0, 0.5]);
    /// assert_eq!(x.square().to_vec(), [9.0, 0.25]);
    /// ```
    #[must_use]
    pub fn square(self) -> Self {
        self.map(|x| x * x)
    }

    /// Computes the absolute value. Its gradient at 0 is 0.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([3], &[-3.0, 0.0, 2.0]);
    /// assert_eq!(x.abs().to_vec(), [3.0, 0.0, 2.0]);
    /// ```
    #[must_use]
    pub fn abs(self) -> Self {
        self.map(f64::abs)
    }

    /// Returns 1 where `x > 0`, -1 where `x < 0`, else 0. No gradient flows through it.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([3], &[-3.0, 0.0, 2.0]);
    /// assert_eq!(x.sign().to_vec(), [-1.0, 0.0, 1.0]);
    /// ```
    #[must_use]
    pub fn sign(self) -> Self {
        self.map(|x| f64::from(i8::from(x > 0.0) - i8::from(x < 0.0)))
    }

    /// Returns the largest integer that is not above `x`. No gradient flows through it.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([4], &[-1.5, 0.5, 1.25, 2.5]);
    /// assert_eq!(x.floor().to_vec(), [-2.0, 0.0, 1.0, 2.0]);
    /// ```
    #[must_use]
    pub fn floor(self) -> Self {
        self.map(f64::floor)
    }

    /// Returns the smallest integer that is not below `x`. No gradient flows through it.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([4], &[-1.5, 0.5, 1.25, 2.5]);
    /// assert_eq!(x.ceil().to_vec(), [-1.0, 1.0, 2.0, 3.0]);
    /// ```
    #[must_use]
    pub fn ceil(self) -> Self {
        self.map(f64::ceil)
    }

    /// Returns the nearest integer, the even one of two. No gradient flows through it.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([4], &[-1.5, 0.5, 1.25, 2.5]);
    /// assert_eq!(x.round().to_vec(), [-2.0, 0.0, 1.0, 2.0]);
    /// ```
    #[must_use]
    pub fn round(self) -> Self {
        self.map(f64::round_ties_even)
    }

    /// Computes `x^n` for an integer `n`.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2], &[2.0, -4.0]);
    /// assert_eq!(x.powi(3).to_vec(), [8.0, -64.0]);
    /// assert_eq!(x.powi(-1).to_vec(), [0.5, -0.25]);
    /// ```
    #[must_use]
    pub fn powi(self, n: i32) -> Self {
        self.map(|x| x.powi(n))
    }

    /// Computes `x^y` for a number or a tensor `y`; both are broadcast. The result is NaN where `x`
    /// is negative and `y` is not an integer. The gradient by `x` is 0 where `y` is 0, and the one
    /// by `y` is 0 where `x` is 0 and `y` is not negative, as in PyTorch.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([3], &[1.0, 4.0, 9.0]);
    /// assert_eq!(x.pow(1.5).to_vec(), [1.0, 8.0, 27.0]);
    /// assert_eq!((-x).pow(2).to_vec(), [1.0, 16.0, 81.0]);
    /// let exponents = Tensor::new([3], &[5.0, -1.0, 0.5]);
    /// assert_eq!(x.pow(exponents).to_vec(), [1.0, 0.25, 3.0]);
    /// ```
    ///
    /// # Panics
    /// If the shapes do not broadcast.
    #[must_use]
    pub fn pow(self, exponent: impl Operand) -> Self {
        zip("pow", self, exponent.into_tensor(), &f64::powf)
    }

    /// Computes `1 / x`.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2], &[4.0, -0.5]);
    /// assert_eq!(x.reciprocal().to_vec(), [0.25, -2.0]);
    /// ```
    #[must_use]
    pub fn reciprocal(self) -> Self {
        self.map(|x| 1.0 / x)
    }

    /// Returns the same elements; in a trainer, no gradient flows through it.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([2], &[0.75, 2.5]);
    /// assert_eq!(x.detach().to_vec(), [0.75, 2.5]);
    /// // A straight-through estimator: truncated elements with the gradient of `x`.
    /// let truncated = x + (x.to_i32().to_f32() - x).detach();
    /// assert_eq!(truncated.to_vec(), [0.0, 2.0]);
    /// ```
    #[must_use]
    pub fn detach(self) -> Self {
        self
    }

    /// Returns the tensor itself. A trainer stores it in this tiling: `"P0 r"`, an entry for each
    /// axis of the mesh, or one for all. The macro checks it.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let weight = Tensor::new([2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    /// // In a model, all axes of the mesh divide dim 0. The elements are the same.
    /// assert_eq!(weight.tiled("P0").to_vec(), weight.to_vec());
    /// ```
    #[must_use]
    pub fn tiled(self, _tiling: &str) -> Self {
        self
    }

    /// Returns the same numbers, as `f32` in a trainer: PyTorch's `float()`.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// // Arithmetic takes floats: labels, `Tensor<i32, 4>` in a model, are converted before it.
    /// let y = Tensor::new([4], &[2.0, 0.0, 1.0, 2.0]);
    /// assert_eq!((y.to_f32() / 2.0).to_vec(), [1.0, 0.0, 0.5, 1.0]);
    /// ```
    #[must_use]
    pub fn to_f32(self) -> Self {
        self.as_numbers()
    }

    /// Truncates towards zero, to `i32` in a trainer: PyTorch's `int()`. Numbers out of range
    /// become the nearest integer of 32 bits, and NaN 0. No gradient flows through it.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([3], &[-1.5, 0.9, 2.0]);
    /// assert_eq!(x.to_i32().to_vec(), [-1.0, 0.0, 2.0]);
    /// assert_eq!(Tensor::scalar(3e9).to_i32().item(), 2147483647.0);
    /// ```
    #[must_use]
    pub fn to_i32(self) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "casts saturate")]
        let integer = |x: f64| f64::from(x as i32);
        self.map(integer).as_integers()
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
