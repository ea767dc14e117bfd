//! The engines of cuDNN that can run a graph of operations, and their plans.
//!
//! Some engines compile a kernel for their plan, which takes tenths of a second. Such plans are
//! kept on disk in cuDNN's text form, from which they are made in a millisecond.

use std::{cell::OnceCell, ffi::c_void, path::PathBuf};

use super::{
    CudnnError, NOT_SUPPORTED, cudnnDataType_t as DataType,
    graph::{
        BehaviorNote, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_ATTR_ENGINE_GLOBAL_INDEX,
        CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_ATTR_ENGINEHEUR_MODE,
        CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_ATTR_ENGINEHEUR_RESULTS,
        CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
        CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
        CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_ATTR_OPERATIONGRAPH_OPS,
        CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_ATTR_TENSOR_DATA_TYPE,
        CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_ATTR_TENSOR_UNIQUE_ID,
        CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
        CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_BACKEND_ENGINE_DESCRIPTOR,
        CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
        CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
        CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
        CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION, Descriptor, HeuristicMode, NumericalNote,
    },
    handle::Cudnn,
};
use crate::cuda::{capture_lock::not_capturing, disk_cache};

/// The way in which graphs are described. Plans on disk that follow another one are not read.
const GRAPH_FORMAT: &str = "cuDNN's plan 1";
/// The maximum length in bytes of a plan's text.
const MAX_TEXT_BYTES: usize = 1 << 22;
/// The maximum number of configurations that are asked for.
const MAX_CONFIGURATIONS: usize = 64;
/// More than any engine has notes.
const MAX_NOTES: usize = 16;
/// Alignment in bytes of buffers, which cuDNN's copies need.
const ALIGNMENT: i64 = 16;

/// The device that plans are made for, as attributes of descriptors.
pub(in crate::cuda) trait PlanTarget {
    fn of_graph(&self, graph: Descriptor) -> Result<Descriptor, CudnnError>;
    fn of_heuristic(&self, heuristic: Descriptor) -> Result<Descriptor, CudnnError>;
    fn of_plan(&self, plan: Descriptor) -> Result<Descriptor, CudnnError>;
}

impl PlanTarget for Cudnn {
    fn of_graph(&self, graph: Descriptor) -> Result<Descriptor, CudnnError> {
        graph.with(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, &[self.raw()])
    }

    fn of_heuristic(&self, heuristic: Descriptor) -> Result<Descriptor, CudnnError> {
        Ok(heuristic)
    }

    fn of_plan(&self, plan: Descriptor) -> Result<Descriptor, CudnnError> {
        plan.with(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, &[self.raw()])
    }
}

/// An engine with its settings for a graph, and its plan once that has been asked for.
pub(in crate::cuda) struct Engine {
    configuration: Descriptor,
    /// Number of the engine among those of the operations.
    pub(in crate::cuda) number: i64,
    /// The file that keeps the plan, if the engine compiles a kernel for it.
    file: Option<PathBuf>,
    pub(in crate::cuda) is_compiled: bool,
    plan: OnceCell<Option<Plan>>,
}

/// A kernel of an engine, ready to run.
pub(in crate::cuda) struct Plan {
    /// `None` while it is dropped.
    descriptor: Option<Descriptor>,
    /// Number of the engine among those of the operations.
    pub(in crate::cuda) engine: i64,
    pub(in crate::cuda) workspace_bytes: usize,
}

impl Engine {
    /// Returns the engine of a configuration, which has this name, unless the engine has one of
    /// these notes.
    fn new(
        configuration: Descriptor,
        name: &str,
        unwanted: &[NumericalNote],
    ) -> Result<Option<Self>, CudnnError> {
        let engines = configuration.descriptors(
            CUDNN_ATTR_ENGINECFG_ENGINE,
            CUDNN_BACKEND_ENGINE_DESCRIPTOR,
            1,
        )?;
        let Some(engine) = engines.first() else { return Ok(None) };
        let notes =
            engine.values(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, vec![NumericalNote(0); MAX_NOTES])?;
        if notes.iter().any(|it| unwanted.contains(it)) {
            return Ok(None);
        }
        let behavior =
            engine.values(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, vec![BehaviorNote(0); MAX_NOTES])?;
        let is_compiled = behavior.contains(&BehaviorNote(CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION));
        let number = engine.values(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, vec![0_i64])?;
        let Some(&number) = number.first() else { return Ok(None) };
        let key = disk_cache::fingerprint(&[GRAPH_FORMAT, name, &number.to_string()]);
        let file = disk_cache::folder().filter(|_| is_compiled);
        let file = file.map(|it| it.join(format!("{key:032x}.plan")));
        Ok(Some(Self { configuration, number, file, is_compiled, plan: OnceCell::new() }))
    }

    /// Returns the plan, which is made at the first call. An engine may refuse what the heuristic
    /// expects of it: it has no plan then.
    pub(in crate::cuda) fn plan(&self, target: &impl PlanTarget) -> Option<&Plan> {
        let made = || {
            // Kernels are loaded.
            let _no_capture = not_capturing();
            self.kept_plan(target).or_else(|| self.new_plan(target))
        };
        self.plan.get_or_init(made).as_ref()
    }

