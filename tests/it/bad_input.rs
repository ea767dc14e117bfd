//! Bad input at run time: the error names the expected and the found value, the exit code is 1, and
//! nothing panics.

use std::{fs, path::PathBuf};

use soybean::{Array, Config, Device, runtime::ErrorKind};
use soybean_test_support::{example, run};

/// A model of two layers over 4 devices.
#[soybean::model(gpus = 4)]
pub(crate) mod small {
    use soybean::prelude::*;

    /// Returns the cross-entropy and the logits.
    pub(crate) fn forward(x: Tensor<f32, 8, 6>, y: Tensor<i32, 8>) -> (Tensor, Tensor) {
        let h = x.matmul(param("w", [16, 6], he_normal()).transpose()).relu();
        let logits = h.matmul(param("v", [4, 16], he_normal()).transpose());
        (logits.cross_entropy(y), logits)
    }
}

fn trainer() -> small::Trainer {
    small::Trainer::new(Config::default()).unwrap()
}

/// Checks the kind of an error and parts of its message.
fn says(error: &soybean::Error, kind: ErrorKind, parts: &[&str]) {
    assert_eq!(error.kind(), kind, "{error}");
    for part in parts {
        assert!(error.to_string().contains(part), "`{part}` in: {error}");
    }
}

#[test]
fn a_batch_of_the_wrong_shape() {
    let error = trainer().step(&small::Batch { x: &[0.0; 47], y: &[0; 8] }).unwrap_err();
    says(&error, ErrorKind::Batch, &["`x`", "48", "47"]);
    let error = trainer().evaluate(&small::Batch { x: &[0.0; 48], y: &[0; 9] }).unwrap_err();
    says(&error, ErrorKind::Batch, &["`y`", "8", "9"]);
}

#[test]
fn labels_out_of_range() {
    for label in [4, -1] {
        let labels = [0, 1, 2, label, 0, 1, 2, 3];
        let error = trainer().step(&small::Batch { x: &[0.0; 48], y: &labels }).unwrap_err();
        says(&error, ErrorKind::Batch, &["`y`", "0..4", &label.to_string()]);
    }
}

#[test]
fn a_loss_that_is_not_a_number() {
    let mut trainer = trainer();
    let good = small::Batch { x: &[0.5; 48], y: &[0; 8] };
    trainer.step(&good).unwrap();
    let error = trainer.step(&small::Batch { x: &[f32::NAN; 48], y: &[0; 8] }).unwrap_err();
    says(&error, ErrorKind::Loss, &["step 2", "NaN"]);
}

#[test]
fn a_good_batch_after_a_bad_one() {
    let mut trainer = trainer();
    trainer.step(&small::Batch { x: &[0.0; 1], y: &[0; 8] }).unwrap_err();
    assert!(trainer.step(&small::Batch { x: &[0.5; 48], y: &[0; 8] }).is_ok());
}

#[test]
fn parameters_that_do_not_fit() {
    let array = |shape: [usize; 2]| Array {
        shape: shape.to_vec(),
        data: vec![0.0; shape[0] * shape[1]],
        ..Array::default()
    };
    let named = |name: &str, shape| (name.to_owned(), array(shape));
    let refused = |parameters: &[_]| trainer().set_parameters(parameters).unwrap_err();
    let error = refused(&[named("w", [16, 6]), named("u", [4, 16])]);
    says(&error, ErrorKind::Parameters, &["`u`", "v"]);
    says(&refused(&[named("w", [16, 6])]), ErrorKind::Parameters, &["`v`"]);
    let error = refused(&[named("w", [6, 16]), named("v", [4, 16])]);
    says(&error, ErrorKind::Parameters, &["`w`", "[16, 6]", "[6, 16]"]);
}

#[test]
fn a_device_that_is_not_there() {
    let error =
        small::Trainer::new(Config { device: Device::Cuda, ..Config::default() }).unwrap_err();
    says(&error, ErrorKind::Device, &["cuda"]);
}

/// Runs `digits` on a data file; returns its standard error.
fn digits_on(path: &PathBuf) -> String {
    let (code, _, errors) = run(example!("digits").arg("--data").arg(path));
    assert_eq!(code, Some(1), "{errors}");
    assert!(!errors.contains("panicked"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    errors
}

fn file(name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, content).unwrap();
    path
}

#[test]
fn a_data_file_that_cannot_be_read() {
    let errors = digits_on(&PathBuf::from("no/such/file.csv.gz"));
    assert!(errors.contains("no/such/file.csv.gz"), "{errors}");
    let errors = digits_on(&file("not_compressed.csv.gz", "this is not gzip"));
    assert!(errors.contains("not_compressed.csv.gz"), "{errors}");
}

#[test]
fn a_corrupt_data_file() {
    let good = vec!["1"; 65].join(",");
    let word = good.replacen("1,1", "1,one", 1);
    let errors = digits_on(&file("word.csv", format!("{good}\n{word}\n")));
    assert!(
        errors.contains("word.csv") && errors.contains('2') && errors.contains("one"),
        "{errors}"
    );
    let short = vec!["1"; 64].join(",");
    let errors = digits_on(&file("short.csv", format!("{good}\n{short}\n")));
    assert!(errors.contains("65") && errors.contains("64"), "{errors}");
    let errors = digits_on(&file(
        "label.csv",
        format!("{}1\n", "1,".repeat(64)).replace(",1\n", ",17\n").repeat(200),
    ));
    assert!(errors.contains("17") && errors.contains("10"), "{errors}");
    let errors = digits_on(&file("few.csv", format!("{good}\n")));
    assert!(errors.contains("few") || errors.contains("expected"), "{errors}");
}
