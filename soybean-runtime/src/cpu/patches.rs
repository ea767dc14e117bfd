//! The patches of an image that a filter sees, as a matrix that exists only block by block: a row for each pixel of the result, a column for
//! each element of the filter.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

use soybean_plan::Convolution;

use super::product::{Matrix, Operand, Panels, READS_DENSE_COLUMNS, copy_short};

/// How patches lie in an image.
pub(crate) struct Geometry {
    image: [usize; 2],
    window: [usize; 2],
    result: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    /// For each column of the window, from which to which column of the result it sees pixels of the image.
    seen: Vec<(usize, usize)>,
}

/// Neighbouring pixels in one row of the result.
#[derive(Clone, Copy)]
struct Stretch {
    /// The position of the first in the block.
    at: usize,
    row: usize,
    column: usize,
    n: usize,
}

/// An element of a filter.
#[derive(Clone, Copy)]
struct Element {
    channel: usize,
    row: usize,
    column: usize,
}

/// The pixels of a stretch for which an element of the filter sees pixels of the image.
struct Seen {
    low: usize,
    high: usize,
    /// Where the first of those pixels lies in the image, if there are any.
    first: usize,
}

impl Geometry {
    pub(crate) fn new(convolution: &Convolution) -> Self {
        let Convolution { mut image, window, mut result, stride, padding, dilation, .. } =
            *convolution;
        if window == [1, 1] && stride == [1, 1] && padding == [0, 0] && image == result {
            // Rows follow one another without a gap, so that they are one long row.
            image = [1, image[0] * image[1]];
            result = image;
        }
        let seen = |column: usize| {
            let n_before = |bound: usize| {
                let places = (0..result[1]).map(|it| it * stride[1] + column * dilation[1]);
                places.take_while(|it| *it < bound).count()
            };
            (n_before(padding[1]), n_before(padding[1] + image[1]))
        };
        let seen = (0..window[1]).map(seen).collect();
        Self { image, window, result, stride, padding, dilation, seen }
    }

    /// The pixels of one channel of the result.
    pub(crate) const fn n_pixels(&self) -> usize {
        self.result[0] * self.result[1]
    }

    /// The pixels of one channel of the image.
    pub(crate) const fn n_image_pixels(&self) -> usize {
        self.image[0] * self.image[1]
    }

    /// The elements of one channel of a filter.
    pub(crate) const fn n_elements(&self) -> usize {
        self.window[0] * self.window[1]
    }

    fn stretches(&self, pixel: usize, n: usize) -> impl Iterator<Item = Stretch> {
        let width = self.result[1];
        let stretch = move |at: usize| {
            let (row, column) = ((pixel + at) / width, (pixel + at) % width);
            Stretch { at, row, column, n: (width - column).min(n - at) }
        };
        let next = move |it: &Stretch| Some(it.at + it.n).filter(|at| *at < n).map(stretch);
        std::iter::successors((n > 0).then(|| stretch(0)), next)
    }

    const fn element(&self, number: usize) -> Element {
        let [height, width] = self.window;
        Element {
            channel: number / (height * width),
            row: number / width % height,
            column: number % width,
        }
    }

    /// The element after this one.
    #[inline(always)]
    const fn after(&self, mut element: Element) -> Element {
        element.column += 1;
        if element.column == self.window[1] {
            element.column = 0;
            element.row += 1;
            if element.row == self.window[0] {
                element.row = 0;
                element.channel += 1;
            }
        }
        element
    }

    #[inline(always)]
    fn seen(&self, stretch: Stretch, element: Element) -> Seen {
        let [padding, margin] = self.padding;
        let row = stretch.row * self.stride[0] + element.row * self.dilation[0];
        if row < padding || row >= padding + self.image[0] {
            return Seen { low: 0, high: 0, first: 0 };
        }
        let (low, high) = self.seen[element.column];
        let low = low.saturating_sub(stretch.column).min(stretch.n);
        let high = high.saturating_sub(stretch.column).clamp(low, stretch.n);
        let place = (stretch.column + low) * self.stride[1] + element.column * self.dilation[1];
        let row = element.channel * self.image[0] + row - padding;
        // An empty stretch may be to the left of the image; nothing is read there.
        Seen { low, high, first: (row * self.image[1] + place).wrapping_sub(margin) }
    }

    /// Copies what an element of the filter sees, `step` apart; outside the image it sees 0.
    ///
    /// # Safety
    /// The image has the element's channel; `to` has room for the stretch.
    #[inline(always)]
    unsafe fn copy(
        &self,
        image: *const f32,
        stretch: Stretch,
        element: Element,
        to: *mut f32,
        step: usize,
    ) {
        let Seen { low, high, first } = self.seen(stretch, element);
        let from = image.wrapping_add(first);
        for at in (0..low).chain(high..stretch.n) {
            // SAFETY: within the stretch.
            unsafe { to.wrapping_add(at * step).write(0.0) };
        }
        if step == 1 && self.stride[1] == 1 {
            // SAFETY: the element sees so many pixels next to one another.
            return unsafe { copy_short(from, to.wrapping_add(low), high - low) };
        }
        for at in low..high {
            let from = from.wrapping_add((at - low) * self.stride[1]);
            // SAFETY: the element sees this pixel.
            let value = unsafe { from.read() };
            // SAFETY: within the stretch.
            unsafe { to.wrapping_add(at * step).write(value) };
        }
    }

