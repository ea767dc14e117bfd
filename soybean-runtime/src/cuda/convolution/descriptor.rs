//! Descriptors of cuDNN for tensors, filters, convolutions and activations, destroyed on drop.
#![expect(unsafe_code, reason = "cuDNN is a C library")]

use std::ffi::c_int;

use soybean_plan::{Convolution, DType, ImageLayout};

use crate::cuda::cudnn::{self as sys, CudnnError, Status, cudnnMathType_t as Math};

macro_rules! descriptions {
    ($($(#[$doc:meta])* $name:ident($handle:ty) = $create:ident, $destroy:ident;)*) => {
        $(
            $(#[$doc])*
            pub(super) struct $name($handle);

            impl $name {
                fn empty() -> Result<Self, CudnnError> {
                    let mut handle = std::ptr::null_mut();
                    // SAFETY: the result is a local variable.
                    unsafe { sys::$create(&mut handle) }.result()?;
                    Ok(Self(handle))
                }

                pub(super) fn raw(&self) -> $handle {
                    self.0
                }
            }

            impl Drop for $name {
                fn drop(&mut self) {
                    // SAFETY: created in `empty`; whatever cuDNN returns, it is not used again.
                    let _refused = unsafe { sys::$destroy(self.0) };
                }
            }
        )*
    };
}

descriptions! {
    /// Dense images or results. Extents are batch, channels, height and width in every layout.
    TensorDescriptor(sys::cudnnTensorDescriptor_t) = cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor;
    /// Dense filters. Extents are filters, channels, height and width in every layout.
    FilterDescriptor(sys::cudnnFilterDescriptor_t) = cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor;
    /// The function that follows a convolution and the addition of its bias.
    ActivationDescriptor(sys::cudnnActivationDescriptor_t) = cudnnCreateActivationDescriptor, cudnnDestroyActivationDescriptor;
    /// Padding, strides, dilation and groups of a convolution.
    ConvolutionDescriptor(sys::cudnnConvolutionDescriptor_t) = cudnnCreateConvolutionDescriptor, cudnnDestroyConvolutionDescriptor;
}

impl TensorDescriptor {
    pub(super) fn new(
        dtype: DType,
        layout: ImageLayout,
        extents: [usize; 4],
    ) -> Result<Self, CudnnError> {
        let (tensor, dtype) = (Self::empty()?, data_type(dtype)?);
        let [batch, channels, height, width] = to_ints(extents)?;
        let format = format(layout);
        // SAFETY: the descriptor is valid.
        let set = unsafe {
            sys::cudnnSetTensor4dDescriptor(tensor.0, format, dtype, batch, channels, height, width)
        };
        set.result().map(|()| tensor)
    }
}

impl FilterDescriptor {
    pub(super) fn new(
        dtype: DType,
        layout: ImageLayout,
        extents: [usize; 4],
    ) -> Result<Self, CudnnError> {
        let (filter, dtype) = (Self::empty()?, data_type(dtype)?);
        let [filters, channels, height, width] = to_ints(extents)?;
        let format = format(layout);
        // SAFETY: the descriptor is valid.
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
        let descriptor = Self::empty()?;
        let Convolution { padding, stride, dilation, groups, .. } = *convolution;
        let [pad_height, pad_width, stride_height, stride_width] =
            to_ints([padding[0], padding[1], stride[0], stride[1]])?;
        let [dilation_height, dilation_width, groups] =
            to_ints([dilation[0], dilation[1], groups])?;
        // SAFETY: the descriptor is valid.
        let set = unsafe {
            sys::cudnnSetConvolution2dDescriptor(
                descriptor.0,
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
        // SAFETY: the descriptor is valid.
        unsafe { sys::cudnnSetConvolutionGroupCount(descriptor.0, groups) }.result()?;
        descriptor.set_math(math).map(|()| descriptor)
    }

    pub(super) fn set_math(&self, math: Math) -> Result<(), CudnnError> {
        // SAFETY: the descriptor is valid.
        unsafe { sys::cudnnSetConvolutionMathType(self.0, math) }.result()
    }
}

impl ActivationDescriptor {
    pub(super) fn new(mode: sys::cudnnActivationMode_t) -> Result<Self, CudnnError> {
        let activation = Self::empty()?;
        // With convolutions, cuDNN has no activation that propagates NaN.
        let of_nan = sys::cudnnNanPropagation_t::CUDNN_NOT_PROPAGATE_NAN;
        // SAFETY: the descriptor is valid.
        let set = unsafe { sys::cudnnSetActivationDescriptor(activation.0, mode, of_nan, 0.0) };
        set.result().map(|()| activation)
    }
}

/// The error for requests that cuDNN does not support.
pub(super) const NOT_SUPPORTED: CudnnError = CudnnError(Status::CUDNN_STATUS_NOT_SUPPORTED);

fn data_type(dtype: DType) -> Result<sys::cudnnDataType_t, CudnnError> {
    match dtype {
        DType::F32 => Ok(sys::cudnnDataType_t::CUDNN_DATA_FLOAT),
        DType::Bf16 => Ok(sys::cudnnDataType_t::CUDNN_DATA_BFLOAT16),
        DType::I32 => Err(NOT_SUPPORTED),
    }
}

/// Returns cuDNN's name of a layout.
const fn format(layout: ImageLayout) -> sys::cudnnTensorFormat_t {
    match layout {
        ImageLayout::ChannelsFirst => sys::cudnnTensorFormat_t::CUDNN_TENSOR_NCHW,
        ImageLayout::ChannelsLast => sys::cudnnTensorFormat_t::CUDNN_TENSOR_NHWC,
    }
}

fn to_ints<const N: usize>(numbers: [usize; N]) -> Result<[c_int; N], CudnnError> {
    let mut ints = [0; N];
    for (int, data_type) in ints.iter_mut().zip(numbers) {
        *int = c_int::try_from(data_type).map_err(|_| NOT_SUPPORTED)?;
    }
    Ok(ints)
}
