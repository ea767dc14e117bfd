//! `param` in a model's function: outside a trainer, the caller provides the values.

use std::cell::RefCell;

use super::{Tensor, arena::scope, full};

/// The initial values of a parameter. The trainer draws them; ordinary Rust gets values from
/// [`with_parameters`].
///
/// ```
/// #[soybean::model(gpus = 1)]
/// mod model {
///     use soybean::prelude::*;
///
///     pub(crate) fn forward(x: Tensor<f32, 4, 6>, y: Tensor<f32, 4, 3>) -> Tensor {
///         let scale = param("scale", [3], constant(0.5));
///         let weight = param("weight", [3, 6], he_uniform());
///         (x.matmul(weight.transpose()) * scale + param("bias", [3], zeros())).mse(y)
///     }
/// }
///
/// fn main() -> Result<(), soybean::Error> {
///     let mut trainer = model::Trainer::new(soybean::Config::default())?;
///     let initial: std::collections::BTreeMap<_, _> = trainer.parameters()?.into_iter().collect();
///     assert_eq!(initial["scale"].data, [0.5; 3]);
///     assert_eq!(initial["bias"].data, [0.0; 3]);
///     // `fan_in` is 6: the weights are within sqrt(6 / 6) of 0.
///     assert!(initial["weight"].data.iter().all(|it| it.abs() <= 1.0));
///     Ok(())
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Init(());

/// Initializes with zeros.
#[must_use]
pub const fn zeros() -> Init {
    Init(())
}

/// Initializes with ones.
#[must_use]
pub const fn ones() -> Init {
    Init(())
}

/// Initializes with this number.
#[must_use]
pub const fn constant(_number: f64) -> Init {
    Init(())
}

/// Initializes from a normal distribution with mean 0 and this standard deviation.
#[must_use]
pub const fn normal(_std: f64) -> Init {
    Init(())
}

/// Initializes uniformly in `low..high`.
#[must_use]
pub const fn uniform(_low: f64, _high: f64) -> Init {
    Init(())
}

/// Initializes from a normal distribution with mean 0 and this standard deviation, truncated at two
/// standard deviations: PyTorch's `trunc_normal_` with `a = -2 std` and `b = 2 std`.
#[must_use]
pub const fn trunc_normal(_std: f64) -> Init {
    Init(())
}

macro_rules! of_fans {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        $(
            $(#[$doc])*
            ///
            /// Weights are `[out, in, ..]`, as in PyTorch: `fan_in` is `in` and `fan_out` is `out`,
            /// each times all dims after those two. A shape of fewer dims is an error.
            #[must_use]
            pub const fn $name() -> Init {
                Init(())
            }
        )*
    };
}

of_fans! {
    /// Initializes from a normal distribution with standard deviation `sqrt(2 / fan_in)`, for
    /// layers before a ReLU. Source: He et al. 2015.
    he_normal,
    /// Initializes uniformly within `sqrt(6 / fan_in)` of 0, for layers before a ReLU. Source: He
    /// et al. 2015.
    he_uniform,
    /// Initializes from a normal distribution with standard deviation `sqrt(2 / (fan_in +
    /// fan_out))`. Source: Glorot & Bengio 2010.
    xavier_normal,
    /// Initializes uniformly within `sqrt(6 / (fan_in + fan_out))` of 0. Source: Glorot & Bengio
    /// 2010.
    xavier_uniform,
}

/// The remaining values in reverse order, and their number at the start.
struct Values {
    rest: Vec<Tensor>,
    n_values: usize,
}

thread_local! {
    static VALUES: RefCell<Option<Values>> = const { RefCell::new(None) };
}

/// Returns a trained tensor of a model.
///
/// In a trainer its name is the path of calls and loop iterations to it (`dense.2.w`), and `init`
/// gives its initial values. In ordinary Rust it is the next value of the surrounding
/// [`with_parameters`].
///
/// ```
/// #[soybean::model(gpus = 2)]
/// mod mlp {
///     use soybean::prelude::*;
///
///     fn dense(x: Tensor, units: usize) -> Tensor {
///         let w = param("w", [units, x.dim(1)], he_normal());
///         x.matmul(w.transpose()) + param("b", [units], zeros())
///     }
///
///     pub(crate) fn forward(x: Tensor<f32, 4, 8>, y: Tensor<i32, 4>) -> Tensor {
///         dense(dense(x, 6).relu(), 3).cross_entropy(y)
///     }
/// }
///
/// fn main() -> Result<(), soybean::Error> {
///     let mut trainer = mlp::Trainer::new(soybean::Config::default())?;
///     let parameters = trainer.parameters()?;
///     let names: Vec<&str> = parameters.iter().map(|it| &it.0[..]).collect();
///     assert_eq!(names, ["dense.0.w", "dense.0.b", "dense.1.w", "dense.1.b"]);
///     assert_eq!(parameters[2].1.shape, [3, 6]);
///     Ok(())
/// }
/// ```
///
/// # Panics
/// Outside [`with_parameters`], if all values are used, or if the next one has another shape.
#[must_use]
pub fn param<const R: usize>(name: &str, shape: [usize; R], init: Init) -> Tensor {
    next_value("param", name, shape, init)
}

fn next_value<const R: usize>(kind: &str, name: &str, shape: [usize; R], init: Init) -> Tensor {
    let Init(()) = init;
    VALUES.with_borrow_mut(|values| {
        let Some(Values { rest, n_values }) = values else {
            panic!(
                "`{kind}(\"{name}\", ..)` has no values here: call the function within \
                 `soybean::eager::with_parameters(&values, || ..)`, or call `trainer.eager(&batch)`"
            )
        };
        let Some(value) = rest.pop() else {
            panic!("`{kind}(\"{name}\", ..)`: all {n_values} given values are already taken")
        };
        let position = *n_values - rest.len();
        assert!(
            value.shape() == shape,
            "`{kind}(\"{name}\", ..)`: shape is {shape:?}, but value {position} has shape {:?}",
            value.shape()
        );
        value
    })
}

