//! Pooling and its gradients, plane by plane.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

use std::ops::Range;

use soybean_plan::{Pooling, PoolingForm};

#[cfg(target_arch = "x86_64")]
use super::math::Fused;
use super::{
    channels_last::{ChannelsLastKernel, Images},
    isa::{Isa, for_each_isa},
    kernel::{Arguments, CpuKernel, Prepare, Threads},
    math::{self, MultiplyAdd, Separate},
    parallel::parallel_for,
    region::Region,
};
use crate::{Error, ErrorKind};

/// A prepared [`Pooling`].
pub(crate) struct PoolingKernel {
    geometry: Geometry,
    form: PoolingForm,
    n_planes: usize,
    run: Plane,
    parts: Vec<Scratch>,
}

/// The geometry of windows in a plane.
struct Geometry {
    pooling: Pooling,
    /// For each column of the window, the columns of the result for which it is within the image.
    seen: Vec<Range<usize>>,
}

/// For each window of a row, its maximum, and the position of the maximum in the image as for the
/// first window without padding.
struct Scratch {
    largest: Vec<f32>,
    places: Vec<u32>,
    /// Pixels that are not contiguous in the image.
    pixels: Vec<f32>,
}

/// The loop over one plane. Inputs are the planes of the form, in their order, and an empty one if
/// there is only one.
type Plane = unsafe fn(&Geometry, &mut Scratch, [&[f32]; 2], &mut [f32]);

impl Prepare for Pooling {
    fn prepare(&self, threads: &Threads<'_>) -> Box<dyn CpuKernel> {
        let Self { form, planes, channels, image, result, .. } = *self;
        let first = Self { planes: planes * channels, channels: 1, ..*self };
        let kernel = Box::new(PoolingKernel::new(&first, threads.isa, threads.len()));
        if channels == 1 {
            return kernel;
        }
        let images = Images([planes, image[0] * image[1], channels]);
        let results = Images([planes, result[0] * result[1], channels]);
        let (inputs, result) = match form {
            PoolingForm::Max | PoolingForm::Sum => (&[images][..], results),
            PoolingForm::MaxGradient => (&[images, results][..], images),
            PoolingForm::SumGradient => (&[results][..], images),
        };
        Box::new(ChannelsLastKernel::new(kernel, inputs, result, threads.len()))
    }
}

impl CpuKernel for PoolingKernel {
    unsafe fn launch(&mut self, arguments: Arguments<'_>) -> Result<(), Error> {
        let result = arguments.one_result()?;
        // SAFETY: required of the caller.
        unsafe { self.run(arguments.inputs, &result) }
    }
}

impl PoolingKernel {
    pub(crate) fn new(pooling: &Pooling, isa: Isa, n_threads: usize) -> Self {
        let Pooling { form, planes, image, window, result, stride, padding, .. } = *pooling;
        let seen = |column: usize| {
            let n_before = |bound: usize| {
                let places = (0..result[1]).map(|it| it * stride[1] + column);
                places.take_while(|it| *it < bound).count()
            };
            n_before(padding[1])..n_before(padding[1] + image[1])
        };
        let n = result[1];
        let scratch =
            || Scratch { largest: vec![0.0; n], places: vec![0; n], pixels: vec![0.0; n] };
        Self {
            geometry: Geometry { pooling: *pooling, seen: (0..window[1]).map(seen).collect() },
            form,
            n_planes: planes,
            run: match form {
                PoolingForm::Max => combined::<Max>(isa),
                PoolingForm::MaxGradient => max_gradient(isa),
                PoolingForm::Sum => combined::<Sum>(isa),
                PoolingForm::SumGradient => sum_gradient(isa),
            },
            parts: (0..n_threads).map(|_| scratch()).collect(),
        }
    }

