//! Descriptors of cuDNN's graph API with typed attributes, destroyed on drop.
//!
//! cudarc's enums lack what cuDNN has added since its version 9.10, so numbers are written here and
//! compared with the header by a test.

use std::{ffi::c_void, marker::PhantomData};

use super::{
    CudnnError, cudnnBackendCreateDescriptor, cudnnBackendDestroyDescriptor, cudnnBackendExecute,
    cudnnBackendFinalize, cudnnBackendGetAttribute, cudnnBackendSetAttribute, cudnnDataType_t,
    cudnnHandle_t,
};

macro_rules! numbers {
    ($($name:ident = $number:literal;)*) => {
        $(pub(in crate::cuda) const $name: u32 = $number;)*

        /// All numbers with their names in the header.
        #[cfg(test)]
        const NUMBERS: &[(&str, u32)] = &[$((stringify!($name), $name)),*];
    };
}

numbers! {
    CUDNN_BACKEND_POINTWISE_DESCRIPTOR = 0;
    CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR = 1;
    CUDNN_BACKEND_ENGINE_DESCRIPTOR = 2;
    CUDNN_BACKEND_ENGINECFG_DESCRIPTOR = 3;
    CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR = 4;
    CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR = 5;
    CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR = 10;
    CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR = 11;
    CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR = 12;
    CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR = 13;
    CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR = 15;
    CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR = 16;
    CUDNN_BACKEND_TENSOR_DESCRIPTOR = 17;
    CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR = 41;
    CUDNN_BACKEND_OPERATION_DIAGONAL_BAND_MASK_DESCRIPTOR = 44;
    CUDNN_ATTR_POINTWISE_MODE = 0;
    CUDNN_ATTR_POINTWISE_MATH_PREC = 1;
    CUDNN_ATTR_CONVOLUTION_COMP_TYPE = 100;
    CUDNN_ATTR_CONVOLUTION_CONV_MODE = 101;
    CUDNN_ATTR_CONVOLUTION_DILATIONS = 102;
    CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES = 103;
    CUDNN_ATTR_CONVOLUTION_POST_PADDINGS = 104;
    CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS = 105;
    CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS = 106;
    CUDNN_ATTR_ENGINEHEUR_MODE = 200;
    CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH = 201;
    CUDNN_ATTR_ENGINEHEUR_RESULTS = 202;
    CUDNN_ATTR_ENGINECFG_ENGINE = 300;
    CUDNN_ATTR_EXECUTION_PLAN_HANDLE = 400;
    CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG = 401;
    CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE = 402;
    CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION = 405;
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA = 700;
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA = 701;
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC = 702;
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W = 703;
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X = 704;
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y = 705;
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA = 706;
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA = 707;
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC = 708;
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W = 709;
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX = 710;
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY = 711;
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA = 712;
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA = 713;
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC = 714;
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW = 715;
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X = 716;
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY = 717;
    CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR = 750;
    CUDNN_ATTR_OPERATION_POINTWISE_XDESC = 751;
    CUDNN_ATTR_OPERATION_POINTWISE_BDESC = 752;
    CUDNN_ATTR_OPERATION_POINTWISE_YDESC = 753;
    CUDNN_ATTR_OPERATION_POINTWISE_DXDESC = 756;
    CUDNN_ATTR_OPERATION_POINTWISE_DYDESC = 757;
    CUDNN_ATTR_OPERATIONGRAPH_HANDLE = 800;
    CUDNN_ATTR_OPERATIONGRAPH_OPS = 801;
    CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT = 900;
    CUDNN_ATTR_TENSOR_DATA_TYPE = 901;
    CUDNN_ATTR_TENSOR_DIMENSIONS = 902;
    CUDNN_ATTR_TENSOR_STRIDES = 903;
    CUDNN_ATTR_TENSOR_UNIQUE_ID = 906;
    CUDNN_ATTR_TENSOR_IS_VIRTUAL = 907;
    CUDNN_ATTR_TENSOR_IS_BY_VALUE = 908;
    CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS = 1000;
    CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS = 1001;
    CUDNN_ATTR_VARIANT_PACK_WORKSPACE = 1003;
    CUDNN_ATTR_ENGINE_GLOBAL_INDEX = 1301;
    CUDNN_ATTR_ENGINE_NUMERICAL_NOTE = 1303;
    CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE = 1305;
    CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC = 2800;
    CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC = 2801;
    CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC = 2802;
    CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC = 2803;
    CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC = 2804;
    CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC = 2805;
    CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH = 2811;
    CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_INPUT_UID = 2812;
    CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH_OUTPUT_UID = 2813;
    CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_XDESC = 3000;
    CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_BDESC = 3005;
    CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_YDESC = 3006;
    CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_COMPARISON_MODE = 3007;
    CUDNN_TYPE_HANDLE = 0;
    CUDNN_TYPE_DATA_TYPE = 1;
    CUDNN_TYPE_BOOLEAN = 2;
    CUDNN_TYPE_INT64 = 3;
    CUDNN_TYPE_FLOAT = 4;
    CUDNN_TYPE_VOID_PTR = 6;
    CUDNN_TYPE_CONVOLUTION_MODE = 7;
    CUDNN_TYPE_HEUR_MODE = 8;
    CUDNN_TYPE_NUMERICAL_NOTE = 11;
    CUDNN_TYPE_POINTWISE_MODE = 14;
    CUDNN_TYPE_BACKEND_DESCRIPTOR = 15;
    CUDNN_TYPE_BEHAVIOR_NOTE = 19;
    CUDNN_TYPE_CHAR = 24;
    CUDNN_HEUR_MODE_FALLBACK = 2;
    CUDNN_HEUR_MODE_A = 3;
    CUDNN_NUMERICAL_NOTE_TENSOR_CORE = 0;
    CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS = 1;
    CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION = 2;
    CUDNN_NUMERICAL_NOTE_FFT = 3;
    CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC = 4;
    CUDNN_NUMERICAL_NOTE_WINOGRAD = 5;
    CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION = 0;
    CUDNN_CROSS_CORRELATION = 1;
    CUDNN_POINTWISE_ADD = 0;
    CUDNN_POINTWISE_RELU_FWD = 100;
    CUDNN_POINTWISE_RELU_BWD = 200;
    CUDNN_POINTWISE_CMP_GE = 303;
}

