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
        // Three algorithms, each four times, for each kind of product.
        assert!(n_measured > 0 && n_measured % 12 == 0, "{n_measured}");
        let [kept] = &choices(&folder)[..] else { panic!("expected one file of choices") };
        assert_eq!(
            kept.lines().filter(|it| it.contains("virtual device")).count() as u64 * 12,
            n_measured
        );
        let mut second = tuned::<digits::Network>(true);
        assert_eq!(n_products(), n_measured);
        let expected = losses(&mut trainer::<digits::Network>(Device::Cpu, false));
        assert_close(&losses(&mut first), &expected, "measured");
        assert_close(&losses(&mut second), &expected, "known choices");
        assert_eq!(machine.n_complaints(), 0);
    });
    let _gone = fs::remove_dir_all(folder);
}

/// The functions of cuDNN that compute convolutions.
const CONVOLUTIONS: [&str; 3] =
    ["cudnnConvolutionForward", "cudnnConvolutionBackwardData", "cudnnConvolutionBackwardFilter"];

#[test]
fn algorithms_of_convolutions_are_measured_once() {
    let folder = env::temp_dir().join(format!("soybean-convolutions-{}", process::id()));
    let settings = [("SOYBEAN_CACHE_DIR", folder.to_str().unwrap())];
    on_virtual_gpus(
        "cuda::autotuning::algorithms_of_convolutions_are_measured_once",
        &settings,
        |machine| {
            let folder = PathBuf::from(env::var_os("SOYBEAN_CACHE_DIR").unwrap());
            let n_convolutions = || CONVOLUTIONS.map(|it| machine.n_calls(it));
            drop(tuned::<cnn_digits::Network>(false));
            assert_eq!(n_convolutions(), [0; 3]);
            let mut first = tuned::<cnn_digits::Network>(true);
            let n_measured = n_convolutions();
            assert!(n_measured.iter().all(|it| *it > 0), "{n_measured:?}");
            let [kept] = &choices(&folder)[..] else { panic!("expected one file of choices") };
            // Each algorithm four times. The names of algorithms begin with those of the forms.
            let names = ["_FWD_ALGO", "_BWD_DATA_ALGO", "_BWD_FILTER_ALGO"];
            let n_candidates = names.map(|it| kept.matches(it).count() as u64);
            assert_eq!(n_candidates.map(|it| 4 * it), n_measured);
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
