//! A builder of cuDNN's descriptors, and the operations of its graphs.

use std::ffi::c_void;

use cudarc::cudnn::sys;
use cudarc::cudnn::sys::{
    cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as AttributeType,
    cudnnBackendBehaviorNote_t as BehaviorNote, cudnnBackendDescriptorType_t as Kind,
    cudnnBackendHeurMode_t as HeuristicMode, cudnnBackendNumericalNote_t as NumericalNote,
    cudnnConvolutionMode_t as ConvolutionMode, cudnnDataType_t as Type,
    cudnnPointwiseMode_t as PointwiseMode, cudnnStatus_t as Status,
};

use crate::convolution_reference::{Case, Direction, Layout};

/// A descriptor, which lives until the process ends.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Descriptor(pub(crate) sys::cudnnBackendDescriptor_t);

/// A type of attributes.
pub(crate) trait Value: Copy {
    const TYPE: AttributeType;
}

macro_rules! values {
    ($($type:ty: $name:ident,)*) => {$(
        impl Value for $type {
            const TYPE: AttributeType = AttributeType::$name;
        }
    )*};
}

values! {
    i64: CUDNN_TYPE_INT64,
    f32: CUDNN_TYPE_FLOAT,
    bool: CUDNN_TYPE_BOOLEAN,
    *mut c_void: CUDNN_TYPE_VOID_PTR,
    sys::cudnnHandle_t: CUDNN_TYPE_HANDLE,
    Type: CUDNN_TYPE_DATA_TYPE,
    ConvolutionMode: CUDNN_TYPE_CONVOLUTION_MODE,
    PointwiseMode: CUDNN_TYPE_POINTWISE_MODE,
    HeuristicMode: CUDNN_TYPE_HEUR_MODE,
    NumericalNote: CUDNN_TYPE_NUMERICAL_NOTE,
    BehaviorNote: CUDNN_TYPE_BEHAVIOR_NOTE,
    Descriptor: CUDNN_TYPE_BACKEND_DESCRIPTOR,
}

impl Descriptor {
    pub(crate) fn new(kind: Kind) -> Self {
        let mut made = std::ptr::null_mut();
        // SAFETY: the result is a local variable.
        unsafe { sys::cudnnBackendCreateDescriptor(kind, &raw mut made) }.result().unwrap();
        Self(made)
    }

    pub(crate) fn with<V: Value>(self, name: Name, values: &[V]) -> Self {
        let (n, values) = (values.len() as i64, values.as_ptr().cast());
        // SAFETY: the values have the type that is told.
        let set = unsafe { sys::cudnnBackendSetAttribute(self.0, name, V::TYPE, n, values) };
        set.result().unwrap();
        self
    }

    pub(crate) fn finalized(self) -> Result<Self, Status> {
        // SAFETY: the descriptor was created.
        unsafe { sys::cudnnBackendFinalize(self.0) }.result().map_err(|it| it.0)?;
        Ok(self)
    }

    /// Returns the values of an attribute, which replace these.
    pub(crate) fn values<V: Value>(self, name: Name, mut values: Vec<V>) -> Vec<V> {
        let (n, mut n_found) = (values.len() as i64, 0);
        let place = values.as_mut_ptr().cast();
        let found =
            // SAFETY: there is room for values of this type.
            unsafe { sys::cudnnBackendGetAttribute(self.0, name, V::TYPE, n, &raw mut n_found, place) };
        found.result().unwrap();
        values.truncate(n_found as usize);
        values
    }

    /// Returns the descriptors that are an attribute.
    pub(crate) fn children(self, name: Name, kind: Kind) -> Vec<Self> {
        self.values(name, (0..8).map(|_| Self::new(kind)).collect())
    }
}

/// Strides, padding and dilation of a case.
pub(crate) fn convolution_descriptor(case: &Case) -> Descriptor {
    Descriptor::new(Kind::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)
        .with(Name::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, &[Type::CUDNN_DATA_FLOAT])
        .with(Name::CUDNN_ATTR_CONVOLUTION_CONV_MODE, &[ConvolutionMode::CUDNN_CROSS_CORRELATION])
        .with(Name::CUDNN_ATTR_CONVOLUTION_DILATIONS, &[case.dilation; 2])
        .with(Name::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, &[case.stride; 2])
        .with(Name::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, &[case.padding; 2])
        .with(Name::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, &[case.padding; 2])
        .with(Name::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, &[2_i64])
}

