//! Adafactor: the mean squares of a matrix of gradients, factored into those of rows and columns.
//!
//! The factors are states of the shapes `[.., rows]` and `[.., columns]`. The reductions to them
//! are operators of the graph, and states and reductions are partitioned by the search as all
//! others. Vectors and scalars have mean squares of all elements.

use soybean_plan::{Binary, NumberRange, Register, RunScalar, Unary};

use crate::{
    optimizer::{
        method::{Layout, Method, Setting, State, Statistic},
        operands::Operands,
        rule::Rule,
    },
    scalar::ScalarBuilder,
};

pub(super) static ADAFACTOR: Method = Method {
    name: "adafactor",
    summary: "gradients scaled by factored means of their squares, in sublinear memory",
    source: "Shazeer & Stern 2018, as in PyTorch's `torch.optim.Adafactor`",
    settings: &[
        Setting::number(
            "beta2_decay",
            -0.8,
            NumberRange::NON_POSITIVE,
            "the exponent of the update's number in the weight of the newest squares",
        ),
        Setting::pair(
            "eps",
            (F32_EPSILON, 1e-3),
            NumberRange::NON_NEGATIVE,
            "the least mean square of rows, and the least root mean square of the parameter",
        ),
        Setting::number(
            "d",
            1.0,
            NumberRange::AT_LEAST_ONE,
            "the largest root mean square of an update",
        ),
        Setting::weight_decay(0.0, "the decoupled weight decay"),
    ],
    states: |_, n_dims| match is_factored(n_dims) {
        true => vec![
            State { name: ROW_MEAN, layout: Layout::Rows },
            State { name: COLUMN_MEAN, layout: Layout::Columns },
        ],
        false => vec![State::full(SQUARE_MEAN)],
    },
    scalars: |_| vec![RunScalar::UpdateNumber],
    statistics: |_, n_dims| {
        let factors = [
            Statistic { name: ROW_SUM, over: Layout::Elements, kept: Layout::Rows, term: square },
            Statistic {
                name: COLUMN_SUM,
                over: Layout::Elements,
                kept: Layout::Columns,
                term: square,
            },
            Statistic {
                name: MATRIX_SUM,
                over: Layout::Rows,
                kept: Layout::Matrices,
                term: next_row_mean,
            },
        ];
        let of_all =
            |name, term| Statistic { name, over: Layout::Elements, kept: Layout::Parameter, term };
        let factors = factors.into_iter().filter(|_| is_factored(n_dims));
        let norms = [
            of_all(PARAMETER_SQUARE_SUM, |_, it| it.builder.mul(it.parameter, it.parameter)),
            of_all(UPDATE_SQUARE_SUM, |rule, it| {
                let update = unclipped(rule, it);
                it.builder.mul(update, update)
            }),
        ];
        factors.chain(norms).collect()
    },
    update,
    ..Method::PLAIN
};

/// The distance from 1 to the next number of single precision, as in `torch.finfo`.
const F32_EPSILON: f64 = f32::EPSILON as f64;

// States.
const ROW_MEAN: &str = "row_square_mean";
const COLUMN_MEAN: &str = "column_square_mean";
const SQUARE_MEAN: &str = "square_mean";

// Statistics.
const ROW_SUM: &str = "row_square_sum";
const COLUMN_SUM: &str = "column_square_sum";
const MATRIX_SUM: &str = "row_square_mean_sum";
const PARAMETER_SQUARE_SUM: &str = "parameter_square_sum";
const UPDATE_SQUARE_SUM: &str = "update_square_sum";

fn is_factored(n_dims: usize) -> bool {
    n_dims >= 2
}

// a = max(eps2, rms(p)) min(rate, 1 / sqrt(t)); p -= rate decay p; p -= a u / max(1, rms(u) / d)
fn update(rule: &Rule, it: &mut Operands<'_>) -> Vec<Register> {
    let n_elements = it.shape.n_elements();
    let update = unclipped(rule, it);
    let update_rms = root_mean(it, UPDATE_SQUARE_SUM, n_elements);
    let parameter_rms = root_mean(it, PARAMETER_SQUARE_SUM, n_elements);
    let rate = relative_rate(rule, it, parameter_rms);
    let parameter = it.decayed_parameter(rule.weight_decay());
    let excess = it.builder.scale(update_rms, 1.0 / rule.number("d"));
    let divisor = at_least(it.builder, excess, 1.0);
    let rate = it.builder.div(rate, divisor);
    let step = it.builder.mul(rate, update);
    let mut results = vec![it.builder.sub(parameter, step)];
    match is_factored(it.shape.len()) {
        true => results.extend([next_row_mean(rule, it), next_column_mean(rule, it)]),
        false => results.push(next_square_mean(rule, it)),
    }
    results
}

