//! The graph API: descriptors with attributes, engines, plans and their execution.

mod attribute;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::attention::{Attention, Mask};
use super::convolution::Convolution;
use super::descriptor::{ConvolutionDescriptor, TensorDescriptor};
use super::engine::{Engine, HeuristicMode};
use super::graph::Graph;
use super::launch::Launch;
use super::pointwise::{Function, Pointwise};
use super::{ApiResult, LIBRARIES, Status};
use crate::ffi::{Address, Handle, Out};
use crate::handles::Handles;
use crate::state::lock;
use attribute::{attribute, attribute_type, type_bytes};

/// `cudnnBackendDescriptorType_t`.
pub(super) mod kind {
    pub(crate) const POINTWISE: u32 = 0;
    pub(crate) const CONVOLUTION: u32 = 1;
    pub(crate) const ENGINE: u32 = 2;
    pub(crate) const ENGINE_CONFIGURATION: u32 = 3;
    pub(crate) const HEURISTIC: u32 = 4;
    pub(crate) const PLAN: u32 = 5;
    pub(crate) const FORWARD: u32 = 10;
    pub(crate) const BACKWARD_FILTER: u32 = 11;
    pub(crate) const BACKWARD_DATA: u32 = 12;
    pub(crate) const OPERATION_POINTWISE: u32 = 13;
    pub(crate) const GRAPH: u32 = 15;
    pub(crate) const VARIANT_PACK: u32 = 16;
    pub(crate) const TENSOR: u32 = 17;
    pub(crate) const ATTENTION: u32 = 41;
    pub(crate) const MASK: u32 = 44;
}

/// The first version with masks in attention.
const FIRST_WITH_ATTENTION: usize = 92_100;

/// A descriptor.
#[derive(Clone, Debug)]
pub(super) struct Descriptor {
    pub(super) kind: u32,
    attributes: BTreeMap<u32, Attribute>,
    is_final: bool,
}

/// The values of an attribute.
#[derive(Clone, Debug)]
enum Attribute {
    Numbers(Vec<i64>),
    Descriptors(Vec<Arc<Descriptor>>),
}

static DESCRIPTORS: Handles<Descriptor> = Handles::new();

pub(super) fn create(kind: u32, descriptor: Out<Handle>) -> ApiResult {
    let is_known = match kind {
        kind::POINTWISE..=kind::PLAN
        | kind::FORWARD..=kind::OPERATION_POINTWISE
        | kind::GRAPH..=kind::TENSOR => true,
        kind::ATTENTION | kind::MASK => lock().settings.cudnn_version >= FIRST_WITH_ATTENTION,
        _ => false,
    };
    if !is_known {
        return Err(Status::NOT_SUPPORTED);
    }
    let made = Descriptor { kind, attributes: BTreeMap::new(), is_final: false };
    descriptor.put(DESCRIPTORS.add(made)).ok_or(Status::BAD_PARAM)
}

pub(super) fn destroy(descriptor: Handle) -> ApiResult {
    DESCRIPTORS.remove(descriptor).map(|_| ()).ok_or(Status::BAD_PARAM)
}

pub(super) fn set(
    descriptor: Handle,
    name: u32,
    of_type: u32,
    n: i64,
    values: Address,
) -> ApiResult {
    let n = usize::try_from(n).map_err(|_| Status::BAD_PARAM)?;
    let known = find(descriptor)?;
    if known.is_final || attribute(name) != Some((known.kind, of_type)) {
        return Err(Status::BAD_PARAM);
    }
    let bytes = values.read(n * type_bytes(of_type)).ok_or(Status::BAD_PARAM)?;
    let numbers: Vec<i64> = bytes.chunks(type_bytes(of_type)).map(number).collect();
    let value = match of_type {
        attribute_type::DESCRIPTOR => {
            let descriptors = numbers.into_iter().map(|it| {
                let found = find(Handle(it.cast_unsigned()))?;
                if found.is_final { Ok(Arc::new(found)) } else { Err(Status::BAD_PARAM) }
            });
            Attribute::Descriptors(descriptors.collect::<ApiResult<_>>()?)
        }
        _ => Attribute::Numbers(numbers),
    };
    change(descriptor, |it| {
        it.attributes.insert(name, value);
    })
}

