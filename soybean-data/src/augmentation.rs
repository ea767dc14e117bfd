//! Random changes of images, which augment training data.

use soybean_plan::DType;

use crate::{ColumnSpec, Dataset, Error, RowRandom, Transformed};

/// The weights of red, green and blue in the brightness of a pixel. Source: ITU-R BT.601.
const LUMA: [f32; 3] = [0.299, 0.587, 0.114];

/// A change of an image, `[height, width]` or `[channels, height, width]`.
///
/// `x` is the image and `y` the result, at channel `c`, row `i` and column `j`. `u(a, b)` is
/// uniform from `a` to `b`, one number for the whole image. No change clamps its result. Colors
/// are meant for pixels from 0 to 1, so [`Normalize`](Self::Normalize) comes after them.
#[derive(Clone, Debug, PartialEq)]
pub enum Augmentation {
    /// `y[c, i, j] = x[c, i, width - 1 - j]` with this probability.
    HorizontalFlip {
        /// The share of images that are mirrored.
        probability: f32,
    },
    /// `y[c, i, j] = x[c, i + di, j + dj]`, where `di` and `dj` are whole numbers from `-padding`
    /// to `padding`. It is `fill` outside of the image.
    Crop {
        /// The most pixels by which the image moves, fewer than its sides have.
        padding: usize,
        /// The value of pixels beyond the border.
        fill: f32,
    },
    /// `y = f x` with `f = u(1 - most, 1 + most)`.
    Brightness {
        /// The largest change of the factor, from 0 to 1.
        most: f32,
    },
    /// `y = m + f (x - m)` with `f = u(1 - most, 1 + most)`. `m` is the mean of the brightness
    /// `0.299 red + 0.587 green + 0.114 blue`, or of all pixels if there are not three channels.
    Contrast {
        /// The largest change of the factor, from 0 to 1.
        most: f32,
    },
    /// `y[c, i, j] = g + f (x[c, i, j] - g)` with `f = u(1 - most, 1 + most)`. `g` is the
    /// brightness `0.299 red + 0.587 green + 0.114 blue` of the pixel.
    Saturation {
        /// The largest change of the factor, from 0 to 1.
        most: f32,
    },
    /// `y[c, i, j] = (x[c, i, j] - mean[c]) / deviation[c]`, without random numbers.
    Normalize {
        /// The mean of each channel.
        mean: Vec<f32>,
        /// The standard deviation of each channel.
        deviation: Vec<f32>,
    },
}

/// The extents of an image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extents {
    pub(super) n_channels: usize,
    pub(super) height: usize,
    pub(super) width: usize,
}

/// Returns the dataset with its images, which are column 0, changed in this order.
pub(super) fn augment(
    dataset: impl Dataset + 'static,
    stream: u64,
    changes: Vec<Augmentation>,
) -> Result<Transformed, Error> {
    let extents = Extents::of(dataset.columns())?;
    for change in &changes {
        change.check(extents).map_err(Error::data)?;
    }
    Ok(dataset.transform(stream, move |row, random| {
        for change in &changes {
            change.apply(extents, row[0].f32s(), random);
        }
    }))
}

impl Extents {
    /// Returns the extents of the images in column 0.
    pub(super) fn of(columns: &[ColumnSpec]) -> Result<Self, Error> {
        let first = columns.first().filter(|it| it.dtype == DType::F32 && it.row_elements() > 0);
        match first.map(|it| &it.row[..]) {
            Some(&[height, width]) => Ok(Self { n_channels: 1, height, width }),
            Some(&[n_channels, height, width]) => Ok(Self { n_channels, height, width }),
            Some(_) | None => {
                let found = columns.first().map_or_else(
                    || "no column".to_owned(),
                    |it| format!("`{}`, {} {:?}", it.name, it.dtype, it.row),
                );
                Err(Error::data(format!(
                    "expected images as the first column, f32 [height, width] or [channels, height, width], found {found}"
                )))
            }
        }
    }
}

