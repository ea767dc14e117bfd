//! Folders of images: one folder for each class, one PNG or JPEG file for each image.

use std::{
    fs,
    io::{self, Cursor},
    path::{Path, PathBuf},
};

use image::{
    DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits, imageops::FilterType,
};
use soybean_plan::DType;

use crate::{
    Classes, ColumnSpec, Dataset, Error, Numbering, ViewMut,
    file::{guarded, named, read_whole},
};

/// The limit for the width and the height of an image.
const MAX_SIDE: u32 = 1 << 15;

/// The limit for the bytes between the two steps of resizing.
const MAX_BYTES_BETWEEN: u64 = 1 << 30;

/// The limit for the bytes that a decoder may allocate for each byte of the file. Deflate expands a
/// byte to at most 1032, and a byte may contain 8 pixels.
const MAX_BYTES_PER_BYTE: u64 = 8 * 1032;

/// Images in folders, `folder/class/image.png` or `.jpg`.
///
/// Column 0, `images`, has the pixels of each image. Column 1, `label`, has the number of its
/// class. Images are decoded when they are read.
#[derive(Debug)]
pub struct ImageFolder {
    images: Vec<(PathBuf, i32)>,
    classes: Classes,
    spec: ImageSpec,
    columns: [ColumnSpec; 2],
}

/// The conversion of images: size, channels and normalization.
///
/// Each pixel becomes `(pixel / 255 - mean) / deviation` of its channel; channels come first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ImageSpec {
    /// The number of rows of pixels.
    pub height: u32,
    /// The number of columns of pixels.
    pub width: u32,
    /// The channels: `[1, height, width]` or `[3, height, width]`.
    pub color: Color,
    /// The treatment of images of another size.
    pub fit: Fit,
    /// The means of red, green and blue, which are subtracted. Gray images use the first.
    pub mean: [f32; 3],
    /// The standard deviations of red, green and blue, by which the differences are divided.
    pub deviation: [f32; 3],
    /// The most bytes of an image when it is decoded; larger ones are errors. The size is in the
    /// first bytes of a file, so it is known before the image is decoded.
    pub max_bytes: u64,
}

/// The channels of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Color {
    /// Brightness.
    Gray,
    /// Red, green and blue.
    Rgb,
}

/// The way in which images of another size are resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The whole image is stretched.
    Stretch,
    /// The largest central part with the right aspect ratio is taken.
    Crop,
}

impl ImageSpec {
    /// Describes RGB images of this size, cropped, with pixels from 0 to 1. Files have images of
    /// at most 256 MiB.
    #[must_use]
    pub const fn new(height: u32, width: u32) -> Self {
        let (color, fit, max_bytes) = (Color::Rgb, Fit::Crop, 1 << 28);
        Self { height, width, color, fit, mean: [0.0; 3], deviation: [1.0; 3], max_bytes }
    }
}

impl Color {
    const fn n_channels(self) -> usize {
        match self {
            Self::Gray => 1,
            Self::Rgb => 3,
        }
    }
}

impl ImageFolder {
    /// Lists the images of all classes: files with the extensions `.png`, `.jpg` and `.jpeg`. The
    /// classes are numbered in the order of their names.
    ///
    /// Only the training data should be opened so. Other data have the same classes with
    /// [`open_as`](Self::open_as), also if a class has no image there.
    ///
    /// # Errors
    /// If a folder cannot be read, there is no class, a class has no image, or `spec` asks for
    /// images with no pixels or too many.
    pub fn open(folder: impl AsRef<Path>, spec: ImageSpec) -> Result<Self, Error> {
        let folder = folder.as_ref();
        let class_folders = class_folders(folder)?;
        let names = class_folders.iter().map(|it| it.0.as_str());
        let classes = Classes::new(names).map_err(|it| named(folder, &it.to_string()))?;
        Self::list(folder, &class_folders, spec, classes)
    }

    /// Lists images as [`open`](Self::open) does, with the numbers of these classes. Some of them
    /// may have no folder.
    ///
    /// # Errors
    /// As `open`, or if there is a folder of another class.
    pub fn open_as(
        folder: impl AsRef<Path>,
        spec: ImageSpec,
        classes: &Classes,
    ) -> Result<Self, Error> {
        let folder = folder.as_ref();
        Self::list(folder, &class_folders(folder)?, spec, classes.clone())
    }