pub(super) fn finalize(descriptor: Handle) -> ApiResult {
    let known = find(descriptor)?;
    match known.kind {
        kind::TENSOR => TensorDescriptor::new(&known).map(|_| ())?,
        kind::CONVOLUTION => ConvolutionDescriptor::new(&known).map(|_| ())?,
        kind::POINTWISE => Function::new(&known).map(|_| ())?,
        kind::FORWARD | kind::BACKWARD_DATA | kind::BACKWARD_FILTER => {
            Convolution::new(&known).map(|_| ())?;
        }
        kind::OPERATION_POINTWISE => Pointwise::new(&known).map(|_| ())?,
        kind::ATTENTION => Attention::new(&known).map(|_| ())?,
        kind::MASK => Mask::new(&known).map(|_| ())?,
        // The graph of a mask is part of attention, and does not run by itself.
        kind::GRAPH if known.child(801).is_ok_and(|it| it.kind == kind::MASK) => {}
        kind::GRAPH => {
            check_library(known.number(800)?)?;
            Graph::new(&known)?;
        }
        kind::HEURISTIC => {
            Graph::new(&*known.child(201)?)?;
            HeuristicMode::new(known.number(200)?)?;
        }
        kind::PLAN => {
            check_library(known.number(400)?)?;
            if chosen(&known)?.0.is_refused(&lock().settings) {
                return Err(Status::NOT_SUPPORTED);
            }
        }
        kind::VARIANT_PACK => {
            if known.numbers(1000)?.len() != known.numbers(1001)?.len() {
                return Err(Status::BAD_PARAM);
            }
        }
        _ => return Err(Status::BAD_PARAM),
    }
    change(descriptor, |it| it.is_final = true)
}

pub(super) fn get(
    descriptor: Handle,
    name: u32,
    of_type: u32,
    capacity: i64,
    n: Out<i64>,
    values: Address,
) -> ApiResult {
    let known = find(descriptor)?;
    let capacity = usize::try_from(capacity).map_err(|_| Status::BAD_PARAM)?;
    if !known.is_final || attribute(name) != Some((known.kind, of_type)) {
        return Err(Status::BAD_PARAM);
    }
    let handles = || {
        let bytes = values.read(capacity * 8).ok_or(Status::BAD_PARAM)?;
        Ok(bytes.chunks(8).map(|it| Handle(number(it).cast_unsigned())).collect::<Vec<_>>())
    };
    let n_found = match name {
        202 => {
            let graph = known.child(201)?;
            let mode = HeuristicMode::new(known.number(200)?)?;
            let engines = Graph::new(&graph)?.engines(mode);
            for (engine, handle) in engines.iter().zip(handles()?) {
                let of_engine = Descriptor::engine(engine.index, &graph);
                let child = Attribute::Descriptors(vec![Arc::new(of_engine)]);
                put(handle, kind::ENGINE_CONFIGURATION, BTreeMap::from([(300, child)]))?;
            }
            engines.len().min(capacity)
        }
        300 => {
            let engine = known.child(300)?;
            let handles = handles()?;
            let handle = handles.first().ok_or(Status::BAD_PARAM)?;
            put(*handle, kind::ENGINE, engine.attributes.clone())?;
            1
        }
        1301 => put_numbers(&[known.number(1301)?], values)?,
        1303 => put_notes(engine(&known)?.1.reported_notes(), capacity, values)?,
        1305 => put_notes(engine(&known)?.1.behavior_notes, capacity, values)?,
        402 => put_numbers(&[chosen(&known)?.1.workspace_bytes as i64], values)?,
        _ => return Err(Status::NOT_SUPPORTED),
    };
    n.put(n_found as i64).ok_or(Status::BAD_PARAM)
}

pub(super) fn execute(library: Handle, plan: Handle, pack: Handle) -> ApiResult {
    let stream = LIBRARIES.get(library).ok_or(Status::NOT_INITIALIZED)?;
    let (plan, pack) = (find(plan)?, find(pack)?);
    let is_whole = plan.is_final && pack.is_final;
    if !is_whole || plan.kind != kind::PLAN || pack.kind != kind::VARIANT_PACK {
        return Err(Status::BAD_PARAM);
    }
    check_library(plan.number(400)?)?;
    let (graph, engine) = chosen(&plan)?;
    let pointers = pack.numbers(1001)?.iter().map(|it| it.cast_unsigned());
    let launch = Launch {
        stream,
        pointers: pack.numbers(1000)?.iter().copied().zip(pointers).collect(),
        workspace: (pack.number(1003)?.cast_unsigned(), engine.workspace_bytes),
    };
    graph.submit(&engine, &launch)
}

