//! Tests of the choice between cuDNN and generated kernels.

use std::{env, fs, process};

use soybean_fake_cuda::virtual_gpus::{Machine, on_virtual_gpus};

use super::*;

/// Runs a test on virtual GPUs that keep their choices for this test alone.
pub(super) fn on_tuned(
    module: &str,
    test: &str,
    settings: &[(&str, &str)],
    body: impl FnOnce(&Machine),
) {
    let folder = env::temp_dir().join(format!("soybean-{test}-{}", process::id()));
    let settings = [settings, &[("SOYBEAN_CACHE_DIR", folder.to_str().unwrap())]].concat();
    let path = format!("cuda::convolution::tests::{module}::{test}");
    on_virtual_gpus(&path, &settings, body);
    let _gone = fs::remove_dir_all(folder);
}

/// Returns the lines of the choices on disk. A header precedes the first one.
pub(super) fn choices() -> Vec<String> {
    let folder = env::var_os("SOYBEAN_CACHE_DIR").unwrap();
    let files = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
    let kept = files.filter(|it| it.extension().is_some_and(|it| it == "choices"));
    let kept: Vec<Vec<u8>> = kept.map(|it| fs::read(it).unwrap()).collect();
    let [choices] = &kept[..] else { panic!("expected one file of choices") };
    String::from_utf8_lossy(choices).lines().map(str::to_owned).collect()
}

/// Returns the number of the chosen candidate of a line.
pub(super) fn number(line: &str) -> Option<usize> {
    line.split(' ').next()?.parse().ok()
}

/// Returns how many of the convolutions with a choice run by an engine with the epilogue, by one
/// without it, and by the generated kernel.
pub(super) fn n_chosen() -> [usize; 3] {
    let mut n_chosen = [0; 3];
    for line in choices() {
        let Some(number) = number(&line) else { continue };
        // `.. engines with the epilogue [10, 11], without [1, 0], 1 generated kernels`
        let n_after = |start: &str| {
            let list = line.split_once(start).unwrap().1.split_once(']').unwrap().0;
            list.split(", ").filter(|it| !it.is_empty()).count()
        };
        let (n_fused, n_plain) = (n_after("with the epilogue ["), n_after("without ["));
        n_chosen[usize::from(number >= n_fused) + usize::from(number >= n_fused + n_plain)] += 1;
    }
    n_chosen
}

/// Returns the gradients of filters of some windows and numbers of channels.
fn gradients(types: [DType; 3]) -> Vec<Case> {
    let last = Convolution {
        form: ConvolutionForm::Filter,
        layout: ImageLayout::ChannelsLast,
        filters: 72,
        ..SPREAD
    };
    let wide = Convolution { window: [3, 4], stride: [1, 1], result: [5, 9], ..last };
    let of = |it: Convolution| (1..=8).map(move |channels| (Convolution { channels, ..it }, types));
    of(last).chain(of(wide)).collect()
}

/// Measures and checks the gradients. Returns how many run by cuDNN, and by the generated kernel.
fn n_measured(machine: &Machine, types: [DType; 3], precision: Precision) -> [usize; 2] {
    let gradients = gradients(types);
    check(&gradients, precision, true);
    assert_eq!(machine.n_complaints(), 0);
    let [first, other, generated] = n_chosen();
    // All have a choice. The line of one begins with the header.
    assert_eq!(first + other + generated, gradients.len() - 1);
    [first + other, generated]
}

#[test]
fn generated_gradients_of_filters_rival_those_with_a_conversion() {
    let test = "generated_gradients_of_filters_rival_those_with_a_conversion";
    on_tuned("rivals", test, &[], |machine| {
        // Times of virtual GPUs are random.
        let [by_library, generated] = n_measured(machine, WIDENED, Precision::Bf16);
        assert!(by_library > 0 && generated > 0, "{by_library}, {generated}");
    });
}

#[test]
fn generated_gradients_of_filters_rival_those_in_tf32() {
    let test = "generated_gradients_of_filters_rival_those_in_tf32";
    on_tuned("rivals", test, &[], |machine| {
        // On virtual GPUs, two kernels take longer than one.
        let [_, generated] = n_measured(machine, [DType::F32; 3], Precision::Tf32);
        assert_eq!(generated, 0);
    });
}

#[test]
fn engines_that_round_without_saying_so_are_not_chosen() {
    let test = "engines_that_round_without_saying_so_are_not_chosen";
    on_tuned("rivals", test, &[("SOYBEAN_FAKE_HIDES_ROUNDING", "1")], |machine| {
        let cases = cases(&convolutions(), DType::F32);
        for seed in 0..4 {
            machine.reset(seed);
            // The results have no errors as large as those of tf32.
            check(&cases, Precision::F32, true);
            assert!(choices().iter().any(|it| it.ends_with("keeps f32")));
            fs::remove_dir_all(env::var_os("SOYBEAN_CACHE_DIR").unwrap()).unwrap();
        }
        assert_eq!(machine.n_complaints(), 0);
    });
}
