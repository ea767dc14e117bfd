//! Direct convolutions in groups of few channels, as sums of shifted planes. Depthwise convolutions
//! have one channel in each group.
//!
//! The pixels that a filter element sees in a band of rows are a slice of a copy of the band:
//! padded with zeros, and split into phases if windows are several pixels apart. Rows follow each
//! other without gaps, so that vectors are full even in small planes.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

mod loops;
mod phases;
mod windows;

use std::ops::Range;

use soybean_plan::{Convolution, ConvolutionForm};

use self::{
    loops::{BLOCK, Element, products, sums},
    phases::Phases,
    windows::{WindowElement, Windows},
};
#[cfg(target_arch = "x86_64")]
use crate::cpu::math::Fused;
use crate::cpu::{
    isa::{Isa, for_each_isa},
    math::{MultiplyAdd, Separate},
    parallel::{N_PIECES, even_pieces, parallel_for, part_range},
    product::{N_SPARE, Workspace},
    region::Region,
};

/// The sums of a band: with its copy they stay in the L1 cache.
const BAND: usize = 4096;
/// With more filters in a group for each of its channels, or the reverse, products with patches are
/// faster.
const MOST_CHANNELS: usize = 4;
/// The fewest pixels over which a piece sums gradients of filters before it is added to others.
const FEWEST_PIXELS: usize = 1024;

/// A prepared convolution.
pub(super) struct Direct {
    form: ConvolutionForm,
    batch: usize,
    groups: usize,
    /// The planes of one image and group that are read through windows, and those with a pixel for
    /// each sum.
    n_planes: [usize; 2],
    /// The elements of the filters of a group, and the distance of those of two sums.
    n_weights: usize,
    weight_step: usize,
    from: Phases,
    to: Phases,
    /// Rows and columns of sums.
    extents: [usize; 2],
    /// The rows and columns by which the shifts of a filter's elements differ.
    reach: [usize; 2],
    /// The rows of sums of a band.
    n_rows: usize,
    /// For each phase of the sums, the elements of all planes that are read.
    elements: Vec<Vec<Element>>,
    /// The phases that windows see, in the order of the copies.
    seen: Vec<[usize; 2]>,
    n_pieces: usize,
    run: Run,
}

/// Computes a unit of work: a band of one image and group, or a piece of the images of a group for
/// gradients of filters.
type Run = unsafe fn(&Direct, Memory<'_>, usize);

/// The memory of a unit of work.
#[derive(Clone, Copy)]
struct Memory<'a> {
    workspace: &'a Workspace,
    left: Region,
    right: Region,
    result: Region,
}

impl Direct {
    /// Prepares a convolution, if this is faster than products with patches.
    pub(super) fn new(convolution: &Convolution, isa: Isa) -> Option<Self> {
        let Convolution { form, batch, groups, channels, filters, .. } = *convolution;
        let is_small = groups > 1 && channels.max(filters) <= MOST_CHANNELS;
        if !is_small || batch * channels * filters == 0 {
            return None;
        }
        let n_elements = convolution.window[0] * convolution.window[1];
        let shape = Windows::new(convolution)?;
        let is_data = form == ConvolutionForm::Data;
        let (n_planes, weight_step) = match form {
            ConvolutionForm::Data => ([filters, channels], n_elements),
            _ => ([channels, filters], channels * n_elements),
        };
        let Windows { from, to, extents, reach, elements } = shape;
        let pitch = extents[1] + reach[1];
        let n_bands = extents[0].div_ceil((BAND / pitch).max(1));
        let n_rows = extents[0].div_ceil(n_bands);
        let mut seen: Vec<[usize; 2]> = elements.iter().map(|it| it.seen).collect();
        seen.sort_unstable();
        seen.dedup();
        let n_pixels = batch * convolution.result[0] * convolution.result[1];
        let n_pieces = match form {
            ConvolutionForm::Filter => {
                let most = (N_PIECES / groups).min(batch).min(n_pixels / FEWEST_PIXELS);
                even_pieces(most.max(1))
            }
            ConvolutionForm::Forward | ConvolutionForm::Data => 1,
        };
        let mut direct = Self {
            form,
            batch,
            groups,
            n_planes,
            n_weights: filters * channels * n_elements,
            weight_step,
            from,
            to,
            extents,
            reach,
            n_rows,
            elements: vec![],
            seen,
            n_pieces,
            run: if form == ConvolutionForm::Filter { filter(isa) } else { plane(isa) },
        };
        let step = if is_data { channels * n_elements } else { n_elements };
        direct.elements = direct.elements(&elements, step);
        direct.fits().then_some(direct)
    }

