//! cuDNN's descriptions of tensors, filters and convolutions, each destroyed when it is no longer needed.
#![expect(unsafe_code, reason = "cuDNN is a C library")]

use std::ffi::c_int;

use cudarc::cudnn::{
    result::CudnnError,
    sys::{self, cudnnMathType_t as Math, cudnnStatus_t as Status},
};
use soybean_plan::{Convolution, DType};

use super::layout::Layout;

macro_rules! descriptions {
    ($($(#[$doc:meta])* $name:ident($handle:ty) = $create:ident, $destroy:ident;)*) => {
        $(
            $(#[$doc])*
            pub(super) struct $name($handle);

            impl $name {
                fn empty() -> Result<Self, CudnnError> {
                    let mut handle = std::ptr::null_mut();
                    // SAFETY: the result is a place of this function.
                    unsafe { sys::$create(&mut handle) }.result()?;
                    Ok(Self(handle))
                }

                pub(super) fn raw(&self) -> $handle {
                    self.0
                }
            }

            impl Drop for $name {
                fn drop(&mut self) {
                    // SAFETY: made in `empty`; whatever cuDNN says of it, it is not used again.
                    let _refused = unsafe { sys::$destroy(self.0) };
                }
            }
        )*
    };
}

descriptions! {
    /// Images or results, dense; extents are batch, channels, height, width, whatever the layout.
    TensorDescriptor(sys::cudnnTensorDescriptor_t) = cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor;
    /// Filters, dense; extents are filters, channels, height, width, whatever the layout.
    FilterDescriptor(sys::cudnnFilterDescriptor_t) = cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor;
    /// How the filters go over the images.
    ConvolutionDescriptor(sys::cudnnConvolutionDescriptor_t) = cudnnCreateConvolutionDescriptor, cudnnDestroyConvolutionDescriptor;
}

impl TensorDescriptor {
    pub(super) fn new(
        dtype: DType,
        layout: Layout,
        extents: [usize; 4],
    ) -> Result<Self, CudnnError> {
        let (tensor, dtype) = (Self::empty()?, number(dtype)?);
        let [batch, channels, height, width] = to_ints(extents)?;
        let format = layout.format();
        // SAFETY: the descriptor is alive.
        let set = unsafe {
            sys::cudnnSetTensor4dDescriptor(tensor.0, format, dtype, batch, channels, height, width)
        };
        set.result().map(|()| tensor)
    }
}

impl FilterDescriptor {
    pub(super) fn new(
        dtype: DType,
        layout: Layout,
        extents: [usize; 4],
    ) -> Result<Self, CudnnError> {
        let (filter, dtype) = (Self::empty()?, number(dtype)?);
        let [filters, channels, height, width] = to_ints(extents)?;
        let format = layout.format();
        // SAFETY: the descriptor is alive.
        let set = unsafe {
            sys::cudnnSetFilter4dDescriptor(
                filter.0, dtype, format, filters, channels, height, width,
            )
        };
        set.result().map(|()| filter)
    }
}

impl ConvolutionDescriptor {
    pub(super) fn new(convolution: &Convolution, math: Math) -> Result<Self, CudnnError> {
        let walk = Self::empty()?;
        let Convolution { padding, stride, dilation, groups, .. } = *convolution;
        let [pad_height, pad_width, stride_height, stride_width] =
            to_ints([padding[0], padding[1], stride[0], stride[1]])?;
        let [dilation_height, dilation_width, groups] =
            to_ints([dilation[0], dilation[1], groups])?;
        // SAFETY: the descriptor is alive.
        let set = unsafe {
            sys::cudnnSetConvolution2dDescriptor(
                walk.0,
                pad_height,
                pad_width,
                stride_height,
                stride_width,
                dilation_height,
                dilation_width,
                sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION,
                sys::cudnnDataType_t::CUDNN_DATA_FLOAT,
            )
        };
        set.result()?;
        // SAFETY: the descriptor is alive.
        unsafe { sys::cudnnSetConvolutionGroupCount(walk.0, groups) }.result()?;
        walk.set_math(math).map(|()| walk)
    }

    pub(super) fn set_math(&self, math: Math) -> Result<(), CudnnError> {
        // SAFETY: the descriptor is alive.
        unsafe { sys::cudnnSetConvolutionMathType(self.0, math) }.result()
    }
}

/// What cuDNN says of what it cannot do.
pub(super) const NOT_SUPPORTED: CudnnError = CudnnError(Status::CUDNN_STATUS_NOT_SUPPORTED);

fn number(dtype: DType) -> Result<sys::cudnnDataType_t, CudnnError> {
    match dtype {
        DType::F32 => Ok(sys::cudnnDataType_t::CUDNN_DATA_FLOAT),
        DType::Bf16 => Ok(sys::cudnnDataType_t::CUDNN_DATA_BFLOAT16),
        DType::I32 => Err(NOT_SUPPORTED),
    }
}

fn to_ints<const N: usize>(numbers: [usize; N]) -> Result<[c_int; N], CudnnError> {
    let mut ints = [0; N];
    for (int, number) in ints.iter_mut().zip(numbers) {
        *int = c_int::try_from(number).map_err(|_| NOT_SUPPORTED)?;
    }
    Ok(ints)
}
