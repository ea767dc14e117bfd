//! Numbers of operators, initializers and optimizers that are out of range: each is an error that
//! names the argument, its range and the number.

use soybean_compiler::{
    Argument, Builder, METHODS, Optimizer, Sample, SampleArgument, SettingValue,
    operator_descriptions, operator_samples, optimizer,
};
use soybean_plan::{DType, Init, NumberRange};

/// The numbers that operators take as settings, with their ranges.
const SETTINGS: &[(&str, &str, NumberRange)] = &[
    ("sigmoid_focal_loss", "alpha", NumberRange::SHARE),
    ("sigmoid_focal_loss", "gamma", NumberRange::NON_NEGATIVE),
    ("batch_norm", "momentum", NumberRange::SHARE),
    ("batch_norm", "eps", NumberRange::NON_NEGATIVE),
    ("layer_norm", "eps", NumberRange::NON_NEGATIVE),
    ("rms_norm", "eps", NumberRange::NON_NEGATIVE),
    ("group_norm", "eps", NumberRange::NON_NEGATIVE),
    ("local_response_norm", "alpha", NumberRange::NON_NEGATIVE),
    ("local_response_norm", "beta", NumberRange::FINITE),
    ("local_response_norm", "k", NumberRange::POSITIVE),
    ("normalize", "eps", NumberRange::LENGTH),
    ("cosine_similarity", "eps", NumberRange::LENGTH),
    ("attention_with", "scale", NumberRange::FINITE),
    ("attention_with", "p", NumberRange::BELOW_ONE),
    ("cross_entropy_with", "label_smoothing", NumberRange::SHARE),
    ("dropout", "p", NumberRange::BELOW_ONE),
    ("elu", "alpha", NumberRange::FINITE),
    ("celu", "alpha", NumberRange::FINITE),
    ("leaky_relu", "slope", NumberRange::FINITE),
    ("huber_loss", "delta", NumberRange::POSITIVE),
    ("smooth_l1_loss", "beta", NumberRange::POSITIVE),
    ("cosine_embedding_loss", "margin", NumberRange::COSINE),
    ("triplet_margin_loss", "margin", NumberRange::NON_NEGATIVE),
];

/// Arguments that are elements of tensors, not settings: they may be infinite or NaN, as
/// `masked_fill(mask, -inf)` has them.
const ELEMENTS: &[&str] = &[
    "value",
    "left",
    "right",
    "other",
    "exponent",
    "input",
    "weight",
    "pos_weight",
    "bias",
    "count",
];

/// Calls an operator with the arguments of a sample, one of which is a number instead.
fn call(sample: &Sample, position: usize, number: Argument) -> Result<Argument, String> {
    let mut builder = Builder::new();
    let mut arguments: Vec<Argument> =
        sample.arguments.iter().enumerate().map(|it| argument(&mut builder, it)).collect();
    arguments[position] = number;
    builder.call(sample.operator, &arguments).map_err(|it| it.message)
}

fn argument(builder: &mut Builder, (at, given): (usize, &SampleArgument)) -> Argument {
    let name = format!("operand{at}");
    match given {
        SampleArgument::Tensor { shape, .. } => {
            Argument::Tensor(builder.parameter(&name, shape, Init::Constant(0.0)))
        }
        SampleArgument::Buffer { shape, .. } => {
            Argument::Tensor(builder.buffer(&name, shape, Init::Constant(0.0)))
        }
        SampleArgument::Labels { shape, .. } => {
            Argument::Tensor(builder.input(&name, DType::I32, shape))
        }
        SampleArgument::Array(items) => Argument::List(
            items.iter().enumerate().map(|(n, it)| argument(builder, (100 * at + n, it))).collect(),
        ),
        SampleArgument::Integer(number) => Argument::Integer(*number),
        SampleArgument::Float(number) => Argument::Float(*number),
        SampleArgument::List(numbers) => {
            Argument::List(numbers.iter().map(|it| Argument::Integer(*it)).collect())
        }
        SampleArgument::Boolean(value) => Argument::Boolean(*value),
        SampleArgument::Text(text) => Argument::Text((*text).to_owned()),
        SampleArgument::Function(function) => function.build(builder),
        SampleArgument::All => Argument::All,
    }
}

/// Returns the names of an operator's arguments.
fn names(operator: &str) -> Vec<String> {
    let all = operator_descriptions();
    let found = all.into_iter().find(|it| it.name == operator).expect("samples are of operators");
    // `input.dropout(p)` or `full(shape, value)`.
    let (called, arguments) = found.call.split_once('(').expect("a call has arguments");
    let receiver = called.split_once('.').map(|it| it.0);
    let others = arguments.trim_end_matches(')').split(", ").filter(|it| !it.is_empty());
    receiver.into_iter().chain(others).map(str::to_owned).collect()
}

