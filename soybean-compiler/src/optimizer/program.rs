//! Updates as scalar programs: the next values of a parameter and of its states.

use soybean_plan::{Binary, NonFinite, Register, RunScalar, ScalarProgram, Unary};

use super::{Optimizer, Rule};
use crate::scalar::{self, ScalarBuilder};

/// What is added to the norm of the gradients before they are scaled down to the largest that is allowed, as `PyTorch` does.
const CLIPPING_EPS: f64 = 1e-6;

/// What the programs of an update read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// The parameter.
    Parameter,
    /// Its gradient in this step, of the loss times its scale.
    Gradient,
    /// A state of the parameter, by its name.
    State(&'static str),
    /// The norm of all gradients.
    Norm,
    /// Whether loss and norm are finite: 1 or 0.
    IsFinite,
}

/// The sum of the gradients of the steps that share an update.
const GRADIENT_SUM: &str = "gradient_sum";
/// The moving average of a parameter.
const EMA: &str = "ema";

/// How the parameters are updated, by programs over [`Self::inputs`].
pub(crate) struct Updates<'a> {
    optimizer: &'a Optimizer,
    scalars: Scalars,
    /// What the programs read, in the order in which they number it.
    inputs: Vec<Input>,
}

/// The numbers of the run-time scalars that updates read. Those of what an optimiser has not are never read.
#[derive(Clone, Copy)]
struct Scalars {
    learning_rate: u8,
    /// Adam's bias corrections.
    corrections: [u8; 2],
    is_update: u8,
    loss_scale: u8,
}

impl<'a> Updates<'a> {
    /// The updates of an optimiser; the scalars that they read are added to the list.
    pub(crate) fn new(optimizer: &'a Optimizer, scalars: &mut Vec<RunScalar>) -> Self {
        let mut number = |scalar| scalar::number(scalars, scalar);
        let learning_rate = number(RunScalar::LearningRate);
        let corrections = match optimizer.rule {
            Rule::Sgd { .. } => [learning_rate; 2],
            Rule::Adam { betas, .. } => {
                [betas.0, betas.1].map(|base| number(RunScalar::OneMinusPower { base }))
            }
        };
        let is_update =
            if optimizer.accumulate > 1 { number(RunScalar::IsUpdate) } else { learning_rate };
        let loss_scale = match optimizer.non_finite {
            NonFinite::Scale => number(RunScalar::LossScale),
            NonFinite::Stop | NonFinite::Skip => learning_rate,
        };
        let mut inputs = vec![Input::Parameter, Input::Gradient];
        inputs.extend(states(optimizer).into_iter().map(Input::State));
        inputs.extend(optimizer.clip_norm.map(|_| Input::Norm));
        inputs.extend(optimizer.non_finite.skips().then_some(Input::IsFinite));
        let scalars = Scalars { learning_rate, corrections, is_update, loss_scale };
        Self { optimizer, scalars, inputs }
    }

    /// What the programs read, in the order in which they number it.
    pub(crate) fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// The square of the steps' mean gradient so far, this step's included.
    pub(crate) fn square(&self) -> ScalarProgram {
        let mut writer = self.writer();
        let gathered = writer.gathered();
        let mean = writer.mean(gathered);
        let square = writer.b.mul(mean, mean);
        writer.b.finish(square)
    }

    /// The next values of a parameter of this name, then of its states, each by a program of its own.
    pub(crate) fn programs(&self, name: &str) -> Vec<ScalarProgram> {
        let program = |which: usize| {
            let mut writer = self.writer();
            let results = writer.results(self.optimizer.rule_of(name));
            writer.b.finish(results[which])
        };
        (0..=states(self.optimizer).len()).map(program).collect()
    }

    fn writer(&self) -> Writer<'_> {
        Writer { updates: self, b: ScalarBuilder::default() }
    }
}

/// The names of the states of each parameter.
fn states(optimizer: &Optimizer) -> Vec<&'static str> {
    let mut states = optimizer.rule.states().to_vec();
    states.extend((optimizer.accumulate > 1).then_some(GRADIENT_SUM));
    states.extend(optimizer.ema.map(|_| EMA));
    states
}

/// Writes one program.
struct Writer<'a> {
    updates: &'a Updates<'a>,
    b: ScalarBuilder,
}

