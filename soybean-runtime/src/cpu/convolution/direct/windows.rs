//! The windows of a convolution as shifts of planes in phases.

use soybean_plan::{Convolution, ConvolutionForm};

use super::phases::Phases;

/// A convolution of one plane with one filter.
pub(super) struct Windows {
    /// The plane that is read through windows: the image, or the gradient of results.
    pub(super) from: Phases,
    /// The other plane.
    pub(super) to: Phases,
    /// Rows and columns of sums in each phase of the other plane.
    pub(super) extents: [usize; 2],
    /// The rows and columns by which shifts differ.
    pub(super) reach: [usize; 2],
    /// The elements of the filter.
    pub(super) elements: Vec<WindowElement>,
}

/// An element of a filter: the pixels that it sees, and the sums to which it adds them.
pub(super) struct WindowElement {
    /// The phase of the pixels.
    pub(super) seen: [usize; 2],
    /// The phase of the sums.
    pub(super) phase: [usize; 2],
    /// The distance in rows and columns from the sum to the pixel, in their phases.
    pub(super) shift: [usize; 2],
}

impl Windows {
    /// Returns none if there is more padding than windows reach.
    ///
    /// Element `i` of the window of result `y` sees row `y * stride + i * dilation` of the padded
    /// image: index `y + shift` of phase `i * dilation % stride`, where the shift is `i * dilation
    /// / stride`. The gradient of that row has the gradient of result `y` times the element, so
    /// index `r` of a phase sums up those of results `r - shift`.
    pub(super) fn new(convolution: &Convolution) -> Option<Self> {
        let Convolution { form, image, window, result, stride, padding, dilation, .. } =
            *convolution;
        let shift = |dim: usize, element: usize| element * dilation[dim] / stride[dim];
        let phase = |dim: usize, element: usize| element * dilation[dim] % stride[dim];
        let reach = [0, 1].map(|dim| shift(dim, window[dim] - 1));
        let pairs = (0..window[0]).flat_map(|row| (0..window[1]).map(move |it| [row, it]));
        let places = pairs.map(|pair| {
            let of =
                |value: &dyn Fn(usize, usize) -> usize| [0, 1].map(|dim| value(dim, pair[dim]));
            (of(&phase), of(&shift))
        });
        if form != ConvolutionForm::Data {
            let element = |(seen, shift)| WindowElement { seen, phase: [0; 2], shift };
            let n_columns = result[1] + reach[1];
            return Some(Self {
                from: Phases::new(image, stride, padding, n_columns),
                to: Phases::new(result, [1; 2], [0; 2], n_columns),
                extents: result,
                reach,
                elements: places.map(element).collect(),
            });
        }
        // Indices of the padded image begin with the first that is in the image.
        let first = [0, 1].map(|dim| padding[dim] / stride[dim]);
        let last = |dim: usize| (padding[dim] + image[dim] - 1) / stride[dim];
        let extents = [0, 1].map(|dim| last(dim) + 1 - first[dim]);
        let before = |dim: usize| reach[dim].checked_sub(first[dim]);
        let element = |(phase, shift): ([usize; 2], [usize; 2])| WindowElement {
            seen: [0; 2],
            phase,
            shift: [0, 1].map(|dim| reach[dim] - shift[dim]),
        };
        let n_columns = extents[1] + reach[1];
        let rest = [0, 1].map(|dim| padding[dim] % stride[dim]);
        Some(Self {
            from: Phases::new(result, [1; 2], [before(0)?, before(1)?], n_columns),
            to: Phases::new(image, stride, rest, n_columns),
            extents,
            reach,
            elements: places.map(element).collect(),
        })
    }
}
