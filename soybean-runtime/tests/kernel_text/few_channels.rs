//! Forward convolutions of images with few channels, with channels last, as in the first layers of
//! networks.

use soybean_codegen::{Call, Generated, Operation, generate, generate_convolution_with_bias};
use soybean_fake_cuda::{Order, Sanitize, has_compiler};
use soybean_plan::{Convolution, ConvolutionForm, DType, ImageLayout, Kernel, Precision};

use crate::{
    case::{Case, Data},
    convolution::Windows,
    device::Unit,
    dice::Dice,
    operands::{Types, scaled},
};

/// The maximum number of products of a convolution.
const MOST_PRODUCTS: usize = 4_000_000;

pub(crate) fn case(dice: &mut Dice) -> Case {
    let (form, layout) = (ConvolutionForm::Forward, ImageLayout::ChannelsLast);
    let mut pair = |choices: &[usize]| [dice.pick(choices), dice.pick(choices)];
    let any = [pair(&[1, 2, 3, 5, 7, 11]), pair(&[1, 2, 4]), pair(&[0, 1, 2, 3])];
    let any = (any, dice.pick(&[1, 2, 3, 4, 5, 8]));
    // As in AlexNet, VGG-16 and ResNet, or any other.
    let first_layers = [[11, 4, 2], [3, 1, 1], [7, 2, 3]].map(|it| (it.map(|n| [n; 2]), 3));
    let ([window, stride, padding], channels) = dice.pick(&[&first_layers[..], &[any; 4]].concat());
    let dilation = [dice.pick(&[1, 1, 2]), 1];
    let room = [dice.pick(&[0, 5, 9, 20, 33]), dice.pick(&[0, 5, 9, 20, 33, 65])];
    let windows = Windows { window, stride, padding, dilation };
    let image = windows.image(room);
    let result = windows.result(image);
    let n_terms = channels * window[0] * window[1];
    let n_products = result[0] * result[1] * n_terms;
    let is_small = |n: &usize| n * n_products <= MOST_PRODUCTS;
    let filters = [8, 64, 96, 136].into_iter().filter(is_small).collect::<Vec<_>>();
    let filters = dice.pick(if filters.is_empty() { &[8] } else { &filters });
    let batch = dice.pick(&[1, 2, 3]);
    let batch = if is_small(&(batch * filters)) { batch } else { 1 };
    let it = Convolution {
        form,
        batch,
        groups: 1,
        channels,
        filters,
        image,
        window,
        result,
        stride,
        padding,
        dilation,
        layout,
    };
    let mut types = Types::new(dice, 2);
    if types.precision == Precision::F32 {
        types.precision = Precision::Tf32;
    }
    let inputs = vec![
        scaled(dice, types.inputs[0], batch * channels * image[0] * image[1], 1),
        scaled(dice, types.inputs[1], filters * n_terms, n_terms),
    ];
    let tolerance = types.tolerance();
    let results = vec![(types.result, batch * filters * result[0] * result[1])];
    Case { precision: types.precision, ..Case::new(it, inputs, results, tolerance) }
}

/// Replaces a few pixels by numbers that are not finite, and returns the expected results of plain
/// loops. Transforms would spread NaN to other results.
fn with_special_pixels(case: &mut Case, channels: usize, dice: &mut Dice) -> Vec<f32> {
    let mut pixels: Vec<&mut [f32]> = case.inputs[0].numbers.chunks_mut(channels).collect();
    for _ in 0..3 {
        let at = dice.below(pixels.len());
        pixels[at].fill(dice.pick(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY]));
    }
    let wide = |data: &Data| data.numbers.iter().map(|it| f64::from(*it)).collect::<Vec<_>>();
    let [image, filter] = [0, 1].map(|number| wide(&case.inputs[number]));
    let results = case.kernel.local().unwrap().evaluate(&[&image, &filter], &[]);
    #[expect(clippy::cast_possible_truncation, reason = "results have single precision")]
    results[0].iter().map(|it| *it as f32).collect()
}

/// Returns the function of a case whose third input, if any, is a bias.
fn generated(number: usize, case: &Case, has_relu: bool) -> Generated {
    let inputs: Vec<DType> = case.inputs.iter().map(|it| it.dtype).collect();
    let results = [case.results[0].0];
    let Case { kernel, precision, .. } = case;
    let call = Call { kernel, inputs: &inputs, results: &results, precision: *precision };
    let Kernel::Convolve(it) = kernel else { panic!("{case:?}") };
    let prefix = format!("k{number}");
    let made = match inputs.len() {
        2 => generate(&call, &prefix),
        _ => generate_convolution_with_bias(it, &call, has_relu, &prefix),
    };
    made.unwrap()
}

/// Returns whether the image is read in place from shared memory.
fn is_staged(generated: &Generated) -> bool {
    matches!(&generated.operations[..], [Operation::Launch(it)] if it.function.ends_with("convolve"))
}

#[test]
fn numbers_beyond_a_window_do_not_matter() {
    if !has_compiler() {
        return eprintln!("skipped: no C++ compiler");
    }
    let n = 64;
    let mut cases = Vec::new();
    let mut expected = Vec::new();
    for seed in 0..n {
        let dice = &mut Dice(1000 + seed);
        let mut case = case(dice);
        let Kernel::Convolve(it) = case.kernel.clone() else { panic!("{case:?}") };
        expected.push(with_special_pixels(&mut case, it.channels, dice));
        if seed % 3 > 0 {
            let bias = dice.data(case.inputs[1].dtype, it.filters);
            case.inputs.push(bias);
        }
        cases.push(case);
    }
    let has_relu = |number: usize| number % 3 == 2;
    let all = cases.iter().enumerate();
    let all: Vec<Generated> = all.map(|(at, it)| generated(at, it, has_relu(at))).collect();
    let n_staged = all.iter().filter(|it| is_staged(it)).count();
    assert!(n_staged > 40, "{n_staged}");
    let unit = Unit::of(all, Sanitize::Nothing);
    for (number, (case, sums)) in cases.iter().zip(&expected).enumerate() {
        let found = unit.run(number, case, Order::Random(number as u64)).unwrap();
        let bias = case.inputs.get(2).map(|it| &it.numbers);
        let finished = |(at, sum): (usize, &f32)| {
            let sum = sum + bias.map_or(0.0, |it| it[at % it.len()]);
            if has_relu(number) && sum < 0.0 { 0.0 } else { sum }
        };
        let expected = sums.iter().enumerate().map(finished).collect();
        case.compare(&found, &[expected]).unwrap_or_else(|it| panic!("{number}: {it}\n{case:?}"));
    }
}
