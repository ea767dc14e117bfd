//! The perceptron of the tests and its updates as plain loops in double precision.

use soybean_compiler::Rule;

use soybean_test_support::models::{Batch, CLASSES, FEATURES};

/// Parameters or their gradients: for each layer the weights `[units, inputs]`, then the biases.
pub(crate) type Tensors = Vec<Vec<f64>>;

/// Computes `x w' + b` for each row.
fn dense(x: &[f64], w: &[f64], b: &[f64]) -> Vec<f64> {
    let n_inputs = w.len() / b.len();
    let dot =
        |row: &[f64], weights: &[f64]| -> f64 { row.iter().zip(weights).map(|(x, w)| x * w).sum() };
    let row = |row: &[f64]| -> Vec<f64> {
        w.chunks(n_inputs).zip(b).map(|(weights, b)| dot(row, weights) + b).collect()
    };
    x.chunks(n_inputs).flat_map(row).collect()
}

/// Returns the gradient of the mean cross-entropy with respect to the logits, and the loss.
fn cross_entropy(logits: &[f64], labels: &[i32]) -> (Vec<f64>, f64) {
    let n = labels.len() as f64;
    let mut gradient = Vec::new();
    let mut loss = 0.0;
    for (row, &label) in logits.chunks(CLASSES).zip(labels) {
        let sum: f64 = row.iter().map(|it| it.exp()).sum();
        for (class, logit) in row.iter().enumerate() {
            let is_label = i32::try_from(class).unwrap() == label;
            let share = logit.exp() / sum;
            gradient.push((share - f64::from(u8::from(is_label))) / n);
            loss -= if is_label { share.ln() / n } else { 0.0 };
        }
    }
    (gradient, loss)
}

/// Returns the gradients of the loss with respect to all parameters, and the loss.
pub(crate) fn gradients(parameters: &Tensors, batch: &Batch) -> (Tensors, f64) {
    let (gradients, _, loss) = gradients_with_input(parameters, batch);
    (gradients, loss)
}

/// Returns the gradients of the loss with respect to all parameters and to `x`, and the loss.
pub(crate) fn gradients_with_input(
    parameters: &Tensors,
    batch: &Batch,
) -> (Tensors, Vec<f64>, f64) {
    let wide: Vec<f64> = batch.x.iter().map(|it| f64::from(*it)).collect();
    let n_layers = parameters.len() / 2;
    let mut inputs = vec![wide];
    for layer in 0..n_layers {
        let sums = dense(&inputs[layer], &parameters[2 * layer], &parameters[2 * layer + 1]);
        let is_last = layer + 1 == n_layers;
        inputs.push(sums.into_iter().map(|it| if is_last { it } else { it.max(0.0) }).collect());
    }
    let (mut above, loss) = cross_entropy(&inputs[n_layers], &batch.y);
    let mut gradients = vec![Vec::new(); parameters.len()];
    for layer in (0..n_layers).rev() {
        let (w, n_units) = (&parameters[2 * layer], parameters[2 * layer + 1].len());
        let n_inputs = w.len() / n_units;
        let (mut of_w, mut of_b) = (vec![0.0; w.len()], vec![0.0; n_units]);
        let mut below = vec![0.0; inputs[layer].len()];
        let rows = inputs[layer].chunks(n_inputs).zip(below.chunks_mut(n_inputs));
        for (above, (x, below)) in above.chunks(n_units).zip(rows) {
            for (unit, slope) in above.iter().enumerate() {
                of_b[unit] += slope;
                for (input, below) in below.iter_mut().enumerate() {
                    of_w[unit * n_inputs + input] += slope * x[input];
                    let is_open = layer == 0 || x[input] > 0.0;
                    *below += if is_open { slope * w[unit * n_inputs + input] } else { 0.0 };
                }
            }
        }
        assert!(layer > 0 || n_inputs == FEATURES);
        (gradients[2 * layer], gradients[2 * layer + 1]) = (of_w, of_b);
        above = below;
    }
    (gradients, above, loss)
}

/// Returns the 2-norm of all tensors together.
pub(crate) fn norm(tensors: &Tensors) -> f64 {
    tensors.iter().flatten().map(|it| it * it).sum::<f64>().sqrt()
}

/// An optimizer's rule with its states, by the formulas of the papers.
pub(crate) struct Stepper {
    /// The rule and the learning rate of each parameter.
    pub(crate) rules: Vec<(Rule, f64)>,
    /// True for each parameter with weight decay.
    pub(crate) is_decayed: Vec<bool>,
    pub(crate) n_updates: i32,
    pub(crate) first: Tensors,
    pub(crate) second: Tensors,
}

impl Stepper {
    pub(crate) fn new(rules: Vec<(Rule, f64)>, is_decayed: Vec<bool>, like: &Tensors) -> Self {
        let zeros: Tensors = like.iter().map(|it| vec![0.0; it.len()]).collect();
        Self { rules, is_decayed, n_updates: 0, first: zeros.clone(), second: zeros }
    }

    pub(crate) fn update(&mut self, parameters: &mut Tensors, gradients: &Tensors) {
        self.n_updates += 1;
        for (at, (parameters, gradients)) in parameters.iter_mut().zip(gradients).enumerate() {
            let (rule, rate) = &self.rules[at];
            for (element, (p, g)) in parameters.iter_mut().zip(gradients).enumerate() {
                let states = (&mut self.first[at][element], &mut self.second[at][element]);
                let is_decayed = f64::from(u8::from(self.is_decayed[at]));
                let weight_decay = rule.weight_decay();
                match rule.method().name {
                    "sgd" => {
                        let momentum = rule.number("momentum");
                        let nesterov = rule.flag("nesterov");
                        let g = g + weight_decay * is_decayed * *p;
                        *states.0 = momentum * *states.0 + g;
                        let ahead = if nesterov { g + momentum * *states.0 } else { *states.0 };
                        *p -= rate * ahead;
                    }
                    name => {
                        let (betas, eps) = (rule.pair("betas"), rule.number("eps"));
                        let is_decoupled = name == "adamw";
                        let decay = weight_decay * is_decayed * *p;
                        let g = if is_decoupled { *g } else { g + decay };
                        *p -= if is_decoupled { rate * decay } else { 0.0 };
                        *states.0 = betas.0 * *states.0 + (1.0 - betas.0) * g;
                        *states.1 = betas.1 * *states.1 + (1.0 - betas.1) * g * g;
                        let mean = *states.0 / (1.0 - betas.0.powi(self.n_updates));
                        let square = *states.1 / (1.0 - betas.1.powi(self.n_updates));
                        *p -= rate * mean / (square.sqrt() + eps);
                    }
                }
            }
        }
    }
}