    /// Returns the plan that is on disk.
    fn kept_plan(&self, target: &impl PlanTarget) -> Option<Plan> {
        let text = disk_cache::read(self.file.as_deref()?)?;
        let plan = Descriptor::new(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR).ok()?;
        let plan = target.of_plan(plan).ok()?;
        let plan = plan.with(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, &text).ok()?;
        Plan::new(plan, self.number).ok()
    }

    /// Makes the plan, and keeps it on disk if that has compiled a kernel.
    fn new_plan(&self, target: &impl PlanTarget) -> Option<Plan> {
        let plan = Descriptor::new(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR).ok()?;
        let configuration = [self.configuration.raw()];
        let plan = plan.with(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &configuration).ok()?;
        let plan = Plan::new(target.of_plan(plan).ok()?, self.number).ok()?;
        if let Some(file) = &self.file
            && let Ok(text) = plan.text()
        {
            // A failed write only makes the next start slower.
            let _not_kept = disk_cache::write(file, &text);
        }
        Some(plan)
    }

    /// Returns the plan if it was made before.
    pub(in crate::cuda) fn made_plan(&self) -> Option<&Plan> {
        self.plan.get()?.as_ref()
    }

    /// Returns the plan alone.
    pub(in crate::cuda) fn into_plan(self, target: &impl PlanTarget) -> Option<Plan> {
        self.plan(target)?;
        self.plan.into_inner().flatten()
    }
}

impl Plan {
    fn new(plan: Descriptor, engine: i64) -> Result<Self, CudnnError> {
        let descriptor = plan.finalized()?;
        let bytes = descriptor.values(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, vec![0_i64])?;
        let bytes = bytes.first().and_then(|it| usize::try_from(*it).ok());
        let workspace_bytes = bytes.ok_or(NOT_SUPPORTED)?;
        Ok(Self { descriptor: Some(descriptor), engine, workspace_bytes })
    }

    fn text(&self) -> Result<Vec<u8>, CudnnError> {
        let name = CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION;
        let descriptor = self.descriptor.as_ref().ok_or(NOT_SUPPORTED)?;
        descriptor.values(name, vec![0_u8; MAX_TEXT_BYTES])
    }

    /// Queues the kernel on the stream of the handle.
    ///
    /// # Safety
    /// The plan was made with this handle. Until the kernel completes, these are the addresses of
    /// the tensors of its graph by their identities; those of numbers by value need to be valid
    /// during the call. Nothing else uses the results or the workspace.
    pub(in crate::cuda) unsafe fn run(
        &self,
        cudnn: &Cudnn,
        tensors: impl Iterator<Item = (i64, *mut c_void)>,
        workspace: u64,
    ) -> Result<(), CudnnError> {
        let (ids, pointers): (Vec<i64>, Vec<*mut c_void>) = tensors.unzip();
        let pack = Descriptor::new(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?
            .with(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &ids)?
            .with(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &pointers)?
            .with(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &[workspace as *mut c_void])?
            .finalized()?;
        let descriptor = self.descriptor.as_ref().ok_or(NOT_SUPPORTED)?;
        // SAFETY: required of the caller.
        unsafe { descriptor.execute(cudnn.raw(), &pack) }
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        // Kernels are unloaded.
        let _no_capture = not_capturing();
        self.descriptor = None;
    }
}

/// Returns the engines without these notes that cuDNN suggests for a graph of these operations, in
/// the order of the heuristic. The name tells the graph, the GPU and the version of cuDNN from all
/// others.
pub(in crate::cuda) fn engines(
    operations: &[Descriptor],
    name: &str,
    target: &impl PlanTarget,
    mode: HeuristicMode,
    unwanted: &[NumericalNote],
) -> Result<Vec<Engine>, CudnnError> {
    let graph = target.of_graph(operation_graph(operations)?)?.finalized()?;
    let heuristic = Descriptor::new(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?
        .with(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[graph.raw()])?
        .with(CUDNN_ATTR_ENGINEHEUR_MODE, &[mode])?;
    let heuristic = target.of_heuristic(heuristic)?.finalized()?;
    let configurations = heuristic.descriptors(
        CUDNN_ATTR_ENGINEHEUR_RESULTS,
        CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
        MAX_CONFIGURATIONS,
    )?;
    let mut found = Vec::new();
    for (number, configuration) in configurations.into_iter().enumerate() {
        let name = format!("{name}, number {number} of heuristic {}", mode.0);
        found.extend(Engine::new(configuration, &name, unwanted)?);
    }
    Ok(found)
}

/// Returns a graph that is not finalized yet.
pub(in crate::cuda) fn operation_graph(
    operations: &[Descriptor],
) -> Result<Descriptor, CudnnError> {
    let operations: Vec<_> = operations.iter().map(Descriptor::raw).collect();
    Descriptor::new(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?
        .with(CUDNN_ATTR_OPERATIONGRAPH_OPS, &operations)
}

/// Returns a tensor of a graph that is not finalized yet.
pub(in crate::cuda) fn tensor(
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
