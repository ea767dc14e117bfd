//! Random numbers, shapes and operands, the same in every run.

use soybean_plan::{DType, MAX_RANK, Shape, Strides, random::mixed};

use crate::case::{Data, to_bf16};

/// A generator of pseudorandom numbers from a seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// Returns a number in `0..n`.
    #[expect(clippy::cast_possible_truncation, reason = "below a `usize`")]
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = mixed(self.0);
        (self.0 % n as u64) as usize
    }

    /// Returns one of the choices.
    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Returns a number between -2 and 2 that is sometimes 0.
    pub(crate) fn float(&mut self) -> f32 {
        if self.below(16) == 0 { 0.0 } else { self.below(4001) as f32 / 1000.0 - 2.0 }
    }

    /// Returns a shape of at most 4 dims and 20000 points.
    pub(crate) fn shape(&mut self) -> Shape {
        let n_dims = self.below(5);
        let mut n_points = 1;
        let extents = (0..n_dims).map(|_| {
            let extent = self.pick(&[1, 2, 3, 4, 5, 7, 8, 11, 16, 17, 64, 100, 130]);
            let extent = if n_points * extent > 20_000 { 1 } else { extent };
            n_points *= extent;
            extent
        });
        extents.collect()
    }

    /// Returns strides of an operand over a shape: dense, permuted, spread out, or with broadcast
    /// dims.
    pub(crate) fn strides(&mut self, shape: &Shape) -> Strides {
        if self.below(3) == 0 {
            return shape.dense_strides();
        }
        let mut order: Vec<usize> = (0..shape.len()).rev().collect();
        if self.below(2) == 0 && shape.len() > 1 {
            let (a, b) = (self.below(shape.len()), self.below(shape.len()));
            order.swap(a, b);
        }
        let mut strides = [0; MAX_RANK];
        let mut step = self.pick(&[1, 1, 1, 2]);
        for dim in order {
            if self.below(4) > 0 {
                strides[dim] = step;
                step *= shape[dim];
            }
        }
        Strides(strides)
    }

    /// Returns this many elements of a type.
    pub(crate) fn data(&mut self, dtype: DType, n_elements: usize) -> Data {
        let mut number = || match dtype {
            DType::F32 => self.float(),
            DType::Bf16 => to_bf16(self.float()),
            DType::I32 => self.below(7) as f32 - 3.0,
        };
        Data { dtype, numbers: (0..n_elements).map(|_| number()).collect() }
    }
}

/// Returns the number of elements of an operand with these strides.
pub(crate) fn n_needed(shape: &Shape, strides: &Strides) -> usize {
    if shape.n_elements() == 0 {
        return 0;
    }
    shape.iter().zip(strides.0).map(|(extent, stride)| (extent - 1) * stride).sum::<usize>() + 1
}
