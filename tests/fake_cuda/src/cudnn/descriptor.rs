//! Descriptors of tensors, convolutions and activations.

use std::ffi::c_int;

use super::{ApiResult, Status};
use crate::element_type::ElementType;
use crate::memory::Memory;
use crate::status::DeviceError;

/// A tensor with four extents: images, channels, rows and columns. Filters have results, channels,
/// rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TensorDescriptor {
    pub(super) dtype: ElementType,
    pub(super) extents: [usize; 4],
    pub(super) strides: [usize; 4],
}

/// Padding, strides, dilation and groups of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConvolutionDescriptor {
    /// Along rows and columns, as the fields below.
    pub(super) padding: [usize; 2],
    pub(super) stride: [usize; 2],
    pub(super) dilation: [usize; 2],
    pub(super) groups: usize,
    /// `cudnnMathType_t`.
    pub(super) mathematics: u32,
}

/// The function after a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ActivationDescriptor {
    /// `cudnnActivationMode_t`.
    pub(super) mode: u32,
    /// `cudnnNanPropagation_t`.
    pub(super) of_nan: u32,
}

impl TensorDescriptor {
    /// Creates a dense tensor in NCHW or NHWC layout.
    pub(super) fn new(number: u32, format: u32, extents: [c_int; 4]) -> ApiResult<Self> {
        let [_, c, h, w] = extents;
        let strides = match format {
            0 => [c * h * w, h * w, w, 1],
            1 => [c * h * w, 1, w * c, c],
            _ => return Err(Status::NOT_SUPPORTED),
        };
        Self::with_strides(number, extents, strides)
    }

    pub(super) fn with_strides(
        number: u32,
        extents: [c_int; 4],
        strides: [c_int; 4],
    ) -> ApiResult<Self> {
        let dtype = match number {
            0 => ElementType::F32,
            9 => ElementType::Bf16,
            _ => return Err(Status::NOT_SUPPORTED),
        };
        Ok(Self { dtype, extents: counts(extents, 1)?, strides: counts(strides, 1)? })
    }

    /// Returns the number of elements from the first to the last.
    fn span(&self) -> usize {
        1 + self
            .extents
            .iter()
            .zip(&self.strides)
            .map(|(extent, stride)| (extent - 1) * stride)
            .sum::<usize>()
    }

    /// Reads all elements from the first to the last, including gaps.
    pub(super) fn read(&self, memory: &Memory, data: u64) -> Result<Vec<f32>, DeviceError> {
        self.dtype.read(memory, data, self.span())
    }
}

impl ActivationDescriptor {
    /// `CUDNN_ACTIVATION_RELU`.
    pub(super) const RELU: u32 = 1;
    /// `CUDNN_ACTIVATION_IDENTITY`.
    pub(super) const IDENTITY: u32 = 5;

    pub(super) fn new(mode: u32, of_nan: u32) -> ApiResult<Self> {
        if mode > 6 || of_nan > 1 { Err(Status::BAD_PARAM) } else { Ok(Self { mode, of_nan }) }
    }
}

impl ConvolutionDescriptor {
    pub(super) fn new(
        padding: [c_int; 2],
        stride: [c_int; 2],
        dilation: [c_int; 2],
        mode: u32,
        compute: u32,
    ) -> ApiResult<Self> {
        // Cross-correlation with sums in f32.
        if mode != 1 || compute != 0 {
            return Err(Status::NOT_SUPPORTED);
        }
        Ok(Self {
            padding: counts(padding, 0)?,
            stride: counts(stride, 1)?,
            dilation: counts(dilation, 1)?,
            groups: 1,
            mathematics: 0,
        })
    }
}

fn counts<const N: usize>(numbers: [c_int; N], least: usize) -> ApiResult<[usize; N]> {
    let mut counts = [0; N];
    for (count, number) in counts.iter_mut().zip(numbers) {
        *count = usize::try_from(number)
            .ok()
            .filter(|&count| count >= least)
            .ok_or(Status::BAD_PARAM)?;
    }
    Ok(counts)
}
