//! Steps whose loss or gradients are not finite, in models that stop at them: they change nothing.

use soybean::runtime::{ErrorKind, Trainer};
use soybean_compiler::{Compiled, Optimizer, Strategy, optimizer};
use soybean_plan::NonFinite;

use soybean_test_support::models::{Batch, perceptron, trainer};

use super::updates::{DEVICES, broken, compiled, everything, state};

/// Checks that bad steps among good ones have no effect on the state, the counters and the losses.
fn check(compiled: &Compiled, what: &str) {
    let (mut disturbed, mut undisturbed) = (trainer(compiled, 0.02), trainer(compiled, 0.02));
    for step in 0..4 {
        let (before, counters) = (state(&mut disturbed), disturbed.counters());
        for number in [f32::NAN, f32::INFINITY] {
            let bytes = disturbed.bytes_of_next_step();
            let error = disturbed.step(&broken(number).views()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Loss, "{what}: {error}");
            assert!(error.to_string().contains(&format!(" in step {} (", step + 1)), "{error}");
            assert_eq!(disturbed.moved_bytes(), bytes, "{what}");
        }
        assert_eq!(state(&mut disturbed), before, "{what}, step {step}");
        assert_eq!(disturbed.counters(), counters, "{what}, step {step}");
        let loss = |it: &mut Trainer| it.step(&Batch::new(step).views()).unwrap().to_bits();
        assert_eq!(loss(&mut disturbed), loss(&mut undisturbed), "{what}, step {step}");
    }
    assert_eq!(state(&mut disturbed), state(&mut undisturbed), "{what}");
}

#[test]
fn a_loss_that_is_not_finite_changes_nothing() {
    let plans = DEVICES.into_iter().map(|it| (it, Strategy::Auto));
    let plans = plans.chain(Strategy::NAMES.map(|it| (4, it.1)));
    for (n_gpus, strategy) in plans {
        for method in soybean_compiler::METHODS {
            let name = method.name;
            let optimizer = optimizer(name, &[]).unwrap();
            let compiled = perceptron(n_gpus, strategy, optimizer);
            check(&compiled, &format!("{name}, {n_gpus} devices, {}", strategy.name()));
        }
    }
}

#[test]
fn buffers_and_sums_of_gradients_do_not_change_either() {
    for n_gpus in DEVICES {
        let optimizer = Optimizer { non_finite: NonFinite::Stop, ..everything() };
        let clipped = compiled(n_gpus, optimizer.clone());
        check(&clipped, &format!("clipped, {n_gpus} devices"));
        let optimizer = Optimizer { clip_norm: None, ..optimizer };
        check(&compiled(n_gpus, optimizer), &format!("{n_gpus} devices"));
    }
}
