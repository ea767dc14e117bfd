//! `o = softmax(mask(scale * q k^T)) v` of each head, with sums in f32 and weights in bf16.

use std::collections::BTreeMap;

use super::backend::{Descriptor, kind, tensor};
use super::descriptor::TensorDescriptor;
use super::{ApiResult, Status};
use crate::element_type::{ElementType, from_bf16, to_bf16};
use crate::ffi::{Handle, host_bytes};
use crate::memory::{Memory, MemoryKind};
use crate::state::lock;
use crate::status::DeviceError;
use crate::work::Task;

/// `CUDNN_POINTWISE_CMP_GE`.
const ROW_IS_LATER: i64 = 303;

/// The operation `CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR`.
#[derive(Clone, Debug)]
pub(super) struct Attention {
    /// Queries, keys, values and the result, with their identities.
    tensors: [(i64, TensorDescriptor); 4],
    /// Identity of the logarithms of the sums of exponentials, if they are asked for.
    logarithms: Option<i64>,
    /// Identity of the factor of scores.
    scale: i64,
    mask: Option<Mask>,
}

/// The operation `CUDNN_BACKEND_OPERATION_DIAGONAL_BAND_MASK_DESCRIPTOR`, which keeps the scores of
/// rows that are at least as late as the column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mask {
    /// Identities of the scores before and after.
    scores: [i64; 2],
    /// Identity of the score of the other columns.
    hidden: i64,
    extents: [usize; 4],
}

impl Mask {
    pub(super) fn new(descriptor: &Descriptor) -> ApiResult<Self> {
        let [before, hidden, after] =
            [descriptor.child(3000)?, descriptor.child(3005)?, descriptor.child(3006)?];
        let extents = tensor(&before)?.extents;
        let are_virtual = [&before, &after].iter().all(|it| it.has(907));
        if extents != tensor(&after)?.extents || !are_virtual {
            return Err(Status::BAD_PARAM);
        }
        if descriptor.number(3007)? != ROW_IS_LATER {
            return Err(Status::NOT_SUPPORTED);
        }
        let scores = [before.number(906)?, after.number(906)?];
        Ok(Self { scores, hidden: by_value(&hidden)?, extents })
    }
}

impl Attention {
    pub(super) fn new(descriptor: &Descriptor) -> ApiResult<Self> {
        if descriptor.kind != kind::ATTENTION {
            return Err(Status::NOT_SUPPORTED);
        }
        let of = |name: u32| -> ApiResult<(i64, TensorDescriptor)> {
            let child = descriptor.child(name)?;
            Ok((child.number(906)?, tensor(&child)?))
        };
        let tensors = [of(2800)?, of(2801)?, of(2802)?, of(2803)?];
        let [q, k, v, o] = tensors.map(|(_, it)| it.extents);
        let is_consistent = k == [k[0], k[1], k[2], q[3]]
            && v[..3] == k[..3]
            && o == [q[0], q[1], q[2], v[3]]
            && q[0] == k[0]
            && q[1].is_multiple_of(k[1]);
        if !is_consistent {
            return Err(Status::BAD_PARAM);
        }
        let mask = match descriptor.has(2811) {
            true => {
                let mask = Mask::new(&*descriptor.child(2811)?.child(801)?)?;
                let scores = [descriptor.number(2812)?, descriptor.number(2813)?];
                if mask.extents != [q[0], q[1], q[2], k[2]] || mask.scores != scores {
                    return Err(Status::BAD_PARAM);
                }
                Some(mask)
            }
            false => None,
        };
        let logarithms = match descriptor.has(2804) {
            true => {
                let (id, it) = of(2804)?;
                let is_dense = it.extents == [q[0], q[1], q[2], 1]
                    && it.strides == [q[1] * q[2], q[2], 1, 1]
                    && it.dtype == ElementType::F32;
                Some(id).filter(|_| is_dense).ok_or(Status::BAD_PARAM)?.into()
            }
            false => None,
        };
        Ok(Self { tensors, logarithms, scale: by_value(&*descriptor.child(2805)?)?, mask })
    }

    /// Returns true if an engine computes this: as with the real library, heads of bf16 with rows
    /// that are multiples of 16 bytes.
    pub(super) fn is_known(&self) -> bool {
        self.tensors.iter().all(|(_, it)| {
            let is_aligned = it.extents[3].is_multiple_of(8);
            it.dtype == ElementType::Bf16 && is_aligned && it.strides[3] == 1
        })
    }