    fn list(
        folder: &Path,
        class_folders: &[(String, PathBuf)],
        spec: ImageSpec,
        classes: Classes,
    ) -> Result<Self, Error> {
        let ImageSpec { height, width, color, .. } = spec;
        if !(1..=MAX_SIDE).contains(&height) || !(1..=MAX_SIDE).contains(&width) {
            return Err(named(
                folder,
                &format!(
                    "expected images of 1 to {MAX_SIDE} pixels a side, found {height} x {width}"
                ),
            ));
        }
        if spec.deviation.iter().any(|it| !it.is_normal()) {
            let found = spec.deviation;
            return Err(named(
                folder,
                &format!("expected deviations that are finite and not 0, found {found:?}"),
            ));
        }
        if spec.mean.iter().any(|it| !it.is_finite()) {
            let found = spec.mean;
            return Err(named(folder, &format!("expected means that are finite, found {found:?}")));
        }
        let mut images = Vec::new();
        for (name, class_folder) in class_folders {
            let number = classes.number(name).and_then(|it| i32::try_from(it).ok());
            let number = number.ok_or_else(|| {
                let n = classes.names().len();
                named(folder, &format!("expected folders of {n} known classes, found {name:?}"))
            })?;
            let files = entries(class_folder, is_image)?;
            if files.is_empty() {
                return Err(named(class_folder, "expected PNG or JPEG files, found none"));
            }
            images.extend(files.into_iter().map(|file| (file, number)));
        }
        let row = vec![color.n_channels(), height as usize, width as usize];
        let columns = [
            ColumnSpec { name: "images".to_owned(), row, dtype: DType::F32 },
            ColumnSpec { name: "label".to_owned(), row: Vec::new(), dtype: DType::I32 },
        ];
        Ok(Self { images, classes, spec, columns })
    }

    /// Returns the classes with their numbers.
    #[must_use]
    pub const fn classes(&self) -> &Classes {
        &self.classes
    }

    /// Returns the file of each row.
    pub fn files(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.images.iter().map(|it| it.0.as_path())
    }

    fn decode(&self, path: &Path, pixels: &mut [f32]) -> Result<(), Error> {
        let ImageSpec { height, width, color, fit, mean, deviation, max_bytes } = self.spec;
        let bytes = read_whole(path, max_bytes)?;
        let image = decoded(bytes, max_bytes).map_err(|message| named(path, &message))?;
        let image = match fit {
            Fit::Stretch => image,
            Fit::Crop => cropped(image, height, width),
        };
        let image = resized(image, height, width).map_err(|message| named(path, &message))?;
        let bytes = match color {
            Color::Gray => image.into_luma8().into_raw(),
            Color::Rgb => image.into_rgb8().into_raw(),
        };
        let n_channels = color.n_channels();
        for (channel, plane) in pixels.chunks_mut((height * width) as usize).enumerate() {
            let bytes = bytes.iter().skip(channel).step_by(n_channels);
            for (to, byte) in plane.iter_mut().zip(bytes) {
                *to = (f32::from(*byte) / 255.0 - mean[channel]) / deviation[channel];
            }
        }
        Ok(())
    }
}

impl Dataset for ImageFolder {
    fn n_rows(&self) -> usize {
        self.images.len()
    }

    fn columns(&self) -> &[ColumnSpec] {
        &self.columns
    }

    fn numbering(&self, column: usize) -> Option<Numbering> {
        (column == 1).then(|| Numbering::Classes(self.classes.clone()))
    }

