//! `y[n, k, p, q] = sum over c, r, s of x[n, c, p u + r d - pad, q u + s d - pad] w[k, c, r, s]`, and its gradients.

use super::description::{Tensor, Walk};
use super::{Answer, Status};
use crate::c::Handle;
use crate::memory::{Memory, Place};
use crate::numbers::{Number, rounded_to_tf32};
use crate::state::lock;
use crate::status::Fault;
use crate::work::Task;

/// Which of the three tensors is computed from the other two.
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
    tensors: [Tensor; 3],
    walk: Walk,
    pub(super) data: [u64; 3],
    /// Of the sum, and of what was there before.
    pub(super) scales: [f32; 2],
    pub(super) workspace: (u64, usize),
}

/// `CUDNN_FMA_MATH`: no conversion of operands.
const FMA_MATH: u32 = 3;
/// What all algorithms but the plainest take.
const WORKSPACE_BYTES: usize = 4096;

impl Convolution {
    pub(super) fn new(direction: Direction, tensors: [Tensor; 3], walk: Walk) -> Answer<Self> {
        let [x, w, y] = tensors;
        if x.number != w.number || x.number != y.number {
            return Err(Status::NOT_SUPPORTED);
        }
        let is_divided =
            x.extents[1] == w.extents[1] * walk.groups && w.extents[0].is_multiple_of(walk.groups);
        let is_walked = (0..2).all(|axis| {
            let reach = walk.dilation[axis] * (w.extents[2 + axis] - 1) + 1;
            let free = (x.extents[2 + axis] + 2 * walk.padding[axis]).checked_sub(reach);
            free.is_some_and(|free| y.extents[2 + axis] == free / walk.stride[axis] + 1)
        });
        let is_same = x.extents[0] == y.extents[0] && w.extents[0] == y.extents[1];
        if !(is_divided && is_walked && is_same) {
            return Err(Status::BAD_PARAM);
        }
        Ok(Self { direction, tensors, walk, data: [0; 3], scales: [1.0, 0.0], workspace: (0, 0) })
    }

    /// The algorithms that can do it, the fastest first; as with the library, this is not always one that gives the same result every time.
    pub(super) fn algorithms(&self) -> Vec<u32> {
        let is_transformable = self.tensors[1].extents[2..] == [3, 3]
            && self.walk.stride == [1, 1]
            && self.walk.dilation == [1, 1];
        let (plain, transformed): (&[u32], u32) = match self.direction {
            Direction::Forward => (&[1, 0], 6),
            Direction::BackwardData => (&[0, 1], 4),
            Direction::BackwardFilter => (&[0, 3, 1], 5),
        };
        plain.iter().copied().chain(is_transformable.then_some(transformed)).collect()
    }

    pub(super) fn is_deterministic(&self, algorithm: u32) -> bool {
        match self.direction {
            Direction::Forward => true,
            Direction::BackwardData => algorithm != 0,
            Direction::BackwardFilter => algorithm != 0 && algorithm != 3,
        }
    }

    pub(super) fn check(&self, algorithm: u32) -> Answer {
        if self.algorithms().contains(&algorithm) { Ok(()) } else { Err(Status::NOT_SUPPORTED) }
    }

    pub(super) fn workspace_bytes(&self, algorithm: u32) -> usize {
        if algorithm == 0 { 0 } else { WORKSPACE_BYTES }
    }

    /// Which conversions it is computed with.
    pub(super) fn mathematics(&self) -> u32 {
        self.walk.mathematics
    }

    /// Gives the convolution to a stream, after a look at its addresses.
    pub(super) fn give(self, stream: Handle) -> Answer {
        let mut state = lock();
        let stream = state.stream(stream).map_err(|_| Status::BAD_PARAM)?;
        let device = state.streams[&stream].device;
        let is_there = |address: u64, n_bytes: usize| {
            state.machine.memory.place(address, n_bytes) == Some(Place::Device(device))
        };
        let (workspace, workspace_bytes) = self.workspace;
        let alignment = self.tensors[0].number.n_bytes();
        let are_there =
            self.data.iter().all(|&data| is_there(data, 0) && data.is_multiple_of(alignment));
        if !are_there || (workspace_bytes > 0 && !is_there(workspace, workspace_bytes)) {
            return Err(Status::BAD_PARAM);
        }
        state
            .give(stream, Task::new(device, move |machine| self.run(&machine.memory)))
            .map_err(|_| Status::EXECUTION_FAILED)
    }

