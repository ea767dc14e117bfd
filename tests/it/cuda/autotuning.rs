//! Tests of the choice of algorithms by measurement.

use std::{env, fs, path::PathBuf, process};

use soybean::{Config, Device, runtime::Trainer};
use soybean_fake_cuda::virtual_gpus::on_virtual_gpus;

use super::{Network, assert_close, cnn_digits, digits, losses, trainer};

/// Returns a trainer on virtual GPUs that measures algorithms, or not.
fn tuned<N: Network>(autotunes: bool) -> Trainer {
    let config =
        Config { device: Device::Cuda, learning_rate: 0.05, autotunes, ..Config::default() };
    Trainer::new(N::model(), config).unwrap()
}

/// Returns the files of choices in a folder.
fn choices(folder: &PathBuf) -> Vec<String> {
    let files = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
    let files = files.filter(|it| it.extension().is_some_and(|it| it == "choices"));
    files.map(|it| String::from_utf8_lossy(&fs::read(it).unwrap()).into_owned()).collect()
}

#[test]
fn algorithms_are_measured_once() {
    let folder = env::temp_dir().join(format!("soybean-choices-{}", process::id()));
    let settings =
        [("SOYBEAN_FAKE_ALGORITHMS", "3"), ("SOYBEAN_CACHE_DIR", folder.to_str().unwrap())];
    on_virtual_gpus("cuda::autotuning::algorithms_are_measured_once", &settings, |machine| {
        let folder = PathBuf::from(env::var_os("SOYBEAN_CACHE_DIR").unwrap());
        let n_products = || machine.n_calls("cublasLtMatmul");
        drop(tuned::<digits::Network>(false));
        assert_eq!(n_products(), 0);
        let mut first = tuned::<digits::Network>(true);
        let n_measured = n_products();
        let [kept] = &choices(&folder)[..] else { panic!("expected one file of choices") };
        let lines = kept.lines().filter(|it| it.contains("virtual device"));
        // Three algorithms for each kind of product: each four times, and once on NaN before ReLU.
        // As many again where a kernel may add up an operand.
        let n_of_each = lines.map(|it| match it.ends_with("keeps NaN") {
            true => 5,
            false => 4 + 4 * u64::from(it.contains("Sums")),
        });
        assert_eq!(3 * n_of_each.sum::<u64>(), n_measured);
        assert!(n_measured > 0);
        let mut second = tuned::<digits::Network>(true);
        assert_eq!(n_products(), n_measured);
        let expected = losses(&mut trainer::<digits::Network>(Device::Cpu, false));
        assert_close(&losses(&mut first), &expected, "measured");
        assert_close(&losses(&mut second), &expected, "known choices");
        assert_eq!(machine.n_complaints(), 0);
    });
    let _gone = fs::remove_dir_all(folder);
}

#[test]
fn algorithms_that_lose_nan_are_not_chosen() {
    let folder = env::temp_dir().join(format!("soybean-nan-{}", process::id()));
    let settings = [
        ("SOYBEAN_FAKE_ALGORITHMS", "4"),
        ("SOYBEAN_FAKE_RELU_DROPS_NAN", "1"),
        ("SOYBEAN_FAKE_DEVICES", "1"),
        ("SOYBEAN_CACHE_DIR", folder.to_str().unwrap()),
    ];
    let name = "cuda::autotuning::algorithms_that_lose_nan_are_not_chosen";
    on_virtual_gpus(name, &settings, |machine| {
        let folder = PathBuf::from(env::var_os("SOYBEAN_CACHE_DIR").unwrap());
        for seed in 0..8 {
            machine.reset(seed);
            drop(tuned::<digits::Network>(true));
            let kept = choices(&folder).concat();
            let mut of_relu = kept.lines().filter(|it| it.ends_with("keeps NaN")).peekable();
            assert!(of_relu.peek().is_some());
            // Every second one loses NaN.
            for line in of_relu {
                let number = line.split_once(" [").unwrap().0;
                assert!(number.ends_with(['0', '2']), "{line}");
            }
            fs::remove_dir_all(&folder).unwrap();
        }
    });
}

/// The forms of convolutions, under the names of the virtual cuDNN's counts and of choices.
const CONVOLUTIONS: [[&str; 2]; 3] = [
    ["cudnn: forward", "form: Forward"],
    ["cudnn: data", "form: Data"],
    ["cudnn: filter", "form: Filter"],
];

#[test]
fn engines_of_convolutions_are_measured_once() {
    let folder = env::temp_dir().join(format!("soybean-convolutions-{}", process::id()));
    let settings = [("SOYBEAN_CACHE_DIR", folder.to_str().unwrap())];
    on_virtual_gpus(
        "cuda::autotuning::engines_of_convolutions_are_measured_once",
        &settings,
        |machine| {
            let folder = PathBuf::from(env::var_os("SOYBEAN_CACHE_DIR").unwrap());
            let n_convolutions = || CONVOLUTIONS.map(|it| machine.n_calls(it[0]));
            drop(tuned::<cnn_digits::Network>(false));
            assert_eq!(n_convolutions(), [0; 3]);
            let mut first = tuned::<cnn_digits::Network>(true);
            let n_measured = n_convolutions();
            // In `f32` one engine computes gradients, so there is nothing to choose.
            assert!(n_measured[0] > 0, "{n_measured:?}");
            let [kept] = &choices(&folder)[..] else { panic!("expected one file of choices") };
            // `.. engines with the epilogue [], without [6, 0], ..`: each engine five times, once
            // of them to see that it does not round.
            let n_candidates = CONVOLUTIONS.map(|[_, form]| {
                let lines = kept.lines().filter(|it| it.contains(form));
                let n_engines = lines.map(|it| {
                    let list = it.split_once("without [").unwrap().1.split_once(']').unwrap().0;
                    list.split(", ").count() as u64
                });
                n_engines.sum::<u64>()
            });
            assert_eq!(n_candidates.map(|it| 5 * it), n_measured);
            let mut second = tuned::<cnn_digits::Network>(true);
            assert_eq!(n_convolutions(), n_measured);
            let expected = losses(&mut trainer::<cnn_digits::Network>(Device::Cpu, false));
            assert_close(&losses(&mut first), &expected, "measured");
            assert_close(&losses(&mut second), &expected, "known choices");
            assert_eq!(machine.n_complaints(), 0);
        },
    );
    let _gone = fs::remove_dir_all(folder);
}
