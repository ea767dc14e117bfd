//! Augmented images and mixtures of rows, compared with their formulas.

use soybean_data::{
    Augmentation, Batch, Column, DataLoader, Dataset, LoaderOptions, Mixing, Table, Values,
};

const HEIGHT: usize = 4;
const WIDTH: usize = 5;
const N_PIXELS: usize = HEIGHT * WIDTH;
const N_ROWS: usize = 200;

/// Returns images of three channels with different pixels, and the number of each row.
fn images() -> Table {
    let pixel = |it: usize| (it * 7919 % 1000) as f32 / 1000.0;
    let values = Values::F32((0..N_ROWS * 3 * N_PIXELS).map(pixel).collect());
    let images = Column { name: "image".to_owned(), row: vec![3, HEIGHT, WIDTH], values };
    let values = Values::I32((0..i32::try_from(N_ROWS).unwrap()).collect());
    Table::new(vec![images, Column { name: "row".to_owned(), row: vec![], values }]).unwrap()
}

fn all(dataset: impl Dataset + 'static, epoch: u64) -> Batch {
    let options = LoaderOptions { n_threads: 0, ..LoaderOptions::evaluation(N_ROWS) };
    let mut loader = DataLoader::new(dataset, options).unwrap();
    loader.start(epoch, 0);
    loader.next().unwrap().unwrap()
}

/// Calls `check` with each image before and after the changes.
fn compare(changes: &[Augmentation], mut check: impl FnMut(&[f32], &[f32])) {
    let (before, after) =
        (all(images(), 0), all(images().augment(3, changes.to_vec()).unwrap(), 0));
    assert_eq!(before.i32s(1), after.i32s(1));
    let images = before.f32s(0).chunks(3 * N_PIXELS).zip(after.f32s(0).chunks(3 * N_PIXELS));
    images.for_each(|(before, after)| check(before, after));
}

fn is_close(one: &[f32], other: &[f32]) -> bool {
    one.iter().zip(other).all(|(one, other)| (one - other).abs() < 1e-5)
}

/// Returns the image in which each pixel is one of another image, or `fill`.
fn moved(image: &[f32], source: impl Fn(isize, isize) -> (isize, isize), fill: f32) -> Vec<f32> {
    let mut moved = Vec::new();
    for plane in image.chunks(N_PIXELS) {
        for place in 0..N_PIXELS {
            let (row, column) = source((place / WIDTH) as isize, (place % WIDTH) as isize);
            let is_inside =
                (0..HEIGHT as isize).contains(&row) && (0..WIDTH as isize).contains(&column);
            let from = (row * WIDTH as isize + column) as usize;
            moved.push(if is_inside { plane[from] } else { fill });
        }
    }
    moved
}

#[test]
fn half_of_the_images_are_mirrored() {
    let mut n_mirrored = 0;
    compare(&[Augmentation::HorizontalFlip { probability: 0.5 }], |before, after| {
        let mirrored = moved(before, |row, column| (row, WIDTH as isize - 1 - column), 0.0);
        n_mirrored += usize::from(after == mirrored);
        assert!(after == mirrored || after == before);
    });
    // The deviation is 7.
    assert!((70..=130).contains(&n_mirrored), "{n_mirrored}");
}

#[test]
fn crops_move_images_by_all_distances() {
    let mut seen = vec![0; 25];
    compare(&[Augmentation::Crop { padding: 2, fill: -1.0 }], |before, after| {
        let by = |place: usize| ((place / 5) as isize - 2, (place % 5) as isize - 2);
        let place = (0..25).find(|place| {
            let (rows, columns) = by(*place);
            after == moved(before, |row, column| (row + rows, column + columns), -1.0)
        });
        seen[place.expect("the image is moved by at most two pixels")] += 1;
    });
    // Each of 25 has the mean 8 and the deviation 2.8.
    assert!(seen.iter().all(|it| *it > 0), "{seen:?}");
}