    /// Returns the elements of all planes, for each phase of the sums.
    fn elements(&self, elements: &[WindowElement], weight_step: usize) -> Vec<Vec<Element>> {
        let pitch = self.pitch();
        let of_phase = |phase: [usize; 2]| {
            let of_plane = |plane: usize| {
                let own = elements.iter().enumerate().filter(move |it| it.1.phase == phase);
                own.map(move |(number, it)| {
                    let copy = self.seen.partition_point(|seen| *seen < it.seen);
                    let before = (plane * self.seen.len() + copy) * self.n_copy();
                    Element {
                        shift: before + it.shift[0] * pitch + it.shift[1],
                        weight: plane * weight_step + number,
                    }
                })
            };
            (0..self.n_planes[0]).flat_map(of_plane).collect()
        };
        let [n_rows, n_columns] = self.to.step;
        let phases = (0..n_rows).flat_map(|row| (0..n_columns).map(move |it| [row, it]));
        phases.map(of_phase).collect()
    }

    const fn pitch(&self) -> usize {
        self.extents[1] + self.reach[1]
    }

    /// Returns the elements of the copy of one phase of a band.
    const fn n_copy(&self) -> usize {
        (self.n_rows + self.reach[0]) * self.pitch()
    }

    /// Returns the elements of the copies of a band without the zeros at the end, and with them.
    const fn n_copies(&self) -> [usize; 2] {
        let n = self.n_planes[0] * self.seen.len() * self.n_copy();
        [n, n + self.reach[1] + BLOCK]
    }

    /// Returns the elements of the sums of a band, for one phase of its columns.
    const fn n_sums(&self) -> usize {
        (self.n_rows * self.pitch()).next_multiple_of(BLOCK)
    }

    /// Returns the number of partial sums of gradients of filters.
    const fn n_partial(&self) -> usize {
        self.n_weights * BLOCK
    }

    /// Returns true if the spare memory of a thread is enough.
    fn fits(&self) -> bool {
        let second = match self.form {
            ConvolutionForm::Filter => self.n_sums() + self.n_partial(),
            ConvolutionForm::Forward | ConvolutionForm::Data => self.to.step[1] * self.n_sums(),
        };
        self.n_copies()[1] <= N_SPARE && second <= N_SPARE
    }

    /// Returns the number of elements of the scratch memory: gradients of filters of all pieces.
    pub(super) const fn n_scratch(&self) -> usize {
        if self.n_pieces > 1 { self.n_pieces * self.groups * self.n_weights } else { 0 }
    }

    /// Runs the convolution. The regions are left, right and result.
    ///
    /// # Safety
    /// The regions have the elements of the convolution, and nothing else uses them during the
    /// call.
    ///
    /// # Panics
    /// If the scratch memory is too small.
    pub(super) unsafe fn run(
        &self,
        workspaces: &mut [Workspace],
        scratch: &mut [f32],
        [left, right, result]: [Region; 3],
    ) {
        let n_bands = self.extents[0].div_ceil(self.n_rows);
        let n_units = match self.form {
            ConvolutionForm::Filter => self.groups * self.n_pieces,
            ConvolutionForm::Forward | ConvolutionForm::Data => self.batch * self.groups * n_bands,
        };
        let scratch = &mut scratch[..self.n_scratch()];
        let partial = Region { pointer: scratch.as_mut_ptr(), ..result };
        let to = if self.n_pieces > 1 { partial } else { result };
        let n_sums = self.batch * self.groups * self.extents[0] * self.extents[1];
        let work = n_sums * self.n_weights / super::PRODUCTS_PER_OPERATION;
        parallel_for(workspaces, n_units, work, |workspace, units| {
            for unit in units {
                let memory = Memory { workspace, left, right, result: to };
                // SAFETY: required of the caller; units write different elements.
                unsafe { (self.run)(self, memory, unit) };
            }
        });
        if self.n_pieces > 1 {
            let n = self.groups * self.n_weights;
            // SAFETY: required of the caller.
            let result = unsafe { std::slice::from_raw_parts_mut(result.at(0), n) };
            result.copy_from_slice(&scratch[..n]);
            for piece in scratch[n..].chunks_exact(n) {
                result.iter_mut().zip(piece).for_each(|(to, piece)| *to += piece);
            }
        }
    }

    /// Copies the pixels that windows of a band of an image and group see.
    #[inline(always)]
    fn copy(&self, planes: &[f32], rows: &Range<usize>, copies: &mut [f32]) {
        let n_pixels = self.from.extents[0] * self.from.extents[1];
        let (pitch, [n, with_zeros]) = (self.pitch(), self.n_copies());
        let rows = rows.start..rows.end + self.reach[0];
        let mut copies_left = copies[..with_zeros].chunks_exact_mut(self.n_copy());
        for plane in planes.chunks_exact(n_pixels) {
            for (phase, to) in self.seen.iter().zip(&mut copies_left) {
                self.from.spread(plane, *phase, rows.clone(), (to, pitch));
            }
        }
        copies[n..with_zeros].fill(0.0);
    }

    const fn rows(&self, band: usize) -> Range<usize> {
        let (first, end) = (band * self.n_rows, (band + 1) * self.n_rows);
        first..if end < self.extents[0] { end } else { self.extents[0] }
    }
}

/// Returns elements of a region.
///
/// # Safety
/// The region has them, and nobody writes to them while the result is used.
unsafe fn part<'a>(region: Region, number: usize, n: usize) -> &'a [f32] {
    // SAFETY: required of the caller.
    unsafe { std::slice::from_raw_parts(region.at(number * n), n) }
}

