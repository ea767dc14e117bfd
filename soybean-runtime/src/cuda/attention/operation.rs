//! Attention as an operation of cuDNN's graph API, and the plans for it.
#![expect(unsafe_code, reason = "kernels work on raw memory")]

use std::ffi::c_void;

use soybean_plan::Attention;

use super::shape::{AttentionShape, StridedTensor};
use crate::cuda::cudnn::{
    CudnnError, cudnnDataType_t as DataType, cudnnHandle_t,
    graph::{
        CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
        CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_ATTR_ENGINEHEUR_MODE,
        CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_ATTR_ENGINEHEUR_RESULTS,
        CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
        CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_BDESC,
        CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_COMPARISON_MODE,
        CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_XDESC,
        CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_YDESC, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC,
        CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC,
        CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC,
        CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH, CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_INPUT_UID,
        CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_OUTPUT_UID, CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC,
        CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_ATTR_OPERATIONGRAPH_OPS,
        CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_ATTR_TENSOR_DATA_TYPE,
        CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_ATTR_TENSOR_IS_VIRTUAL,
        CUDNN_ATTR_TENSOR_STRIDES, CUDNN_ATTR_TENSOR_UNIQUE_ID,
        CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
        CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_BACKEND_ENGINE_DESCRIPTOR,
        CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
        CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
        CUDNN_BACKEND_OPERATION_DIAGONAL_BAND_MASK_DESCRIPTOR,
        CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
        CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_HEUR_MODE_A,
        CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, CUDNN_POINTWISE_CMP_GE, Descriptor, HeuristicMode,
        NumericalNote, PointwiseMode,
    },
};

/// Identities of the tensors in a graph: queries, keys, values, the result, and the logarithms if
/// they are saved.
const TENSORS: [i64; 5] = [1, 2, 3, 4, 9];
/// The factor of scores, and minus infinity for keys that are not seen.
const SCALARS: [i64; 2] = [5, 6];
/// Scores before and after the causal mask.
const SCORES: [i64; 2] = [7, 8];

/// Most configurations of engines that are planned.
const MAX_CONFIGURATIONS: usize = 8;
/// More than any engine has numerical notes.
const MAX_NOTES: usize = 16;
/// Alignment in bytes of buffers, which cuDNN's copies need.
const ALIGNMENT: i64 = 16;

/// The device that plans are made for, as attributes of descriptors.
pub(super) trait PlanTarget {
    fn of_graph(&self, graph: Descriptor) -> Result<Descriptor, CudnnError>;
    fn of_heuristic(&self, heuristic: Descriptor) -> Result<Descriptor, CudnnError>;
    fn of_plan(&self, plan: Descriptor) -> Result<Descriptor, CudnnError>;
}

impl PlanTarget for cudnnHandle_t {
    fn of_graph(&self, graph: Descriptor) -> Result<Descriptor, CudnnError> {
        graph.with(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, &[*self])
    }

    fn of_heuristic(&self, heuristic: Descriptor) -> Result<Descriptor, CudnnError> {
        Ok(heuristic)
    }

    fn of_plan(&self, plan: Descriptor) -> Result<Descriptor, CudnnError> {
        plan.with(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, &[*self])
    }
}

/// An engine's kernel for the attention, ready to run.
pub(super) struct Plan {
    descriptor: Descriptor,
    /// Number of the engine among those of the operation.
    pub(super) engine: i64,
    pub(super) workspace_bytes: usize,
}

/// Numbers that kernels get by value: the first of [`SCALARS`], as many as the graph has.
pub(super) struct Scalars(Vec<f32>);

impl Scalars {
    #[expect(clippy::cast_possible_truncation, reason = "kernels compute in f32")]
    pub(super) fn new(attention: &Attention) -> Self {
        let hidden = attention.is_causal.then_some(f32::NEG_INFINITY);
        Self([attention.scale as f32].into_iter().chain(hidden).collect())
    }
}