    /// Runs the kernel.
    ///
    /// # Safety
    /// Nobody else uses the regions during the call.
    pub(crate) unsafe fn run(&mut self, inputs: &[Region], result: &Region) -> Result<(), Error> {
        self.check(inputs, result)?;
        let (sizes, n_result) = self.sizes();
        let Self { geometry, run, parts, n_planes, .. } = self;
        let Pooling { window, result: [height, width], .. } = geometry.pooling;
        let work = *n_planes * (height * width * window[0] * window[1]).max(n_result);
        parallel_for(parts, *n_planes, work, |scratch, planes| {
            for plane in planes {
                let input = |number: usize| {
                    let n = sizes[number];
                    let Some(input) = inputs.get(number) else { return &[][..] };
                    // SAFETY: the input was checked to have this many elements in each plane, and
                    // nobody writes there.
                    unsafe { std::slice::from_raw_parts(input.at(plane * n), n) }
                };
                let to = result.at(plane * n_result);
                // SAFETY: as above; each plane is written once.
                let to = unsafe { std::slice::from_raw_parts_mut(to, n_result) };
                // SAFETY: the loop is for this processor.
                unsafe { run(geometry, scratch, [input(0), input(1)], to) };
            }
        });
        Ok(())
    }

    /// Returns the elements of one plane of each input (0 for inputs that the form does not have),
    /// and of the result.
    const fn sizes(&self) -> ([usize; 2], usize) {
        let Pooling { image, result, .. } = self.geometry.pooling;
        let (image, result) = (image[0] * image[1], result[0] * result[1]);
        match self.form {
            PoolingForm::Max | PoolingForm::Sum => ([image, 0], result),
            PoolingForm::MaxGradient => ([image, result], image),
            PoolingForm::SumGradient => ([result, 0], image),
        }
    }

    fn check(&self, inputs: &[Region], result: &Region) -> Result<(), Error> {
        let fault = |message: String| Err(Error::new(ErrorKind::Program, message));
        let (sizes, n_result) = self.sizes();
        let expected = 1 + usize::from(self.form == PoolingForm::MaxGradient);
        let found = inputs.len();
        if found != expected {
            return fault(format!("expected {expected} inputs, found {found}"));
        }
        for (number, (input, size)) in inputs.iter().zip(sizes).enumerate() {
            let (expected, found) = (self.n_planes * size, input.n_elements);
            if found < expected {
                return fault(format!(
                    "input {number}: expected {expected} elements, found {found}"
                ));
            }
            if input.overlaps(result) {
                return fault(format!("input {number}: expected memory apart from the result"));
            }
        }
        let (expected, found) = (self.n_planes * n_result, result.n_elements);
        if found < expected {
            return fault(format!("result: expected {expected} elements, found {found}"));
        }
        Ok(())
    }
}

impl Geometry {
    /// Returns, for each element of the window, the windows of a row of results for which it is
    /// within the image. Also returns the position of its pixel for the first of these; the pixels
    /// for the others follow at the stride.
    #[inline(always)]
    fn elements(&self, row: usize) -> impl Iterator<Item = (Range<usize>, usize)> {
        let Pooling { image: [height, width], window, stride, padding, .. } = self.pooling;
        let start = move |above: usize| {
            let from = (row * stride[0] + above).wrapping_sub(padding[0]);
            (from < height).then(|| from * width)
        };
        let of_row = move |start: usize| {
            let columns = self.seen.iter().enumerate().filter(|(_, windows)| !windows.is_empty());
            columns.map(move |(column, windows)| {
                (windows.clone(), start + windows.start * stride[1] + column - padding[1])
            })
        };
        (0..window[0]).filter_map(start).flat_map(of_row)
    }
}

/// The combination of the pixels of a window.
trait Combined {
    /// The value of no pixels.
    const NOTHING: f32;
    fn combined(a: f32, b: f32) -> f32;
}

enum Max {}
impl Combined for Max {
    const NOTHING: f32 = f32::NEG_INFINITY;
    #[inline(always)]
    fn combined(a: f32, b: f32) -> f32 {
        math::maximum(a, b)
    }
}

enum Sum {}
impl Combined for Sum {
    const NOTHING: f32 = 0.0;
    #[inline(always)]
    fn combined(a: f32, b: f32) -> f32 {
        a + b
    }
}

for_each_isa! {
    combined [C: Combined] [C]
    Plane, combined_body (geometry: &Geometry, scratch: &mut Scratch, inputs: [&[f32]; 2], to: &mut [f32])
}

for_each_isa! {
    max_gradient [] []
    Plane, max_gradient_body (geometry: &Geometry, scratch: &mut Scratch, inputs: [&[f32]; 2], to: &mut [f32])
}

for_each_isa! {
    sum_gradient [] []
    Plane, sum_gradient_body (geometry: &Geometry, scratch: &mut Scratch, inputs: [&[f32]; 2], to: &mut [f32])
}

