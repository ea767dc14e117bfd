//! Tensors and the parameters of convolutions, from their descriptors.

use super::backend::Descriptor;
use super::{ApiResult, Status};
use crate::element_type::ElementType;
use crate::memory::Memory;
use crate::status::DeviceError;

/// A tensor with four extents: images, channels, rows and columns. Filters have results, channels,
/// rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TensorDescriptor {
    pub(super) id: i64,
    pub(super) dtype: ElementType,
    pub(super) extents: [usize; 4],
    pub(super) strides: [usize; 4],
    /// True for a tensor between operations, which has no memory.
    pub(super) is_virtual: bool,
}

/// Padding, strides and dilation of a convolution, along rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConvolutionDescriptor {
    pub(super) padding: [usize; 2],
    pub(super) stride: [usize; 2],
    pub(super) dilation: [usize; 2],
}

impl TensorDescriptor {
    pub(super) fn new(descriptor: &Descriptor) -> ApiResult<Self> {
        descriptor.number(900)?;
        let dtype = match descriptor.number(901)? {
            0 => ElementType::F32,
            9 => ElementType::Bf16,
            _ => return Err(Status::NOT_SUPPORTED),
        };
        Ok(Self {
            id: descriptor.number(906)?,
            dtype,
            extents: counts(descriptor, 902, 1)?,
            strides: counts(descriptor, 903, 1)?,
            is_virtual: descriptor.has(907) && descriptor.number(907)? != 0,
        })
    }

    /// Returns the number of elements from the first to the last.
    fn span(&self) -> usize {
        let reach = |(extent, stride): (&usize, &usize)| (extent - 1) * stride;
        1 + self.extents.iter().zip(&self.strides).map(reach).sum::<usize>()
    }

    pub(super) fn n_elements(&self) -> usize {
        self.extents.iter().product()
    }

    pub(super) fn is_dense(&self) -> bool {
        self.span() == self.n_elements()
    }

    /// Reads all elements from the first to the last, including gaps.
    pub(super) fn read(&self, memory: &Memory, data: u64) -> Result<Vec<f32>, DeviceError> {
        self.dtype.read(memory, data, self.span())
    }

    /// Reads the elements with the dims in this order, the innermost last.
    pub(super) fn read_ordered(
        &self,
        memory: &Memory,
        data: u64,
        order: [usize; 4],
    ) -> Result<Vec<f32>, DeviceError> {
        let elements = self.read(memory, data)?;
        Ok(self.places(order).map(|place| elements[place]).collect())
    }

    /// Writes the elements with the dims in this order, and leaves the gaps unchanged.
    pub(super) fn write_ordered(
        &self,
        memory: &Memory,
        data: u64,
        order: [usize; 4],
        values: &[f32],
    ) -> Result<(), DeviceError> {
        let mut elements = self.read(memory, data)?;
        self.places(order).zip(values).for_each(|(place, value)| elements[place] = *value);
        self.dtype.write(memory, data, &elements)
    }

    /// Returns the offsets of the elements with the dims in this order.
    fn places(&self, order: [usize; 4]) -> impl Iterator<Item = usize> + use<> {
        let extents = order.map(|dim| self.extents[dim]);
        let strides = order.map(|dim| self.strides[dim]);
        (0..self.n_elements()).map(move |position| {
            let (mut rest, mut place) = (position, 0);
            for dim in (0..4).rev() {
                place += rest % extents[dim] * strides[dim];
                rest /= extents[dim];
            }
            place
        })
    }
}

impl ConvolutionDescriptor {
    pub(super) fn new(descriptor: &Descriptor) -> ApiResult<Self> {
        let padding = counts(descriptor, 105, 0)?;
        // Cross-correlation of two dims with sums in f32, and as much padding at both ends.
        let is_known = descriptor.number(100)? == 0
            && descriptor.number(101)? == 1
            && descriptor.number(106)? == 2
            && counts(descriptor, 104, 0)? == padding;
        if !is_known {
            return Err(Status::NOT_SUPPORTED);
        }
        let (stride, dilation) = (counts(descriptor, 103, 1)?, counts(descriptor, 102, 1)?);
        Ok(Self { padding, stride, dilation })
    }
}

/// Returns the numbers of an attribute, which are at least `least`.
fn counts<const N: usize>(
    descriptor: &Descriptor,
    name: u32,
    least: usize,
) -> ApiResult<[usize; N]> {
    let count = |it: &i64| usize::try_from(*it).ok().filter(|&count| count >= least);
    let counts: Option<Vec<usize>> = descriptor.numbers(name)?.iter().map(count).collect();
    counts.and_then(|it| it.try_into().ok()).ok_or(Status::BAD_PARAM)
}