impl Plan {
    /// Queues the kernel on the stream of the handle.
    ///
    /// # Safety
    /// The plan was made with this handle. Until the kernel completes, the addresses hold the
    /// tensors of its graph. Nothing else uses the result or the workspace.
    pub(super) unsafe fn run(
        &self,
        handle: cudnnHandle_t,
        tensors: impl ExactSizeIterator<Item = u64>,
        Scalars(scalars): &Scalars,
        workspace: u64,
    ) -> Result<(), CudnnError> {
        let ids = [&TENSORS[..tensors.len()], &SCALARS[..scalars.len()]].concat();
        let scalars = scalars.iter().map(|it| std::ptr::from_ref(it).cast_mut().cast());
        let pointers = tensors.map(|it| it as *mut c_void).chain(scalars);
        let pack = Descriptor::new(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?
            .with(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &ids)?
            .with(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &pointers.collect::<Vec<_>>())?
            .with(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &[workspace as *mut c_void])?
            .finalized()?;
        // SAFETY: required of the caller. The scalars are read before the call returns.
        unsafe { self.descriptor.execute(handle, &pack) }
    }
}

/// Returns the plans of deterministic engines, in the order of cuDNN's heuristic.
pub(super) fn plans(
    shape: &AttentionShape,
    target: &impl PlanTarget,
) -> Result<Vec<Plan>, CudnnError> {
    let graph = target.of_graph(operation_graph(&operation(shape)?)?)?.finalized()?;
    let heuristic = Descriptor::new(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?
        .with(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[graph.raw()])?
        .with(CUDNN_ATTR_ENGINEHEUR_MODE, &[HeuristicMode(CUDNN_HEUR_MODE_A)])?;
    let heuristic = target.of_heuristic(heuristic)?.finalized()?;
    let configurations = heuristic.descriptors(
        CUDNN_ATTR_ENGINEHEUR_RESULTS,
        CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
        MAX_CONFIGURATIONS,
    )?;
    // An engine may refuse what the heuristic expects of it.
    let plans = configurations.iter().filter_map(|it| plan(it, target).ok());
    Ok(plans.flatten().collect())
}

/// Returns the plan of a configuration, if its engine is deterministic.
fn plan(configuration: &Descriptor, target: &impl PlanTarget) -> Result<Option<Plan>, CudnnError> {
    let engines = configuration.descriptors(
        CUDNN_ATTR_ENGINECFG_ENGINE,
        CUDNN_BACKEND_ENGINE_DESCRIPTOR,
        1,
    )?;
    let Some(engine) = engines.first() else { return Ok(None) };
    let notes =
        engine.values(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, vec![NumericalNote(0); MAX_NOTES])?;
    if notes.contains(&NumericalNote(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)) {
        return Ok(None);
    }
    let plan = Descriptor::new(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?
        .with(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &[configuration.raw()])?;
    let descriptor = target.of_plan(plan)?.finalized()?;
    let number = |of: &Descriptor, name| Ok(of.values(name, vec![0_i64])?.first().copied());
    let engine = number(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX)?;
    let workspace = number(&descriptor, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)?;
    let workspace_bytes = workspace.and_then(|it| usize::try_from(it).ok());
    let made = engine.zip(workspace_bytes);
    Ok(made.map(|(engine, workspace_bytes)| Plan { descriptor, engine, workspace_bytes }))
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
            &[operation_graph(&mask)?.finalized()?.raw()],
        )?
        .with(CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_INPUT_UID, &[before])?
        .with(CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_OUTPUT_UID, &[after])?
        .finalized()
}

/// Returns a graph of one operation.
fn operation_graph(operation: &Descriptor) -> Result<Descriptor, CudnnError> {
    Descriptor::new(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?
        .with(CUDNN_ATTR_OPERATIONGRAPH_OPS, &[operation.raw()])
}

/// Returns a tensor that is not finalized yet.
fn described(
    id: i64,
    dtype: DataType,
    extents: [usize; 4],
    strides: [usize; 4],
) -> Result<Descriptor, CudnnError> {
    Descriptor::new(CUDNN_BACKEND_TENSOR_DESCRIPTOR)?
        .with(CUDNN_ATTR_TENSOR_UNIQUE_ID, &[id])?
        .with(CUDNN_ATTR_TENSOR_DATA_TYPE, &[dtype])?
        .with(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[ALIGNMENT])?
        .with(CUDNN_ATTR_TENSOR_DIMENSIONS, &extents.map(|it| it as i64))?
        .with(CUDNN_ATTR_TENSOR_STRIDES, &strides.map(|it| it as i64))
}