#[test]
fn colors_follow_their_formulas() {
    let luma = |image: &[f32], at: usize| {
        0.299 * image[at] + 0.587 * image[N_PIXELS + at] + 0.114 * image[2 * N_PIXELS + at]
    };
    let mut factors = Vec::new();
    compare(&[Augmentation::Brightness { most: 0.4 }], |before, after| {
        let factor = after.iter().sum::<f32>() / before.iter().sum::<f32>();
        let expected: Vec<f32> = before.iter().map(|it| factor * it).collect();
        assert!(is_close(after, &expected));
        factors.push(factor);
    });
    // The slope between two pixels is the factor.
    compare(&[Augmentation::Contrast { most: 0.4 }], |before, after| {
        let mean = (0..N_PIXELS).map(|at| luma(before, at)).sum::<f32>() / N_PIXELS as f32;
        let factor = (after[1] - after[0]) / (before[1] - before[0]);
        let expected: Vec<f32> = before.iter().map(|it| mean + factor * (it - mean)).collect();
        assert!(is_close(after, &expected));
        factors.push(factor);
    });
    compare(&[Augmentation::Saturation { most: 0.4 }], |before, after| {
        let factor = (after[0] - after[N_PIXELS]) / (before[0] - before[N_PIXELS]);
        let scaled = |at: usize| {
            let brightness = luma(before, at % N_PIXELS);
            brightness + factor * (before[at] - brightness)
        };
        assert!(is_close(after, &(0..3 * N_PIXELS).map(scaled).collect::<Vec<_>>()));
        factors.push(factor);
    });
    assert_eq!(factors.len(), 3 * N_ROWS);
    for factors in factors.chunks(N_ROWS) {
        assert!(factors.iter().all(|it| (0.599..1.401).contains(it)));
        // The mean of uniform numbers from 0.6 to 1.4 has the deviation 0.016.
        let mean = factors.iter().sum::<f32>() / N_ROWS as f32;
        assert!((mean - 1.0).abs() < 0.08, "{mean}");
    }
    let (mean, deviation) = (vec![0.1, 0.2, 0.3], vec![0.5, 2.0, 4.0]);
    let normalize = Augmentation::Normalize { mean: mean.clone(), deviation: deviation.clone() };
    compare(&[normalize], |before, after| {
        for (at, (before, after)) in before.iter().zip(after).enumerate() {
            let channel = at / N_PIXELS;
            assert!((after - (before - mean[channel]) / deviation[channel]).abs() < 1e-6);
        }
    });
}

#[test]
fn changes_are_combined_in_order_and_differ_between_epochs() {
    let scaled = Augmentation::Normalize { mean: vec![0.0; 3], deviation: vec![0.5; 3] };
    let crop = Augmentation::Crop { padding: 3, fill: 1.0 };
    let augmented = |changes: &[&Augmentation], epoch| {
        let changes = changes.iter().copied().cloned().collect();
        all(images().augment(3, changes).unwrap(), epoch).f32s(0).to_vec()
    };
    // The fill is scaled if the scale comes after it.
    let most = |pixels: &[f32]| pixels.iter().copied().fold(0.0, f32::max);
    assert_eq!(most(&augmented(&[&crop, &scaled], 0)), 2.0);
    assert!(most(&augmented(&[&scaled, &crop], 0)) < 2.0);
    assert_ne!(augmented(&[&crop], 0), augmented(&[&crop], 1));
    assert_eq!(augmented(&[&crop], 1), augmented(&[&crop], 1));
}

/// Returns two columns of numbers: the image, and the probabilities of two classes.
fn probable() -> impl Dataset + 'static {
    let halves = images().transform(0, |row, _| row[1].i32s()[0] %= 2);
    halves.one_hot("row", 2).unwrap()
}

#[test]
fn mixtures_are_between_two_rows() {
    let (before, after) =
        (all(probable(), 0), all(probable().mix(1, Mixing::Mixup { alpha: 1.0 }).unwrap(), 0));
    let images: Vec<&[f32]> = before.f32s(0).chunks(3 * N_PIXELS).collect();
    let mut shares = Vec::new();
    for (row, mixed) in after.f32s(0).chunks(3 * N_PIXELS).enumerate() {
        // The second row is the one for which all pixels have the same share.
        let found = (0..N_ROWS).find_map(|other| {
            let (one, two) = (images[row], images[other]);
            let share = (mixed[0] - two[0]) / (one[0] - two[0]);
            let mixture = one.iter().zip(two).map(|(one, two)| share * one + (1.0 - share) * two);
            is_close(mixed, &mixture.collect::<Vec<_>>()).then_some((share, other))
        });
        let found = found.or_else(|| (mixed == images[row]).then_some((1.0, row)));
        let (share, other) = found.expect("a mixture of two rows");
        let mut expected = [0.0; 2];
        expected[row % 2] += share;
        expected[other % 2] += 1.0 - share;
        let labels = &after.f32s(1)[2 * row..2 * row + 2];
        assert!((labels[0] - expected[0]).abs() < 2e-3, "{labels:?}, not {expected:?}");
        assert!((labels[0] + labels[1] - 1.0).abs() < 1e-6);
        shares.push(share);
    }
    // Uniform from 0 to 1: the deviation of the mean is 0.02.
    let mean = shares.iter().sum::<f32>() / N_ROWS as f32;
    assert!((mean - 0.5).abs() < 0.1, "{mean}");
}