/// Returns the operation that computes one of images, filters and results from the others, with
/// factors of the sum and of the previous content.
pub(crate) fn convolution(
    direction: Direction,
    convolution: Descriptor,
    [x, w, y]: [Descriptor; 3],
    [alpha, beta]: [f32; 2],
) -> Result<Descriptor, Status> {
    macro_rules! operation {
        ($kind:ident, $alpha:ident, $beta:ident, $convolution:ident, $x:ident, $w:ident, $y:ident) => {
            Descriptor::new(Kind::$kind)
                .with(Name::$alpha, &[alpha])
                .with(Name::$beta, &[beta])
                .with(Name::$convolution, &[convolution])
                .with(Name::$x, &[x])
                .with(Name::$w, &[w])
                .with(Name::$y, &[y])
        };
    }
    let operation = match direction {
        Direction::Forward => operation!(
            CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y
        ),
        Direction::BackwardData => operation!(
            CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY
        ),
        Direction::BackwardFilter => operation!(
            CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY
        ),
    };
    operation.finalized()
}

/// Returns the operation of a case on these tensors.
pub(crate) fn operation(
    direction: Direction,
    case: &Case,
    tensors: [Descriptor; 3],
) -> Result<Descriptor, Status> {
    convolution(direction, convolution_descriptor(case).finalized().unwrap(), tensors, [1.0, 0.0])
}

fn pointwise(mode: PointwiseMode) -> Descriptor {
    let function = Descriptor::new(Kind::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)
        .with(Name::CUDNN_ATTR_POINTWISE_MODE, &[mode])
        .with(Name::CUDNN_ATTR_POINTWISE_MATH_PREC, &[Type::CUDNN_DATA_FLOAT])
        .finalized()
        .unwrap();
    Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
        .with(Name::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &[function])
}

/// `y = x + bias`.
pub(crate) fn add([x, bias, y]: [Descriptor; 3]) -> Descriptor {
    pointwise(PointwiseMode::CUDNN_POINTWISE_ADD)
        .with(Name::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &[x])
        .with(Name::CUDNN_ATTR_OPERATION_POINTWISE_BDESC, &[bias])
        .with(Name::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &[y])
        .finalized()
        .unwrap()
}

/// `y = max(x, 0)`.
pub(crate) fn relu([x, y]: [Descriptor; 2]) -> Descriptor {
    pointwise(PointwiseMode::CUDNN_POINTWISE_RELU_FWD)
        .with(Name::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &[x])
        .with(Name::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &[y])
        .finalized()
        .unwrap()
}

/// `dx = dy` where `x` is positive, and 0 elsewhere.
pub(crate) fn relu_gradient([x, dy, dx]: [Descriptor; 3]) -> Descriptor {
    pointwise(PointwiseMode::CUDNN_POINTWISE_RELU_BWD)
        .with(Name::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &[x])
        .with(Name::CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, &[dy])
        .with(Name::CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, &[dx])
        .finalized()
        .unwrap()
}

/// Returns a tensor between operations.
pub(crate) fn virtual_tensor(id: i64, dtype: Type, extents: [i64; 4]) -> Descriptor {
    described(id, dtype, Layout::ChannelsLast, extents)
        .with(Name::CUDNN_ATTR_TENSOR_IS_VIRTUAL, &[true])
        .finalized()
        .unwrap()
}

pub(crate) fn described(id: i64, dtype: Type, layout: Layout, extents: [i64; 4]) -> Descriptor {
    let [_, c, h, w] = extents;
    let strides = match layout {
        Layout::ChannelsFirst => [c * h * w, h * w, w, 1],
        Layout::ChannelsLast => [c * h * w, 1, w * c, c],
    };
    Descriptor::new(Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)
        .with(Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[id])
        .with(Name::CUDNN_ATTR_TENSOR_DATA_TYPE, &[dtype])
        .with(Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[16_i64])
        .with(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, &extents)
        .with(Name::CUDNN_ATTR_TENSOR_STRIDES, &strides)
}
