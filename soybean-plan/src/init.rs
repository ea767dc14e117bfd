//! Initial values of parameters.

/// The initial values of a parameter. Element `i` of the whole tensor is a function of the seed,
/// the number of the parameter and `i` alone. Values thus do not depend on the tiling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Every element is this number.
    Constant(f64),
    /// Normally distributed.
    Normal {
        /// The mean.
        mean: f64,
        /// The standard deviation.
        std: f64,
    },
    /// Normally distributed and truncated at two standard deviations from the mean.
    TruncatedNormal {
        /// The mean.
        mean: f64,
        /// The standard deviation of the distribution before truncation.
        std: f64,
    },
    /// Uniformly distributed over `low..high`.
    Uniform {
        /// The lower bound.
        low: f64,
        /// The upper bound, exclusive.
        high: f64,
    },
}
