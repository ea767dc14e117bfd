//! Tests of convolutions against plain loops in double precision.

use soybean_plan::{DType, ImageLayout};

use super::*;
use crate::cpu::random_data::{Dice, region};

/// Calls with the offsets in images, filters and results of each product, which is summed over the
/// third.
fn for_each_term(it: &Convolution, mut call: impl FnMut(usize, usize, usize)) {
    let [height, width] = it.result;
    let rows = it.batch * it.groups * it.filters;
    for place in 0..rows * height * width {
        let (x, y, o) = (place % width, place / width % height, place / width / height);
        let (product, filter) = (o / it.filters, o % (it.groups * it.filters));
        for element in 0..it.channels * it.window[0] * it.window[1] {
            let (j, i) = (element % it.window[1], element / it.window[1] % it.window[0]);
            let c = element / it.window[1] / it.window[0];
            let row = (y * it.stride[0] + i * it.dilation[0]).checked_sub(it.padding[0]);
            let column = (x * it.stride[1] + j * it.dilation[1]).checked_sub(it.padding[1]);
            let (Some(row), Some(column)) = (row, column) else { continue };
            if row >= it.image[0] || column >= it.image[1] {
                continue;
            }
            let plane = product * it.channels + c;
            let depth = it.channels * it.window[0] * it.window[1];
            call(
                (plane * it.image[0] + row) * it.image[1] + column,
                filter * depth + element,
                place,
            );
        }
    }
}

fn check(dice: &mut Dice, convolution: &Convolution) {
    let it = convolution;
    let n_images = it.batch * it.groups * it.channels * it.image[0] * it.image[1];
    let n_filters = it.groups * it.filters * it.channels * it.window[0] * it.window[1];
    let n_results = it.batch * it.groups * it.filters * it.result[0] * it.result[1];
    let sizes = match it.form {
        ConvolutionForm::Forward => [n_images, n_filters, n_results],
        ConvolutionForm::Data => [n_results, n_filters, n_images],
        ConvolutionForm::Filter => [n_images, n_results, n_filters],
    };
    let [mut left, mut right, mut found] = sizes.map(|n| dice.buffer(n, DType::F32));
    // Values from before must not affect the result.
    found.fill(f32::NAN);
    let mut expected = vec![(0.0, 0.0); sizes[2]];
    for_each_term(it, |image, filter, result| {
        let (a, b, to) = match it.form {
            ConvolutionForm::Forward => (image, filter, result),
            ConvolutionForm::Data => (result, filter, image),
            ConvolutionForm::Filter => (image, result, filter),
        };
        let term = f64::from(left[a]) * f64::from(right[b]);
        expected[to].0 += term;
        expected[to].1 += term.abs();
    });
    let (isa, n_threads) = (dice.pick(&Isa::all()), dice.pick(&[1, 2, 3]));
    let mut workspaces: Vec<Workspace> = (0..n_threads).map(|_| Workspace::new(isa)).collect();
    for memory in workspaces.iter().flat_map(|it| [it.spare(), it.second_spare()]) {
        // SAFETY: the spare memory has this many elements, and nothing else uses it.
        unsafe { std::slice::from_raw_parts_mut(memory, N_SPARE) }.fill(f32::NAN);
    }
    let kernel = ConvolutionKernel::new(it, isa, n_threads);
    let mut scratch = vec![f32::NAN; kernel.n_scratch()];
    let regions = [&mut left, &mut right, &mut found].map(|it| region(it, DType::F32));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
    // SAFETY: the buffers are this test's.
    pool.install(|| unsafe { kernel.run(&mut workspaces, &mut scratch, regions) }.unwrap());
    for (place, (found, (expected, size))) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(*found) - expected).abs();
        // Each sum is rounded to 6e-8 of it, and errors add up like a random walk.
        assert!(
            error <= 2e-6 * size,
            "{convolution:?} {isa:?} {n_threads} threads: {found}, not {expected} at {place}"
        );
    }
}

fn random(dice: &mut Dice, sides: &[usize], depths: &[usize]) -> Convolution {
    let mut pair = |choices: &[usize]| [dice.pick(choices), dice.pick(choices)];
    let (mut image, mut window) = (pair(sides), pair(&[1, 1, 2, 3, 3, 4, 5]));
    let (mut stride, mut padding, mut dilation) =
        (pair(&[1, 1, 2, 3]), pair(&[0, 1, 2]), pair(&[1, 2]));
    if dice.below(5) == 0 {
        (window, stride, padding) = ([1, 1], [dice.pick(&[1, 2]); 2], [0, 0]);
    }
    if dice.below(5) == 0 {
        (image[0], window[0], stride[0], padding[0], dilation[0]) = (1, 1, 1, 0, 1);
    }
    let mut result = [0; 2];
    for dim in 0..2 {
        let reach = |window: usize| (window - 1) * dilation[dim] + 1;
        while reach(window[dim]) > image[dim] + 2 * padding[dim] {
            window[dim] -= 1;
        }
        result[dim] = (image[dim] + 2 * padding[dim] - reach(window[dim])) / stride[dim] + 1;
    }
    let (batch, groups) = (dice.pick(&[1, 1, 2, 3, 5]), dice.pick(&[1, 1, 2, 4]));
    Convolution {
        form: dice.pick(&[
            ConvolutionForm::Forward,
            ConvolutionForm::Data,
            ConvolutionForm::Filter,
        ]),
        batch,
        groups,
        channels: dice.pick(depths),
        filters: dice.pick(depths),
        image,
        window,
        result,
        stride,
        padding,
        dilation,
        layout: ImageLayout::ChannelsFirst,
    }
}