/// A type of attributes, with the layout that cuDNN reads and writes.
pub(in crate::cuda) trait Attribute: Copy {
    /// `cudnnBackendAttributeType_t`.
    const TYPE: u32;
}

macro_rules! attributes {
    ($($type:ty = $number:expr;)*) => {$(
        impl Attribute for $type {
            const TYPE: u32 = $number;
        }
    )*};
}

attributes! {
    u8 = CUDNN_TYPE_CHAR;
    i64 = CUDNN_TYPE_INT64;
    f32 = CUDNN_TYPE_FLOAT;
    bool = CUDNN_TYPE_BOOLEAN;
    cudnnDataType_t = CUDNN_TYPE_DATA_TYPE;
    cudnnHandle_t = CUDNN_TYPE_HANDLE;
    *mut c_void = CUDNN_TYPE_VOID_PTR;
    RawDescriptor<'_> = CUDNN_TYPE_BACKEND_DESCRIPTOR;
}

macro_rules! enumerations {
    ($(#[$documentation:meta] $name:ident = $number:expr;)*) => {$(
        #[$documentation]
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub(in crate::cuda) struct $name(pub(in crate::cuda) u32);

        attributes! { $name = $number; }
    )*};
}

enumerations! {
    /// `cudnnBackendHeurMode_t`.
    HeuristicMode = CUDNN_TYPE_HEUR_MODE;
    /// `cudnnConvolutionMode_t`.
    ConvolutionMode = CUDNN_TYPE_CONVOLUTION_MODE;
    /// `cudnnBackendNumericalNote_t`.
    NumericalNote = CUDNN_TYPE_NUMERICAL_NOTE;
    /// `cudnnBackendBehaviorNote_t`.
    BehaviorNote = CUDNN_TYPE_BEHAVIOR_NOTE;
    /// `cudnnPointwiseMode_t`.
    PointwiseMode = CUDNN_TYPE_POINTWISE_MODE;
}

