//! Folders of images that Pillow wrote.

use std::fs;

use soybean_counting_allocator as allocations;
use soybean_data::{Color, Dataset, Fit, ImageFolder, ImageSpec, Values};

use crate::files::{contents, made};

/// Reads the pixels of each image, and the labels.
fn pixels(spec: ImageSpec) -> (Vec<Vec<f32>>, Values) {
    let folder = ImageFolder::open(made("images"), spec).unwrap();
    let row = folder.columns()[0].row_elements();
    let found = contents(folder).unwrap();
    let images = match &found.values[0] {
        Values::F32(images) => images,
        Values::I32(_) => unreachable!("images are f32"),
    };
    (images.chunks(row).map(<[f32]>::to_vec).collect(), found.values[1].clone())
}

/// Compares pixels. The tolerance covers rounding to 8 bits and the losses of JPEG at quality 95.
fn assert_near(found: &[f32], expected: &[f32], tolerance: f32, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= tolerance, "{what}, {place}: {found}, not {expected}");
    }
}

#[test]
fn folders_of_images() {
    let folder = ImageFolder::open(made("images"), ImageSpec::new(4, 8)).unwrap();
    assert_eq!(folder.classes().names(), ["colors", "gray"]);
    let names: Vec<_> = folder.files().map(|it| it.file_name().unwrap().to_owned()).collect();
    assert_eq!(names, ["a.png", "b.png", "c.png", "d.JPG", "a.png", "b.png", "c.jpeg"]);
    assert_eq!(folder.columns()[0].row, [3, 4, 8]);

    let (images, labels) = pixels(ImageSpec::new(4, 8));
    assert_eq!(labels, Values::I32(vec![0, 0, 0, 0, 1, 1, 1]));
    let rows = |left: f32, right: f32| [[left; 4], [right; 4]].concat().repeat(4);
    let colors = [rows(1.0, 0.0), rows(0.0, 0.0), rows(0.0, 1.0)].concat();
    for image in &images[..3] {
        assert_eq!(image, &colors);
    }
    // The 32 x 16 pixels of the JPEG file were shrunk. Near the edge, the colors of both sides
    // mix.
    for (found, expected) in images[3].chunks(4).zip(colors.chunks(4)) {
        assert_near(&[found[0], found[3]], &[expected[0], expected[3]], 0.15, "JPEG");
    }
    // The center of an image of 4 x 8 pixels, magnified: black above, white below.
    for image in &images[4..] {
        for channel in image.chunks(32) {
            assert_near(&channel[..8], &[0.0; 8], 0.03, "black");
            assert_near(&channel[24..], &[1.0; 8], 0.03, "white");
        }
    }
}

#[test]
fn pixels_are_stretched_and_normalized() {
    let spec = ImageSpec {
        color: Color::Gray,
        fit: Fit::Stretch,
        mean: [0.5; 3],
        deviation: [0.25; 3],
        ..ImageSpec::new(2, 2)
    };
    let (images, _) = pixels(spec);
    let gray = [-2.0, -2.0, 2.0, 2.0];
    for image in &images[4..] {
        assert_near(image, &gray, 0.6, "gray");
    }
    // The brightness is 0.2126 of red and 0.0722 of blue.
    let [red, blue] = [0.2126_f32, 0.0722].map(|it| (it - 0.5) / 0.25);
    assert_near(&images[0], &[red, blue, red, blue], 0.6, "red and blue");
}

#[test]
fn folders_and_files_that_are_no_images() {
    let spec = ImageSpec::new(4, 4);
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("bad_images");
    let _ = fs::remove_dir_all(&folder);
    let fault = || ImageFolder::open(&folder, spec).and_then(contents).unwrap_err().to_string();
    assert!(fault().contains("bad_images: expected a folder that can be read, found: "));
    fs::create_dir_all(&folder).unwrap();
    assert!(fault().ends_with("bad_images: expected a folder for each class, found none"));
    fs::create_dir_all(folder.join("cat")).unwrap();
    assert!(fault().ends_with("cat: expected PNG or JPEG files, found none"));
    let image = folder.join("cat/1.png");
    fs::write(&image, "GIF89a").unwrap();
    assert!(fault().contains("cat/1.png: byte 0: expected a PNG or a JPEG file, found [71, 73,"));
    // JPEG decoders fill missing parts with gray.
    for name in ["images/colors/d.JPG", "images/gray/c.jpeg"] {
        let whole = fs::read(made(name)).unwrap();
        for n in [whole.len() / 2, whole.len() - 2, whole.len() - 1] {
            fs::write(&image, &whole[..n]).unwrap();
            let expected = format!("byte {n}: expected the marker at the end of a JPEG image");
            assert!(fault().contains(&expected), "{}", fault());
        }
    }
    // A few hundred bytes whose header states a thousand million pixels.
    let mut huge = fs::read(made("images/colors/d.JPG")).unwrap();
    let frame = huge.windows(2).position(|it| it == [0xff, 0xc0]).unwrap();
    huge[frame + 5..frame + 9].copy_from_slice(&[0x7f, 0xff, 0x7f, 0xff]);
    fs::write(&image, &huge).unwrap();
    let (message, n_most) = allocations::most_during(fault);
    let expected = "cat/1.png: expected an image of at most 268435456 bytes (`max_bytes`), found \
                    32767 x 32767 pixels, which are 3221028867 bytes";
    assert!(message.ends_with(expected), "{message}");
    assert!(n_most < 1 << 20, "{n_most}");
    let whole = fs::read(made("images/colors/a.png")).unwrap();
    fs::write(&image, &whole[..whole.len() / 2]).unwrap();
    assert!(fault().contains("cat/1.png: expected a whole image, found: "), "{}", fault());
    let error = ImageFolder::open(&folder, ImageSpec { width: 0, ..spec }).unwrap_err();
    assert!(error.to_string().contains("expected images of 1 to 32768 pixels"), "{error}");
    let error = ImageFolder::open(&folder, ImageSpec { deviation: [0.0; 3], ..spec }).unwrap_err();
    assert!(error.to_string().contains("expected deviations that are finite"), "{error}");
}

