//! Steps that are not finite: the error names the first tensor and its line in the source.

use soybean::{Config, Device, TrainConfig, data, runtime::ErrorKind};
use soybean_test_support::{example, run};

use super::signals::few_digits;

#[soybean::model(gpus = 2)]
mod exploding {
    use soybean::prelude::*;

    /// The line of `h`.
    pub(crate) const LINE: u32 = line!() + 5;

    pub(crate) fn forward(x: Tensor<f32, 4, 8>, y: Tensor<f32, 4, 3>) -> Tensor {
        let w = param("w", [8, 6], constant(1.0));
        // 6 numbers are too many to recompute them in each product.
        let h = x.matmul(w).exp();
        h.matmul(param("v", [6, 3], constant(1.0))).mse(y)
    }
}

fn trainer() -> exploding::Trainer {
    exploding::Trainer::new(Config { device: Device::Cpu, ..Config::default() }).unwrap()
}

#[test]
fn the_first_tensor_is_named_with_its_line() {
    let mut trainer = trainer();
    let before = trainer.parameters().unwrap();
    let batch = exploding::Batch { x: &[20.0; 32], y: &[1.0; 12] };
    let error = trainer.step(&batch).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Loss);
    let line = exploding::LINE;
    let expected = format!(
        "expected a finite loss, found that the loss is infinite in step 1 (learning rate 0.01); \
         the first tensor that is not finite is `h`, the result of `exp` at \
         tests/it/runs/non_finite.rs:{line}: infinity; "
    );
    assert!(error.to_string().starts_with(&expected), "{error}\nnot {expected}");
    let hint = "`non_finite = \"skip\"` in the model's attribute skips such steps";
    assert!(error.to_string().ends_with(hint), "{error}");
    assert!(trainer.parameters().unwrap() == before);
    assert_eq!(trainer.counters().n_steps, 0);
}

#[test]
fn inputs_and_parameters_are_named() {
    let mut trainer = trainer();
    let mut x = [0.1; 32];
    x[17] = f32::NAN;
    let error = trainer.step(&exploding::Batch { x: &x, y: &[1.0; 12] }).unwrap_err().to_string();
    let named = "; the input `x` is not finite in row 2 of the batch: NaN; ";
    assert!(error.contains(named), "{error}");
    let mut parameters = trainer.parameters().unwrap();
    parameters[1].1.data[3] = f32::INFINITY;
    trainer.set_parameters(&parameters).unwrap();
    let batch = exploding::Batch { x: &[0.1; 32], y: &[1.0; 12] };
    let error = trainer.step(&batch).unwrap_err().to_string();
    let named = "; the first tensor that is not finite is the parameter `v`, before the step: \
                 infinity; ";
    assert!(error.contains(named), "{error}");
}

#[test]
fn runs_name_it_too() {
    let column = |name: &str, n: usize, value: f32| data::Column {
        name: name.to_owned(),
        row: vec![n],
        values: data::Values::F32(vec![value; 8 * n]),
    };
    let table = data::Table::new(vec![column("x", 8, 20.0), column("y", 3, 1.0)]).unwrap();
    let split = soybean::Split::new(table.clone(), table);
    let error = trainer().fit(&TrainConfig::new(1, 0.01), &split).unwrap_err().to_string();
    let named =
        format!("is `h`, the result of `exp` at tests/it/runs/non_finite.rs:{}", exploding::LINE);
    assert!(error.contains(&named), "{error}");
}

#[test]
fn check_looks_at_all_tensors_of_an_epoch() {
    let check = |arguments: &str| {
        let mut command = example!("digits");
        command.arg("check").arg("--data").arg(few_digits());
        run(command.args(arguments.split_whitespace()))
    };
    let (code, output, errors) = check("--non-finite");
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{output}");
    assert!(output.ends_with(" steps are finite\n"), "{output}");
    let (code, _, errors) = check("--non-finite --lr 1e30");
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.starts_with("error: step "), "{errors}");
    assert!(errors.contains(": the first tensor that is not finite is "), "{errors}");
}