/// # Safety
/// Safe on processors with its instructions.
#[inline(always)]
unsafe fn combined_body<M: MultiplyAdd, C: Combined>(
    geometry: &Geometry,
    scratch: &mut Scratch,
    [image, _]: [&[f32]; 2],
    to: &mut [f32],
) {
    let Pooling { result: [_, width], stride: [_, stride], .. } = geometry.pooling;
    to.fill(C::NOTHING);
    for (row, to) in to.chunks_exact_mut(width.max(1)).enumerate() {
        for (windows, first) in geometry.elements(row) {
            let to = &mut to[windows];
            let pixels = pixels(&image[first..], &mut scratch.pixels[..to.len()], stride);
            for (to, pixel) in to.iter_mut().zip(pixels) {
                *to = C::combined(*to, *pixel);
            }
        }
    }
}

/// Returns the first pixels at this stride, as many as `strided` holds: in place if they are
/// contiguous, else copied.
#[inline(always)]
fn pixels<'a>(image: &'a [f32], strided: &'a mut [f32], stride: usize) -> &'a [f32] {
    let n = strided.len();
    if stride == 1 {
        return &image[..n];
    }
    if stride == 2 && n > 0 {
        // With a known stride the loop vectorizes; the last pixel may have no neighbor.
        strided[n - 1] = image[2 * (n - 1)];
        for (to, [pixel, _]) in strided[..n - 1].iter_mut().zip(image.as_chunks().0) {
            *to = *pixel;
        }
    } else {
        strided.iter_mut().zip(image.iter().step_by(stride)).for_each(|(to, pixel)| *to = *pixel);
    }
    strided
}

/// The position of the maximum in a window without pixels.
const NOWHERE: u32 = u32::MAX;

/// # Safety
/// As [`combined_body`].
#[inline(always)]
unsafe fn max_gradient_body<M: MultiplyAdd>(
    geometry: &Geometry,
    scratch: &mut Scratch,
    [image, gradients]: [&[f32]; 2],
    to: &mut [f32],
) {
    let Pooling { result: [_, width], stride: [_, stride], padding: [_, margin], .. } =
        geometry.pooling;
    to.fill(0.0);
    for (row, gradients) in gradients.chunks_exact(width.max(1)).enumerate() {
        scratch.places.fill(NOWHERE);
        for (windows, first) in geometry.elements(row) {
            // The value is the same for all windows, so that the loop only has to choose.
            let here = u32::try_from(first + margin - windows.start * stride)
                .expect("planes have fewer than 2^32 pixels");
            let strided = &mut scratch.pixels[..windows.len()];
            let pixels = pixels(&image[first..], strided, stride);
            let places = scratch.places[windows.clone()].iter_mut();
            let best = places.zip(&mut scratch.largest[windows]);
            for ((place, largest), pixel) in best.zip(pixels) {
                let is_larger = (*pixel > *largest) | (pixel.is_nan() & !largest.is_nan());
                let is_better = is_larger | (*place == NOWHERE);
                *place = if is_better { here } else { *place };
                *largest = if is_better { *pixel } else { *largest };
            }
        }
        for (window, (place, gradient)) in scratch.places.iter().zip(gradients).enumerate() {
            if *place != NOWHERE {
                to[*place as usize + window * stride - margin] += gradient;
            }
        }
    }
}

/// # Safety
/// As [`combined_body`].
#[inline(always)]
unsafe fn sum_gradient_body<M: MultiplyAdd>(
    geometry: &Geometry,
    _scratch: &mut Scratch,
    [gradients, _]: [&[f32]; 2],
    to: &mut [f32],
) {
    let Pooling { result: [_, width], stride: [_, stride], .. } = geometry.pooling;
    to.fill(0.0);
    for (row, gradients) in gradients.chunks_exact(width.max(1)).enumerate() {
        for (windows, first) in geometry.elements(row) {
            let (gradients, to) = (gradients[windows].iter(), to[first..].iter_mut());
            let add = |(gradient, to): (&f32, &mut f32)| *to += gradient;
            if stride == 1 {
                gradients.zip(to).for_each(add);
            } else {
                gradients.zip(to.step_by(stride)).for_each(add);
            }
        }
    }
}

#[cfg(test)]
mod tests;
