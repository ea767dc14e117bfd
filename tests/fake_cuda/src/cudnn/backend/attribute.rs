//! Which descriptors have which attributes, and the types of their values.

use super::kind;

/// Returns the kind of descriptor that has an attribute, and the type of its values.
pub(super) fn attribute(name: u32) -> Option<(u32, u32)> {
    use attribute_type::{
        BEHAVIOR_NOTE, BOOLEAN, DATA_TYPE, DESCRIPTOR, FLOAT, HANDLE, INT64, NUMERICAL_NOTE,
        POINTER, POINTWISE_MODE,
    };
    Some(match name {
        0 => (kind::POINTWISE, POINTWISE_MODE),
        1 => (kind::POINTWISE, DATA_TYPE),
        100 => (kind::CONVOLUTION, DATA_TYPE),
        101 => (kind::CONVOLUTION, attribute_type::CONVOLUTION_MODE),
        102..=106 => (kind::CONVOLUTION, INT64),
        200 => (kind::HEURISTIC, attribute_type::HEURISTIC_MODE),
        201 | 202 => (kind::HEURISTIC, DESCRIPTOR),
        300 => (kind::ENGINE_CONFIGURATION, DESCRIPTOR),
        400 => (kind::PLAN, HANDLE),
        401 => (kind::PLAN, DESCRIPTOR),
        402 => (kind::PLAN, INT64),
        700 | 701 => (kind::FORWARD, FLOAT),
        702..=705 => (kind::FORWARD, DESCRIPTOR),
        706 | 707 => (kind::BACKWARD_DATA, FLOAT),
        708..=711 => (kind::BACKWARD_DATA, DESCRIPTOR),
        712 | 713 => (kind::BACKWARD_FILTER, FLOAT),
        714..=717 => (kind::BACKWARD_FILTER, DESCRIPTOR),
        750..=753 | 756 | 757 => (kind::OPERATION_POINTWISE, DESCRIPTOR),
        800 => (kind::GRAPH, HANDLE),
        801 => (kind::GRAPH, DESCRIPTOR),
        900 | 902 | 903 | 906 => (kind::TENSOR, INT64),
        901 => (kind::TENSOR, DATA_TYPE),
        907 | 908 => (kind::TENSOR, BOOLEAN),
        1000 => (kind::VARIANT_PACK, INT64),
        1001 | 1003 => (kind::VARIANT_PACK, POINTER),
        1301 => (kind::ENGINE, INT64),
        1303 => (kind::ENGINE, NUMERICAL_NOTE),
        1305 => (kind::ENGINE, BEHAVIOR_NOTE),
        2800..=2805 | 2811 => (kind::ATTENTION, DESCRIPTOR),
        2812 | 2813 => (kind::ATTENTION, INT64),
        3000 | 3005 | 3006 => (kind::MASK, DESCRIPTOR),
        3007 => (kind::MASK, POINTWISE_MODE),
        _ => return None,
    })
}

/// `cudnnBackendAttributeType_t`.
pub(super) mod attribute_type {
    pub(crate) const HANDLE: u32 = 0;
    pub(crate) const DATA_TYPE: u32 = 1;
    pub(crate) const BOOLEAN: u32 = 2;
    pub(crate) const INT64: u32 = 3;
    pub(crate) const FLOAT: u32 = 4;
    pub(crate) const POINTER: u32 = 6;
    pub(crate) const CONVOLUTION_MODE: u32 = 7;
    pub(crate) const HEURISTIC_MODE: u32 = 8;
    pub(crate) const NUMERICAL_NOTE: u32 = 11;
    pub(crate) const POINTWISE_MODE: u32 = 14;
    pub(crate) const DESCRIPTOR: u32 = 15;
    pub(crate) const BEHAVIOR_NOTE: u32 = 19;
}

/// Returns the bytes of a value of a type.
pub(super) fn type_bytes(of_type: u32) -> usize {
    use attribute_type::{DESCRIPTOR, HANDLE, INT64, POINTER};
    match of_type {
        attribute_type::BOOLEAN => 1,
        HANDLE | INT64 | POINTER | DESCRIPTOR => 8,
        _ => 4,
    }
}
