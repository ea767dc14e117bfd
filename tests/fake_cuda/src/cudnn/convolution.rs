//! `y[n, k, p, q] = sum over c, r, s of x[n, c, p u + r d - pad, q u + s d - pad] w[k, c, r, s]`,
//! and its gradients.

use std::collections::BTreeMap;

use super::backend::{Descriptor, kind};
use super::descriptor::{ConvolutionDescriptor, TensorDescriptor};
use super::engine::numerical_note::{FFT, NONDETERMINISTIC, TENSOR_CORE, WINOGRAD};
use super::engine::{Engine, HeuristicMode};
use super::{ApiResult, Status};
use crate::element_type::{ElementType, rounded_to_tf32};
use crate::memory::Memory;
use crate::status::DeviceError;

/// Selects the tensor that is computed from the other two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    BackwardData,
    BackwardFilter,
}

/// A convolution or one of its gradients.
#[derive(Clone, Debug)]
pub(super) struct Convolution {
    pub(super) direction: Direction,
    /// Images, filters and results.
    tensors: [TensorDescriptor; 3],
    descriptor: ConvolutionDescriptor,
    groups: usize,
}

/// Workspace of all engines that need one.
pub(super) const WORKSPACE_BYTES: usize = 4096;

impl Convolution {
    /// Returns the convolution of one of the three operations.
    pub(super) fn new(operation: &Descriptor) -> ApiResult<Self> {
        // The first attribute, and those of images, filters and results.
        let (direction, alpha, tensors) = match operation.kind {
            kind::FORWARD => (Direction::Forward, 700, [704, 703, 705]),
            kind::BACKWARD_DATA => (Direction::BackwardData, 706, [710, 709, 711]),
            kind::BACKWARD_FILTER => (Direction::BackwardFilter, 712, [716, 715, 717]),
            _ => return Err(Status::NOT_SUPPORTED),
        };
        let [x, w, y] = tensors.map(|name| TensorDescriptor::new(&*operation.child(name)?));
        let tensors @ [x, w, y] = [x?, w?, y?];
        let descriptor = ConvolutionDescriptor::new(&*operation.child(alpha + 2)?)?;
        let groups = x.extents[1] / w.extents[1];
        let is_divided =
            x.extents[1].is_multiple_of(w.extents[1]) && w.extents[0].is_multiple_of(groups);
        let has_extents = (0..2).all(|axis| {
            let reach = descriptor.dilation[axis] * (w.extents[2 + axis] - 1) + 1;
            let free = (x.extents[2 + axis] + 2 * descriptor.padding[axis]).checked_sub(reach);
            free.is_some_and(|free| y.extents[2 + axis] == free / descriptor.stride[axis] + 1)
        });
        let is_same = x.extents[0] == y.extents[0] && w.extents[0] == y.extents[1];
        if !(is_divided && has_extents && is_same) {
            return Err(Status::BAD_PARAM);
        }
        if operation.float(alpha)? != 1.0 || operation.float(alpha + 1)? != 0.0 {
            return Err(Status::NOT_SUPPORTED);
        }
        Ok(Self { direction, tensors, descriptor, groups })
    }

    /// Returns the place of the computed tensor among all.
    fn output(&self) -> usize {
        match self.direction {
            Direction::Forward => 2,
            Direction::BackwardData => 0,
            Direction::BackwardFilter => 1,
        }
    }

    pub(super) fn result(&self) -> TensorDescriptor {
        self.tensors[self.output()]
    }

    pub(super) fn operands(&self) -> [TensorDescriptor; 2] {
        [1, 2].map(|distance| self.tensors[(self.output() + distance) % 3])
    }

    fn dtype(&self) -> ElementType {
        self.operands()[0].dtype
    }

    /// Returns the engines for the convolution alone. As with the real library, the first can be a
    /// transform, and the first of the others is not always deterministic.
    pub(super) fn engines(&self, mode: HeuristicMode) -> Vec<Engine> {
        let of_simple = if self.direction == Direction::Forward { 0 } else { WORKSPACE_BYTES };
        let simple = Engine::new(0, of_simple, &[]);
        if mode == HeuristicMode::Fallback {
            return vec![simple];
        }
        let product = Engine::new(1, WORKSPACE_BYTES, &[TENSOR_CORE]);
        let of_atomics = Engine::new(2, 0, &[NONDETERMINISTIC]);
        let of_parts = Engine::new(3, WORKSPACE_BYTES, &[NONDETERMINISTIC]);
        let direct = Engine::new(6, WORKSPACE_BYTES, &[]);
        let plain: &[Engine] = match self.direction {
            Direction::Forward => &[product, direct, simple],
            Direction::BackwardData => &[of_atomics, product],
            Direction::BackwardFilter => &[of_atomics, of_parts, product],
        };
        let winograd = Engine::new(4, WORKSPACE_BYTES, &[WINOGRAD]);
        let winograd = self.has_winograd_transform().then_some(winograd);
        let fourier = Engine::new(5, WORKSPACE_BYTES, &[FFT]);
        let fourier = self.has_fourier_transform().then_some(fourier);
        winograd.into_iter().chain(plain.iter().copied()).chain(fourier).collect()
    }

