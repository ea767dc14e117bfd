//! `param` in a model's function: outside of a trainer, the values come from the caller.

use std::cell::RefCell;

use super::{Tensor, arena::scope};

/// How a parameter begins. The trainer draws the values; a function called as ordinary Rust is given them by [`with_parameters`].
#[derive(Clone, Copy, Debug)]
pub struct Init(());

/// All zero.
#[must_use]
pub const fn zeros() -> Init {
    Init(())
}

/// All one.
#[must_use]
pub const fn ones() -> Init {
    Init(())
}

/// All this number.
#[must_use]
pub const fn constant(_number: f64) -> Init {
    Init(())
}

/// Normally distributed with mean 0 and this standard deviation.
#[must_use]
pub const fn normal(_std: f64) -> Init {
    Init(())
}

/// Uniformly distributed over `low..high`.
#[must_use]
pub const fn uniform(_low: f64, _high: f64) -> Init {
    Init(())
}

/// Normally distributed with mean 0 and this standard deviation, without values beyond two of them: `PyTorch`'s `trunc_normal_` with `a = -2 std` and
/// `b = 2 std`.
#[must_use]
pub const fn trunc_normal(_std: f64) -> Init {
    Init(())
}

macro_rules! of_fans {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        $(
            $(#[$doc])*
            ///
            /// Weights are `[out, in, ..]`, as `PyTorch` has them: `fan_in` is `in` and `fan_out` is `out`, each times all dims after those two. A shape of
            /// fewer dims is an error.
            #[must_use]
            pub const fn $name() -> Init {
                Init(())
            }
        )*
    };
}

of_fans! {
    /// Normally distributed with standard deviation `sqrt(2 / fan_in)`, for layers before a ReLU. Source: He et al. 2015.
    he_normal,
    /// Uniformly distributed within `sqrt(6 / fan_in)` of 0, for layers before a ReLU. Source: He et al. 2015.
    he_uniform,
    /// Normally distributed with standard deviation `sqrt(2 / (fan_in + fan_out))`. Source: Glorot & Bengio 2010.
    xavier_normal,
    /// Uniformly distributed within `sqrt(6 / (fan_in + fan_out))` of 0. Source: Glorot & Bengio 2010.
    xavier_uniform,
}

/// The values that are still to be taken, in reverse, and their number at the start.
struct Values {
    rest: Vec<Tensor>,
    n_values: usize,
}

thread_local! {
    static VALUES: RefCell<Option<Values>> = const { RefCell::new(None) };
}

/// A trained tensor of a model.
///
/// In a trainer it is named by the path of calls and loop rounds that lead to it (`dense.2.w`), and begins as `init` says. Called as
/// ordinary Rust it is the next of the values that the surrounding [`with_parameters`] gives.
///
/// # Panics
/// Outside of [`with_parameters`], if its values are used up, or if the next has another shape.
#[must_use]
pub fn param<const R: usize>(name: &str, shape: [usize; R], init: Init) -> Tensor {
    next_value("param", name, shape, init)
}

fn next_value<const R: usize>(kind: &str, name: &str, shape: [usize; R], init: Init) -> Tensor {
    let Init(()) = init;
    VALUES.with_borrow_mut(|values| {
        let Some(Values { rest, n_values }) = values else {
            panic!(
                "`{kind}(\"{name}\", ..)`: no values outside of `soybean::eager::with_parameters`"
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

/// A tensor that a model keeps from step to step without training it: operators that take it say what it becomes, as
/// [`batch_norm`](Tensor::batch_norm) does with its running statistics. `PyTorch` calls it so too.
///
/// It is named and begins as a [`param`] does, and called as ordinary Rust it is the next of the same values.
///
/// # Panics
/// As [`param`] does.
#[must_use]
pub fn buffer<const R: usize>(name: &str, shape: [usize; R], init: Init) -> Tensor {
    next_value("buffer", name, shape, init)
}

/// Runs `compute` with these values for its parameters and buffers, in the order in which it makes them; frees the tensors that it made.
///
/// ```
/// use soybean::eager::{Tensor, param, with_parameters, zeros};
///
/// let double = |x: Tensor| x * param("factor", [1], zeros());
/// let result = with_parameters(&[Tensor::new([1], &[2.0])], || double(Tensor::scalar(21.0)).item());
/// assert_eq!(result, 42.0);
/// ```
///
/// # Panics
/// If `compute` does not take every value.
pub fn with_parameters<R>(values: &[Tensor], compute: impl FnOnce() -> R) -> R {
    let given = Values { rest: values.iter().rev().copied().collect(), n_values: values.len() };
    let restore = Restore(VALUES.replace(Some(given)));
    let result = scope(compute);
    let n_rest = VALUES.with_borrow(|values| values.as_ref().map_or(0, |it| it.rest.len()));
    assert!(n_rest == 0, "{n_rest} of {} parameter values were not taken", values.len());
    drop(restore);
    result
}

/// Puts the values of the outer scope back, after a panic too.
struct Restore(Option<Values>);

impl Drop for Restore {
    fn drop(&mut self) {
        VALUES.set(self.0.take());
    }
}