impl Descriptor {
    /// Returns a finalized engine for a graph.
    fn engine(index: i64, graph: &Arc<Self>) -> Self {
        let attributes = [
            (1300, Attribute::Descriptors(vec![Arc::clone(graph)])),
            (1301, Attribute::Numbers(vec![index])),
        ];
        Self { kind: kind::ENGINE, attributes: BTreeMap::from(attributes), is_final: true }
    }

    pub(super) fn numbers(&self, name: u32) -> ApiResult<&[i64]> {
        match self.attributes.get(&name) {
            Some(Attribute::Numbers(found)) => Ok(found),
            _ => Err(Status::BAD_PARAM),
        }
    }

    /// Returns the only number of an attribute.
    pub(super) fn number(&self, name: u32) -> ApiResult<i64> {
        let [number] = *self.numbers(name)? else { return Err(Status::BAD_PARAM) };
        Ok(number)
    }

    /// Returns the only number of an attribute of type `CUDNN_TYPE_FLOAT`.
    pub(super) fn float(&self, name: u32) -> ApiResult<f32> {
        let bits = u32::try_from(self.number(name)?).map_err(|_| Status::BAD_PARAM)?;
        Ok(f32::from_bits(bits))
    }

    pub(super) fn has(&self, name: u32) -> bool {
        self.attributes.contains_key(&name)
    }

    pub(super) fn children(&self, name: u32) -> ApiResult<&[Arc<Self>]> {
        match self.attributes.get(&name) {
            Some(Attribute::Descriptors(found)) => Ok(found),
            _ => Err(Status::BAD_PARAM),
        }
    }

    /// Returns the only descriptor of an attribute.
    pub(super) fn child(&self, name: u32) -> ApiResult<Arc<Self>> {
        let [child] = self.children(name)? else { return Err(Status::BAD_PARAM) };
        Ok(Arc::clone(child))
    }
}

/// Returns the graph of an engine's descriptor, and the engine.
fn engine(descriptor: &Descriptor) -> ApiResult<(Graph, Engine)> {
    let graph = Graph::new(&*descriptor.child(1300)?)?;
    let engine = graph.engine(descriptor.number(1301)?)?;
    Ok((graph, engine))
}

/// Returns the graph and the engine of a plan.
fn chosen(plan: &Descriptor) -> ApiResult<(Graph, Engine)> {
    engine(&*plan.child(401)?.child(300)?)
}

fn check_library(handle: i64) -> ApiResult {
    LIBRARIES.get(Handle(handle.cast_unsigned())).map(|_| ()).ok_or(Status::NOT_INITIALIZED)
}

fn find(descriptor: Handle) -> ApiResult<Descriptor> {
    DESCRIPTORS.get(descriptor).ok_or(Status::BAD_PARAM)
}

fn change(descriptor: Handle, change: impl FnOnce(&mut Descriptor)) -> ApiResult {
    DESCRIPTORS.change(descriptor, change).ok_or(Status::BAD_PARAM)
}

/// Fills a descriptor of the caller, which must be of this kind.
fn put(descriptor: Handle, kind: u32, attributes: BTreeMap<u32, Attribute>) -> ApiResult {
    if find(descriptor)?.kind != kind {
        return Err(Status::BAD_PARAM);
    }
    change(descriptor, |it| *it = Descriptor { kind, attributes, is_final: true })
}

fn put_numbers(numbers: &[i64], values: Address) -> ApiResult<usize> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|it| it.to_ne_bytes()).collect();
    values.write(&bytes).map(|()| numbers.len()).ok_or(Status::BAD_PARAM)
}

/// Writes as many notes as there are. They must have room.
fn put_notes(notes: &[u32], capacity: usize, values: Address) -> ApiResult<usize> {
    let bytes: Vec<u8> = notes.iter().flat_map(|it| it.to_ne_bytes()).collect();
    if notes.len() > capacity {
        return Err(Status::BAD_PARAM);
    }
    values.write(&bytes).map(|()| notes.len()).ok_or(Status::BAD_PARAM)
}

/// Returns the number of these bytes, the lowest first.
fn number(bytes: &[u8]) -> i64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | i64::from(*byte))
}