    fn has_winograd_transform(&self) -> bool {
        let ConvolutionDescriptor { stride, dilation, .. } = self.descriptor;
        let is_dense = stride == [1, 1] && dilation == [1, 1];
        self.dtype() == ElementType::F32 && self.tensors[1].extents[2..] == [3, 3] && is_dense
    }

    /// Returns true for the convolutions that cuDNN's documentation allows for its FFT.
    fn has_fourier_transform(&self) -> bool {
        let [x, w, y] = &self.tensors;
        let ConvolutionDescriptor { padding, stride, dilation } = self.descriptor;
        let is_channels_first =
            |it: &TensorDescriptor| it.strides[3] == 1 && it.strides[2] == it.extents[3];
        let is_small = (0..2).all(|axis| {
            let is_inside = padding[axis] < w.extents[2 + axis];
            is_inside && x.extents[2 + axis] + 2 * padding[axis] <= 256
        });
        let is_dense = stride == [1, 1] && dilation == [1, 1];
        let is_known =
            self.dtype() == ElementType::F32 && is_channels_first(x) && is_channels_first(y);
        is_known && is_dense && is_small
    }

    /// Returns the sums of all products, with the dims in the order of the computed tensor.
    pub(super) fn compute(
        &self,
        memory: &Memory,
        pointers: &BTreeMap<i64, u64>,
        rounds: bool,
    ) -> Result<Vec<f32>, DeviceError> {
        let mut values = [Vec::new(), Vec::new(), Vec::new()];
        for (number, (tensor, values)) in self.tensors.iter().zip(&mut values).enumerate() {
            if number == self.output() {
                *values = vec![0.0; tensor.n_elements()];
                continue;
            }
            *values = tensor.read_ordered(memory, pointers[&tensor.id], self.order(number))?;
            if rounds {
                values.iter_mut().for_each(|value| *value = rounded_to_tf32(*value));
            }
        }
        self.accumulate(&mut values);
        Ok(std::mem::take(&mut values[self.output()]))
    }

    /// Returns the order of the computed tensor's dims.
    pub(super) fn order_of_result(&self) -> [usize; 4] {
        self.order(self.output())
    }

    /// Returns the order of a tensor's dims in the computation. The innermost is the one that
    /// `accumulate_channels` iterates.
    fn order(&self, number: usize) -> [usize; 4] {
        match (number, self.direction) {
            (1, Direction::BackwardData) => [2, 3, 0, 1],
            (1, Direction::Forward | Direction::BackwardFilter) => [2, 3, 1, 0],
            _ => [0, 2, 3, 1],
        }
    }

    /// Adds all products to the output tensor.
    fn accumulate(&self, values: &mut [Vec<f32>; 3]) {
        let [x, w, y] = self.tensors.map(|tensor| tensor.extents);
        for n in 0..y[0] {
            for (p, r) in pairs(y[2], w[2]) {
                let Some(h) = self.image_position(0, p, r) else { continue };
                for (q, s) in pairs(y[3], w[3]) {
                    let Some(v) = self.image_position(1, q, s) else { continue };
                    let at_x = ((n * x[2] + h) * x[3] + v) * x[1];
                    let at_w = (r * w[3] + s) * w[1] * w[0];
                    let at_y = ((n * y[2] + p) * y[3] + q) * y[1];
                    for group in 0..self.groups {
                        self.accumulate_channels(values, [at_x, at_w, at_y], group);
                    }
                }
            }
        }
    }

    /// Adds the products of one pixel, one filter position and one result, at `origins`, for the
    /// channels of a group.
    fn accumulate_channels(&self, values: &mut [Vec<f32>; 3], origins: [usize; 3], group: usize) {
        let [n_out, n_in, ..] = self.tensors[1].extents;
        let n_of_group = n_out / self.groups;
        let (at_x, at_y) = (origins[0] + group * n_in, origins[2] + group * n_of_group);
        let [x, w, y] = values;
        let (x, y) = (&mut x[at_x..at_x + n_in], &mut y[at_y..at_y + n_of_group]);
        if self.direction == Direction::BackwardData {
            let at_w = origins[1] + group * n_of_group * n_in;
            y.iter().zip(w[at_w..].chunks_exact(n_in)).for_each(|(y, w)| add_scaled(x, *y, w));
            return;
        }
        let at_w = origins[1] + group * n_of_group;
        for (x, w) in x.iter().zip(w[at_w..].chunks_mut(n_out)) {
            if self.direction == Direction::Forward {
                add_scaled(y, *x, &w[..n_of_group]);
            } else {
                add_scaled(&mut w[..n_of_group], *x, y);
            }
        }
    }

    /// Returns the pixel that a filter position covers for a result, or `None` in the padding.
    fn image_position(&self, axis: usize, result: usize, filter: usize) -> Option<usize> {
        let position = (result * self.descriptor.stride[axis]
            + filter * self.descriptor.dilation[axis])
            .checked_sub(self.descriptor.padding[axis])?;
        (position < self.tensors[0].extents[2 + axis]).then_some(position)
    }
}

fn pairs(n_first: usize, n_second: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..n_first).flat_map(move |first| (0..n_second).map(move |second| (first, second)))
}

fn add_scaled(sums: &mut [f32], scale: f32, values: &[f32]) {
    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += scale * value);
}