/// A descriptor as the value of an attribute of another.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(in crate::cuda) struct RawDescriptor<'a>(*mut c_void, PhantomData<&'a Descriptor>);

/// A descriptor of one of the kinds of `cudnnBackendDescriptorType_t`. Those that it refers to
/// live on in cuDNN, which counts references.
pub(in crate::cuda) struct Descriptor(*mut c_void);

// SAFETY: a descriptor belongs to no thread.
unsafe impl Send for Descriptor {}

impl Descriptor {
    pub(in crate::cuda) fn new(kind: u32) -> Result<Self, CudnnError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the result is a local variable.
        unsafe { cudnnBackendCreateDescriptor(kind, &mut raw) }.result()?;
        Ok(Self(raw))
    }

    /// Returns the descriptor with an attribute set.
    pub(in crate::cuda) fn with<A: Attribute>(
        self,
        name: u32,
        values: &[A],
    ) -> Result<Self, CudnnError> {
        let (n, values) = (values.len() as i64, values.as_ptr().cast());
        // SAFETY: the descriptor is alive, and the values have the type that is told.
        unsafe { cudnnBackendSetAttribute(self.0, name, A::TYPE, n, values) }.result()?;
        Ok(self)
    }

    /// Returns the descriptor after cuDNN's check of all attributes.
    pub(in crate::cuda) fn finalized(self) -> Result<Self, CudnnError> {
        // SAFETY: the descriptor is alive.
        unsafe { cudnnBackendFinalize(self.0) }.result()?;
        Ok(self)
    }

    /// Returns the descriptor as the value of an attribute.
    pub(in crate::cuda) const fn raw(&self) -> RawDescriptor<'_> {
        RawDescriptor(self.0, PhantomData)
    }

    /// Returns the values of an attribute, at most as many as there are of `empty`, in whose place
    /// they are put.
    pub(in crate::cuda) fn values<A: Attribute>(
        &self,
        name: u32,
        mut empty: Vec<A>,
    ) -> Result<Vec<A>, CudnnError> {
        let (capacity, mut n_found) = (empty.len() as i64, 0);
        let values = empty.as_mut_ptr().cast();
        let asked =
            // SAFETY: the descriptor is alive, and there is room for values of this type.
            unsafe { cudnnBackendGetAttribute(self.0, name, A::TYPE, capacity, &mut n_found, values) };
        asked.result()?;
        empty.truncate(usize::try_from(n_found).unwrap_or(0));
        Ok(empty)
    }

    /// Returns the descriptors of this kind that are an attribute, at most `capacity`.
    pub(in crate::cuda) fn descriptors(
        &self,
        name: u32,
        kind: u32,
        capacity: usize,
    ) -> Result<Vec<Self>, CudnnError> {
        let mut made = (0..capacity).map(|_| Self::new(kind)).collect::<Result<Vec<_>, _>>()?;
        // cuDNN fills descriptors that exist.
        let n_found = self.values(name, made.iter().map(Self::raw).collect())?.len();
        made.truncate(n_found);
        Ok(made)
    }

    /// Queues a plan, which this descriptor is, on the stream of the handle.
    ///
    /// # Safety
    /// As for any kernel, the addresses of the tensors hold what the plan's graph describes.
    pub(in crate::cuda) unsafe fn execute(
        &self,
        handle: cudnnHandle_t,
        tensors: &Self,
    ) -> Result<(), CudnnError> {
        // SAFETY: required of the caller.
        unsafe { cudnnBackendExecute(handle, self.0, tensors.0) }.result()
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: created in `new`; whatever cuDNN returns, it is not used again.
        let _refused = unsafe { cudnnBackendDestroyDescriptor(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::NUMBERS;
    use crate::cuda::headers::Asserts;

    #[test]
    fn numbers_of_the_graph_api_are_those_of_the_header() {
        let mut asserts = Asserts::about("cudnn.h");
        NUMBERS.iter().for_each(|(name, number)| asserts.equal(name, number));
        asserts.check("cudnn-graph");
    }
}
