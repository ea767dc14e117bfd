//! Updates as scalar programs: the next values of a parameter and of its states.

use soybean_plan::{Binary, NonFinite, Register, RunScalar, ScalarProgram, Shape};

use super::{
    Optimizer,
    method::{Layout, State, Statistic},
    operands::{Operands, moving_mean},
    rule::Rule,
};
use crate::scalar::{self, ScalarBuilder};

/// The number that is added to the norm of the gradients before they are clipped, as in `PyTorch`.
const CLIPPING_EPS: f64 = 1e-6;

/// A tensor that the programs of an update read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// The parameter.
    Parameter,
    /// Its gradient, of the loss times its scale: the sum over the steps that share the update.
    Gradient,
    /// A state of the parameter, by name.
    State(&'static str),
    /// The divisor of the gradient, if it depends on the batches.
    Count,
    /// The norm of all gradients.
    Norm,
    /// 1 if loss and norm are finite, else 0.
    IsFinite,
    /// A statistic of the parameter, by name.
    Statistic(&'static str),
}

/// The state that is the moving average of a parameter.
const EMA: &str = "ema";

/// The divisor of the sum of the gradients of the steps that share an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MeanOver {
    /// The number of the steps.
    Steps,
    /// The total of all that the steps counted.
    Count,
}

/// The updates of all parameters.
pub(crate) struct Updates<'a> {
    optimizer: &'a Optimizer,
    mean: MeanOver,
    /// The numbers of [`RunScalar::HasBatch`] and [`RunScalar::InverseSteps`]; not read unless
    /// steps share an update.
    of_steps: [u8; 2],
    learning_rate: u8,
    /// The run-time scalars of all methods with their numbers.
    of_method: Vec<(RunScalar, u8)>,
    /// The number of [`RunScalar::LossScale`]; not read unless the loss is scaled.
    loss_scale: u8,
}

impl<'a> Updates<'a> {
    /// Returns the updates of an optimizer, and adds the scalars that they read to the list.
    pub(crate) fn new(
        optimizer: &'a Optimizer,
        mean: MeanOver,
        scalars: &mut Vec<RunScalar>,
    ) -> Self {
        let mut number = |scalar| scalar::number(scalars, scalar);
        let learning_rate = number(RunScalar::LearningRate);
        let of_methods = optimizer.rules().flat_map(|it| (it.method().scalars)(it));
        let mut of_method: Vec<(RunScalar, u8)> = Vec::new();
        for scalar in of_methods {
            if !of_method.iter().any(|it| it.0 == scalar) {
                of_method.push((scalar, number(scalar)));
            }
        }
        let loss_scale = match optimizer.non_finite {
            NonFinite::Scale => number(RunScalar::LossScale),
            NonFinite::Stop | NonFinite::Skip => learning_rate,
        };
        let of_steps = match optimizer.accumulate {
            0 | 1 => [learning_rate; 2],
            _ => [RunScalar::HasBatch, RunScalar::InverseSteps].map(number),
        };
        Self { optimizer, mean, of_steps, learning_rate, of_method, loss_scale }
    }

    /// Returns the number of [`RunScalar::HasBatch`].
    pub(crate) const fn has_batch(&self) -> u8 {
        self.of_steps[0]
    }

    /// Returns whether steps share updates.
    pub(crate) const fn accumulates(&self) -> bool {
        self.optimizer.accumulate > 1
    }

    /// Returns the program of an input's gradient, which is kept. It reads the gradient, and if
    /// steps are skipped the gradient that was kept before and whether the step is finite.
    pub(crate) fn kept_gradient(&self) -> ScalarProgram {
        let mut it = ScalarBuilder::default();
        let gradient = it.input(0);
        let gradient = self.unscaled(&mut it, gradient);
        let kept = match self.optimizer.non_finite.skips() {
            true => {
                let (before, is_finite) = (it.input(1), it.input(2));
                it.select(is_finite, gradient, before)
            }
            false => gradient,
        };
        it.finish(kept)
    }

    /// Divides a gradient by the scale of the loss.
    fn unscaled(&self, builder: &mut ScalarBuilder, gradient: Register) -> Register {
        if self.optimizer.non_finite != NonFinite::Scale {
            return gradient;
        }
        // Scales are powers of two, so the inverse is exact.
        let (one, scale) = (builder.constant(1.0), builder.scalar(self.loss_scale));
        let inverse = builder.div(one, scale);
        builder.mul(gradient, inverse)
    }

