//! Activation functions that are made of others.

use super::Tensor;

impl Tensor {
    /// Computes `log(1 + e^x)`, which does not overflow: PyTorch's `softplus` with `beta = 1`.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([3], &[-1.0, 0.0, 1000.0]);
    /// assert_eq!(format!("{:.3?}", x.softplus().to_vec()), "[0.313, 0.693, 1000.000]");
    /// ```
    #[must_use]
    pub fn softplus(self) -> Self {
        self.map(softplus)
    }

    /// Computes `log(sigmoid(x))`, which does not overflow.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([3], &[-1000.0, 0.0, 1.0]);
    /// assert_eq!(format!("{:.3?}", x.logsigmoid().to_vec()), "[-1000.000, -0.693, -0.313]");
    /// ```
    #[must_use]
    pub fn logsigmoid(self) -> Self {
        self.map(|x| -softplus(-x))
    }

    /// Computes `x * tanh(softplus(x))`. Source: Misra 2019.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([3], &[-1.0, 0.0, 1.0]);
    /// assert_eq!(format!("{:.3?}", x.mish().to_vec()), "[-0.303, 0.000, 0.865]");
    /// ```
    #[must_use]
    pub fn mish(self) -> Self {
        self.map(|x| x * softplus(x).tanh())
    }

    /// Computes `x / (1 + |x|)`.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([3], &[-1.0, 0.0, 3.0]);
    /// assert_eq!(x.softsign().to_vec(), [-0.5, 0.0, 0.75]);
    /// ```
    #[must_use]
    pub fn softsign(self) -> Self {
        self.map(|x| x / (1.0 + x.abs()))
    }

    /// Returns `x` where `x > 0`, else `alpha * (e^x - 1)`. Source: Clevert et al. 2015.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([3], &[-1.0, 0.0, 2.0]);
    /// assert_eq!(format!("{:.3?}", x.elu(1.0).to_vec()), "[-0.632, 0.000, 2.000]");
    /// ```
    #[must_use]
    pub fn elu(self, alpha: f64) -> Self {
        self.map(|x| if x > 0.0 { x } else { alpha * x.exp_m1() })
    }

    /// Returns `x` where `x > 0`, else `alpha * (e^(x / alpha) - 1)`, whose derivative is
    /// continuous for every positive `alpha`. Source: Barron 2017.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([3], &[-1.0, 0.0, 2.0]);
    /// assert_eq!(format!("{:.3?}", x.celu(0.5).to_vec()), "[-0.432, 0.000, 2.000]");
    /// ```
    ///
    /// # Panics
    /// If `alpha` is 0.
    #[must_use]
    pub fn celu(self, alpha: f64) -> Self {
        assert!(alpha != 0.0, "`celu`: `alpha` must be a number other than 0, found {alpha}");
        self.map(|x| if x > 0.0 { x } else { alpha * (x / alpha).exp_m1() })
    }

    /// Computes [`elu`](Self::elu) with `alpha = 1.673..`, times 1.051.. Source: Klambauer et al.
    /// 2017.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([3], &[-1.0, 0.0, 2.0]);
    /// assert_eq!(format!("{:.3?}", x.selu().to_vec()), "[-1.111, 0.000, 2.101]");
    /// ```
    #[must_use]
    pub fn selu(self) -> Self {
        const ALPHA: f64 = 1.673_263_242_354_377_2;
        const SCALE: f64 = 1.050_700_987_355_480_5;
        self.map(|x| SCALE * if x > 0.0 { x } else { ALPHA * x.exp_m1() })
    }

    /// Computes `min(max(x + 3, 0), 6) / 6`. Its gradient at -3 and 3 is 0.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([4], &[-4.0, 0.0, 1.5, 4.0]);
    /// assert_eq!(x.hardsigmoid().to_vec(), [0.0, 0.5, 0.75, 1.0]);
    /// ```
    #[must_use]
    pub fn hardsigmoid(self) -> Self {
        (self + 3.0).relu6() / 6.0
    }

    /// Computes `x * min(max(x + 3, 0), 6) / 6`. Source: Howard et al. 2019.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// let x = Tensor::new([4], &[-4.0, 0.0, 1.5, 4.0]);
    /// assert_eq!(x.hardswish().to_vec(), [0.0, 0.0, 1.125, 4.0]);
    /// ```
    #[must_use]
    pub fn hardswish(self) -> Self {
        self * self.hardsigmoid()
    }
}

pub(super) fn softplus(x: f64) -> f64 {
    let linear = if x > 0.0 || x.is_nan() { x } else { 0.0 };
    linear + (-x.abs()).exp().ln_1p()
}
