//! How the tensors of a convolution lie where cuDNN works on them, and the copies that put them there.
//!
//! In a program channels stand before pixels. Tensor cores sum over channels and read them as neighbours, so cuDNN's kernels for them want channels last; of tensors that lie otherwise it
//! makes copies of its own each time, or takes a slower kernel. The copies here are made by transpositions of the model's text, in which shapes and strides are constants.
//!
//! Convolutions whose numbers of channels or filters are no multiples of 8, as in most first layers, stay as they are: tensor cores take eight numbers of `bf16` at once. So do those in
//! `f32`: NVIDIA's guide to convolutions compares the orders for 16 bits only, and copies of 32 bits cost twice as much.

use cudarc::cudnn::sys::cudnnTensorFormat_t as Format;
use soybean_codegen::Address;
use soybean_plan::{Convolution, ConvolutionForm, DType, Permutation, Shape, Strides};

/// Tensors in the workspace begin at multiples of so many bytes.
const ALIGNMENT_BYTES: usize = 256;

/// Tensor cores take so many numbers of 16 bits at once.
const CHANNEL_MULTIPLE: usize = 8;

/// The most memory for copies that only change the order. Where they need more, cuDNN works on what is there.
pub(super) const MAX_COPIED_BYTES: usize = 2 << 30;

/// The order of the dims of a convolution's tensors; images, filters or results are outermost in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Channels, height, width: as in programs.
    ChannelsFirst,
    /// Height, width, channels.
    ChannelsLast,
}

impl Layout {
    /// The layouts to try for a convolution that is compute_type with numbers of this type, the best first.
    pub(super) fn candidates(convolution: &Convolution, compute_type: DType) -> &'static [Self] {
        if wants_channels_last(convolution, compute_type) {
            &[Self::ChannelsLast, Self::ChannelsFirst]
        } else {
            &[Self::ChannelsFirst]
        }
    }

    /// cuDNN's name for it.
    pub(super) const fn format(self) -> Format {
        match self {
            Self::ChannelsFirst => Format::CUDNN_TENSOR_NCHW,
            Self::ChannelsLast => Format::CUDNN_TENSOR_NHWC,
        }
    }

    /// How a dense tensor with these extents lies, in the order of programs.
    const fn strides(self, [_, channels, height, width]: [usize; 4]) -> [usize; 4] {
        match self {
            Self::ChannelsFirst => [channels * height * width, height * width, width, 1],
            Self::ChannelsLast => [channels * height * width, 1, width * channels, channels],
        }
    }
}

/// Whether copies with channels last pay.
fn wants_channels_last(convolution: &Convolution, compute_type: DType) -> bool {
    let Convolution { channels, filters, .. } = *convolution;
    compute_type == DType::Bf16
        && channels.is_multiple_of(CHANNEL_MULTIPLE)
        && filters.is_multiple_of(CHANNEL_MULTIPLE)
}

/// The tensors of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConvolutionTensor {
    Images,
    Filters,
    Results,
}

impl ConvolutionTensor {
    /// What the two inputs and the result of a kernel are.
    const fn operands(form: ConvolutionForm) -> [Self; 3] {
        match form {
            ConvolutionForm::Forward => [Self::Images, Self::Filters, Self::Results],
            ConvolutionForm::Data => [Self::Results, Self::Filters, Self::Images],
            ConvolutionForm::Filter => [Self::Images, Self::Results, Self::Filters],
        }
    }

    /// In the order of programs.
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

/// A copy of a tensor into the workspace or out of it, in another order or with other numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LayoutCopy {
    pub(crate) permutation: Permutation,
    /// What is read, and what is written.
    pub(crate) types: [DType; 2],
    pub(crate) from: Address,
    pub(crate) to: Address,
}

/// Where cuDNN finds the operands, and what is done before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConvolutionLayout {
    /// In the order of the kernel's.
    pub(crate) operands: [Address; 3],
    pub(crate) before: Vec<LayoutCopy>,
    pub(crate) after: Vec<LayoutCopy>,
    /// The bytes of the workspace that copies take; from there on it is cuDNN's.
    pub(crate) copied_bytes: usize,
}

impl ConvolutionLayout {
    /// For operands of these types, to be compute_type with numbers of one type in a layout.
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
                    permutation: back(extents, layout),
                    types: [compute_type, dtype],
                    from: place,
                    to: from,
                }),
                Address::Input(_) | Address::Scalars | Address::Workspace(_) => {
                    let permutation = there(extents, layout);
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

/// Whether a tensor lies in a layout as it does in programs: where there is one channel or one pixel, the order does not show.
fn has_program_order(extents: [usize; 4], layout: Layout) -> bool {
    let [_, channels, height, width] = extents;
    layout == Layout::ChannelsFirst || channels == 1 || height * width == 1
}

/// From the order of programs to that of a layout.
fn there(extents: [usize; 4], layout: Layout) -> Permutation {
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

/// From the order of a layout to that of programs.
fn back(extents: [usize; 4], layout: Layout) -> Permutation {
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
    fn channels_stand_last_where_tensor_cores_can_read_them() {
        let wants = |channels, filters, compute_type| {
            wants_channels_last(&Convolution { channels, filters, ..WIDE }, compute_type)
        };
        assert!(wants(8, 16, DType::Bf16));
        assert!(wants(64, 8, DType::Bf16));
        assert!(!wants(3, 64, DType::Bf16));
        assert!(!wants(64, 10, DType::Bf16));
        assert!(!wants(64, 64, DType::F32));
        // Of each group, not of all of them.
        let depthwise = Convolution { groups: 64, channels: 1, filters: 1, ..WIDE };
        assert!(!wants_channels_last(&depthwise, DType::Bf16));
    }

    #[test]
    fn what_lies_as_wanted_is_not_copied() {
        let plain = ConvolutionLayout::new(&WIDE, ROUNDED, DType::Bf16, Layout::ChannelsFirst);
        assert_eq!(plain.operands, [Address::Input(0), Address::Input(1), Address::Result(0)]);
        assert_eq!((plain.before, plain.after, plain.copied_bytes), (vec![], vec![], 0));
        // Filters of one pixel have their channels last as they are.
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
        let pointers = [0, 768, 768 + 512].map(Address::Workspace);
        assert_eq!((it.operands, it.copied_bytes), (pointers, 768 + 512 + 2304));
        let images = LayoutCopy {
            permutation: Permutation {
                extents: Shape::new(&[2, 5, 4, 8]),
                input: Strides::new(&[160, 4, 1, 20]),
            },
            types: [DType::Bf16; 2],
            from: Address::Input(0),
            to: pointers[0],
        };
        assert_eq!((it.before.len(), &it.before[0]), (2, &images));
        let filters = LayoutCopy {
            permutation: Permutation {
                extents: Shape::new(&[16, 8, 3, 3]),
                input: Strides::new(&[72, 1, 24, 8]),
            },
            types: [DType::Bf16, DType::F32],
            from: pointers[2],
            to: Address::Result(0),
        };
        assert_eq!(it.after, [filters]);
    }

    #[test]
    fn a_result_of_another_type_is_only_widened() {
        let types = [DType::Bf16, DType::Bf16, DType::F32];
        let it = ConvolutionLayout::new(&WIDE, types, DType::Bf16, Layout::ChannelsFirst);
        assert!(it.before.is_empty());
        assert_eq!(it.after[0].permutation.input, it.after[0].permutation.extents.dense_strides());
        assert_eq!(it.after[0].types, [DType::Bf16, DType::F32]);
    }
}