impl Writer<'_> {
    fn input(&mut self, input: Input) -> Register {
        let position = self.updates.inputs.iter().position(|it| *it == input);
        let position = position.expect("programs read what the optimizer has");
        self.b.input(u8::try_from(position).expect("updates read few tensors"))
    }

    /// The sum of the gradients since the last update.
    fn gathered(&mut self) -> Register {
        let Updates { optimizer, scalars, .. } = self.updates;
        let mut gradient = self.input(Input::Gradient);
        if optimizer.non_finite == NonFinite::Scale {
            // Scales are powers of two, so that the inverse is exact.
            let (one, scale) = (self.b.constant(1.0), self.b.scalar(scalars.loss_scale));
            let inverse = self.b.div(one, scale);
            gradient = self.b.mul(gradient, inverse);
        }
        if optimizer.accumulate > 1 {
            let sum = self.input(Input::State(GRADIENT_SUM));
            gradient = self.b.add(sum, gradient);
        }
        gradient
    }

    /// The mean over the steps that share an update.
    fn mean(&mut self, gathered: Register) -> Register {
        self.b.scale(gathered, 1.0 / self.updates.optimizer.accumulate as f64)
    }

    // g min(1, limit / (norm + eps))
    fn clipped(&mut self, gradient: Register) -> Register {
        let Some(limit) = self.updates.optimizer.clip_norm else { return gradient };
        let (norm, limit) = (self.input(Input::Norm), self.b.constant(limit));
        let norm = self.b.offset(norm, CLIPPING_EPS);
        let larger = self.b.binary(Binary::Maximum, norm, limit);
        let factor = self.b.div(limit, larger);
        self.b.mul(gradient, factor)
    }

    /// The next values of the parameter and all states.
    fn results(&mut self, rule: Rule) -> Vec<Register> {
        let Updates { optimizer, scalars, .. } = self.updates;
        let gathered = self.gathered();
        let mean = self.mean(gathered);
        let gradient = self.clipped(mean);
        let parameter = self.input(Input::Parameter);
        let kept: Vec<Register> =
            rule.states().iter().map(|it| self.input(Input::State(it))).collect();
        let operands = Operands { parameter, gradient, states: &kept };
        let mut results = ruled(&mut self.b, rule, *scalars, &operands);
        let next = results[0];
        results[0] = self.where_updated(next, parameter);
        for (result, before) in results[1..].iter_mut().zip(kept) {
            *result = self.where_updated(*result, before);
        }
        if optimizer.accumulate > 1 {
            let (is_update, zero) = (self.b.scalar(scalars.is_update), self.b.constant(0.0));
            let sum = self.b.select(is_update, zero, gathered);
            let before = self.input(Input::State(GRADIENT_SUM));
            results.push(self.where_finite(sum, before));
        }
        if let Some(decay) = optimizer.ema {
            let before = self.input(Input::State(EMA));
            let average = moving_mean(&mut self.b, before, next, decay);
            results.push(self.where_updated(average, before));
        }
        results
    }

    /// What is new in steps that update, and as it was in the others.
    fn where_updated(&mut self, next: Register, before: Register) -> Register {
        let Updates { optimizer, scalars, .. } = self.updates;
        if optimizer.accumulate == 1 {
            return self.where_finite(next, before);
        }
        let mut condition = self.b.scalar(scalars.is_update);
        if optimizer.non_finite.skips() {
            let is_finite = self.input(Input::IsFinite);
            condition = self.b.mul(condition, is_finite);
        }
        self.b.select(condition, next, before)
    }

    /// What is new in steps that are not skipped, and as it was in the others.
    fn where_finite(&mut self, next: Register, before: Register) -> Register {
        if !self.updates.optimizer.non_finite.skips() {
            return next;
        }
        let is_finite = self.input(Input::IsFinite);
        self.b.select(is_finite, next, before)
    }
}

/// Whether two numbers are finite: 1 or 0.
// 0 x is 0 where x is finite, else not a number.
pub(crate) fn is_finite() -> ScalarProgram {
    let mut it = ScalarBuilder::default();
    let (x, y) = (it.input(0), it.input(1));
    let (x, y) = (it.scale(x, 0.0), it.scale(y, 0.0));
    let (sum, zero) = (it.add(x, y), it.constant(0.0));
    let result = it.equal(sum, zero);
    it.finish(result)
}

/// The second of three numbers where the first is not 0, else the third.
pub(crate) fn choice() -> ScalarProgram {
    let mut it = ScalarBuilder::default();
    let (condition, x, y) = (it.input(0), it.input(1), it.input(2));
    let result = it.select(condition, x, y);
    it.finish(result)
}

/// What a rule reads.
struct Operands<'a> {
    parameter: Register,
    gradient: Register,
    states: &'a [Register],
}

/// What a rule makes of a parameter, then of each of its states.
fn ruled(
    b: &mut ScalarBuilder,
    rule: Rule,
    scalars: Scalars,
    operands: &Operands<'_>,
) -> Vec<Register> {
    let &Operands { mut parameter, mut gradient, states } = operands;
    let rate = b.scalar(scalars.learning_rate);
    match rule {
        // g += decay p; v = momentum v + g; p -= rate v, or with Nesterov p -= rate (g + momentum v)
        Rule::Sgd { momentum, nesterov, weight_decay } => {
            gradient = decayed(b, parameter, gradient, weight_decay);
            let mut velocities = Vec::new();
            let mut direction = gradient;
            for &kept in states {
                let kept = b.scale(kept, momentum);
                direction = b.add(kept, gradient);
                velocities.push(direction);
                if nesterov {
                    let ahead = b.scale(direction, momentum);
                    direction = b.add(gradient, ahead);
                }
            }
            let step = b.mul(rate, direction);
            let next = b.sub(parameter, step);
            [next].into_iter().chain(velocities).collect()
        }
        // m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2
        // p -= rate / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
        Rule::Adam { betas, eps, weight_decay, is_decoupled } => {
            if is_decoupled && weight_decay != 0.0 {
                let decay = b.scale(rate, weight_decay);
                let shrunk = b.mul(parameter, decay);
                parameter = b.sub(parameter, shrunk);
            } else if !is_decoupled {
                gradient = decayed(b, parameter, gradient, weight_decay);
            }
            let square = b.mul(gradient, gradient);
            let mean = moving_mean(b, states[0], gradient, betas.0);
            let square_mean = moving_mean(b, states[1], square, betas.1);
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
    }
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