#[test]
fn random_convolutions_agree_with_plain_loops() {
    for seed in 0..600 {
        let mut dice = Dice(seed);
        let convolution = random(&mut dice, &[1, 2, 3, 5, 7, 11, 19], &[1, 2, 3, 5, 9]);
        check(&mut dice, &convolution);
    }
}

#[test]
fn convolutions_of_several_blocks_agree_with_plain_loops() {
    for seed in 0..40 {
        let mut dice = Dice(seed);
        let mut convolution = random(&mut dice, &[8, 17, 25], &[7, 40]);
        (convolution.batch, convolution.groups) = (dice.pick(&[1, 2]), 1);
        check(&mut dice, &convolution);
    }
}

#[test]
fn convolutions_of_many_filters_agree_with_plain_loops() {
    for seed in 0..12 {
        let mut dice = Dice(seed);
        let mut convolution = random(&mut dice, &[2, 3, 5], &[250, 300]);
        (convolution.batch, convolution.groups) = (1, 1);
        check(&mut dice, &convolution);
    }
}

#[test]
fn convolutions_in_small_groups_agree_with_plain_loops() {
    for seed in 0..200 {
        let mut dice = Dice(seed);
        // The largest images have several bands of rows.
        let mut convolution = random(&mut dice, &[4, 7, 28, 130], &[1, 1, 2, 4]);
        (convolution.batch, convolution.groups) = (dice.pick(&[1, 3, 8]), dice.pick(&[2, 3, 5]));
        let reach = |dim: usize| convolution.dilation[dim] * (convolution.window[dim] - 1);
        // Gradients of images with more padding than a window reaches are sums over patches.
        let is_direct = convolution.form != ConvolutionForm::Data
            || (0..2).all(|dim| convolution.padding[dim] <= reach(dim));
        let kernel = ConvolutionKernel::new(&convolution, Isa::detect(), 2);
        assert!(kernel.direct.is_some() || !is_direct, "{convolution:?}");
        check(&mut dice, &convolution);
    }
}

#[test]
fn convolutions_by_transforms_agree_with_plain_loops() {
    for seed in 0..12 {
        let mut dice = Dice(seed);
        let mut pair = |choices: &[usize]| [dice.pick(choices), dice.pick(choices)];
        let (image, padding) = (pair(&[8, 9, 13, 16]), pair(&[0, 1, 2]));
        let convolution = Convolution {
            form: dice.pick(&[ConvolutionForm::Forward, ConvolutionForm::Data]),
            batch: dice.pick(&[18, 35]),
            groups: 1,
            channels: dice.pick(&[16, 21]),
            filters: dice.pick(&[16, 19]),
            image,
            window: [3, 3],
            result: [0, 1].map(|dim| image[dim] + 2 * padding[dim] - 2),
            stride: [1, 1],
            padding,
            dilation: [1, 1],
            layout: ImageLayout::ChannelsFirst,
        };
        assert!(ConvolutionKernel::new(&convolution, Isa::detect(), 2).winograd.is_some());
        check(&mut dice, &convolution);
    }
}

#[test]
fn sums_over_nothing_are_zero() {
    let convolution = Convolution {
        form: ConvolutionForm::Forward,
        batch: 2,
        groups: 1,
        channels: 0,
        filters: 3,
        image: [4, 4],
        window: [3, 3],
        result: [2, 2],
        stride: [1, 1],
        padding: [0, 0],
        dilation: [1, 1],
        layout: ImageLayout::ChannelsFirst,
    };
    check(&mut Dice(0), &convolution);
    let data = Convolution { form: ConvolutionForm::Data, channels: 2, filters: 0, ..convolution };
    check(&mut Dice(0), &data);
    let filter =
        Convolution { form: ConvolutionForm::Filter, channels: 2, batch: 0, ..convolution };
    check(&mut Dice(0), &filter);
}

#[test]
fn faults_are_named() {
    let convolution = random(&mut Dice(1), &[5], &[3]);
    let convolution = Convolution { form: ConvolutionForm::Forward, ..convolution };
    let kernel = ConvolutionKernel::new(&convolution, Isa::detect(), 1);
    let mut workspaces = [Workspace::new(Isa::detect())];
    let (mut memory, mut scratch) = (vec![0.0; 1 << 16], []);
    let whole = region(&mut memory, DType::F32);
    // SAFETY: the buffer is this test's.
    let error = unsafe { kernel.run(&mut workspaces, &mut scratch, [whole; 3]) }.unwrap_err();
    assert_eq!(error.to_string(), "result: expected memory apart from the operands");
    let none = Region { n_elements: 0, ..whole };
    // SAFETY: as above.
    let error =
        unsafe { kernel.run(&mut workspaces, &mut scratch, [none, whole, whole]) }.unwrap_err();
    assert!(error.to_string().starts_with("left: expected "), "{error}");
}