// Guards: `gamma = NaN`, `eps = inf`, `delta = inf` or `slope = NaN` were taken without a word.
#[test]
fn settings_of_operators_are_in_their_ranges() {
    let (mut n_tried, mut faults) = (0, Vec::new());
    for (operator, setting, range) in SETTINGS {
        let position = names(operator).iter().position(|it| it == setting);
        let samples = operator_samples();
        let found = samples.iter().filter(|it| it.operator == *operator);
        let Some(position) = position else {
            faults.push(format!("{operator} has no argument {setting}"));
            continue;
        };
        for sample in found {
            for number in range.outside() {
                n_tried += 1;
                match call(sample, position, Argument::Float(number)) {
                    Err(message)
                        if message.contains(&format!("`{setting}`"))
                            && message.contains(&range.to_string()) => {}
                    other => faults.push(format!("{operator}, {setting} = {number}: {other:?}")),
                }
            }
            let is_zero = |it: &f64| *operator == "celu" && *it == 0.0;
            for number in range.inside().into_iter().filter(|it| !is_zero(it)) {
                if let Err(message) = call(sample, position, Argument::Float(number)) {
                    faults.push(format!("{operator}, {setting} = {number}: {message}"));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{n_tried}: {}", faults.join("\n"));
}

// Guards: every number of every sample is in the list above, or an element of tensors.
#[test]
fn every_number_of_an_operator_has_a_range() {
    let mut faults = Vec::new();
    for sample in operator_samples() {
        let names = names(sample.operator);
        for (position, given) in sample.arguments.iter().enumerate() {
            let SampleArgument::Float(_) = given else { continue };
            let name = names.get(position).map_or("", String::as_str);
            let is_listed = SETTINGS.iter().any(|it| (it.0, it.1) == (sample.operator, name));
            let is_refused = call(&sample, position, Argument::Float(f64::NAN)).is_err();
            if !is_listed && !is_refused && !ELEMENTS.contains(&name) {
                faults.push(format!("{}: {name}", sample.operator));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

// Guards: integers that no extent, count or dim can be never panic, and are named if they are
// refused.
#[test]
fn integers_of_operators_are_taken_or_refused() {
    let mut n_refused = 0;
    for sample in operator_samples() {
        for (position, given) in sample.arguments.iter().enumerate() {
            if !matches!(given, SampleArgument::Integer(_)) {
                continue;
            }
            for number in [i64::MIN, -1_000_000_000, -1, 0, 1_000_000_000, i64::MAX] {
                n_refused +=
                    usize::from(call(&sample, position, Argument::Integer(number)).is_err());
            }
        }
    }
    assert!(n_refused > 200, "{n_refused}");
}

// Guards: `normal(-1.0)` and `uniform(1.0, -1.0)` were taken without a word.
#[test]
fn numbers_of_initializers_are_in_their_ranges() {
    let builder = Builder::new();
    let init = |name: &str, numbers: &[f64]| {
        let arguments: Vec<Argument> = numbers.iter().map(|it| Argument::Float(*it)).collect();
        builder.init(name, &arguments, &[2, 3]).map_err(|it| it.message)
    };
    for (name, setting, range) in [
        ("constant", "value", NumberRange::FINITE),
        ("normal", "std", NumberRange::NON_NEGATIVE),
        ("trunc_normal", "std", NumberRange::NON_NEGATIVE),
    ] {
        for number in range.outside() {
            let message = init(name, &[number]).unwrap_err();
            assert_eq!(
                message,
                format!("`{name}`: `{setting}` must be a number {range}, found {number}")
            );
        }
        range.inside().iter().for_each(|it| assert!(init(name, &[*it]).is_ok(), "{name} {it}"));
    }
    for number in NumberRange::FINITE.outside() {
        assert!(init("uniform", &[number, 1.0]).unwrap_err().contains("`low` must be"));
        assert!(init("uniform", &[-1.0, number]).unwrap_err().contains("`high` must be"));
    }
    let message = init("uniform", &[1.0, -1.0]).unwrap_err();
    assert_eq!(message, "`uniform`: `high` must not be less than `low`, found 1 and -1");
    assert!(init("uniform", &[-1.0, 1.0]).is_ok());
}

// Guards: every setting of every optimizer, and those of all optimizers.
#[test]
fn settings_of_optimizers_are_in_their_ranges() {
    let numbers = [NumberRange::NON_NEGATIVE.outside(), NumberRange::BELOW_ONE.outside()].concat();
    let mut n_refused = 0;
    for method in METHODS {
        for setting in method.settings {
            let value = |number: f64| match setting.default {
                SettingValue::Flag(_) | SettingValue::Number(_) => Argument::Float(number),
                SettingValue::Pair(..) => {
                    Argument::List(vec![Argument::Float(0.5), Argument::Float(number)])
                }
            };
            for &number in &numbers {
                let given = (setting.name.to_owned(), value(number));
                let refused = optimizer(method.name, &[given]).err();
                let is_named = |it: &soybean_compiler::CallDiagnostic| {
                    it.message.contains(&format!("`{}`", setting.name))
                };
                assert!(refused.iter().all(is_named), "{refused:?}");
                let must_be = !number.is_finite() || number.abs() > 3.5e38;
                assert!(refused.is_some() || !must_be, "{} {} {number}", method.name, setting.name);
                n_refused += usize::from(refused.is_some());
            }
        }
    }
    assert!(n_refused > 100, "{n_refused}");
    for (setting, range) in [("clip_norm", NumberRange::POSITIVE), ("ema", NumberRange::DECAY)] {
        for number in range.outside() {
            let refused = Optimizer::default().set(setting, &Argument::Float(number)).unwrap_err();
            assert!(refused.message.contains(&format!("`{setting}` must be a number {range}")));
        }
        for number in range.inside() {
            Optimizer::default().set(setting, &Argument::Float(number)).unwrap();
        }
    }
    for number in [i64::MIN, -1, 0, (1 << 16) + 1, i64::MAX] {
        let refused = Optimizer::default().set("accumulate", &Argument::Integer(number));
        let message = refused.unwrap_err().message;
        assert_eq!(
            message,
            format!("`accumulate` must be an integer from 1 to 65536, found {number}")
        );
    }
}
