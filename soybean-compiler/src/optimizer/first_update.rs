//! The first update of a parameter in double precision, with which `check` compares that of the
//! program.

use soybean_plan::{RunScalar, Shape};

use super::{Optimizer, operands::Operands};
use crate::scalar::ScalarBuilder;

impl Optimizer {
    /// Returns the decrease of an element of a parameter, of this name and shape, in the first
    /// update with a learning rate of 1, given the element and its gradient after clipping. Where
    /// the host updates parameters, this is the gradient. Returns `None` if the update depends on
    /// the gradients of other elements, as that of Adafactor does.
    #[must_use]
    pub fn first_update(
        &self,
        (name, shape): (&str, Shape),
        (value, slope): (f64, f64),
    ) -> Option<f64> {
        let rule = self.rule_of(name);
        let method = rule.method();
        if method.keeps_parameters {
            return Some(slope);
        }
        if !(method.statistics)(&rule, shape.len()).is_empty() {
            return None;
        }
        let scalars: Vec<(RunScalar, u8)> = (method.scalars)(&rule).into_iter().zip(0..).collect();
        let mut builder = ScalarBuilder::default();
        let (parameter, gradient) = (builder.input(0), builder.input(1));
        let learning_rate = builder.constant(self.learning_rate_factor(name));
        let nothing = builder.constant(0.0);
        let states = (method.states)(&rule, shape.len());
        let mut operands = Operands {
            builder: &mut builder,
            shape,
            learning_rate,
            parameter,
            gradient,
            tensors: states.iter().map(|it| (it.name, nothing)).collect(),
            scalars: &scalars,
        };
        let next = (method.update)(&rule, &mut operands)[0];
        let at_first = |it: &(RunScalar, u8)| match it.0 {
            RunScalar::OneMinusPower { base } => 1.0 - base,
            RunScalar::LearningRate
            | RunScalar::UpdateNumber
            | RunScalar::Noise
            | RunScalar::LossScale
            | RunScalar::HasBatch
            | RunScalar::InverseSteps => 1.0,
        };
        let scalars: Vec<f64> = scalars.iter().map(at_first).collect();
        Some(value - builder.finish(next).evaluate(&[value, slope], &scalars)[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{builder::Argument, optimizer::optimizer};

    fn check(name: &str, settings: &[(&str, f64)], expected: Option<f64>) {
        let settings: Vec<_> =
            settings.iter().map(|it| (it.0.to_owned(), Argument::Float(it.1))).collect();
        let optimizer = optimizer(name, &settings).expect("the settings are sound");
        let found = optimizer.first_update(("w", Shape::new(&[2, 3])), (4.0, -0.5));
        let is_near = |(found, expected): (f64, f64)| (found - expected).abs() < 1e-6;
        assert!(found.zip(expected).map_or(found == expected, is_near), "{name}: {found:?}");
    }

    #[test]
    fn first_updates_follow_from_the_definitions() {
        check("sgd", &[], Some(-0.5));
        check("sgd", &[("weight_decay", 0.25)], Some(0.5));
        check("adam", &[], Some(-1.0));
        check("adam", &[("eps", 0.5)], Some(-0.5));
        check("adam", &[("weight_decay", 0.25)], Some(1.0));
        check("adamw", &[("weight_decay", 0.25)], Some(0.0));
        check("lazy_adam", &[], Some(-1.0));
        check("rmsprop", &[("alpha", 0.75)], Some(-2.0));
        check("lion", &[], Some(-1.0));
        check("gradients", &[], Some(-0.5));
        check("adafactor", &[], None);
    }
}