/// Writes the learning rate relative to the parameter's size: max(eps2, rms(p)) min(rate, t^-1/2).
fn relative_rate(rule: &Rule, it: &mut Operands<'_>, parameter_rms: Register) -> Register {
    let number = it.scalar(RunScalar::UpdateNumber);
    let (root, one) = (it.builder.unary(Unary::Sqrt, number), it.builder.constant(1.0));
    let bound = it.builder.div(one, root);
    let rate = minimum(it.builder, it.learning_rate, bound);
    let scale = at_least(it.builder, parameter_rms, rule.pair("eps").1);
    it.builder.mul(scale, rate)
}

// min(x, y) = -max(-x, -y)
fn minimum(builder: &mut ScalarBuilder, x: Register, y: Register) -> Register {
    let [x, y] = [x, y].map(|it| builder.unary(Unary::Negate, it));
    let larger = builder.binary(Binary::Maximum, x, y);
    builder.unary(Unary::Negate, larger)
}

/// Writes u = g / sqrt(max(v, eps1^2)), where v is r c / max(mean(r), eps1) of matrices.
fn unclipped(rule: &Rule, it: &mut Operands<'_>) -> Register {
    let least = rule.pair("eps").0;
    let estimate = if is_factored(it.shape.len()) {
        let row = next_row_mean(rule, it);
        let column = next_column_mean(rule, it);
        let n_rows = it.shape[it.shape.len() - 2];
        let mean = it.builder.scale(it.value(MATRIX_SUM), 1.0 / n_rows as f64);
        let mean = at_least(it.builder, mean, least);
        let product = it.builder.mul(row, column);
        it.builder.div(product, mean)
    } else {
        next_square_mean(rule, it)
    };
    let estimate = at_least(it.builder, estimate, least * least);
    let root = it.builder.unary(Unary::Sqrt, estimate);
    it.builder.div(it.gradient, root)
}

fn square(_rule: &Rule, it: &mut Operands<'_>) -> Register {
    it.builder.mul(it.gradient, it.gradient)
}

fn next_row_mean(rule: &Rule, it: &mut Operands<'_>) -> Register {
    let n_columns = it.shape[it.shape.len() - 1];
    let newest = it.builder.scale(it.value(ROW_SUM), 1.0 / n_columns as f64);
    next_mean(rule, it, ROW_MEAN, newest)
}

fn next_column_mean(rule: &Rule, it: &mut Operands<'_>) -> Register {
    let n_rows = it.shape[it.shape.len() - 2];
    let newest = it.builder.scale(it.value(COLUMN_SUM), 1.0 / n_rows as f64);
    next_mean(rule, it, COLUMN_MEAN, newest)
}

fn next_square_mean(rule: &Rule, it: &mut Operands<'_>) -> Register {
    let newest = square(rule, it);
    next_mean(rule, it, SQUARE_MEAN, newest)
}

// w = t^beta2_decay = exp(beta2_decay log(t)); m = (1 - w) m + w x
fn next_mean(rule: &Rule, it: &mut Operands<'_>, state: &str, newest: Register) -> Register {
    let number = it.scalar(RunScalar::UpdateNumber);
    let logarithm = it.builder.unary(Unary::Log, number);
    let exponent = it.builder.scale(logarithm, rule.number("beta2_decay"));
    let weight = it.builder.unary(Unary::Exp, exponent);
    let one = it.builder.constant(1.0);
    let rest = it.builder.sub(one, weight);
    let (kept, new) = (it.builder.mul(rest, it.value(state)), it.builder.mul(weight, newest));
    it.builder.add(kept, new)
}

/// Writes the root of the mean of squares whose sum is a statistic.
fn root_mean(it: &mut Operands<'_>, sum: &str, n_elements: usize) -> Register {
    let mean = it.builder.scale(it.value(sum), 1.0 / n_elements as f64);
    it.builder.unary(Unary::Sqrt, mean)
}

fn at_least(builder: &mut ScalarBuilder, x: Register, least: f64) -> Register {
    let least = builder.constant(least);
    builder.binary(Binary::Maximum, x, least)
}
