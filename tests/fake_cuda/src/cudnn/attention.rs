//! `o = softmax(mask(scale * q k^T)) v` of each head, with sums in f32 and weights in bf16.

use super::backend::Descriptor;
use super::descriptor::TensorDescriptor;
use super::engine::numerical_note::NONDETERMINISTIC;
use super::engine::{Engine, HeuristicMode};
use super::launch::Launch;
use super::{ApiResult, Status};
use crate::element_type::{ElementType, from_bf16, to_bf16};
use crate::ffi::host_bytes;
use crate::memory::Memory;
use crate::state::lock;
use crate::status::DeviceError;

/// Unlike the real library's, the first engine is not deterministic.
const ENGINES: [Engine; 3] =
    [Engine::new(10, 512, &[NONDETERMINISTIC]), Engine::new(9, 256, &[]), Engine::new(8, 0, &[])];

/// `CUDNN_POINTWISE_CMP_GE`.
const ROW_IS_LATER: i64 = 303;

/// The operation `CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR`.
#[derive(Clone, Debug)]
pub(super) struct Attention {
    /// Queries, keys, values and the result.
    tensors: [TensorDescriptor; 4],
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
        let tensor = |name: u32| TensorDescriptor::new(&*descriptor.child(name)?);
        let (before, after) = (tensor(3000)?, tensor(3006)?);
        if before.extents != after.extents || !before.is_virtual || !after.is_virtual {
            return Err(Status::BAD_PARAM);
        }
        if descriptor.number(3007)? != ROW_IS_LATER {
            return Err(Status::NOT_SUPPORTED);
        }
        let hidden = by_value(&*descriptor.child(3005)?)?;
        Ok(Self { scores: [before.id, after.id], hidden, extents: before.extents })
    }
}

impl Attention {
    pub(super) fn new(descriptor: &Descriptor) -> ApiResult<Self> {
        let of = |name: u32| TensorDescriptor::new(&*descriptor.child(name)?);
        let tensors = [of(2800)?, of(2801)?, of(2802)?, of(2803)?];
        let [q, k, v, o] = tensors.map(|it| it.extents);
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
                let it = of(2804)?;
                let is_dense = it.extents == [q[0], q[1], q[2], 1]
                    && it.strides == [q[1] * q[2], q[2], 1, 1]
                    && it.dtype == ElementType::F32;
                Some(it.id).filter(|_| is_dense).ok_or(Status::BAD_PARAM)?.into()
            }
            false => None,
        };
        Ok(Self { tensors, logarithms, scale: by_value(&*descriptor.child(2805)?)?, mask })
    }

    /// Returns the engines. As with the real library, they compute heads of bf16 with rows that are
    /// multiples of 16 bytes.
    pub(super) fn engines(&self, mode: HeuristicMode) -> Vec<Engine> {
        let is_known = self.tensors.iter().all(|it| {
            let is_aligned = it.extents[3].is_multiple_of(8);
            it.dtype == ElementType::Bf16 && is_aligned && it.strides[3] == 1
        });
        if is_known && mode == HeuristicMode::A { ENGINES.to_vec() } else { Vec::new() }
    }

    /// Checks the addresses and submits the attention to a stream.
    pub(super) fn submit(&self, launch: &Launch) -> ApiResult {
        let scalar = |id: i64| {
            let bytes = host_bytes(launch.pointer(id)?, 4).and_then(|it| it.try_into().ok());
            bytes.map(f32::from_ne_bytes).ok_or(Status::BAD_PARAM)
        };
        let [q, k, v, o] = self.tensors.map(|it| launch.pointer(it.id));
        let data = [q?, k?, v?, o?];
        let hidden = self.mask.map(|it| scalar(it.hidden)).transpose()?;
        let (tensors, scale) = (self.tensors, scalar(self.scale)?);
        let logarithms = self.logarithms.map(|it| launch.pointer(it)).transpose()?;
        let stored: Vec<u64> = data.into_iter().chain(logarithms).collect();
        let n_delays = lock().settings.attention_delay;
        launch.submit("cudnn: attention", &stored, n_delays, move |memory| {
            compute(memory, tensors, (data, logarithms), (scale, hidden))
        })
    }
}

/// Returns the identity of a number that the host gives.
fn by_value(descriptor: &Descriptor) -> ApiResult<i64> {
    let tensor = TensorDescriptor::new(descriptor)?;
    let is_number = tensor.extents == [1; 4] && tensor.dtype == ElementType::F32;
    if !is_number || !descriptor.has(908) {
        return Err(Status::BAD_PARAM);
    }
    Ok(tensor.id)
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
