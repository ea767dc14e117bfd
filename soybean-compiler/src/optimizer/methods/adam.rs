//! Adam, `AdamW` with decoupled weight decay, and Adam for gradients that are mostly 0.

use soybean_plan::{NumberRange, Register, RunScalar, Unary};

use crate::optimizer::{
    method::{Method, Setting, State},
    operands::Operands,
    rule::Rule,
};

pub(super) static ADAM: Method = Method {
    name: "adam",
    summary: "gradients scaled by moving means of their squares",
    source: "Kingma & Ba 2015, as in PyTorch",
    settings: &[BETAS, EPS, Setting::weight_decay(0.0, "the L2 penalty")],
    update: |rule, it| {
        it.gradient = it.penalized_gradient(rule.weight_decay());
        update(rule, it)
    },
    ..COMMON
};

pub(super) static ADAMW: Method = Method {
    name: "adamw",
    summary: "Adam with decoupled weight decay",
    source: "Loshchilov & Hutter 2019, as in PyTorch",
    settings: &[BETAS, EPS, Setting::weight_decay(1e-2, "the decoupled weight decay")],
    update: |rule, it| {
        it.parameter = it.decayed_parameter(rule.weight_decay());
        update(rule, it)
    },
    ..COMMON
};

/// In tables of embeddings, nothing changes in rows that no index chose, as in `SparseAdam`, and
/// in elements of other rows whose gradient happens to be 0. A rule for each element depends on no
/// other part of the model.
pub(super) static LAZY_ADAM: Method = Method {
    name: "lazy_adam",
    summary: "Adam in elements whose gradient is not 0; others keep their value and means",
    source: "`SparseAdam` of PyTorch, for elements instead of rows",
    settings: &[BETAS, EPS],
    update: |rule, it| {
        let nothing = it.builder.constant(0.0);
        let is_kept = it.builder.equal(it.gradient, nothing);
        let kept = [it.parameter, it.value("mean"), it.value("square_mean")];
        let next = update(rule, it);
        let select = |(kept, next)| it.builder.select(is_kept, kept, next);
        kept.into_iter().zip(next).map(select).collect()
    },
    ..COMMON
};

const COMMON: Method = Method {
    states: |_, _| vec![State::full("mean"), State::full("square_mean")],
    scalars: |rule| corrections(rule).to_vec(),
    ..Method::PLAIN
};

const BETAS: Setting = Setting::pair(
    "betas",
    (0.9, 0.999),
    NumberRange::BELOW_ONE,
    "the decay of the moving means of the gradient and of its square",
);

const EPS: Setting =
    Setting::number("eps", 1e-8, NumberRange::NON_NEGATIVE, "a number added to the denominator");

/// Returns the bias corrections of both means.
fn corrections(rule: &Rule) -> [RunScalar; 2] {
    let betas = rule.pair("betas");
    [betas.0, betas.1].map(|base| RunScalar::OneMinusPower { base })
}

// m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2
// p -= rate / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
fn update(rule: &Rule, it: &mut Operands<'_>) -> Vec<Register> {
    let betas = rule.pair("betas");
    let square = it.builder.mul(it.gradient, it.gradient);
    let mean = it.moving_mean(it.value("mean"), it.gradient, betas.0);
    let square_mean = it.moving_mean(it.value("square_mean"), square, betas.1);
    let [first, second] = corrections(rule).map(|scalar| it.scalar(scalar));
    let root = it.builder.unary(Unary::Sqrt, square_mean);
    let root_of_correction = it.builder.unary(Unary::Sqrt, second);
    let scaled = it.builder.div(root, root_of_correction);
    let denominator = it.builder.offset(scaled, rule.number("eps"));
    let rate = it.builder.div(it.learning_rate, first);
    let ratio = it.builder.div(mean, denominator);
    let step = it.builder.mul(rate, ratio);
    vec![it.builder.sub(it.parameter, step), mean, square_mean]
}
