//! Optimisers, as scalar programs of a parameter, its gradient and the optimiser's state. Definitions and defaults are `PyTorch`'s.

use soybean_plan::{Register, RunScalar, ScalarProgram, Unary};

use crate::{
    builder::Argument,
    fault::Fault,
    scalar::{self, ScalarBuilder},
};

/// An optimiser with its settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Optimizer {
    /// Stochastic gradient descent.
    Sgd {
        /// How much of the last update goes into the next.
        momentum: f64,
        /// Whether the gradient looks ahead along the momentum.
        nesterov: bool,
        /// The L2 penalty.
        weight_decay: f64,
    },
    /// Adam: Kingma & Ba 2015.
    Adam {
        /// How slowly the means of the gradient and of its square change.
        betas: (f64, f64),
        /// What is added to the denominator.
        eps: f64,
        /// The penalty.
        weight_decay: f64,
        /// Whether the penalty acts on the parameter itself (`adamw`, Loshchilov & Hutter 2019), not through the gradient.
        is_decoupled: bool,
    },
}

impl Default for Optimizer {
    fn default() -> Self {
        Self::Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 }
    }
}

impl Optimizer {
    /// The name and all settings, of which [`optimizer`] makes it again.
    #[must_use]
    pub fn settings(&self) -> (&'static str, Vec<(&'static str, Argument)>) {
        let number = Argument::Float;
        match *self {
            Self::Sgd { momentum, nesterov, weight_decay } => {
                let settings = vec![
                    ("momentum", number(momentum)),
                    ("nesterov", Argument::Boolean(nesterov)),
                    ("weight_decay", number(weight_decay)),
                ];
                ("sgd", settings)
            }
            Self::Adam { betas, eps, weight_decay, is_decoupled } => {
                let settings = vec![
                    ("betas", Argument::List(vec![number(betas.0), number(betas.1)])),
                    ("eps", number(eps)),
                    ("weight_decay", number(weight_decay)),
                ];
                (if is_decoupled { "adamw" } else { "adam" }, settings)
            }
        }
    }
}

/// The optimisers' names.
const NAMES: [&str; 3] = ["sgd", "adam", "adamw"];

/// The optimiser with this name and these settings.
///
/// # Errors
/// If there is no such optimiser or setting, or a setting's value is not what it takes. [`crate::Place::Argument`] numbers the setting.
pub fn optimizer(name: &str, settings: &[(String, Argument)]) -> Result<Optimizer, Fault> {
    let mut optimizer = match name {
        "sgd" => Optimizer::default(),
        "adam" => Optimizer::Adam {
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.0,
            is_decoupled: false,
        },
        "adamw" => Optimizer::Adam {
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 1e-2,
            is_decoupled: true,
        },
        _ => {
            let help = format!("the optimizers are {}", NAMES.join(", "));
            return Err(Fault::call(format!("unknown optimizer `{name}`")).with_help(help));
        }
    };
    for (position, (setting, value)) in settings.iter().enumerate() {
        set(&mut optimizer, name, setting, value)
            .map_err(|fault| Fault { at: crate::Place::Argument(position), ..fault })?;
    }
    if let Optimizer::Sgd { nesterov: true, momentum, .. } = optimizer
        && momentum <= 0.0
    {
        return Err(Fault::call("`sgd`: `nesterov` needs a momentum above 0".to_owned()));
    }
    Ok(optimizer)
}

fn set(
    optimizer: &mut Optimizer,
    name: &str,
    setting: &str,
    value: &Argument,
) -> Result<(), Fault> {
    let known: &[&str] = match optimizer {
        Optimizer::Sgd { .. } => &["momentum", "nesterov", "weight_decay"],
        Optimizer::Adam { .. } => &["betas", "eps", "weight_decay"],
    };
    let wrong = |what: &str| {
        Fault::call(format!("`{name}`: `{setting}` must be {what}, found {}", value.kind()))
    };
    let number = || match value.as_number() {
        Some(number) if number >= 0.0 => Ok(number),
        Some(number) => {
            Err(Fault::call(format!("`{name}`: `{setting}` must be at least 0, found {number}")))
        }
        None => Err(wrong("a number")),
    };
    match (optimizer, setting) {
        (Optimizer::Sgd { momentum, .. }, "momentum") => *momentum = number()?,
        (Optimizer::Sgd { nesterov, .. }, "nesterov") => match value {
            Argument::Boolean(flag) => *nesterov = *flag,
            _ => return Err(wrong("`true` or `false`")),
        },
        (
            Optimizer::Sgd { weight_decay, .. } | Optimizer::Adam { weight_decay, .. },
            "weight_decay",
        ) => {
            *weight_decay = number()?;
        }
        (Optimizer::Adam { eps, .. }, "eps") => *eps = number()?,
        (Optimizer::Adam { betas, .. }, "betas") => {
            *betas = pair_below_one(value).ok_or_else(|| wrong("two numbers from 0 to below 1"))?;
        }
        _ => {
            let help = format!("its settings are {}", known.join(", "));
            return Err(Fault::call(format!("`{name}` has no setting `{setting}`")).with_help(help));
        }
    }
    Ok(())
}

