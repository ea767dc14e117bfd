//! cuDNN on a virtual device, with its engines, and tensors in memory.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::cudnn::sys;
use cudarc::cudnn::sys::{
    cudnnBackendAttributeName_t as Name, cudnnBackendBehaviorNote_t as BehaviorNote,
    cudnnBackendDescriptorType_t as Kind, cudnnBackendHeurMode_t as HeuristicMode,
    cudnnBackendNumericalNote_t as NumericalNote, cudnnDataType_t as Type, cudnnStatus_t as Status,
};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr};

use crate::convolution_reference::{Case, Direction, Layout, channels_first, values};
use crate::cudnn_graph::{Descriptor, described, operation};

pub(crate) const F32: Type = Type::CUDNN_DATA_FLOAT;
pub(crate) const BF16: Type = Type::CUDNN_DATA_BFLOAT16;
pub(crate) const A: HeuristicMode = HeuristicMode::CUDNN_HEUR_MODE_A;
pub(crate) const FALLBACK: HeuristicMode = HeuristicMode::CUDNN_HEUR_MODE_FALLBACK;
pub(crate) const TENSOR_CORE: NumericalNote = NumericalNote::CUDNN_NUMERICAL_NOTE_TENSOR_CORE;

/// Types with their relative errors, and layouts.
pub(crate) const FORMATS: [(f32, (Type, Layout)); 4] = [
    (1e-6, (F32, Layout::ChannelsFirst)),
    (1e-6, (F32, Layout::ChannelsLast)),
    (0.01, (BF16, Layout::ChannelsFirst)),
    (0.01, (BF16, Layout::ChannelsLast)),
];

pub(crate) struct Library {
    pub(crate) stream: Arc<CudaStream>,
    pub(crate) handle: sys::cudnnHandle_t,
    workspace: CudaSlice<u8>,
}

impl Library {
    pub(crate) fn new() -> Self {
        let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
        let mut handle = std::ptr::null_mut();
        // SAFETY: the result is a local variable.
        unsafe { sys::cudnnCreate(&raw mut handle) }.result().unwrap();
        // SAFETY: both are valid.
        unsafe { sys::cudnnSetStream(handle, stream.cu_stream().cast()) }.result().unwrap();
        Self { workspace: stream.alloc_zeros(4096).unwrap(), stream, handle }
    }

    pub(crate) fn tensor(
        &self,
        id: i64,
        (dtype, layout): (Type, Layout),
        extents: [i64; 4],
        values: &[f32],
    ) -> Tensor {
        let is_last = layout == Layout::ChannelsLast;
        let value = |place| values[if is_last { channels_first(extents, place) } else { place }];
        let values = (0..values.len()).map(value);
        let bytes: Vec<u8> = match dtype {
            Type::CUDNN_DATA_FLOAT => values.flat_map(f32::to_ne_bytes).collect(),
            // The numbers of these tests have few bits.
            _ => values.flat_map(|value| ((value.to_bits() >> 16) as u16).to_ne_bytes()).collect(),
        };
        Tensor { id, memory: self.stream.clone_htod(&bytes).unwrap(), dtype, layout, extents }
    }

