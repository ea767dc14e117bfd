//! Attention as an operation of cuDNN's graph API, and the plans for it.
#![expect(unsafe_code, reason = "kernels work on raw memory")]

use std::ffi::c_void;

use soybean_plan::Attention;

use super::shape::{AttentionShape, StridedTensor};
use crate::cuda::cudnn::{
    CudnnError, cudnnDataType_t as DataType,
    engines::{Plan, PlanTarget, engines, operation_graph, tensor as described},
    graph::{
        CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_BDESC,
        CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_COMPARISON_MODE,
        CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_XDESC,
        CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_YDESC, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC,
        CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC,
        CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC,
        CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH, CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_INPUT_UID,
        CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_OUTPUT_UID, CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC,
        CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_ATTR_TENSOR_IS_VIRTUAL,
        CUDNN_BACKEND_OPERATION_DIAGONAL_BAND_MASK_DESCRIPTOR,
        CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR, CUDNN_HEUR_MODE_A,
        CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, CUDNN_POINTWISE_CMP_GE, Descriptor, HeuristicMode,
        NumericalNote, PointwiseMode,
    },
    handle::Cudnn,
};

/// Identities of the tensors in a graph: queries, keys, values, the result, and the logarithms if
/// they are saved.
const TENSORS: [i64; 5] = [1, 2, 3, 4, 9];
/// The factor of scores, and minus infinity for keys that are not seen.
const SCALARS: [i64; 2] = [5, 6];
/// Scores before and after the causal mask.
const SCORES: [i64; 2] = [7, 8];

/// The maximum number of engines that are planned.
const MAX_ENGINES: usize = 8;

/// Numbers that kernels get by value: the first of [`SCALARS`], as many as the graph has.
pub(super) struct Scalars(Vec<f32>);

impl Scalars {
    #[expect(clippy::cast_possible_truncation, reason = "kernels compute in f32")]
    pub(super) fn new(attention: &Attention) -> Self {
        let hidden = attention.is_causal.then_some(f32::NEG_INFINITY);
        Self([attention.scale as f32].into_iter().chain(hidden).collect())
    }
}

/// Queues a plan on the stream of the handle.
///
/// # Safety
/// The plan was made with this handle. Until the kernel completes, the addresses hold the tensors
/// of its graph. Nothing else uses the result or the workspace.
pub(super) unsafe fn run(
    plan: &Plan,
    cudnn: &Cudnn,
    tensors: impl Iterator<Item = u64>,
    Scalars(scalars): &Scalars,
    workspace: u64,
) -> Result<(), CudnnError> {
    let tensors = TENSORS.into_iter().zip(tensors.map(|it| it as *mut c_void));
    let scalars = scalars.iter().map(|it| std::ptr::from_ref(it).cast_mut().cast());
    // SAFETY: required of the caller. The scalars are read before the call returns.
    unsafe { plan.run(cudnn, tensors.chain(SCALARS.into_iter().zip(scalars)), workspace) }
}

/// Returns the plans of deterministic engines, in the order of cuDNN's heuristic. The name tells
/// the attention, the GPU and the version of cuDNN from all others.
pub(super) fn plans(
    shape: &AttentionShape,
    name: &str,
    target: &impl PlanTarget,
) -> Result<Vec<Plan>, CudnnError> {
    let heuristic = HeuristicMode(CUDNN_HEUR_MODE_A);
    let unwanted = [NumericalNote(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)];
    let found = engines(&[operation(shape)?], name, target, heuristic, &unwanted)?.into_iter();
    Ok(found.take(MAX_ENGINES).filter_map(|it| it.into_plan(target)).collect())
}

/// Returns the operation `softmax(mask(scale * query key^T)) value`.
fn operation(shape: &AttentionShape) -> Result<Descriptor, CudnnError> {
    let [query, key, value, result] = &shape.tensors;
    let [queries, keys] = [query.extents[2], key.extents[2]];
    let tensor = |id: i64, it: &StridedTensor| {
        described(id, DataType::CUDNN_DATA_BFLOAT16, it.extents, it.strides)?.finalized()
    };
    let scalar = |id: i64| {
        let tensor = described(id, DataType::CUDNN_DATA_FLOAT, [1; 4], [1; 4])?;
        tensor.with(CUDNN_ATTR_TENSOR_IS_BY_VALUE, &[true])?.finalized()
    };
    let [factor, hidden] = SCALARS;
    let operation = Descriptor::new(CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR)?
        .with(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, &[tensor(TENSORS[0], query)?.raw()])?
        .with(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, &[tensor(TENSORS[1], key)?.raw()])?
        .with(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, &[tensor(TENSORS[2], value)?.raw()])?
        .with(CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, &[tensor(TENSORS[3], result)?.raw()])?
        .with(CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, &[scalar(factor)?.raw()])?;
    let operation = match shape.logarithms {
        Some(StridedTensor { extents, strides }) => {
            let dtype = DataType::CUDNN_DATA_FLOAT;
            let logarithms = described(TENSORS[4], dtype, extents, strides)?.finalized()?;
            operation.with(CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, &[logarithms.raw()])?
        }
        None => operation,
    };
    if !shape.is_causal {
        return operation.finalized();
    }
    let [batch, heads, ..] = query.extents;
    let scores = |id: i64| {
        let strides = [heads * queries * keys, queries * keys, keys, 1];
        let extents = [batch, heads, queries, keys];
        let tensor = described(id, DataType::CUDNN_DATA_FLOAT, extents, strides)?;
        tensor.with(CUDNN_ATTR_TENSOR_IS_VIRTUAL, &[true])?.finalized()
    };
    let [before, after] = SCORES;
    // Keeps the scores of queries at least as far in the sequence as keys.
    let mask = Descriptor::new(CUDNN_BACKEND_OPERATION_DIAGONAL_BAND_MASK_DESCRIPTOR)?
        .with(CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_XDESC, &[scores(before)?.raw()])?
        .with(CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_BDESC, &[scalar(hidden)?.raw()])?
        .with(CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_YDESC, &[scores(after)?.raw()])?
        .with(
            CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_COMPARISON_MODE,
            &[PointwiseMode(CUDNN_POINTWISE_CMP_GE)],
        )?
        .finalized()?;
    operation
        .with(
            CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH,
            &[operation_graph(&[mask])?.finalized()?.raw()],
        )?
        .with(CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_INPUT_UID, &[before])?
        .with(CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_OUTPUT_UID, &[after])?
        .finalized()
}
