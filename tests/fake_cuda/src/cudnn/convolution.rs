//! `y[n, k, p, q] = sum over c, r, s of x[n, c, p u + r d - pad, q u + s d - pad] w[k, c, r, s]`,
//! its gradients, and `max(alpha y + beta z[n, k, p, q] + b[k], 0)`.

use super::descriptor::{ActivationDescriptor, ConvolutionDescriptor, TensorDescriptor};
use super::{ApiResult, Status};
use crate::element_type::{ElementType, rounded_to_tf32};
use crate::ffi::Handle;
use crate::memory::{Memory, MemoryKind};
use crate::state::lock;
use crate::status::DeviceError;
use crate::work::Task;

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
    direction: Direction,
    /// Images, filters and results.
    tensors: [TensorDescriptor; 3],
    descriptor: ConvolutionDescriptor,
    pub(super) data: [u64; 3],
    /// Factors of the sum and of the previous content.
    pub(super) scales: [f32; 2],
    pub(super) workspace: (u64, usize),
    pub(super) epilogue: Option<Epilogue>,
}

/// The bias, the addend and the activation after a convolution.
#[derive(Clone, Copy, Debug)]
pub(super) struct Epilogue {
    is_relu: bool,
    bias: u64,
    /// A tensor in place of the previous content.
    addend: u64,
}

impl Epilogue {
    /// Checks what cuDNN's documentation demands of filters, bias and algorithm.
    pub(super) fn new(
        activation: ActivationDescriptor,
        (filters, of_bias): (TensorDescriptor, TensorDescriptor),
        algorithm: u32,
        [bias, addend]: [u64; 2],
    ) -> ApiResult<Self> {
        let ActivationDescriptor { mode, of_nan } = activation;
        if of_bias.extents != [1, filters.extents[0], 1, 1] {
            return Err(Status::BAD_PARAM);
        }
        let is_relu = mode == ActivationDescriptor::RELU;
        // Only the implicit product with precomputed indices bypasses the activation.
        let is_known = is_relu || (mode == ActivationDescriptor::IDENTITY && algorithm == 1);
        let is_dense = of_bias.dtype == filters.dtype && of_bias.strides[1] == 1;
        if !is_known || !is_dense || of_nan != 0 {
            return Err(Status::NOT_SUPPORTED);
        }
        Ok(Self { is_relu, bias, addend })
    }
}

/// `CUDNN_FMA_MATH`: no conversion of operands.
const FMA_MATH: u32 = 3;
/// Workspace of all algorithms but the simplest.
const WORKSPACE_BYTES: usize = 4096;

impl Convolution {
    pub(super) fn new(
        direction: Direction,
        tensors: [TensorDescriptor; 3],
        descriptor: ConvolutionDescriptor,
    ) -> ApiResult<Self> {
        let [x, w, y] = tensors;
        if x.dtype != w.dtype || x.dtype != y.dtype {
            return Err(Status::NOT_SUPPORTED);
        }
        let is_divided = x.extents[1] == w.extents[1] * descriptor.groups
            && w.extents[0].is_multiple_of(descriptor.groups);
        let has_extents = (0..2).all(|axis| {
            let reach = descriptor.dilation[axis] * (w.extents[2 + axis] - 1) + 1;
            let free = (x.extents[2 + axis] + 2 * descriptor.padding[axis]).checked_sub(reach);
            free.is_some_and(|free| y.extents[2 + axis] == free / descriptor.stride[axis] + 1)
        });
        let is_same = x.extents[0] == y.extents[0] && w.extents[0] == y.extents[1];
        if !(is_divided && has_extents && is_same) {
            return Err(Status::BAD_PARAM);
        }
        Ok(Self {
            direction,
            tensors,
            descriptor,
            data: [0; 3],
            scales: [1.0, 0.0],
            workspace: (0, 0),
            epilogue: None,
        })
    }

    /// Returns the possible algorithms, the fastest first. As with the real library, the first can
    /// be a transform, and the first of the others is not always deterministic.
    pub(super) fn algorithms(&self) -> Vec<u32> {
        let is_transformable = self.tensors[0].dtype == ElementType::F32
            && self.tensors[1].extents[2..] == [3, 3]
            && self.descriptor.stride == [1, 1]
            && self.descriptor.dilation == [1, 1];
        let (plain, winograd, fourier): (&[u32], u32, u32) = match self.direction {
            Direction::Forward => (&[1, 0], 6, 4),
            Direction::BackwardData => (&[0, 1], 4, 2),
            Direction::BackwardFilter => (&[0, 3, 1], 5, 2),
        };
        let winograd = is_transformable.then_some(winograd);
        let fourier = self.has_fourier_transform().then_some(fourier);
        winograd.into_iter().chain(plain.iter().copied()).chain(fourier).collect()
    }

    /// Returns true for the convolutions that cuDNN's documentation allows for its FFT.
    fn has_fourier_transform(&self) -> bool {
        let [x, w, y] = &self.tensors;
        let ConvolutionDescriptor { padding, stride, dilation, .. } = self.descriptor;
        let is_channels_first =
            |it: &TensorDescriptor| it.strides[3] == 1 && it.strides[2] == it.extents[3];
        let is_small = (0..2).all(|axis| {
            let is_inside = padding[axis] < w.extents[2 + axis];
            is_inside && x.extents[2 + axis] + 2 * padding[axis] <= 256
        });
        let is_dense = stride == [1, 1] && dilation == [1, 1];
        let is_known = x.dtype == ElementType::F32 && is_channels_first(x) && is_channels_first(y);
        is_known && is_dense && is_small
    }