    /// Returns the update of a parameter of this name and shape.
    pub(crate) fn of(&self, name: &str, shape: Shape) -> ParameterUpdate<'_> {
        let rule = self.optimizer.rule_of(name);
        let (method, n_dims) = (rule.method(), shape.len());
        let of_rule = (method.states)(&rule, n_dims);
        let statistics = (method.statistics)(&rule, n_dims);
        let learning_rate_factor = self.optimizer.learning_rate_factor(name);
        ParameterUpdate { updates: self, shape, of_rule, statistics, rule, learning_rate_factor }
    }
}

/// The update of one parameter, by scalar programs over [`Self::inputs`].
pub(crate) struct ParameterUpdate<'a> {
    updates: &'a Updates<'a>,
    shape: Shape,
    rule: Rule,
    learning_rate_factor: f64,
    /// The states of the rule.
    of_rule: Vec<State>,
    statistics: Vec<Statistic>,
}

impl ParameterUpdate<'_> {
    /// Returns the states: those of the rule, then that of averaging. The sum of gradients
    /// is none of them, because only accumulating steps write it.
    pub(crate) fn states(&self) -> Vec<State> {
        let optimizer = self.updates.optimizer;
        let mut states = self.of_rule.clone();
        states.extend(optimizer.ema.map(|_| State::full(EMA)));
        states
    }

    /// Returns whether the parameter keeps its value.
    pub(crate) const fn keeps_parameter(&self) -> bool {
        self.rule.method().keeps_parameters
    }

    /// Returns the tensors that programs read, in the order of their numbers there, with layouts.
    pub(crate) fn inputs(&self) -> Vec<(Input, Layout)> {
        let optimizer = self.updates.optimizer;
        let mut inputs =
            vec![(Input::Parameter, Layout::Elements), (Input::Gradient, Layout::Elements)];
        inputs.extend(self.states().iter().map(|it| (Input::State(it.name), it.layout)));
        let count = (self.updates.mean == MeanOver::Count).then_some(Input::Count);
        inputs.extend(count.map(|it| (it, Layout::Parameter)));
        inputs.extend(optimizer.clip_norm.map(|_| (Input::Norm, Layout::Parameter)));
        let skips = optimizer.non_finite.skips();
        inputs.extend(skips.then_some((Input::IsFinite, Layout::Parameter)));
        let statistics = self.statistics.iter();
        inputs.extend(statistics.map(|it| (Input::Statistic(it.name), it.kept)));
        inputs
    }

    /// Returns the program of the square of the mean gradient of the steps that share the update.
    pub(crate) fn square(&self) -> ScalarProgram {
        let mut writer = self.writer();
        let gathered = writer.gathered();
        let mean = writer.mean(gathered);
        let square = writer.builder.mul(mean, mean);
        writer.builder.finish(square)
    }

    /// Returns the statistics with the programs of their terms.
    pub(crate) fn statistics(&self) -> Vec<(Statistic, ScalarProgram)> {
        let program = |it: &Statistic| {
            let mut writer = self.writer();
            let gathered = writer.gathered();
            let term = (it.term)(&self.rule, &mut writer.operands(gathered));
            (*it, writer.builder.finish(term))
        };
        self.statistics.iter().map(program).collect()
    }

    /// Returns the programs of the next values of the parameter, then of its states.
    pub(crate) fn programs(&self) -> Vec<(Layout, ScalarProgram)> {
        let states = self.states().into_iter().map(|it| it.layout);
        let layouts = [Layout::Elements].into_iter().chain(states);
        let program = |(which, layout): (usize, Layout)| {
            let mut writer = self.writer();
            let results = writer.results();
            (layout, writer.builder.finish(results[which]))
        };
        layouts.enumerate().map(program).collect()
    }

    fn writer(&self) -> ProgramWriter<'_> {
        ProgramWriter { update: self, inputs: self.inputs(), builder: ScalarBuilder::default() }
    }
}

/// Writes one program.
struct ProgramWriter<'a> {
    update: &'a ParameterUpdate<'a>,
    inputs: Vec<(Input, Layout)>,
    builder: ScalarBuilder,
}