/// Returns the two blocks of spare memory of a thread.
///
/// # Safety
/// Nothing else uses them while the result is used.
unsafe fn spare<'a>(workspace: &Workspace) -> [&'a mut [f32]; 2] {
    // SAFETY: the spare memory has this many elements; required of the caller.
    [workspace.spare(), workspace.second_spare()]
        .map(|it| unsafe { std::slice::from_raw_parts_mut(it, N_SPARE) })
}

for_each_isa! {
    plane [] [] Run, plane_body (direct: &Direct, memory: Memory<'_>, unit: usize)
}

for_each_isa! {
    filter [] [] Run, filter_body (direct: &Direct, memory: Memory<'_>, unit: usize)
}

/// Computes the sums of a band of one image and group.
///
/// # Safety
/// The regions have the elements of the convolution. Nothing else uses the workspace or writes to
/// the band.
#[inline(always)]
unsafe fn plane_body<M: MultiplyAdd>(direct: &Direct, memory: Memory<'_>, unit: usize) {
    let n_bands = direct.extents[0].div_ceil(direct.n_rows);
    let (product, rows) = (unit / n_bands, direct.rows(unit % n_bands));
    let [n_from, n_to] = direct.n_planes;
    let n_pixels = |it: &Phases| it.extents[0] * it.extents[1];
    // SAFETY: required of the caller, here and below.
    let planes = unsafe { part(memory.left, product, n_from * n_pixels(&direct.from)) };
    // SAFETY: see above.
    let weights = unsafe { part(memory.right, product % direct.groups, direct.n_weights) };
    // SAFETY: see above.
    let [copies, all_sums] = unsafe { spare(memory.workspace) };
    direct.copy(planes, &rows, copies);
    let [n_row_phases, n_column_phases] = direct.to.step;
    let (size, pitch) = (direct.n_sums(), direct.pitch());
    let n = (rows.len() * pitch).next_multiple_of(BLOCK);
    for plane in 0..n_to {
        let weights = &weights[plane * direct.weight_step..];
        for row_phase in 0..n_row_phases {
            for column_phase in 0..n_column_phases {
                let elements = &direct.elements[row_phase * n_column_phases + column_phase];
                sums::<M>(copies, elements, weights, &mut all_sums[column_phase * size..][..n]);
            }
            let to = memory.result.at((product * n_to + plane) * n_pixels(&direct.to));
            let from = (&*all_sums, size, pitch);
            // SAFETY: required of the caller.
            unsafe { direct.to.join(from, row_phase, rows.clone(), to) };
        }
    }
}

/// Computes the gradient of the filters of a group for a piece of the images.
///
/// # Safety
/// The regions have the elements of the convolution. Nothing else uses the workspace or writes to
/// the gradient of this piece and group.
#[inline(always)]
unsafe fn filter_body<M: MultiplyAdd>(direct: &Direct, memory: Memory<'_>, unit: usize) {
    let (group, piece) = (unit / direct.n_pieces, unit % direct.n_pieces);
    let [n_from, n_to] = direct.n_planes;
    let n_pixels = |it: &Phases| it.extents[0] * it.extents[1];
    // SAFETY: required of the caller, here and below.
    let [copies, second] = unsafe { spare(memory.workspace) };
    let (gradient, partial) = second.split_at_mut(direct.n_sums());
    let partial = &mut partial[..direct.n_partial()];
    partial.fill(0.0);
    let (partial, pitch, elements) =
        (partial.as_chunks_mut().0, direct.pitch(), &direct.elements[0]);
    let n_bands = direct.extents[0].div_ceil(direct.n_rows);
    for image in part_range(direct.batch, piece, direct.n_pieces) {
        let product = image * direct.groups + group;
        // SAFETY: see above.
        let planes = unsafe { part(memory.left, product, n_from * n_pixels(&direct.from)) };
        // SAFETY: see above.
        let gradients = unsafe { part(memory.right, product, n_to * n_pixels(&direct.to)) };
        for rows in (0..n_bands).map(|it| direct.rows(it)) {
            direct.copy(planes, &rows, copies);
            let n = rows.len() * pitch;
            let gradient = &mut gradient[..n.next_multiple_of(BLOCK)];
            gradient[n..].fill(0.0);
            let by_plane = partial.chunks_exact_mut(elements.len());
            for (plane, to) in gradients.chunks_exact(n_pixels(&direct.to)).zip(by_plane) {
                direct.to.spread(plane, [0, 0], rows.clone(), (&mut gradient[..n], pitch));
                products::<M>(copies, elements, gradient, to);
            }
        }
    }
    let to = memory.result.at((piece * direct.groups + group) * direct.n_weights);
    // SAFETY: see above.
    let to = unsafe { std::slice::from_raw_parts_mut(to, direct.n_weights) };
    for (plane, partial) in partial.chunks_exact(elements.len()).enumerate() {
        for (element, lanes) in elements.iter().zip(partial) {
            to[plane * direct.weight_step + element.weight] = lanes.iter().sum();
        }
    }
}
