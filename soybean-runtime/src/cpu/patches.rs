//! Patches of an image under a filter (im2col), as a matrix that is built block by block: a row for
//! each pixel of the result, a column for each element of the filter.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

use soybean_plan::Convolution;

#[cfg(target_arch = "x86_64")]
use super::math::Fused;
use super::{
    isa::{Isa, for_each_isa},
    math::{MultiplyAdd, Separate},
    pack::{Panels, READS_DENSE_COLUMNS, copy_short},
    product::{Matrix, Operand},
};

/// Geometry of the patches in an image.
pub(crate) struct Geometry {
    image: [usize; 2],
    result: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    /// Elements of one channel of a filter.
    elements: Vec<Element>,
    copy: Copy,
}

/// Copies a block of patches. Those of one element are contiguous, and elements are a fixed step
/// apart.
type Copy = unsafe fn(Patches<'_>, (usize, usize), *mut f32, usize);

/// Adjacent pixels in one row of the result.
#[derive(Clone, Copy)]
struct Stretch {
    /// Position of the first pixel in the block.
    at: usize,
    row: usize,
    column: usize,
    n: usize,
}

/// An element of one channel of a filter.
#[derive(Clone, Copy)]
struct Element {
    /// Distance from the first element in rows and columns of the image.
    row: usize,
    column: usize,
    /// Columns of the result for which the element is within the image.
    low: usize,
    high: usize,
}

/// The pixels of a stretch for which a filter element is within the image.
struct Seen {
    low: usize,
    high: usize,
    /// Offset of the first of these image pixels in its channel, if there are any.
    first: usize,
}

impl Geometry {
    pub(crate) fn new(convolution: &Convolution, isa: Isa) -> Self {
        let Convolution { mut image, window, mut result, stride, padding, dilation, .. } =
            *convolution;
        if window == [1, 1] && stride == [1, 1] && padding == [0, 0] && image == result {
            // Rows are contiguous, so they form one long row.
            image = [1, image[0] * image[1]];
            result = image;
        }
        let element = |row: usize, column: usize| {
            let (row, column) = (row * dilation[0], column * dilation[1]);
            let n_before = |bound: usize| {
                (0..result[1]).take_while(|it| it * stride[1] + column < bound).count()
            };
            Element {
                row,
                column,
                low: n_before(padding[1]),
                high: n_before(padding[1] + image[1]),
            }
        };
        let elements = (0..window[0]).flat_map(|row| (0..window[1]).map(move |it| (row, it)));
        let elements = elements.map(|(row, column)| element(row, column)).collect();
        Self { image, result, stride, padding, elements, copy: copy(isa) }
    }

    /// Returns the number of pixels of one channel of the result.
    pub(crate) const fn n_pixels(&self) -> usize {
        self.result[0] * self.result[1]
    }

    /// Returns the number of pixels of one channel of the image.
    pub(crate) const fn n_image_pixels(&self) -> usize {
        self.image[0] * self.image[1]
    }

    /// Returns the number of elements of one channel of a filter.
    pub(crate) const fn n_elements(&self) -> usize {
        self.elements.len()
    }

    #[inline(always)]
    fn stretches(&self, pixel: usize, n: usize) -> impl Iterator<Item = Stretch> {
        let width = self.result[1];
        let (row, column) = (pixel / width, pixel % width);
        let first = Stretch { at: 0, row, column, n: (width - column).min(n) };
        let next = move |it: &Stretch| {
            let at = it.at + it.n;
            let stretch = Stretch { at, row: it.row + 1, column: 0, n: width.min(n - at) };
            Some(stretch).filter(|it| it.n > 0)
        };
        std::iter::successors(Some(first).filter(|it| it.n > 0), next)
    }

    /// Returns the elements from `first` to `end` as channel and index within it, channel by
    /// channel.
    #[inline(always)]
    fn channels(&self, first: usize, end: usize) -> impl Iterator<Item = (usize, &[Element])> {
        let n = self.n_elements();
        let of_channel = move |channel: usize| {
            let from = first.saturating_sub(channel * n);
            (channel, &self.elements[from..(end - channel * n).min(n)])
        };
        (first / n..end.div_ceil(n)).map(of_channel)
    }

    #[inline(always)]
    fn seen(&self, stretch: Stretch, element: Element) -> Seen {
        let [padding, margin] = self.padding;
        let row = (stretch.row * self.stride[0] + element.row).wrapping_sub(padding);
        if row >= self.image[0] {
            return Seen { low: 0, high: 0, first: 0 };
        }
        let low = element.low.saturating_sub(stretch.column).min(stretch.n);
        let high = element.high.saturating_sub(stretch.column).clamp(low, stretch.n);
        let place = (stretch.column + low) * self.stride[1] + element.column;
        // An empty stretch may start left of the image; nothing is read there.
        Seen { low, high, first: (row * self.image[1] + place).wrapping_sub(margin) }
    }

    /// Adds a block of patches to the image. `pixels` and `elements` are the first index and the
    /// count.
    ///
    /// # Safety
    /// The image has the channels of these elements, and nothing else uses them. The block has
    /// these sizes, with contiguous rows.
    pub(crate) unsafe fn add_patches(
        &self,
        block: Matrix,
        image: *mut f32,
        pixels: (usize, usize),
        elements: (usize, usize),
    ) {
        let mut columns = 0..elements.1;
        for (channel, elements) in self.channels(elements.0, elements.0 + elements.1) {
            let image = image.wrapping_add(channel * self.n_image_pixels());
            for (element, column) in elements.iter().zip(&mut columns) {
                for stretch in self.stretches(pixels.0, pixels.1) {
                    let Seen { low, high, first } = self.seen(stretch, *element);
                    let from = block.from(stretch.at + low, column).start;
                    let to = image.wrapping_add(first);
                    // SAFETY: the element covers that many pixels at the stride, and the block has
                    // them.
                    unsafe { add_short(from, to, high - low, self.stride[1]) };
                }
            }
        }
    }
}

for_each_isa! {
    copy [] [] Copy, copy_body (patches: Patches<'_>, sizes: (usize, usize), to: *mut f32, step: usize)
}

/// Copies a block of this many pixels and elements.
///
/// # Safety
/// The image has the channels of the elements. `to` holds the pixels at each step.
#[inline(always)]
unsafe fn copy_body<M: MultiplyAdd>(
    Patches { geometry, image, pixel, element }: Patches<'_>,
    (n_pixels, n_elements): (usize, usize),
    to: *mut f32,
    step: usize,
) {
    let stride = geometry.stride[1];
    let mut to = to;
    for (channel, elements) in geometry.channels(element, element + n_elements) {
        let image = image.wrapping_add(channel * geometry.n_image_pixels());
        for stretch in geometry.stretches(pixel, n_pixels) {
            let mut to = to.wrapping_add(stretch.at);
            for element in elements {
                let Seen { low, high, first } = geometry.seen(stretch, *element);
                let from = image.wrapping_add(first);
                // SAFETY: required of the caller; the element covers that many pixels at the
                // stride.
                unsafe { copy_seen(from, to, (low, high, stretch.n), stride) };
                to = to.wrapping_add(step);
            }
        }
        to = to.wrapping_add(elements.len() * step);
    }
}

/// Copies `low..high` of `n` elements at a stride, and sets the others to 0.
///
/// # Safety
/// The source has these elements. `to` holds `n` elements, and nothing else uses it.
#[inline(always)]
unsafe fn copy_seen(
    from: *const f32,
    to: *mut f32,
    (low, high, n): (usize, usize, usize),
    stride: usize,
) {
    // Usually one element on either side: for more, the compiler would call a function.
    if low > 0 {
        // SAFETY: required of the caller, here and below.
        unsafe { to.write(0.0) };
    }
    if high < n {
        // SAFETY: see above.
        unsafe { to.wrapping_add(n - 1).write(0.0) };
    }
    if low > 1 {
        // SAFETY: see above.
        unsafe { to.write_bytes(0, low) };
    }
    if high + 1 < n {
        // SAFETY: see above.
        unsafe { to.wrapping_add(high).write_bytes(0, n - high) };
    }
    let to = to.wrapping_add(low);
    if stride == 1 {
        // SAFETY: required of the caller.
        return unsafe { copy_short(from, to, high - low) };
    }
    for at in 0..high - low {
        // SAFETY: required of the caller.
        let value = unsafe { from.wrapping_add(at * stride).read() };
        // SAFETY: as above.
        unsafe { to.wrapping_add(at).write(value) };
    }
}

/// The patches of an image as a matrix of pixels by elements.
#[derive(Clone, Copy)]
pub(crate) struct Patches<'a> {
    pub(crate) geometry: &'a Geometry,
    /// The first channel.
    pub(crate) image: *const f32,
    /// Pixel of the first row.
    pub(crate) pixel: usize,
    /// Element of the first column.
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
        scratch: *mut f32,
        height: usize,
    ) -> Panels {
        for row in (0..n_rows).step_by(height) {
            let (from, n_rows) = (self.from(row, 0), height.min(n_rows - row));
            let panel = scratch.wrapping_add(row * n_levels);
            // SAFETY: required of the caller.
            unsafe { (self.geometry.copy)(from, (n_rows, n_levels), panel, height) };
        }
        let matrix = Matrix { start: scratch, row: 1, column: height };
        Panels { matrix, step: height * n_levels }
    }

    unsafe fn as_right(
        self,
        (n_levels, n_columns): (usize, usize),
        scratch: *mut f32,
        width: usize,
    ) -> Panels {
        if READS_DENSE_COLUMNS {
            // SAFETY: required of the caller.
            unsafe { (self.geometry.copy)(self, (n_levels, n_columns), scratch, n_levels) };
            let matrix = Matrix { start: scratch, row: 1, column: n_levels };
            return Panels { matrix, step: width * n_levels };
        }
        let matrix = Matrix { start: scratch, row: width, column: 1 };
        for column in 0..n_columns {
            let panel = scratch.wrapping_add(column / width * width * n_levels);
            for level in 0..n_levels {
                let to = Matrix { start: panel, ..matrix }.from(level, column % width).start;
                // SAFETY: required of the caller.
                unsafe { (self.geometry.copy)(self.from(level, column), (1, 1), to, 1) };
            }
        }
        Panels { matrix, step: width * n_levels }
    }
}

/// Adds elements to others at a stride. A general function would take longer to call.
///
/// # Safety
/// Both sides have these elements and do not overlap. Nothing else uses the destination.
#[inline(always)]
unsafe fn add_short(from: *const f32, to: *mut f32, n: usize, stride: usize) {
    // SAFETY: required of the caller.
    let from = unsafe { std::slice::from_raw_parts(from, n) };
    if stride > 1 {
        for (at, from) in from.iter().enumerate() {
            // SAFETY: required of the caller.
            unsafe { *to.wrapping_add(at * stride) += from };
        }
        return;
    }
    // SAFETY: required of the caller.
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