    fn read(&self, rows: &[usize], into: &mut [ViewMut<'_>]) -> Result<(), Error> {
        let [images, labels] = into else {
            unreachable!("there is memory for two columns");
        };
        let n_pixels = self.columns[0].row_elements();
        let pixels = images.f32s().chunks_mut(n_pixels);
        for ((row, pixels), label) in rows.iter().zip(pixels).zip(labels.i32s()) {
            let (path, class) = &self.images[*row];
            guarded(path, || self.decode(path, pixels))?;
            *label = *class;
        }
        Ok(())
    }
}

/// Returns the largest central part with the aspect ratio of `height` and `width`, to the nearest
/// pixel.
fn cropped(image: DynamicImage, height: u32, width: u32) -> DynamicImage {
    let (rows, columns) = (image.height(), image.width());
    // A side has at most 2^15 pixels.
    let side = |a: u32, b: u32, most: u32| ((a + b / 2) / b).clamp(1, most);
    let cut_columns = side(rows * width, height, columns);
    let cut_rows = side(columns * height, width, rows);
    if (cut_rows, cut_columns) == (rows, columns) {
        return image;
    }
    image.crop_imm((columns - cut_columns) / 2, (rows - cut_rows) / 2, cut_columns, cut_rows)
}

/// Resizes an image: first the side that leaves fewer pixels between the two steps.
fn resized(image: DynamicImage, height: u32, width: u32) -> Result<DynamicImage, String> {
    /// The image is between the steps in four channels of single precision.
    const BYTES_BETWEEN: u64 = 16;
    if (image.height(), image.width()) == (height, width) {
        return Ok(image);
    }
    let n_bytes = |rows: u32, columns: u32| BYTES_BETWEEN * u64::from(rows) * u64::from(columns);
    let (rows_first, columns_first) =
        (n_bytes(height, image.width()), n_bytes(image.height(), width));
    let least = rows_first.min(columns_first);
    if least > MAX_BYTES_BETWEEN {
        let (rows, columns) = (image.height(), image.width());
        return Err(format!(
            "expected an image that can be resized to {height} x {width} in {MAX_BYTES_BETWEEN} bytes of memory, found {rows} x {columns} pixels, which need {least}"
        ));
    }
    // The library resizes rows first.
    Ok(match rows_first <= columns_first {
        true => image.resize_exact(width, height, FilterType::Triangle),
        false => image.rotate90().resize_exact(height, width, FilterType::Triangle).rotate270(),
    })
}

/// Lists the folders of classes with their names, sorted by name.
fn class_folders(folder: &Path) -> Result<Vec<(String, PathBuf)>, Error> {
    let folders = entries(folder, |it| it.is_dir())?;
    if folders.is_empty() {
        return Err(named(folder, "expected a folder for each class, found none"));
    }
    let name = |it: &PathBuf| it.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(folders.into_iter().map(|it| (name(&it), it)).collect())
}

/// Lists the wanted entries of a folder, sorted by name.
fn entries(folder: &Path, is_wanted: fn(&Path) -> bool) -> Result<Vec<PathBuf>, Error> {
    let to_error =
        |it: io::Error| named(folder, &format!("expected a folder that can be read, found: {it}"));
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(to_error)? {
        let path = entry.map_err(to_error)?.path();
        if is_wanted(&path) {
            found.push(path);
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn is_image(path: &Path) -> bool {
    let extension = path.extension().map(|it| it.to_ascii_lowercase());
    extension.is_some_and(|it| it == "png" || it == "jpg" || it == "jpeg")
}

/// Decodes an image that takes at most `max_bytes`.
fn decoded(bytes: Vec<u8>, max_bytes: u64) -> Result<DynamicImage, String> {
    let format = match image::guess_format(&bytes) {
        Ok(format @ (ImageFormat::Png | ImageFormat::Jpeg)) => format,
        Ok(_) | Err(_) => {
            let found = &bytes[..bytes.len().min(8)];
            return Err(format!("byte 0: expected a PNG or a JPEG file, found {found:?}"));
        }
    };
    if format == ImageFormat::Jpeg && !is_ended(&bytes) {
        let n = bytes.len();
        return Err(format!(
            "byte {n}: expected the marker at the end of a JPEG image, found the end of the file"
        ));
    }
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_SIDE);
    limits.max_image_height = Some(MAX_SIDE);
    let n_possible = (bytes.len() as u64).saturating_mul(MAX_BYTES_PER_BYTE).max(1 << 20);
    limits.max_alloc = Some(n_possible.min(max_bytes));
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits);
    let damaged = |error: ImageError| format!("expected a whole image, found: {error}");
    let decoder = reader.into_decoder().map_err(damaged)?;
    let ((columns, rows), n_bytes) = (decoder.dimensions(), decoder.total_bytes());
    let fault = |what: &str, most: u64| {
        Err(format!(
            "expected an image of at most {most} bytes{what}, found {rows} x {columns} pixels, which are {n_bytes} bytes"
        ))
    };
    match n_bytes {
        it if it > max_bytes => fault(" (`max_bytes`)", max_bytes),
        it if it > n_possible => fault(", as in a file of this size", n_possible),
        _ => DynamicImage::from_decoder(decoder).map_err(damaged),
    }
}

/// Returns true if a JPEG file contains the marker at the end of its image. Other data may follow
/// it.
///
/// The check is needed because decoders fill missing parts of a truncated image with gray.
fn is_ended(mut bytes: &[u8]) -> bool {
    const END_OF_IMAGE: u8 = 0xd9;
    // Codes without a segment: an escaped 0xff of a scan, restarts, the start of the image,
    // padding.
    let has_no_segment = |code: u8| matches!(code, 0 | 1 | 0xd0..=0xd8 | 0xff);
    loop {
        let place = bytes.windows(2).position(|it| it[0] == 0xff && !has_no_segment(it[1]));
        match place.map(|it| &bytes[it + 1..]) {
            Some([END_OF_IMAGE, ..]) => return true,
            // A segment is skipped by its length, since it may contain another image. A scan's data
            // follow its segment.
            Some([_, high, low, rest @ ..]) => {
                let n_bytes = usize::from(u16::from_be_bytes([*high, *low])).saturating_sub(2);
                bytes = rest.get(n_bytes..).unwrap_or_default();
            }
            Some(_) | None => return false,
        }
    }
}