fn pair_below_one(value: &Argument) -> Option<(f64, f64)> {
    let Argument::List(items) = value else { return None };
    let [first, second] = &items[..] else { return None };
    let valid = |item: &Argument| item.as_number().filter(|it| (0.0..1.0).contains(it));
    Some((valid(first)?, valid(second)?))
}

/// How one parameter is updated: programs whose inputs are the parameter, its gradient, then the states.
pub(crate) struct Update {
    /// The names of the states.
    pub(crate) states: &'static [&'static str],
    /// The parameter's next value.
    pub(crate) parameter: ScalarProgram,
    /// The states' next values; each reads only the gradient, the parameter and the states.
    pub(crate) next_states: Vec<ScalarProgram>,
}

/// The numbers of the run-time scalars that updates read.
#[derive(Clone, Copy)]
struct Scalars {
    learning_rate: u8,
    /// Adam's bias corrections.
    corrections: [u8; 2],
}

/// The programs of an update; the scalars that they read are added to the list.
pub(crate) fn update(optimizer: &Optimizer, scalars: &mut Vec<RunScalar>) -> Update {
    let mut number = |scalar| scalar::number(scalars, scalar);
    let learning_rate = number(RunScalar::LearningRate);
    let corrections = match optimizer {
        Optimizer::Sgd { .. } => [learning_rate; 2],
        Optimizer::Adam { betas, .. } => {
            [betas.0, betas.1].map(|base| number(RunScalar::OneMinusPower { base }))
        }
    };
    let scalars = Scalars { learning_rate, corrections };
    let states: &[&str] = match optimizer {
        Optimizer::Sgd { momentum, .. } if *momentum == 0.0 => &[],
        Optimizer::Sgd { .. } => &["momentum"],
        Optimizer::Adam { .. } => &["mean", "square_mean"],
    };
    let program = |which: usize| {
        let mut builder = ScalarBuilder::default();
        let results = match optimizer {
            Optimizer::Sgd { .. } => sgd(&mut builder, optimizer, scalars),
            Optimizer::Adam { .. } => adam(&mut builder, optimizer, scalars),
        };
        builder.finish(results[which])
    };
    Update { states, parameter: program(0), next_states: (1..=states.len()).map(program).collect() }
}

// g += decay p; v = momentum v + g; p -= rate v, or with Nesterov p -= rate (g + momentum v)
fn sgd(b: &mut ScalarBuilder, optimizer: &Optimizer, scalars: Scalars) -> Vec<Register> {
    let &Optimizer::Sgd { momentum, nesterov, weight_decay } = optimizer else { return Vec::new() };
    let (parameter, gradient, rate) = (b.input(0), b.input(1), b.scalar(scalars.learning_rate));
    let gradient = decayed(b, parameter, gradient, weight_decay);
    let mut results = Vec::new();
    let mut direction = gradient;
    if momentum != 0.0 {
        let kept = b.input(2);
        let kept = b.scale(kept, momentum);
        let velocity = b.add(kept, gradient);
        results.push(velocity);
        direction = velocity;
        if nesterov {
            let ahead = b.scale(velocity, momentum);
            direction = b.add(gradient, ahead);
        }
    }
    let step = b.mul(rate, direction);
    results.insert(0, b.sub(parameter, step));
    results
}

// m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2
// p -= rate / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
fn adam(b: &mut ScalarBuilder, optimizer: &Optimizer, scalars: Scalars) -> Vec<Register> {
    let &Optimizer::Adam { betas, eps, weight_decay, is_decoupled } = optimizer else {
        return Vec::new();
    };
    let (mut parameter, mut gradient, rate) =
        (b.input(0), b.input(1), b.scalar(scalars.learning_rate));
    if is_decoupled {
        let decay = b.scale(rate, weight_decay);
        let shrunk = b.mul(parameter, decay);
        parameter = b.sub(parameter, shrunk);
    } else {
        gradient = decayed(b, parameter, gradient, weight_decay);
    }
    let square = b.mul(gradient, gradient);
    let (mean, square_mean) = (b.input(2), b.input(3));
    let mean = moving_mean(b, mean, gradient, betas.0);
    let square_mean = moving_mean(b, square_mean, square, betas.1);
    let [first, second] = scalars.corrections.map(|it| b.scalar(it));
    let (root, root_of_correction) =
        (b.unary(Unary::Sqrt, square_mean), b.unary(Unary::Sqrt, second));
    let scaled = b.div(root, root_of_correction);
    let denominator = b.offset(scaled, eps);
    let rate = b.div(rate, first);
    let ratio = b.div(mean, denominator);
    let step = b.mul(rate, ratio);
    vec![b.sub(parameter, step), mean, square_mean]
}

fn decayed(
    b: &mut ScalarBuilder,
    parameter: Register,
    gradient: Register,
    weight_decay: f64,
) -> Register {
    if weight_decay == 0.0 {
        return gradient;
    }
    let penalty = b.scale(parameter, weight_decay);
    b.add(gradient, penalty)
}

fn moving_mean(b: &mut ScalarBuilder, mean: Register, value: Register, beta: f64) -> Register {
    let (kept, new) = (b.scale(mean, beta), b.scale(value, 1.0 - beta));
    b.add(kept, new)
}