impl ProgramWriter<'_> {
    fn input(&mut self, input: Input) -> Register {
        let position = self.inputs.iter().position(|it| it.0 == input);
        let position = position.expect("programs read declared inputs");
        self.builder.input(u8::try_from(position).expect("updates read few tensors"))
    }

    /// Divides the sum of the gradients since the last update by the scale of the loss.
    fn gathered(&mut self) -> Register {
        let gradient = self.input(Input::Gradient);
        self.update.updates.unscaled(&mut self.builder, gradient)
    }

    /// Divides a sum by the number of steps that share an update, or by what they counted.
    fn mean(&mut self, gathered: Register) -> Register {
        let updates = self.update.updates;
        match updates.mean {
            MeanOver::Steps if !updates.accumulates() => gathered,
            MeanOver::Steps => {
                let inverse = self.builder.scalar(updates.of_steps[1]);
                self.builder.mul(gathered, inverse)
            }
            MeanOver::Count => {
                let count = self.input(Input::Count);
                self.builder.div(gathered, count)
            }
        }
    }

    // g min(1, limit / (norm + eps))
    fn clipped(&mut self, gradient: Register) -> Register {
        let Some(limit) = self.update.updates.optimizer.clip_norm else { return gradient };
        let (norm, limit) = (self.input(Input::Norm), self.builder.constant(limit));
        let norm = self.builder.offset(norm, CLIPPING_EPS);
        let larger = self.builder.binary(Binary::Maximum, norm, limit);
        let factor = self.builder.div(limit, larger);
        self.builder.mul(gradient, factor)
    }

    /// Reads the operands of the rule, given the sum of the gradients since the last update.
    fn operands(&mut self, gathered: Register) -> Operands<'_> {
        let ParameterUpdate { updates, shape, of_rule, statistics, learning_rate_factor, .. } =
            self.update;
        let mean = self.mean(gathered);
        let gradient = self.clipped(mean);
        let parameter = self.input(Input::Parameter);
        let states = of_rule.iter().map(|it| Input::State(it.name));
        // A statistic reads those before it; the others are not computed yet.
        let statistics = statistics.iter().map(|it| Input::Statistic(it.name));
        let mut tensors = Vec::new();
        for input in states.chain(statistics) {
            if let Input::State(name) | Input::Statistic(name) = input {
                tensors.push((name, self.input(input)));
            }
        }
        let learning_rate = self.builder.scalar(updates.learning_rate);
        let learning_rate = self.builder.scale(learning_rate, *learning_rate_factor);
        Operands {
            builder: &mut self.builder,
            shape: *shape,
            learning_rate,
            parameter,
            gradient,
            tensors,
            scalars: &updates.of_method,
        }
    }

    /// Writes the next values of the parameter and all states.
    fn results(&mut self) -> Vec<Register> {
        let ParameterUpdate { updates, rule, of_rule, .. } = self.update;
        let optimizer = updates.optimizer;
        let gathered = self.gathered();
        let mut results = (rule.method().update)(rule, &mut self.operands(gathered));
        let (parameter, next) = (self.input(Input::Parameter), results[0]);
        results[0] = self.if_finite(next, parameter);
        for (result, state) in results[1..].iter_mut().zip(of_rule) {
            let before = self.input(Input::State(state.name));
            *result = self.if_finite(*result, before);
        }
        if let Some(decay) = optimizer.ema {
            let before = self.input(Input::State(EMA));
            let average = moving_mean(&mut self.builder, before, next, decay);
            results.push(self.if_finite(average, before));
        }
        results
    }

    /// Selects the next value in steps that are not skipped, and the value before in others.
    fn if_finite(&mut self, next: Register, before: Register) -> Register {
        if next == before || !self.update.updates.optimizer.non_finite.skips() {
            return next;
        }
        let is_finite = self.input(Input::IsFinite);
        self.builder.select(is_finite, next, before)
    }
}

/// Returns the program that gives 1 if each of its numbers is finite, else 0.
pub(crate) fn is_each_finite(n_numbers: u8) -> ScalarProgram {
    let mut it = ScalarBuilder::default();
    let numbers: Vec<Register> = (0..n_numbers).map(|number| it.input(number)).collect();
    let result = it.are_finite(&numbers);
    it.finish(result)
}