    /// Checks the addresses and submits the attention to a stream.
    pub(super) fn submit(
        &self,
        stream: Handle,
        pointers: &BTreeMap<i64, u64>,
        (workspace, workspace_bytes): (u64, usize),
    ) -> ApiResult {
        let pointer = |id: i64| pointers.get(&id).copied().ok_or(Status::BAD_PARAM);
        let scalar = |id: i64| {
            let bytes = host_bytes(pointer(id)?, 4).and_then(|it| it.try_into().ok());
            bytes.map(f32::from_ne_bytes).ok_or(Status::BAD_PARAM)
        };
        let ids = self.tensors.map(|(id, _)| id);
        let [q, k, v, o] = [pointer(ids[0])?, pointer(ids[1])?, pointer(ids[2])?, pointer(ids[3])?];
        let hidden = self.mask.map(|it| scalar(it.hidden)).transpose()?;
        let (data, scale) = ([q, k, v, o], scalar(self.scale)?);
        let logarithms = self.logarithms.map(pointer).transpose()?;
        let mut state = lock();
        let stream = state.stream(stream).map_err(|_| Status::BAD_PARAM)?;
        let device = state.streams[&stream].device;
        let is_there = |address: u64, n_bytes: usize| {
            state.machine.memory.kind(address, n_bytes) == Some(MemoryKind::Device(device))
        };
        let are_there =
            data.iter().chain(&logarithms).all(|it| is_there(*it, 0) && it.is_multiple_of(16));
        if !are_there || (workspace_bytes > 0 && !is_there(workspace, workspace_bytes)) {
            return Err(Status::BAD_PARAM);
        }
        // Each piece of work takes its time.
        for _ in 0..state.settings.attention_delay {
            let nothing = Task::new(device, |_| Ok(()));
            state.submit_here(stream, nothing).map_err(|_| Status::EXECUTION_FAILED)?;
        }
        let tensors = self.tensors.map(|(_, it)| it);
        let run = move |memory: &Memory| {
            // Poisons the workspace, whose content must not be needed.
            memory.write(workspace, &vec![0xff_u8; workspace_bytes])?;
            compute(memory, tensors, (data, logarithms), (scale, hidden))
        };
        state
            .submit_here(stream, Task::new(device, move |machine| run(&machine.memory)))
            .map_err(|_| Status::EXECUTION_FAILED)
    }
}

/// Returns the identity of a number that the host gives.
fn by_value(descriptor: &Descriptor) -> ApiResult<i64> {
    let tensor = tensor(descriptor)?;
    let is_number = tensor.extents == [1; 4] && tensor.dtype == ElementType::F32;
    if !is_number || !descriptor.has(908) {
        return Err(Status::BAD_PARAM);
    }
    descriptor.number(906)
}

fn compute(
    memory: &Memory,
    tensors: [TensorDescriptor; 4],
    (data, logarithms): ([u64; 4], Option<u64>),
    (scale, hidden): (f32, Option<f32>),
) -> Result<(), DeviceError> {
    let [q, k, v, o] = tensors;
    let read = |number: usize| tensors[number].read(memory, data[number]);
    let (queries, keys, values, mut results) = (read(0)?, read(1)?, read(2)?, read(3)?);
    let mut of_rows = Vec::new();
    let group = q.extents[1] / k.extents[1];
    let at = |it: &TensorDescriptor, batch: usize, head: usize, row: usize| {
        batch * it.strides[0] + head * it.strides[1] + row * it.strides[2]
    };
    let [n_batches, n_heads, n_queries, features] = q.extents;
    for (batch, head) in (0..n_batches).flat_map(|it| (0..n_heads).map(move |head| (it, head))) {
        for row in 0..n_queries {
            let query = &queries[at(&q, batch, head, row)..][..features];
            let score = |column: usize| {
                let key = &keys[at(&k, batch, head / group, column)..][..features];
                let product: f32 = query.iter().zip(key).map(|(q, k)| q * k).sum();
                hidden.filter(|_| row < column).unwrap_or(scale * product)
            };
            let scores: Vec<f32> = (0..k.extents[2]).map(score).collect();
            let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let weights: Vec<f32> = scores.iter().map(|it| (it - largest).exp()).collect();
            let total: f32 = weights.iter().sum();
            of_rows.push(largest + total.ln());
            for column in 0..o.extents[3] {
                let product = |(key, weight): (usize, &f32)| {
                    let value = values[at(&v, batch, head / group, key) + column];
                    from_bf16(to_bf16(*weight)) * value
                };
                let sum: f32 = weights.iter().enumerate().map(product).sum();
                results[at(&o, batch, head, row) + column] = sum / total;
            }
        }
    }
    if let Some(address) = logarithms {
        memory.write(address, &of_rows)?;
    }
    o.dtype.write(memory, data[3], &results)
}
