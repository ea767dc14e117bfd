//! The graph API: descriptors with attributes, engines, plans and their execution. Attention is the
//! only operation.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::attention::{Attention, Mask};
use super::descriptor::TensorDescriptor;
use super::{ApiResult, LIBRARIES, Status};
use crate::ffi::{Address, Handle, Out};
use crate::handles::Handles;
use crate::state::lock;

/// `cudnnBackendDescriptorType_t`.
pub(super) mod kind {
    pub(crate) const ENGINE: u32 = 2;
    pub(crate) const ENGINE_CONFIGURATION: u32 = 3;
    pub(crate) const HEURISTIC: u32 = 4;
    pub(crate) const PLAN: u32 = 5;
    pub(crate) const GRAPH: u32 = 15;
    pub(crate) const VARIANT_PACK: u32 = 16;
    pub(crate) const TENSOR: u32 = 17;
    pub(crate) const ATTENTION: u32 = 41;
    pub(crate) const MASK: u32 = 44;
}

/// An engine for attention: its number, its workspace and whether it is deterministic.
struct Engine(i64, usize, bool);

/// Unlike the real library's, the first engine is not deterministic.
const ENGINES: [Engine; 3] =
    [Engine(10, 512, false), Engine(9, WORKSPACE_BYTES, true), Engine(8, 0, true)];