impl Augmentation {
    fn check(&self, extents: Extents) -> Result<(), String> {
        let Extents { n_channels, height, width } = extents;
        let is_share = |it: &f32| (0.0..=1.0).contains(it);
        let (is_good, expected) = match self {
            Self::HorizontalFlip { probability } => {
                (is_share(probability), "a probability from 0 to 1".to_owned())
            }
            Self::Crop { padding, fill } => (
                *padding < height.min(width) && fill.is_finite(),
                format!("fewer pixels than an image of {height} x {width} has, and a finite fill"),
            ),
            Self::Brightness { most } | Self::Contrast { most } => {
                (is_share(most), "a change from 0 to 1".to_owned())
            }
            Self::Saturation { most } => (
                is_share(most) && n_channels == 3,
                format!("a change from 0 to 1 of three channels, not {n_channels}"),
            ),
            Self::Normalize { mean, deviation } => (
                mean.len() == n_channels
                    && deviation.len() == n_channels
                    && mean.iter().all(|it| it.is_finite())
                    && deviation.iter().all(|it| it.is_normal()),
                format!("{n_channels} means and {n_channels} deviations, finite and not 0"),
            ),
        };
        if is_good { Ok(()) } else { Err(format!("expected {expected}, found {self:?}")) }
    }

    fn apply(&self, extents: Extents, pixels: &mut [f32], random: &mut RowRandom) {
        let n_pixels = extents.height * extents.width;
        match self {
            Self::HorizontalFlip { probability } => {
                if random.chance(*probability) {
                    pixels.chunks_mut(extents.width).for_each(<[f32]>::reverse);
                }
            }
            Self::Crop { padding, fill } => {
                let rows = random.below(2 * padding + 1);
                let columns = random.below(2 * padding + 1);
                for plane in pixels.chunks_mut(n_pixels) {
                    shift(plane, extents.width, [rows, columns], *padding, *fill);
                }
            }
            Self::Brightness { most } => {
                let factor = factor(*most, random);
                pixels.iter_mut().for_each(|it| *it *= factor);
            }
            Self::Contrast { most } => {
                let (factor, mean) = (factor(*most, random), mean_brightness(pixels, extents));
                pixels.iter_mut().for_each(|it| *it = mean + factor * (*it - mean));
            }
            Self::Saturation { most } => saturate(pixels, n_pixels, factor(*most, random)),
            Self::Normalize { mean, deviation } => {
                let channels = mean.iter().zip(deviation);
                for (plane, (mean, deviation)) in pixels.chunks_mut(n_pixels).zip(channels) {
                    plane.iter_mut().for_each(|it| *it = (*it - mean) / deviation);
                }
            }
        }
    }
}

/// Returns a factor from `1 - most` to `1 + most`.
fn factor(most: f32, random: &mut RowRandom) -> f32 {
    1.0 + most * (2.0 * random.uniform() - 1.0)
}

/// Moves an image of one channel: `y[i, j] = x[i + rows - padding, j + columns - padding]`.
fn shift(plane: &mut [f32], width: usize, by: [usize; 2], padding: usize, fill: f32) {
    let (before, height) = (plane.to_vec(), plane.len() / width);
    let source = |to: usize, by: usize, side: usize| {
        (to + by).checked_sub(padding).filter(|from| *from < side)
    };
    for (row, to) in plane.chunks_mut(width).enumerate() {
        let from = source(row, by[0], height).map(|row| &before[row * width..(row + 1) * width]);
        for (column, to) in to.iter_mut().enumerate() {
            let place = from.zip(source(column, by[1], width));
            *to = place.map_or(fill, |(from, column)| from[column]);
        }
    }
}

fn mean_brightness(pixels: &[f32], extents: Extents) -> f32 {
    let n_pixels = extents.height * extents.width;
    let mean = |plane: &[f32]| plane.iter().sum::<f32>() / plane.len() as f32;
    match extents.n_channels {
        3 => pixels.chunks(n_pixels).zip(LUMA).map(|(plane, weight)| weight * mean(plane)).sum(),
        _ => mean(pixels),
    }
}

/// Scales the distance of each channel from the brightness of the pixel.
fn saturate(pixels: &mut [f32], n_pixels: usize, factor: f32) {
    let (red, rest) = pixels.split_at_mut(n_pixels);
    let (green, blue) = rest.split_at_mut(n_pixels);
    for ((red, green), blue) in red.iter_mut().zip(green).zip(blue) {
        let brightness = LUMA[0] * *red + LUMA[1] * *green + LUMA[2] * *blue;
        for channel in [red, green, blue] {
            *channel = brightness + factor * (*channel - brightness);
        }
    }
}
