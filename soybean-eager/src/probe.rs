//! Probes: the values of tensors inside a model's function.

use std::cell::RefCell;

use soybean_plan::Array;

use super::Tensor;

/// Names and elements, in the order of the calls.
type Probes = Vec<(String, Array)>;

thread_local! {
    static PROBES: RefCell<Option<Probes>> = const { RefCell::new(None) };
}

impl Tensor {
    /// Returns the tensor itself, and records its elements for [`with_probes`]. In a trainer it has
    /// no effect.
    ///
    /// ```
    /// # use soybean::Tensor;
    /// use soybean::eager::with_probes;
    ///
    /// let x = Tensor::new([3], &[-1.0, 0.0, 2.0]);
    /// let (y, probes) = with_probes(|| x.relu().probe("h") * 10);
    /// assert_eq!(y.to_vec(), [0.0, 0.0, 20.0]);
    /// let (name, h) = &probes[0];
    /// assert_eq!((&name[..], &h.data[..]), ("h", &[0.0, 0.0, 2.0][..]));
    /// ```
    #[must_use]
    pub fn probe(self, name: &str) -> Self {
        PROBES.with_borrow_mut(|probes| {
            if let Some(probes) = probes {
                probes.push((name.to_owned(), self.to_array()));
            }
        });
        self
    }

    /// Returns the elements in single precision, also those of integers.
    #[expect(clippy::cast_possible_truncation, reason = "arrays have single precision")]
    #[must_use]
    pub fn to_array(self) -> Array {
        let value = self.value();
        let data = value.data.iter().map(|it| *it as f32).collect();
        Array { shape: value.shape.clone(), data, ..Array::default() }
    }
}

/// Runs `compute`, and returns the tensors that it [probes](Tensor::probe), by name, in the order
/// of the calls.
///
/// ```
/// use soybean::eager::{Tensor, with_probes};
///
/// let (sum, probes) =
///     with_probes(|| Tensor::new([2], &[-1.0, 2.0]).relu().probe("h").sum(0).item());
/// assert_eq!((sum, &probes[0].0[..], &probes[0].1.data[..]), (2.0, "h", &[0.0, 2.0][..]));
/// ```
pub fn with_probes<R>(compute: impl FnOnce() -> R) -> (R, Vec<(String, Array)>) {
    let restore = Restore(PROBES.replace(Some(Vec::new())));
    let result = compute();
    let probes = PROBES.take().unwrap_or_default();
    drop(restore);
    (result, probes)
}

/// Restores the probes of the outer call, also after a panic.
struct Restore(Option<Probes>);

impl Drop for Restore {
    fn drop(&mut self) {
        PROBES.set(self.0.take());
    }
}
