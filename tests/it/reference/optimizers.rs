//! Compares updates of every optimizer, at its defaults and with all settings, with those of NumPy.

use soybean::runtime::{Array, View};
use soybean_compiler::{Argument, Builder, Compiled, METHODS, Strategy, optimizer};
use soybean_plan::{DType, Init};
use soybean_test_support::models::{call, finish, single, trainer};

use super::{Numbers, check, numbers};

/// Updates of some parameters, whose gradients are the inputs.
struct Updates {
    optimizer: String,
    settings: Vec<(String, Argument)>,
    parameters: Vec<Numbers>,
    /// The gradients of all parameters, update by update.
    gradients: Vec<Numbers>,
    /// The parameters after each update.
    updated: Vec<Numbers>,
}

/// The learning rate of the script.
const RATE: f32 = 0.55;

/// The golden file: the committed one, or the one beside the file that the environment names.
fn golden() -> String {
    match std::env::var("SOYBEAN_GOLDEN") {
        Ok(path) => {
            let path = std::path::Path::new(&path).with_file_name("optimizers.txt");
            std::fs::read_to_string(path).expect("the script writes both files")
        }
        Err(_) => include_str!("../../reference/optimizers.txt").to_owned(),
    }
}

fn cases() -> Vec<Updates> {
    let mut cases: Vec<Updates> = Vec::new();
    for line in golden().lines() {
        let (kind, rest) = line.split_once(' ').unwrap();
        if kind == "optimizer" {
            cases.push(Updates {
                optimizer: rest.to_owned(),
                settings: Vec::new(),
                parameters: Vec::new(),
                gradients: Vec::new(),
                updated: Vec::new(),
            });
            continue;
        }
        let case = cases.last_mut().unwrap();
        match kind {
            "setting" => case.settings.push(setting(rest)),
            "parameter" => case.parameters.push(numbers(rest)),
            "gradient" => case.gradients.push(numbers(rest)),
            "updated" => case.updated.push(numbers(rest)),
            _ => unreachable!("the script writes no `{kind}`"),
        }
    }
    cases
}

/// Reads `eps number 0.001`, `nesterov flag true` or `betas pair 0.9 0.99`.
fn setting(text: &str) -> (String, Argument) {
    let words: Vec<&str> = text.split(' ').collect();
    let number = |text: &str| Argument::Float(text.parse().unwrap());
    let value = match words[1..] {
        ["flag", flag] => Argument::Boolean(flag == "true"),
        ["number", it] => number(it),
        ["pair", first, second] => Argument::List(vec![number(first), number(second)]),
        _ => unreachable!("the script writes no setting `{text}`"),
    };
    (words[0].to_owned(), value)
}

impl Updates {
    /// Compiles the loss sum(p1 x1) + sum(p2 x2) + .., in which the gradient of each parameter is
    /// an input.
    fn compile(&self, n_gpus: usize, strategy: Strategy) -> Compiled {
        let mut it = Builder::new();
        let mut loss = None;
        for (number, Numbers { shape, .. }) in self.parameters.iter().enumerate() {
            let parameter = it.parameter(&format!("p{number}"), shape, Init::Constant(0.0));
            let input = it.input(&format!("x{number}"), DType::F32, shape);
            let operands = [parameter, input].map(Argument::Tensor);
            let product = call(&mut it, "mul", &operands);
            let sum = call(&mut it, "sum", &[Argument::Tensor(product), Argument::All]);
            loss = Some(match loss {
                None => sum,
                Some(loss) => call(&mut it, "add", &[loss, sum].map(Argument::Tensor)),
            });
        }
        let optimizer = optimizer(&self.optimizer, &self.settings).unwrap();
        finish(it, loss.unwrap(), &[], n_gpus, strategy, optimizer)
    }

    fn check(&self, n_gpus: usize, strategy: Strategy) {
        let what = format!("{} {:?} on {n_gpus} devices", self.optimizer, self.settings);
        let compiled = self.compile(n_gpus, strategy);
        let mut trainer = trainer(&compiled, RATE);
        let start = self.parameters.iter().enumerate().map(|(number, it)| {
            let array =
                Array { shape: it.shape.clone(), data: single(&it.elements), ..Array::default() };
            (format!("p{number}"), array)
        });
        trainer.set_parameters(&start.collect::<Vec<_>>()).unwrap();
        let n_parameters = self.parameters.len();
        let updates = self.gradients.chunks(n_parameters).zip(self.updated.chunks(n_parameters));
        for (number, (gradients, updated)) in updates.enumerate() {
            let gradients: Vec<Vec<f32>> =
                gradients.iter().map(|it| single(&it.elements)).collect();
            let views: Vec<View<'_>> = gradients.iter().map(|it| View::F32(it)).collect();
            trainer.step(&views).unwrap();
            assert_eq!(trainer.moved_bytes(), compiled.program.tables.train_bytes(), "{what}");
            assert_eq!(trainer.fed_bytes(), compiled.report.fed_bytes, "{what}");
            for ((name, found), expected) in trainer.parameters().unwrap().iter().zip(updated) {
                let what = format!("{what}, `{name}` after update {}", number + 1);
                // Single precision through some dozen operations.
                check(&what, found.data.iter().map(|it| f64::from(*it)), expected, 1e-5);
            }
        }
    }
}

#[test]
fn every_optimizer_has_golden_values() {
    let cases = cases();
    for method in METHODS {
        let of_method = || cases.iter().filter(|it| it.optimizer == method.name);
        assert!(of_method().any(|it| it.settings.is_empty()), "{}", method.name);
        let has_all = |it: &Updates| it.settings.len() == method.settings.len();
        assert!(of_method().any(has_all), "{}", method.name);
    }
}

#[test]
fn updates_on_one_and_on_several_devices() {
    for case in cases() {
        for n_gpus in [1, 2, 4, 6] {
            for strategy in [Strategy::Auto, Strategy::Data, Strategy::Model] {
                case.check(n_gpus, strategy);
            }
        }
    }
}