    pub(super) fn is_deterministic(&self, algorithm: u32) -> bool {
        match self.direction {
            Direction::Forward => true,
            Direction::BackwardData => algorithm != 0,
            Direction::BackwardFilter => algorithm != 0 && algorithm != 3,
        }
    }

    pub(super) fn check(&self, algorithm: u32) -> ApiResult {
        if self.algorithms().contains(&algorithm) { Ok(()) } else { Err(Status::NOT_SUPPORTED) }
    }

    pub(super) fn workspace_bytes(&self, algorithm: u32) -> usize {
        if algorithm == 0 { 0 } else { WORKSPACE_BYTES }
    }

    /// Returns the math type.
    pub(super) fn mathematics(&self) -> u32 {
        self.descriptor.mathematics
    }

    /// Checks the addresses and submits the convolution to a stream.
    pub(super) fn submit(self, stream: Handle) -> ApiResult {
        let mut state = lock();
        let stream = state.stream(stream).map_err(|_| Status::BAD_PARAM)?;
        let device = state.streams[&stream].device;
        let is_there = |address: u64, n_bytes: usize| {
            state.machine.memory.kind(address, n_bytes) == Some(MemoryKind::Device(device))
        };
        let (workspace, workspace_bytes) = self.workspace;
        let alignment = self.tensors[0].dtype.n_bytes();
        let extra = self.epilogue.iter().flat_map(|it| [it.bias, it.addend]);
        let are_there = self
            .data
            .into_iter()
            .chain(extra)
            .all(|data| is_there(data, 0) && data.is_multiple_of(alignment));
        if !are_there || (workspace_bytes > 0 && !is_there(workspace, workspace_bytes)) {
            return Err(Status::BAD_PARAM);
        }
        state
            .submit_here(stream, Task::new(device, move |machine| self.run(&machine.memory)))
            .map_err(|_| Status::EXECUTION_FAILED)
    }

    fn run(&self, memory: &Memory) -> Result<(), DeviceError> {
        // Poisons the workspace, whose content must not be needed.
        memory.write(self.workspace.0, &vec![0xff_u8; self.workspace.1])?;
        let output = match self.direction {
            Direction::Forward => 2,
            Direction::BackwardData => 0,
            Direction::BackwardFilter => 1,
        };
        let rounds =
            self.tensors[0].dtype == ElementType::F32 && self.descriptor.mathematics != FMA_MATH;
        let mut values = [Vec::new(), Vec::new(), Vec::new()];
        let mut stored = Vec::new();
        for (number, values) in values.iter_mut().enumerate() {
            let addend = self.epilogue.filter(|_| number == output).map(|it| it.addend);
            let place = addend.unwrap_or(self.data[number]);
            let elements = self.tensors[number].read(memory, place)?;
            *values = self.places(number).map(|place| elements[place]).collect();
            if number == output {
                values.fill(0.0);
                stored = elements;
            } else if rounds {
                values.iter_mut().for_each(|value| *value = rounded_to_tf32(*value));
            }
        }
        self.accumulate(&mut values);
        self.write(memory, output, &values[output], stored)
    }

    /// Returns the offsets of a tensor's elements in the order of the computation. The innermost
    /// dim is the one that `accumulate_channels` iterates.
    fn places(&self, number: usize) -> impl Iterator<Item = usize> {
        let order = match (number, self.direction) {
            (1, Direction::BackwardData) => [2, 3, 0, 1],
            (1, Direction::Forward | Direction::BackwardFilter) => [2, 3, 1, 0],
            _ => [0, 2, 3, 1],
        };
        let tensor = self.tensors[number];
        let extents = order.map(|dim: usize| tensor.extents[dim]);
        let strides = order.map(|dim| tensor.strides[dim]);
        (0..extents.iter().product()).map(move |position: usize| {
            let (mut rest, mut place) = (position, 0);
            for dim in (0..4).rev() {
                place += rest % extents[dim] * strides[dim];
                rest /= extents[dim];
            }
            place
        })
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
                    for group in 0..self.descriptor.groups {
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
        let n_of_group = n_out / self.descriptor.groups;
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

    /// Writes the elements of the output, and leaves the gaps unchanged.
    fn write(
        &self,
        memory: &Memory,
        output: usize,
        sums: &[f32],
        mut stored: Vec<f32>,
    ) -> Result<(), DeviceError> {
        let ([alpha, beta], dtype) = (self.scales, self.tensors[output].dtype);
        let n_channels = self.tensors[output].extents[1];
        let bias = self.epilogue.map(|it| dtype.read(memory, it.bias, n_channels)).transpose()?;
        let is_relu = self.epilogue.is_some_and(|it| it.is_relu);
        for (position, (place, sum)) in self.places(output).zip(sums).enumerate() {
            // The previous content may be NaN if it is not used.
            let before = if beta == 0.0 { 0.0 } else { beta * stored[place] };
            let biased = bias.as_ref().map_or(0.0, |it| it[position % n_channels]);
            let value = alpha * sum + before + biased;
            // Like cuDNN's, this ReLU propagates NaN, even if asked not to.
            stored[place] = if is_relu && value < 0.0 { 0.0 } else { value };
        }
        dtype.write(memory, self.data[output], &stored)
    }
}

fn pairs(n_first: usize, n_second: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..n_first).flat_map(move |first| (0..n_second).map(move |second| (first, second)))
}

fn add_scaled(sums: &mut [f32], scale: f32, values: &[f32]) {
    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += scale * value);
}
