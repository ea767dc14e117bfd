//! Graphs of operations that engines compute: attention, or a convolution and functions of each
//! element of its result.

use std::sync::Arc;

use super::attention::Attention;
use super::backend::{Descriptor, kind};
use super::convolution::{Convolution, Direction, WORKSPACE_BYTES};
use super::descriptor::TensorDescriptor;
use super::engine::{Engine, HeuristicMode, numerical_note::TENSOR_CORE};
use super::launch::Launch;
use super::pointwise::{Function, Pointwise};
use super::{ApiResult, Status};
use crate::settings::Settings;
use crate::state::lock;

/// A graph that is known.
pub(super) enum Graph {
    Attention(Attention),
    Convolution(ConvolutionGraph),
}

impl Graph {
    pub(super) fn new(descriptor: &Descriptor) -> ApiResult<Self> {
        match descriptor.children(801)? {
            [operation] if operation.kind == kind::ATTENTION => {
                Ok(Self::Attention(Attention::new(operation)?))
            }
            [convolution, functions @ ..] => {
                Ok(Self::Convolution(ConvolutionGraph::new(convolution, functions)?))
            }
            [] => Err(Status::BAD_PARAM),
        }
    }

    /// Returns the engines that a heuristic suggests, in its order.
    pub(super) fn engines(&self, mode: HeuristicMode) -> Vec<Engine> {
        match self {
            Self::Attention(attention) => attention.engines(mode),
            Self::Convolution(graph) => graph.engines(mode),
        }
    }

    /// Returns the engine of this number.
    pub(super) fn engine(&self, index: i64) -> ApiResult<Engine> {
        let all = [HeuristicMode::A, HeuristicMode::Fallback].map(|it| self.engines(it)).concat();
        all.into_iter().find(|it| it.index == index).ok_or(Status::BAD_PARAM)
    }

    /// Returns true if plans for the graph are refused.
    pub(super) fn is_refused(&self, settings: &Settings) -> bool {
        match self {
            Self::Attention(_) => settings.refuses_attention,
            Self::Convolution(graph) => settings.refuses_activations && !graph.functions.is_empty(),
        }
    }

    pub(super) fn submit(&self, engine: &Engine, launch: &Launch) -> ApiResult {
        match self {
            Self::Attention(attention) => attention.submit(launch),
            Self::Convolution(graph) => graph.submit(engine, launch),
        }
    }
}

/// A convolution in any direction, and functions of each element of its result.
#[derive(Clone)]
pub(super) struct ConvolutionGraph {
    convolution: Convolution,
    functions: Vec<Pointwise>,
    result: TensorDescriptor,
}

impl ConvolutionGraph {
    fn new(convolution: &Descriptor, functions: &[Arc<Descriptor>]) -> ApiResult<Self> {
        use Function::{Add, Relu, ReluGradient};
        let convolution = Convolution::new(convolution)?;
        let functions =
            functions.iter().map(|it| Pointwise::new(it)).collect::<ApiResult<Vec<_>>>()?;
        let names: Vec<Function> = functions.iter().map(|it| it.function).collect();
        let is_known = match convolution.direction {
            Direction::Forward => matches!(names[..], [] | [Add] | [Add, Relu]),
            Direction::BackwardData => matches!(names[..], [] | [ReluGradient]),
            Direction::BackwardFilter => names.is_empty(),
        };
        let mut result = convolution.result();
        for function in &functions {
            function.check(&result)?;
            result = function.result;
        }
        let graph = Self { convolution, functions, result };
        let is_stored = graph.stored().all(|it| !it.is_virtual && it.dtype == graph.result.dtype);
        if is_known && is_stored { Ok(graph) } else { Err(Status::NOT_SUPPORTED) }
    }

    /// Returns all tensors in memory.
    fn stored(&self) -> impl Iterator<Item = TensorDescriptor> {
        let operands = self.functions.iter().filter_map(|it| it.operand);
        self.convolution.operands().into_iter().chain(operands).chain([self.result])
    }

    fn engines(&self, mode: HeuristicMode) -> Vec<Engine> {
        if self.functions.is_empty() {
            return self.convolution.engines(mode);
        }
        if mode == HeuristicMode::Fallback {
            return Vec::new();
        }
        let engine = |(index, workspace_bytes)| {
            Engine::new(index, workspace_bytes, &[TENSOR_CORE]).compiled()
        };
        [(10, WORKSPACE_BYTES), (11, 0), (12, 0)].map(engine).to_vec()
    }

    fn submit(&self, engine: &Engine, launch: &Launch) -> ApiResult {
        let name = match (self.convolution.direction, self.functions.is_empty()) {
            (Direction::Forward, true) => "cudnn: forward",
            (Direction::Forward, false) => "cudnn: forward with epilogue",
            (Direction::BackwardData, true) => "cudnn: data",
            (Direction::BackwardData, false) => "cudnn: data with epilogue",
            (Direction::BackwardFilter, _) => "cudnn: filter",
        };
        let tensors: Vec<u64> =
            self.stored().map(|it| launch.pointer(it.id)).collect::<ApiResult<_>>()?;
        // Every second engine.
        let drops_nan = lock().settings.relu_drops_nan && engine.index % 2 == 1;
        let (graph, pointers, rounds) = (self.clone(), launch.pointers.clone(), engine.rounds());
        launch.submit(name, &tensors, 0, move |memory| {
            let order = graph.convolution.order_of_result();
            let mut values = graph.convolution.compute(memory, &pointers, rounds)?;
            for Pointwise { function, operand, .. } in &graph.functions {
                let operand = operand.map(|it| it.read_ordered(memory, pointers[&it.id], order));
                function.apply(&mut values, &operand.transpose()?.unwrap_or_default(), drops_nan);
            }
            graph.result.write_ordered(memory, pointers[&graph.result.id], order, &values)
        })
    }
}