    fn run(&self, memory: &Memory) -> Result<(), Fault> {
        // What lies where the workspace is must not be needed any longer.
        memory.write(self.workspace.0, &vec![0xff_u8; self.workspace.1])?;
        let computed = match self.direction {
            Direction::Forward => 2,
            Direction::BackwardData => 0,
            Direction::BackwardFilter => 1,
        };
        let rounds = self.tensors[0].number == Number::F32 && self.walk.mathematics != FMA_MATH;
        let mut values = [Vec::new(), Vec::new(), Vec::new()];
        for (number, values) in values.iter_mut().enumerate() {
            *values = self.tensors[number].read(memory, self.data[number])?;
            if number != computed && rounds {
                values.iter_mut().for_each(|value| *value = rounded_to_tf32(*value));
            }
        }
        let before = values[computed].clone();
        values[computed].fill(0.0);
        self.accumulate(&mut values);
        self.write(memory, computed, &values[computed], before)
    }

    /// Adds all products to the tensor that is computed.
    fn accumulate(&self, values: &mut [Vec<f32>; 3]) {
        let [x, w, y] = self.tensors;
        let (per_group_in, per_group_out) = (w.extents[1], w.extents[0] / self.walk.groups);
        for n in 0..y.extents[0] {
            for k in 0..y.extents[1] {
                for c in 0..per_group_in {
                    let channel = k / per_group_out * per_group_in + c;
                    let origins = [
                        x.offset([n, channel, 0, 0]),
                        w.offset([k, c, 0, 0]),
                        y.offset([n, k, 0, 0]),
                    ];
                    self.accumulate_plane(values, origins);
                }
            }
        }
    }

    /// Adds the products of one plane of images, one of filters and one of results, which begin at `origins`.
    fn accumulate_plane(&self, values: &mut [Vec<f32>; 3], origins: [usize; 3]) {
        let [x, w, y] = self.tensors;
        for r in 0..w.extents[2] {
            for p in 0..y.extents[2] {
                let Some(h) = self.image_position(0, p, r) else { continue };
                for s in 0..w.extents[3] {
                    let at_w = origins[1] + r * w.strides[2] + s * w.strides[3];
                    for q in 0..y.extents[3] {
                        let Some(v) = self.image_position(1, q, s) else { continue };
                        let at_x = origins[0] + h * x.strides[2] + v * x.strides[3];
                        let at_y = origins[2] + p * y.strides[2] + q * y.strides[3];
                        let [x, w, y] = values;
                        match self.direction {
                            Direction::Forward => y[at_y] += x[at_x] * w[at_w],
                            Direction::BackwardData => x[at_x] += y[at_y] * w[at_w],
                            Direction::BackwardFilter => w[at_w] += y[at_y] * x[at_x],
                        }
                    }
                }
            }
        }
    }

    /// Where a filter's element lies on the image for a place of the result; none if in the padding.
    fn image_position(&self, axis: usize, result: usize, filter: usize) -> Option<usize> {
        let position = (result * self.walk.stride[axis] + filter * self.walk.dilation[axis])
            .checked_sub(self.walk.padding[axis])?;
        (position < self.tensors[0].extents[2 + axis]).then_some(position)
    }

    /// Writes the elements of the tensor, and leaves those in the gaps as they were.
    fn write(
        &self,
        memory: &Memory,
        computed: usize,
        sums: &[f32],
        mut values: Vec<f32>,
    ) -> Result<(), Fault> {
        let tensor = self.tensors[computed];
        let [alpha, beta] = self.scales;
        let [n, c, h, w] = tensor.extents;
        for position in 0..n * c * h * w {
            let at = tensor.offset([
                position / (c * h * w),
                position / (h * w) % c,
                position / w % h,
                position % w,
            ]);
            // What was there before may be anything where it does not count.
            let before = if beta == 0.0 { 0.0 } else { beta * values[at] };
            values[at] = alpha * sums[at] + before;
        }
        tensor.number.write(memory, self.data[computed], &values)
    }
}
