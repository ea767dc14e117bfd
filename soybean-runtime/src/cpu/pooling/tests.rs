//! Tests of pooling against plain loops.

use soybean_plan::DType;

use super::*;
use crate::cpu::random_data::{Dice, region};

/// Returns the offsets of a window's pixels in the image, in order.
fn places(it: &Pooling, window: usize) -> Vec<usize> {
    let (row, column) = (window / it.result[1], window % it.result[1]);
    let mut places = Vec::new();
    for (i, j) in (0..it.window[0]).flat_map(|i| (0..it.window[1]).map(move |j| (i, j))) {
        let row = (row * it.stride[0] + i).wrapping_sub(it.padding[0]);
        let column = (column * it.stride[1] + j).wrapping_sub(it.padding[1]);
        if row < it.image[0] && column < it.image[1] {
            places.push(row * it.image[1] + column);
        }
    }
    places
}

/// Returns the first of the largest pixels. NaN is larger than all others.
fn first_largest(image: &[f32], places: &[usize]) -> Option<usize> {
    let better = |best: usize, it: usize| {
        let is_better = image[it] > image[best] || image[it].is_nan() && !image[best].is_nan();
        if is_better { it } else { best }
    };
    places.iter().copied().reduce(better)
}

/// Computes one plane of a kind of pooling.
fn plane(it: &Pooling, inputs: &[&[f32]]) -> Vec<f64> {
    let n_windows = it.result[0] * it.result[1];
    let windows = (0..n_windows).map(|window| (window, places(it, window)));
    let mut gradients = vec![0.0; it.image[0] * it.image[1]];
    match it.form {
        PoolingForm::Max => {
            let largest = |places: &[usize]| {
                let place = first_largest(inputs[0], places);
                place.map_or(f64::NEG_INFINITY, |it| f64::from(inputs[0][it]))
            };
            return windows.map(|it| largest(&it.1)).collect();
        }
        PoolingForm::Sum => {
            let sum = |places: &[usize]| places.iter().map(|it| f64::from(inputs[0][*it])).sum();
            return windows.map(|it| sum(&it.1)).collect();
        }
        PoolingForm::MaxGradient => {
            for (window, places) in windows {
                if let Some(place) = first_largest(inputs[0], &places) {
                    gradients[place] += f64::from(inputs[1][window]);
                }
            }
        }
        PoolingForm::SumGradient => {
            for (window, place) in windows
                .flat_map(|(window, places)| places.into_iter().map(move |place| (window, place)))
            {
                gradients[place] += f64::from(inputs[0][window]);
            }
        }
    }
    gradients
}

fn random(dice: &mut Dice, sides: &[usize]) -> Pooling {
    let mut pair = |choices: &[usize]| [dice.pick(choices), dice.pick(choices)];
    let (image, mut window) = (pair(sides), pair(&[1, 2, 2, 3, 3, 5]));
    let (stride, padding) = (pair(&[1, 2, 2, 3]), pair(&[0, 0, 1, 2]));
    let mut result = [0; 2];
    for dim in 0..2 {
        window[dim] = window[dim].min(image[dim] + 2 * padding[dim]);
        result[dim] = (image[dim] + 2 * padding[dim] - window[dim]) / stride[dim] + 1;
    }
    let forms =
        [PoolingForm::Max, PoolingForm::MaxGradient, PoolingForm::Sum, PoolingForm::SumGradient];
    let (form, planes) = (dice.pick(&forms), dice.pick(&[1, 3, 7]));
    Pooling { form, planes, channels: 1, image, window, result, stride, padding }
}

fn check(dice: &mut Dice, pooling: &Pooling) {
    let (isa, n_threads) = (dice.pick(&Isa::all()), dice.pick(&[1, 2, 3]));
    let mut kernel = PoolingKernel::new(pooling, isa, n_threads);
    let (sizes, n_result) = kernel.sizes();
    let n_inputs = if sizes[1] == 0 { 1 } else { 2 };
    // Few different numbers, so that some are equal.
    let mut number = || dice.pick(&[-1.5, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0]);
    let mut inputs: Vec<Vec<f32>> = sizes[..n_inputs]
        .iter()
        .map(|n| (0..n * pooling.planes).map(|_| number()).collect())
        .collect();
    if dice.below(4) == 0 {
        let at = dice.below(inputs[0].len());
        inputs[0][at] = f32::NAN;
    }
    let mut found = vec![f32::INFINITY; n_result * pooling.planes];
    let regions: Vec<Region> = inputs.iter_mut().map(|it| region(it, DType::F32)).collect();
    let to = region(&mut found, DType::F32);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
    // SAFETY: this test owns the buffers.
    pool.install(|| unsafe { kernel.run(&regions, &to) }.unwrap());
    for number in 0..pooling.planes {
        let of = |all: &[f32], n: usize| all[number * n..(number + 1) * n].to_vec();
        let planes: Vec<Vec<f32>> = inputs.iter().zip(sizes).map(|(it, n)| of(it, n)).collect();
        let planes: Vec<&[f32]> = planes.iter().map(|it| &it[..]).collect();
        for (found, expected) in of(&found, n_result).iter().zip(plane(pooling, &planes)) {
            // Sums of halves are exact.
            assert!(
                f64::from(*found) == expected || found.is_nan() && expected.is_nan(),
                "{pooling:?} {isa:?}: {found}, not {expected}"
            );
        }
    }
}

#[test]
fn random_poolings_agree_with_plain_loops() {
    for seed in 0..600 {
        let mut dice = Dice(seed);
        let pooling = random(&mut dice, &[1, 2, 3, 5, 8, 13, 40]);
        check(&mut dice, &pooling);
    }
}

#[test]
fn poolings_on_several_threads_agree_with_plain_loops() {
    for seed in 0..20 {
        let mut dice = Dice(seed);
        let pooling = random(&mut dice, &[90, 131]);
        check(&mut dice, &pooling);
    }
}

#[test]
fn a_window_of_negative_infinity_has_its_first_pixel_as_the_largest() {
    let pooling = Pooling {
        form: PoolingForm::MaxGradient,
        planes: 1,
        channels: 1,
        image: [2, 2],
        window: [2, 2],
        result: [1, 1],
        stride: [2, 2],
        padding: [0, 0],
    };
    let mut kernel = PoolingKernel::new(&pooling, Isa::detect(), 1);
    let (mut image, mut gradient, mut found) = ([f32::NEG_INFINITY; 4], [3.0], [9.0; 4]);
    let inputs = [region(&mut image, DType::F32), region(&mut gradient, DType::F32)];
    let to = region(&mut found, DType::F32);
    // SAFETY: this test owns the buffers.
    unsafe { kernel.run(&inputs, &to) }.unwrap();
    assert_eq!(found, [3.0, 0.0, 0.0, 0.0]);
    // SAFETY: as above.
    let error = unsafe { kernel.run(&inputs[..1], &to) }.unwrap_err();
    assert_eq!(error.to_string(), "expected 2 inputs, found 1");
    // SAFETY: as above.
    let error = unsafe { kernel.run(&inputs, &inputs[0]) }.unwrap_err();
    assert_eq!(error.to_string(), "input 0: expected memory apart from the result");
}