// Guards: a file of 1 MB that takes gigabytes and seconds before it is resized to 8 x 8.
#[test]
fn large_images_are_refused_before_they_are_decoded() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("large_images");
    fs::create_dir_all(folder.join("cat")).unwrap();
    let path = folder.join("cat/1.png");
    let read = |spec: ImageSpec| contents(ImageFolder::open(&folder, spec).unwrap());
    let small = ImageSpec::new(8, 8);
    image::RgbImage::new(30, 20).save(&path).unwrap();
    read(ImageSpec { max_bytes: 1800, ..small }).unwrap();
    let error = read(ImageSpec { max_bytes: 1799, ..small }).unwrap_err().to_string();
    let expected = "1.png: expected an image of at most 1799 bytes (`max_bytes`), found 20 x 30 \
                    pixels, which are 1800 bytes";
    assert!(error.ends_with(expected), "{error}");
    // The size in the header of a PNG file is protected by a checksum.
    let mut bytes = fs::read(&path).unwrap();
    for (columns, rows, most) in [(19_000, 18_000, "268435456"), (9000, 9000, "1560384")] {
        bytes[16..20].copy_from_slice(&u32::to_be_bytes(columns));
        bytes[20..24].copy_from_slice(&u32::to_be_bytes(rows));
        let mut sum = flate2::Crc::new();
        sum.update(&bytes[12..29]);
        bytes[29..33].copy_from_slice(&sum.sum().to_be_bytes());
        fs::write(&path, &bytes).unwrap();
        let (error, n_most) = allocations::most_during(|| read(small).unwrap_err().to_string());
        let expected = format!("1.png: expected an image of at most {most} bytes");
        assert!(error.contains(&expected), "{error}");
        assert!(error.contains(&format!("found {rows} x {columns} pixels")), "{error}");
        assert!(n_most < 1 << 20, "{n_most}");
    }
}

/// A small file of a long image would take gigabytes if it were resized before it is cropped.
#[test]
fn long_images_take_little_memory() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("long_images");
    for (class, width, height) in [("high", 1, 1 << 15), ("wide", 1 << 15, 1)] {
        fs::create_dir_all(folder.join(class)).unwrap();
        let pixel = |x: u32, y: u32| image::Rgb([u8::try_from(((x + y) >> 13) * 85).unwrap(); 3]);
        let path = folder.join(class).join("1.png");
        image::RgbImage::from_fn(width, height, pixel).save(path).unwrap();
    }
    for (fit, [left, right]) in [(Fit::Crop, [85.0, 170.0]), (Fit::Stretch, [0.0, 255.0])] {
        let spec = ImageSpec { fit, color: Color::Gray, ..ImageSpec::new(64, 64) };
        let read = || contents(ImageFolder::open(&folder, spec).unwrap()).unwrap();
        let (found, n_most) = allocations::most_during(read);
        assert!(n_most < 16 << 20, "{fit:?}: {n_most}");
        let Values::F32(pixels) = &found.values[0] else { unreachable!("images are f32") };
        let (high, wide) = pixels.split_at(64 * 64);
        let (first, last) = (pixels[0], pixels[64 * 64 - 1]);
        if fit == Fit::Stretch {
            assert_near(
                &[first, last, wide[0], wide[63]],
                &[0.0, 1.0, 0.0, 1.0],
                0.02,
                "stretched",
            );
        }
        assert!(
            high.iter()
                .chain(wide)
                .all(|it| (left / 255.0 - 0.02..right / 255.0 + 0.02).contains(it))
        );
    }
}

#[test]
fn behind_the_end_of_an_image_anything_may_follow() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("longer_images");
    fs::create_dir_all(folder.join("class")).unwrap();
    let read = |bytes: &[u8]| {
        fs::write(folder.join("class/1.jpg"), bytes).unwrap();
        ImageFolder::open(&folder, ImageSpec::new(4, 4)).and_then(contents)
    };
    for name in ["images/colors/d.JPG", "images/gray/c.jpeg"] {
        let whole = fs::read(made(name)).unwrap();
        let expected = read(&whole).unwrap();
        // Cameras append a video, whose bytes may look like an unfinished scan, or a second image.
        for rest in [&[0, 0xff, 0xda, 0][..], &whole, &whole[..whole.len() / 2]] {
            assert_eq!(read(&[&whole, rest].concat()).unwrap(), expected, "{name}");
        }
        // The end marker of a thumbnail within the first segment is not that of the image.
        let (start, rest) = whole.split_at(2);
        let small = [0xff, 0xe1, 0, 8, 0xff, 0xd8, 0, 0, 0xff, 0xd9];
        assert_eq!(read(&[start, &small, rest].concat()).unwrap(), expected, "{name}");
        let error = read(&[start, &small, &rest[..rest.len() / 2]].concat()).unwrap_err();
        assert!(error.to_string().contains("expected the marker at the end"), "{name}: {error}");
    }
}