    /// Adds a block of patches to the pixels of the image that they see; `pixels` and `elements` are the first and their number.
    ///
    /// # Safety
    /// The image has the channels of these elements, and nobody else uses them; the block has these sizes, its rows next to one another.
    pub(crate) unsafe fn add_patches(
        &self,
        block: Matrix,
        image: *mut f32,
        pixels: (usize, usize),
        elements: (usize, usize),
    ) {
        let mut element = self.element(elements.0);
        for column in 0..elements.1 {
            for stretch in self.stretches(pixels.0, pixels.1) {
                let Seen { low, high, first } = self.seen(stretch, element);
                let from = block.from(stretch.at + low, column).start;
                let to = image.wrapping_add(first);
                if self.stride[1] == 1 {
                    // SAFETY: the element sees so many pixels next to one another.
                    unsafe { add_short(from, to, high - low) };
                    continue;
                }
                for at in 0..high - low {
                    // SAFETY: the block has this element.
                    let value = unsafe { from.wrapping_add(at).read() };
                    let to = to.wrapping_add(at * self.stride[1]);
                    // SAFETY: the element sees this pixel.
                    unsafe { *to += value };
                }
            }
            element = self.after(element);
        }
    }
}

/// The patches of an image as a matrix of pixels by elements.
#[derive(Clone, Copy)]
pub(crate) struct Patches<'a> {
    pub(crate) geometry: &'a Geometry,
    /// The first channel.
    pub(crate) image: *const f32,
    /// The pixel of the first row.
    pub(crate) pixel: usize,
    /// The element of the first column.
    pub(crate) element: usize,
}

impl Operand for Patches<'_> {
    fn from(self, row: usize, column: usize) -> Self {
        Self { pixel: self.pixel + row, element: self.element + column, ..self }
    }

    unsafe fn as_left(
        self,
        (n_rows, n_levels): (usize, usize),
        _n_columns: usize,
        room: *mut f32,
        height: usize,
    ) -> Panels {
        let geometry = self.geometry;
        for (panel, row) in (0..n_rows).step_by(height).enumerate() {
            let panel = room.wrapping_add(panel * height * n_levels);
            for stretch in geometry.stretches(self.pixel + row, height.min(n_rows - row)) {
                let mut element = geometry.element(self.element);
                for level in 0..n_levels {
                    let to = panel.wrapping_add(level * height + stretch.at);
                    // SAFETY: required of the caller.
                    unsafe { geometry.copy(self.image, stretch, element, to, 1) };
                    element = geometry.after(element);
                }
            }
        }
        let matrix = Matrix { start: room, row: 1, column: height };
        Panels { matrix, step: height * n_levels }
    }

    unsafe fn as_right(
        self,
        (n_levels, n_columns): (usize, usize),
        room: *mut f32,
        width: usize,
    ) -> Panels {
        let geometry = self.geometry;
        let (matrix, step) = if READS_DENSE_COLUMNS {
            (Matrix { start: room, row: 1, column: n_levels }, width * n_levels)
        } else {
            (Matrix { start: room, row: width, column: 1 }, width * n_levels)
        };
        let mut element = geometry.element(self.element);
        for column in 0..n_columns {
            let panel = room.wrapping_add(column / width * step);
            let panel = Matrix { start: panel, ..matrix };
            for stretch in geometry.stretches(self.pixel, n_levels) {
                let to = panel.from(stretch.at, column % width).start;
                // SAFETY: required of the caller.
                unsafe { geometry.copy(self.image, stretch, element, to, matrix.row) };
            }
            element = geometry.after(element);
        }
        Panels { matrix, step }
    }
}

/// Adds some elements to others: a call of a loop for more elements would take longer.
///
/// # Safety
/// Both have `n` elements, do not overlap, and nobody else uses those that are added to.
#[inline(always)]
unsafe fn add_short(from: *const f32, to: *mut f32, n: usize) {
    // SAFETY: required of the caller.
    let from = unsafe { std::slice::from_raw_parts(from, n) };
    // SAFETY: as above.
    let to = unsafe { std::slice::from_raw_parts_mut(to, n) };
    let (vectors, rest) = to.as_chunks_mut::<8>();
    let (from_vectors, from_rest) = from.as_chunks::<8>();
    for (to, from) in vectors.iter_mut().zip(from_vectors) {
        for (to, from) in to.iter_mut().zip(from) {
            *to += from;
        }
    }
    for (to, from) in rest.iter_mut().zip(from_rest) {
        *to += from;
    }
}