const WORKSPACE_BYTES: usize = 256;
/// `CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC`.
const NONDETERMINISTIC: u32 = 4;
/// `CUDNN_HEUR_MODE_A`.
const HEURISTIC_MODE: i64 = 3;
/// The first version with masks in the operation.
const FIRST_VERSION: usize = 92_100;

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
    let is_known = matches!(
        kind,
        kind::ENGINE..=kind::PLAN
            | kind::GRAPH..=kind::TENSOR
            | kind::ATTENTION
            | kind::MASK
    );
    if !is_known || lock().settings.cudnn_version < FIRST_VERSION {
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
        kind::TENSOR => tensor(&known).map(|_| ())?,
        kind::GRAPH => known.child(801).map(|_| ())?,
        kind::ATTENTION => Attention::new(&known).map(|_| ())?,
        kind::MASK => Mask::new(&known).map(|_| ())?,
        kind::HEURISTIC => {
            known.child(201)?;
            if known.number(200)? != HEURISTIC_MODE {
                return Err(Status::NOT_SUPPORTED);
            }
        }
        kind::PLAN => {
            known.child(401)?;
            check_library(known.number(400)?)?;
            if lock().settings.refuses_attention {
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
            let engines = if attention(&graph)?.is_known() { &ENGINES[..] } else { &[] };
            for (engine, handle) in engines.iter().zip(handles()?) {
                let of_engine = Descriptor::engine(engine, &graph);
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
        1303 => {
            let notes = known.numbers(1303)?;
            let bytes: Vec<u8> =
                notes.iter().flat_map(|it| u32::try_from(*it).unwrap_or(0).to_ne_bytes()).collect();
            if notes.len() > capacity {
                return Err(Status::BAD_PARAM);
            }
            values.write(&bytes).ok_or(Status::BAD_PARAM)?;
            notes.len()
        }
        402 => put_numbers(&[workspace_bytes(&known)? as i64], values)?,
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
    let ids = pack.numbers(1000)?.to_vec();
    let pointers = pack.numbers(1001)?.iter().map(|it| it.cast_unsigned());
    let pointers: BTreeMap<i64, u64> = ids.into_iter().zip(pointers).collect();
    let workspace = (pack.number(1003)?.cast_unsigned(), workspace_bytes(&plan)?);
    let engine = plan.child(401)?.child(300)?;
    attention(&*engine.child(1302)?)?.submit(stream, &pointers, workspace)
}

impl Descriptor {
    /// Returns a finalized engine for a graph.
    fn engine(&Engine(number, workspace, is_deterministic): &Engine, graph: &Arc<Self>) -> Self {
        let notes = if is_deterministic { vec![] } else { vec![i64::from(NONDETERMINISTIC)] };
        let attributes = [
            (1301, Attribute::Numbers(vec![number])),
            (1302, Attribute::Descriptors(vec![Arc::clone(graph)])),
            (1303, Attribute::Numbers(notes)),
            (WORKSPACE, Attribute::Numbers(vec![workspace as i64])),
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

    pub(super) fn has(&self, name: u32) -> bool {
        self.attributes.contains_key(&name)
    }

    /// Returns the only descriptor of an attribute.
    pub(super) fn child(&self, name: u32) -> ApiResult<Arc<Self>> {
        match self.attributes.get(&name) {
            Some(Attribute::Descriptors(found)) if found.len() == 1 => Ok(Arc::clone(&found[0])),
            _ => Err(Status::BAD_PARAM),
        }
    }
}

/// Number under which an engine keeps its workspace, which is no attribute.
const WORKSPACE: u32 = 0;

/// Returns the tensor of a descriptor.
pub(super) fn tensor(descriptor: &Descriptor) -> ApiResult<TensorDescriptor> {
    let four = |name: u32| -> ApiResult<[i32; 4]> {
        let numbers = descriptor.numbers(name)?.iter().map(|it| i32::try_from(*it));
        let numbers = numbers.collect::<Result<Vec<_>, _>>().map_err(|_| Status::NOT_SUPPORTED)?;
        numbers.try_into().map_err(|_| Status::BAD_PARAM)
    };
    let number = u32::try_from(descriptor.number(901)?).map_err(|_| Status::BAD_PARAM)?;
    descriptor.number(900)?;
    descriptor.number(906)?;
    TensorDescriptor::with_strides(number, four(902)?, four(903)?)
}

/// Returns the attention that a graph consists of.
fn attention(graph: &Descriptor) -> ApiResult<Attention> {
    Attention::new(&*graph.child(801)?)
}

fn workspace_bytes(plan: &Descriptor) -> ApiResult<usize> {
    let engine = plan.child(401)?.child(300)?;
    usize::try_from(engine.number(WORKSPACE)?).map_err(|_| Status::BAD_PARAM)
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

/// `cudnnBackendAttributeType_t`.
mod attribute_type {
    pub(super) const HANDLE: u32 = 0;
    pub(super) const DATA_TYPE: u32 = 1;
    pub(super) const BOOLEAN: u32 = 2;
    pub(super) const INT64: u32 = 3;
    pub(super) const POINTER: u32 = 6;
    pub(super) const HEURISTIC_MODE: u32 = 8;
    pub(super) const NOTE: u32 = 11;
    pub(super) const POINTWISE_MODE: u32 = 14;
    pub(super) const DESCRIPTOR: u32 = 15;
}

/// Returns the bytes of a value of a type.
fn type_bytes(of_type: u32) -> usize {
    use attribute_type::{DESCRIPTOR, HANDLE, INT64, POINTER};
    match of_type {
        attribute_type::BOOLEAN => 1,
        HANDLE | INT64 | POINTER | DESCRIPTOR => 8,
        _ => 4,
    }
}

/// Returns the number of these bytes, the lowest first.
fn number(bytes: &[u8]) -> i64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | i64::from(*byte))
}

/// Returns the kind of descriptor that has an attribute, and the type of its values.
fn attribute(name: u32) -> Option<(u32, u32)> {
    use attribute_type::{
        BOOLEAN, DATA_TYPE, DESCRIPTOR, HANDLE, INT64, NOTE, POINTER, POINTWISE_MODE,
    };
    Some(match name {
        200 => (kind::HEURISTIC, attribute_type::HEURISTIC_MODE),
        201 | 202 => (kind::HEURISTIC, DESCRIPTOR),
        300 => (kind::ENGINE_CONFIGURATION, DESCRIPTOR),
        400 => (kind::PLAN, HANDLE),
        401 => (kind::PLAN, DESCRIPTOR),
        402 => (kind::PLAN, INT64),
        800 => (kind::GRAPH, HANDLE),
        801 => (kind::GRAPH, DESCRIPTOR),
        900 | 902 | 903 | 906 => (kind::TENSOR, INT64),
        901 => (kind::TENSOR, DATA_TYPE),
        907 | 908 => (kind::TENSOR, BOOLEAN),
        1000 => (kind::VARIANT_PACK, INT64),
        1001 | 1003 => (kind::VARIANT_PACK, POINTER),
        1301 => (kind::ENGINE, INT64),
        1303 => (kind::ENGINE, NOTE),
        2800..=2805 | 2811 => (kind::ATTENTION, DESCRIPTOR),
        2812 | 2813 => (kind::ATTENTION, INT64),
        3000 | 3005 | 3006 => (kind::MASK, DESCRIPTOR),
        3007 => (kind::MASK, POINTWISE_MODE),
        _ => return None,
    })
}
