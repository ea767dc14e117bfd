//! Layouts of a convolution's tensors, and the copies between layouts.
//!
//! Programs store tensors as NCHW. Tensor cores sum over channels and read them contiguously, so
//! cuDNN's kernels for them need NHWC. For NCHW tensors cuDNN copies internally on every call or
//! takes a slower kernel. The copies here are generated transpositions with constant shapes and
//! strides.
//!
//! Convolutions keep NCHW if their channels or filters are no multiple of 8, as in most first
//! layers: tensor cores take eight `bf16` values at once. So do those in `f32`: NVIDIA's guide to
//! convolutions compares layouts for 16 bits only, and copies of 32 bits cost twice as much.

use cudarc::cudnn::sys::cudnnTensorFormat_t as Format;
use soybean_codegen::Address;
use soybean_plan::{Convolution, ConvolutionForm, DType, Permutation, Shape, Strides};

/// Alignment of tensors in the workspace.
const ALIGNMENT_BYTES: usize = 256;

/// Number of 16-bit values that tensor cores take at once.
const CHANNEL_MULTIPLE: usize = 8;

/// Maximum memory for copies that only change the layout.
pub(super) const MAX_COPIED_BYTES: usize = 2 << 30;

/// Dimension order of a convolution's tensors. The batch or the filters are outermost in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// NCHW, as in programs.
    ChannelsFirst,
    /// NHWC.
    ChannelsLast,
}

impl Layout {
    /// Returns the layouts to try for a convolution with this compute type, the best first.
    pub(super) fn candidates(convolution: &Convolution, compute_type: DType) -> &'static [Self] {
        if wants_channels_last(convolution, compute_type) {
            &[Self::ChannelsLast, Self::ChannelsFirst]
        } else {
            &[Self::ChannelsFirst]
        }
    }

    /// Returns cuDNN's name of the layout.
    pub(super) const fn format(self) -> Format {
        match self {
            Self::ChannelsFirst => Format::CUDNN_TENSOR_NCHW,
            Self::ChannelsLast => Format::CUDNN_TENSOR_NHWC,
        }
    }

    /// Returns the strides of a dense tensor, in the dimension order of programs.
    const fn strides(self, [_, channels, height, width]: [usize; 4]) -> [usize; 4] {
        match self {
            Self::ChannelsFirst => [channels * height * width, height * width, width, 1],
            Self::ChannelsLast => [channels * height * width, 1, width * channels, channels],
        }
    }
}

/// Returns true if copies to NHWC pay off.
fn wants_channels_last(convolution: &Convolution, compute_type: DType) -> bool {
    let Convolution { channels, filters, .. } = *convolution;
    compute_type == DType::Bf16
        && channels.is_multiple_of(CHANNEL_MULTIPLE)
        && filters.is_multiple_of(CHANNEL_MULTIPLE)
}

/// Tensors of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConvolutionTensor {
    Images,
    Filters,
    Results,
}

impl ConvolutionTensor {
    /// Returns the roles of a kernel's two inputs and its result.
    const fn operands(form: ConvolutionForm) -> [Self; 3] {
        match form {
            ConvolutionForm::Forward => [Self::Images, Self::Filters, Self::Results],
            ConvolutionForm::Data => [Self::Results, Self::Filters, Self::Images],
            ConvolutionForm::Filter => [Self::Images, Self::Results, Self::Filters],
        }
    }

    /// Returns the extents in the dimension order of programs.
    pub(super) const fn extents(self, convolution: &Convolution) -> [usize; 4] {
        let Convolution { batch, groups, channels, filters, image, window, result, .. } =
            *convolution;
        match self {
            Self::Images => [batch, groups * channels, image[0], image[1]],
            Self::Filters => [groups * filters, channels, window[0], window[1]],
            Self::Results => [batch, groups * filters, result[0], result[1]],
        }
    }
}

/// A copy of a tensor into or out of the workspace, with another layout or element type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LayoutCopy {
    pub(crate) permutation: Permutation,
    /// Element types of source and destination.
    pub(crate) types: [DType; 2],
    pub(crate) from: Address,
    pub(crate) to: Address,
}

/// Operands of a cuDNN call, and the copies before and after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConvolutionLayout {
    /// Locations of the kernel's operands, in its order.
    pub(crate) operands: [Address; 3],
    pub(crate) before: Vec<LayoutCopy>,
    pub(crate) after: Vec<LayoutCopy>,
    /// Bytes of the workspace for copies. cuDNN's workspace follows.
    pub(crate) copied_bytes: usize,
}

impl ConvolutionLayout {
    /// Plans the copies for operands of these types, one compute type and a layout.
    pub(super) fn new(
        convolution: &Convolution,
        types: [DType; 3],
        compute_type: DType,
        layout: Layout,
    ) -> Self {
        let operands = [Address::Input(0), Address::Input(1), Address::Result(0)];
        let mut this = Self { operands, before: Vec::new(), after: Vec::new(), copied_bytes: 0 };
        let parts = ConvolutionTensor::operands(convolution.form);
        for (number, (part, dtype)) in parts.into_iter().zip(types).enumerate() {
            let extents = part.extents(convolution);
            if dtype == compute_type && has_program_order(extents, layout) {
                continue;
            }
            let place = Address::Workspace(this.copied_bytes);
            let n_bytes = extents.iter().product::<usize>() * compute_type.bytes();
            this.copied_bytes += n_bytes.next_multiple_of(ALIGNMENT_BYTES);
            let from = this.operands[number];
            this.operands[number] = place;
            match from {
                Address::Result(_) => this.after.push(LayoutCopy {
                    permutation: from_layout(extents, layout),
                    types: [compute_type, dtype],
                    from: place,
                    to: from,
                }),
                Address::Input(_) | Address::Scalars | Address::Workspace(_) => {
                    let permutation = to_layout(extents, layout);
                    this.before.push(LayoutCopy {
                        permutation,
                        types: [dtype, compute_type],
                        from,
                        to: place,
                    });
                }
            }
        }
        this
    }
}