    pub(crate) fn graph(&self, operations: &[Descriptor]) -> Result<Descriptor, Status> {
        Descriptor::new(Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
            .with(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, &[self.handle])
            .with(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, operations)
            .finalized()
    }

    pub(crate) fn workspace_pointer(&self) -> *mut c_void {
        self.workspace.device_ptr(&self.stream).0 as *mut c_void
    }

    /// Returns the content of the workspace.
    pub(crate) fn workspace(&self) -> Vec<u8> {
        self.stream.clone_dtoh(&self.workspace).unwrap()
    }

    pub(crate) fn plan(&self, engine: &Engine) -> Result<Descriptor, Status> {
        Descriptor::new(Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)
            .with(Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, &[self.handle])
            .with(Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &[engine.configuration])
            .finalized()
    }

    /// Runs a plan with these addresses of tensors and of the workspace.
    pub(crate) fn execute(
        &self,
        plan: Descriptor,
        tensors: &[(i64, *mut c_void)],
        workspace: *mut c_void,
    ) -> Status {
        let (ids, pointers): (Vec<i64>, Vec<*mut c_void>) = tensors.iter().copied().unzip();
        let pack = Descriptor::new(Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
            .with(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &ids)
            .with(Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &pointers)
            .with(Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &[workspace])
            .finalized()
            .unwrap();
        // SAFETY: the addresses are those of tensors, or are refused.
        unsafe { sys::cudnnBackendExecute(self.handle, plan.0, pack.0) }
    }

    /// Runs an engine on these tensors.
    pub(crate) fn run(&self, engine: &Engine, tensors: &[&Tensor]) {
        let tensors: Vec<_> = tensors.iter().map(|it| (it.id, it.pointer())).collect();
        let plan = self.plan(engine).unwrap();
        self.execute(plan, &tensors, self.workspace_pointer()).result().unwrap();
    }
}

/// A tensor on the device.
pub(crate) struct Tensor {
    pub(crate) id: i64,
    memory: CudaSlice<u8>,
    dtype: Type,
    layout: Layout,
    extents: [i64; 4],
}

impl Tensor {
    pub(crate) fn read(&self, stream: &Arc<CudaStream>) -> Vec<f32> {
        let bytes = stream.clone_dtoh(&self.memory).unwrap();
        let from_bf16 = |it| f32::from_bits(u32::from(u16::from_ne_bytes(it)) << 16);
        let values: Vec<f32> = match self.dtype {
            Type::CUDNN_DATA_FLOAT => {
                bytes.as_chunks().0.iter().map(|&it| f32::from_ne_bytes(it)).collect()
            }
            _ => bytes.as_chunks().0.iter().map(|&it| from_bf16(it)).collect(),
        };
        if self.layout == Layout::ChannelsFirst {
            return values;
        }
        let mut sorted = vec![0.0; values.len()];
        values
            .iter()
            .enumerate()
            .for_each(|(place, &value)| sorted[channels_first(self.extents, place)] = value);
        sorted
    }

    pub(crate) fn pointer(&self) -> *mut c_void {
        self.memory.device_ptr(self.memory.stream()).0 as *mut c_void
    }

    pub(crate) fn descriptor(&self) -> Descriptor {
        described(self.id, self.dtype, self.layout, self.extents).finalized().unwrap()
    }
}

/// Images, filters and results of a case, with the identities 0, 1 and 2.
pub(crate) fn tensors(library: &Library, format: (Type, Layout), case: &Case) -> [Tensor; 3] {
    let [x, w, y] = values(case);
    let tensor = |id, extents, values: &[f32]| library.tensor(id, format, extents, values);
    [tensor(0, case.images, &x), tensor(1, case.filters, &w), tensor(2, case.results(), &y)]
}

/// The graph of a case alone.
pub(crate) fn plain_graph(
    library: &Library,
    direction: Direction,
    dtype: Type,
    case: &Case,
) -> Descriptor {
    let format = (dtype, Layout::ChannelsFirst);
    let descriptors = tensors(library, format, case).map(|it| it.descriptor());
    library.graph(&[operation(direction, case, descriptors).unwrap()]).unwrap()
}

/// An engine for a graph, and what it reports.
pub(crate) struct Engine {
    configuration: Descriptor,
    pub(crate) index: i64,
    pub(crate) numerical_notes: Vec<NumericalNote>,
    pub(crate) behavior_notes: Vec<BehaviorNote>,
}

/// Returns the engines that the heuristic suggests for a graph.
pub(crate) fn engines(graph: Descriptor, mode: HeuristicMode) -> Vec<Engine> {
    let heuristic = Descriptor::new(Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)
        .with(Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[graph])
        .with(Name::CUDNN_ATTR_ENGINEHEUR_MODE, &[mode])
        .finalized()
        .unwrap();
    let found = heuristic
        .children(Name::CUDNN_ATTR_ENGINEHEUR_RESULTS, Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    found.into_iter().map(Engine::new).collect()
}

impl Engine {
    fn new(configuration: Descriptor) -> Self {
        let engine = configuration
            .children(Name::CUDNN_ATTR_ENGINECFG_ENGINE, Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR)[0];
        let index = engine.values(Name::CUDNN_ATTR_ENGINE_GLOBAL_INDEX, vec![-1])[0];
        let note = NumericalNote::CUDNN_NUMERICAL_NOTE_TYPE_COUNT;
        let numerical_notes = engine.values(Name::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, vec![note; 8]);
        let note = BehaviorNote::CUDNN_BEHAVIOR_NOTE_TYPE_COUNT;
        let behavior_notes = engine.values(Name::CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, vec![note; 8]);
        Self { configuration, index, numerical_notes, behavior_notes }
    }
}

/// Returns notes and workspaces of engines.
pub(crate) fn reports(library: &Library, engines: Vec<Engine>) -> Vec<(Vec<NumericalNote>, i64)> {
    let report = |engine: Engine| {
        let plan = library.plan(&engine).unwrap();
        let workspace = plan.values(Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, vec![-1_i64]);
        (engine.numerical_notes, workspace[0])
    };
    engines.into_iter().map(report).collect()
}