/// Returns a tensor that a model keeps between steps without training it, a buffer as in PyTorch.
/// Operators that take it update it, as [`batch_norm`](Tensor::batch_norm) does with its running
/// statistics.
///
/// Its name and its initial values are those of a [`param`]; in ordinary Rust it is the next of the
/// same values.
///
/// ```
/// use soybean::{eager::with_parameters, prelude::*};
///
/// fn centered(x: Tensor) -> Tensor {
///     let mean = buffer("mean", [2], zeros());
///     (x - mean) * param("scale", [2], ones())
/// }
///
/// let values = [Tensor::new([2], &[1.0, 2.0]), Tensor::new([2], &[10.0, 100.0])];
/// let x = Tensor::new([1, 2], &[3.0, 3.0]);
/// assert_eq!(with_parameters(&values, || centered(x).to_vec()), [20.0, 100.0]);
/// ```
///
/// # Panics
/// As [`param`].
#[must_use]
pub fn buffer<const R: usize>(name: &str, shape: [usize; R], init: Init) -> Tensor {
    next_value("buffer", name, shape, init)
}

/// Returns a tensor that a model of mode inference keeps from prediction to prediction, such as the
/// keys that a decoder has seen. It is zero at first, and after `Predictor::reset_states`.
/// [`assign`](Tensor::assign) says what it becomes.
///
/// Its name is a path as that of a [`param`]. Files of weights do not contain it. In ordinary Rust
/// it is zero: the function computes the first prediction.
///
/// ```
/// #[soybean::model(gpus = 1, mode = "inference")]
/// mod running_sum {
///     use soybean::prelude::*;
///
///     pub(crate) fn forward(x: Tensor<f32, 2, 3>) -> Tensor {
///         let sum = state("sum", [2, 3]);
///         sum.assign(sum + x)
///     }
/// }
///
/// fn main() -> Result<(), soybean::Error> {
///     let mut predictor = running_sum::Predictor::new(soybean::Config::default())?;
///     let batch = running_sum::Batch { x: &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0] };
///     predictor.predict(&batch)?;
///     assert_eq!(predictor.predict(&batch)?[0].data, [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
///     predictor.reset_states()?;
///     assert_eq!(predictor.predict(&batch)?[0].data, batch.x);
///     Ok(())
/// }
/// ```
#[must_use]
pub fn state<const R: usize>(_name: &str, shape: [usize; R]) -> Tensor {
    full(shape, 0.0)
}

impl Tensor {
    /// Returns `value`. A [`buffer`] has it after a training step, and a [`state`] after a
    /// prediction.
    ///
    /// The tensor before stays what it was: only the next step or prediction sees the new value.
    /// Each buffer and each state is assigned once. No gradient flows from step to step.
    ///
    /// ```
    /// #[soybean::model(gpus = 2)]
    /// mod centered {
    ///     use soybean::prelude::*;
    ///
    ///     pub(crate) fn forward(x: Tensor<f32, 4, 2>, y: Tensor<f32, 4, 2>) -> (Tensor, Tensor) {
    ///         let mean = buffer("mean", [2], zeros());
    ///         let new = mean.assign(mean * 0.5 + x.mean(0).detach() * 0.5);
    ///         ((param("w", [2], ones()) * (x - new)).mse(y), new)
    ///     }
    /// }
    ///
    /// fn main() -> Result<(), soybean::Error> {
    ///     let mut trainer = centered::Trainer::new(soybean::Config::default())?;
    ///     let batch = centered::Batch { x: &[8.0; 8], y: &[0.0; 8] };
    ///     for expected in [4.0, 6.0, 7.0] {
    ///         trainer.step(&batch)?;
    ///         let buffers: std::collections::BTreeMap<_, _> =
    ///             trainer.parameters()?.into_iter().collect();
    ///         assert_eq!(buffers["mean"].data, [expected; 2]);
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Panics
    /// If the shapes differ.
    pub fn assign(self, value: Self) -> Self {
        assert_eq!(self.shape(), value.shape(), "a tensor keeps its shape");
        value
    }
}

/// Runs `compute` with these values for its parameters and buffers, in the order of their calls;
/// frees the tensors that it created. Calls that share a parameter take a value each.
///
/// ```
/// use soybean::eager::{Tensor, param, with_parameters, zeros};
///
/// let double = |x: Tensor| x * param("factor", [1], zeros());
/// let values = [Tensor::new([1], &[2.0])];
/// let result = with_parameters(&values, || double(Tensor::scalar(21.0)).item());
/// assert_eq!(result, 42.0);
/// ```
///
/// # Panics
/// If `compute` does not use every value.
pub fn with_parameters<R>(values: &[Tensor], compute: impl FnOnce() -> R) -> R {
    let given = Values { rest: values.iter().rev().copied().collect(), n_values: values.len() };
    let restore = Restore(VALUES.replace(Some(given)));
    let result = scope(compute);
    let n_rest = VALUES.with_borrow(|values| values.as_ref().map_or(0, |it| it.rest.len()));
    assert!(n_rest == 0, "{n_rest} of {} parameter values were not taken", values.len());
    drop(restore);
    result
}

/// Restores the values of the outer scope, also after a panic.
struct Restore(Option<Values>);

impl Drop for Restore {
    fn drop(&mut self) {
        VALUES.set(self.0.take());
    }
}