/// Returns true if a layout equals that of programs: with one channel or one pixel, both orders are
/// the same.
fn has_program_order(extents: [usize; 4], layout: Layout) -> bool {
    let [_, channels, height, width] = extents;
    layout == Layout::ChannelsFirst || channels == 1 || height * width == 1
}

/// Returns the permutation from the layout of programs.
fn to_layout(extents: [usize; 4], layout: Layout) -> Permutation {
    let strides = Layout::ChannelsFirst.strides(extents);
    let order = match layout {
        Layout::ChannelsFirst => [0, 1, 2, 3],
        Layout::ChannelsLast => [0, 2, 3, 1],
    };
    Permutation {
        extents: Shape::new(&order.map(|dim| extents[dim])),
        input: Strides::new(&order.map(|dim| strides[dim])),
    }
}

/// Returns the permutation to the layout of programs.
fn from_layout(extents: [usize; 4], layout: Layout) -> Permutation {
    Permutation { extents: Shape::new(&extents), input: Strides::new(&layout.strides(extents)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: Convolution = Convolution {
        form: ConvolutionForm::Forward,
        batch: 2,
        groups: 1,
        channels: 8,
        filters: 16,
        image: [5, 4],
        window: [3, 3],
        result: [3, 2],
        stride: [1, 1],
        padding: [0, 0],
        dilation: [1, 1],
    };
    const ROUNDED: [DType; 3] = [DType::Bf16; 3];

    #[test]
    fn nhwc_is_used_for_tensor_cores() {
        let wants = |channels, filters, compute_type| {
            wants_channels_last(&Convolution { channels, filters, ..WIDE }, compute_type)
        };
        assert!(wants(8, 16, DType::Bf16));
        assert!(wants(64, 8, DType::Bf16));
        assert!(!wants(3, 64, DType::Bf16));
        assert!(!wants(64, 10, DType::Bf16));
        assert!(!wants(64, 64, DType::F32));
        // The number of channels counts per group.
        let depthwise = Convolution { groups: 64, channels: 1, filters: 1, ..WIDE };
        assert!(!wants_channels_last(&depthwise, DType::Bf16));
    }

    #[test]
    fn matching_layouts_are_not_copied() {
        let plain = ConvolutionLayout::new(&WIDE, ROUNDED, DType::Bf16, Layout::ChannelsFirst);
        assert_eq!(plain.operands, [Address::Input(0), Address::Input(1), Address::Result(0)]);
        assert_eq!((plain.before, plain.after, plain.copied_bytes), (vec![], vec![], 0));
        // For filters of one pixel both layouts are the same.
        let flat = Convolution { window: [1, 1], result: [5, 4], ..WIDE };
        let flat = ConvolutionLayout::new(&flat, ROUNDED, DType::Bf16, Layout::ChannelsLast);
        let [images, results] = [2 * 8 * 5 * 4 * 2, 2 * 16 * 5 * 4 * 2_usize];
        let images = images.next_multiple_of(256);
        let expected = [Address::Workspace(0), Address::Input(1), Address::Workspace(images)];
        assert_eq!(flat.operands, expected);
        assert_eq!(flat.copied_bytes, images + results.next_multiple_of(256));
    }

    #[test]
    fn inputs_are_copied_before_and_the_result_after() {
        let filter = Convolution { form: ConvolutionForm::Filter, ..WIDE };
        let types = [DType::Bf16, DType::Bf16, DType::F32];
        let it = ConvolutionLayout::new(&filter, types, DType::Bf16, Layout::ChannelsLast);
        // 640, 384 and 2304 bytes.
        let offsets = [0, 768, 768 + 512].map(Address::Workspace);
        assert_eq!((it.operands, it.copied_bytes), (offsets, 768 + 512 + 2304));
        let images = LayoutCopy {
            permutation: Permutation {
                extents: Shape::new(&[2, 5, 4, 8]),
                input: Strides::new(&[160, 4, 1, 20]),
            },
            types: [DType::Bf16; 2],
            from: Address::Input(0),
            to: offsets[0],
        };
        assert_eq!((it.before.len(), &it.before[0]), (2, &images));
        let filters = LayoutCopy {
            permutation: Permutation {
                extents: Shape::new(&[16, 8, 3, 3]),
                input: Strides::new(&[72, 1, 24, 8]),
            },
            types: [DType::Bf16, DType::F32],
            from: offsets[2],
            to: Address::Result(0),
        };
        assert_eq!(it.after, [filters]);
    }

    #[test]
    fn results_of_another_type_are_converted() {
        let types = [DType::Bf16, DType::Bf16, DType::F32];
        let it = ConvolutionLayout::new(&WIDE, types, DType::Bf16, Layout::ChannelsFirst);
        assert!(it.before.is_empty());
        assert_eq!(it.after[0].permutation.input, it.after[0].permutation.extents.dense_strides());
        assert_eq!(it.after[0].types, [DType::Bf16, DType::F32]);
    }
}