#[test]
fn rectangles_of_other_images_have_their_share_of_the_labels() {
    let mixed = all(probable().mix(1, Mixing::CutMix { alpha: 1.0 }).unwrap(), 0);
    let before = all(probable(), 0);
    let images: Vec<&[f32]> = before.f32s(0).chunks(3 * N_PIXELS).collect();
    let mut n_cut = 0;
    for (row, image) in mixed.f32s(0).chunks(3 * N_PIXELS).enumerate() {
        let changed: Vec<usize> =
            (0..N_PIXELS).filter(|at| image[*at] != images[row][*at]).collect();
        let share = changed.len() as f32 / N_PIXELS as f32;
        let labels = &mixed.f32s(1)[2 * row..2 * row + 2];
        if changed.is_empty() {
            continue;
        }
        n_cut += 1;
        let bounds = |of: fn(usize) -> usize| {
            let places = || changed.iter().map(|at| of(*at));
            places().max().unwrap() - places().min().unwrap() + 1
        };
        assert_eq!(bounds(|at| at / WIDTH) * bounds(|at| at % WIDTH), changed.len());
        let is_other = |other: &usize| {
            (0..3).all(|channel| {
                let at = |at: &usize| channel * N_PIXELS + at;
                changed.iter().all(|it| image[at(it)] == images[*other][at(it)])
            })
        };
        let others: Vec<usize> = (0..N_ROWS).filter(is_other).collect();
        let expected = |other: &usize| if other % 2 == row % 2 { 1.0 } else { 1.0 - share };
        let is_right = |other: &usize| (labels[row % 2] - expected(other)).abs() < 1e-6;
        assert!(others.iter().any(is_right), "{labels:?} with {share} of {others:?}");
    }
    assert!(n_cut > 100, "{n_cut}");
}

#[test]
fn rows_and_changes_that_do_not_fit_are_refused() {
    let refused = |change| images().augment(0, vec![change]).unwrap_err().to_string();
    assert_eq!(
        refused(Augmentation::Crop { padding: 4, fill: 0.0 }),
        "expected fewer pixels than an image of 4 x 5 has, and a finite fill, found Crop { padding: 4, fill: 0.0 }"
    );
    assert!(
        refused(Augmentation::HorizontalFlip { probability: 1.5 })
            .starts_with("expected a probability from 0 to 1, found ")
    );
    assert!(
        refused(Augmentation::Normalize { mean: vec![0.0], deviation: vec![1.0] })
            .starts_with("expected 3 means and 3 deviations, finite and not 0, found ")
    );
    let flat = || {
        let values = Values::F32(vec![0.0; 8]);
        Table::new(vec![Column { name: "x".to_owned(), row: vec![4], values }]).unwrap()
    };
    let images_expected = "expected images as the first column, f32 [height, width] or [channels, \
                           height, width], found `x`, f32 [4]";
    let brightness = vec![Augmentation::Brightness { most: 0.1 }];
    assert_eq!(flat().augment(0, brightness).unwrap_err().to_string(), images_expected);
    let cut = Mixing::CutMix { alpha: 1.0 };
    assert_eq!(flat().mix(0, cut).unwrap_err().to_string(), images_expected);
    assert_eq!(
        images().mix(0, cut).unwrap_err().to_string(),
        "column `row`: expected f32, which can be mixed, found i32; `one_hot` makes probabilities of labels"
    );
    assert_eq!(
        flat().mix(0, Mixing::Mixup { alpha: 0.0 }).unwrap_err().to_string(),
        "expected a finite `alpha` above 0, found 0.0"
    );
    assert_eq!(
        flat().one_hot("x", 2).unwrap_err().to_string(),
        "expected a column `x` of one i32 a row, found x of f32 [4]"
    );
    let few = images().one_hot("row", 7).unwrap();
    let mut loader = DataLoader::new(few, LoaderOptions::evaluation(10)).unwrap();
    let error = loader.next().unwrap().unwrap_err().to_string();
    assert_eq!(error, "row 7: `row`: expected a label in 0..7, found 7");
}
