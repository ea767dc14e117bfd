//! Scalars among the inputs of models: the same number for all rows of a batch.

use soybean::{Config, Device};
use soybean_fake_cuda::virtual_gpus::on_virtual_gpus;

macro_rules! models {
    ($($trained:ident and $predicted:ident on $gpus:literal;)*) => {
        $(#[soybean::model(gpus = $gpus, optimizer = sgd())]
        mod $trained {
            use soybean::prelude::*;

            pub(crate) fn forward(
                scale: Tensor<f32>,
                x: Tensor<f32, 12, 4>,
                offset: Tensor<i32>,
            ) -> (Tensor, Tensor, Tensor) {
                let h = x.matmul(param("w", [4, 2], ones())) * scale;
                let moved = h + offset.to_f32();
                (moved.square().mean(..), moved, scale * 2.0)
            }
        }

        #[soybean::model(gpus = $gpus, mode = "inference")]
        mod $predicted {
            use soybean::prelude::*;

            pub(crate) fn forward(
                scale: Tensor<f32>,
                x: Tensor<f32, 6, 4>,
                row: Tensor<i32>,
            ) -> (Tensor, Tensor) {
                let table = param("table", [3, 2], ones());
                let h = x.matmul(param("w", [4, 2], ones())) * scale;
                (h + row.embedding(table), scale * 2.0)
            }
        }

        /// Checks losses, an update, and predictions of more and fewer rows than a batch.
        fn $trained(device: Device) {
            let mut trainer = $trained::Trainer::new(config(device)).unwrap();
            let x = rows(12);
            let mut weight = 1.0;
            for (scale, offset) in [(0.5, 3), (2.0, -1)] {
                let batch = $trained::Batch { scale: &[scale], x: &x, offset: &[offset] };
                let moved = outputs(&x, weight, scale, offset as f32);
                let expected = moved.iter().map(|it| it * it).sum::<f32>() / 24.0;
                let found = trainer.evaluate(&batch).unwrap();
                assert!((found.loss - expected).abs() < 1e-5 * expected, "{}", found.loss);
                assert_eq!(found.outputs[1].data, [2.0 * scale]);
                for n in [1, 12, 17] {
                    let x = rows(n);
                    let batch = $trained::Batch { scale: &[scale], x: &x, offset: &[offset] };
                    let found = trainer.predict(&batch).unwrap();
                    assert_eq!(found[0].shape, [n, 2]);
                    assert_eq!(found[0].data, outputs(&x, weight, scale, offset as f32));
                    assert_eq!(found[1].data, [2.0 * scale]);
                }
            }
            let ones = vec![0.5; 48];
            let batch = $trained::Batch { scale: &[0.5], x: &ones, offset: &[3] };
            trainer.step(&batch).unwrap();
            // Each output is 4 * 0.5 * 0.5 + 3 = 4, and each of 12 rows adds 2 * 4 * 0.25 / 24.
            weight -= 0.5 * 12.0 * 2.0 * 4.0 * 0.25 / 24.0;
            let after = trainer.predict(&batch).unwrap();
            for (found, expected) in after[0].data.iter().zip(outputs(&ones, weight, 0.5, 3.0)) {
                assert!((found - expected).abs() < 1e-5, "{found}, not {expected}");
            }
        }

        fn $predicted(device: Device) {
            let mut predictor = $predicted::Predictor::new(config(device)).unwrap();
            for n in [1, 6, 15] {
                let x = rows(n);
                let mut predict = |row: i32| {
                    let (scale, x) = (&[0.25], &x);
                    predictor.predict(&$predicted::Batch { scale, x, row: &[row] })
                };
                let found = predict(2).unwrap();
                assert_eq!(found[0].shape, [n, 2]);
                assert_eq!(found[0].data, outputs(&x, 1.0, 0.25, 1.0));
                assert_eq!(found[1].data, [0.5]);
                let error = predict(3).unwrap_err().to_string();
                assert!(
                    error.contains("input `row`, row 0: expected a label in 0..3, found 3"),
                    "{error}"
                );
            }
            let x = rows(6);
            let two = predictor.predict(&$predicted::Batch { scale: &[0.25; 2], x: &x, row: &[0] });
            let error = two.unwrap_err().to_string();
            assert!(error.contains("input `scale`: expected 1 elements"), "{error}");
        })*
    };
}

models! {
    trained_on_one and predicted_on_one on 1;
    trained_on_four and predicted_on_four on 4;
    trained_on_five and predicted_on_five on 5;
}

/// Numbers whose sums of four are exact.
fn rows(n: usize) -> Vec<f32> {
    (0..4 * n).map(|it| (it * 7 % 13) as f32 / 4.0 - 1.0).collect()
}

/// Returns `scale (x w) + offset` for `w` of equal numbers, twice in each row.
fn outputs(x: &[f32], weight: f32, scale: f32, offset: f32) -> Vec<f32> {
    let row = |it: &[f32]| [scale * weight * it.iter().sum::<f32>() + offset; 2];
    x.chunks(4).flat_map(row).collect()
}

fn config(device: Device) -> Config {
    Config { device, learning_rate: 0.5, ..Config::default() }
}

#[test]
fn trainers() {
    trained_on_one(Device::Cpu);
    trained_on_four(Device::Cpu);
    trained_on_five(Device::Cpu);
}

#[test]
fn predictors() {
    predicted_on_one(Device::Cpu);
    predicted_on_four(Device::Cpu);
    predicted_on_five(Device::Cpu);
}

#[test]
fn gpus() {
    on_virtual_gpus("scalar_inputs::gpus", &[], |_| {
        trained_on_four(Device::Cuda);
        predicted_on_four(Device::Cuda);
    });
}

/// The loader of a data set gives rows alone.
#[test]
fn data_sets_are_refused() {
    let table = soybean::data::Table::new(vec![soybean::data::Column {
        name: "x".to_owned(),
        row: vec![4],
        values: soybean::data::Values::F32(rows(12)),
    }]);
    let mut trainer = trained_on_one::Trainer::new(config(Device::Cpu)).unwrap();
    let error = trainer.evaluate_dataset(table.unwrap(), &[]).unwrap_err().to_string();
    let expected =
        "expected inputs that share dim 0, the batch; found scale [], x [12, 4], offset []";
    assert!(error.contains(expected), "{error}");
}
