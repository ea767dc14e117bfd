//! The state of every optimizer, bit for bit, on any number of ranks.

use soybean::checkpoint::{Checkpoint, Checkpoints};
use soybean_compiler::{Argument, Optimizer, optimizer};

use soybean_test_support::models;

use super::{
    environment::{files, folder},
    network::{network, progress, state, train},
};

fn optimizers() -> Vec<(&'static str, Optimizer)> {
    let sgd = |settings: &[(&str, Argument)]| {
        let settings: Vec<_> = settings.iter().map(|it| (it.0.to_owned(), it.1.clone())).collect();
        optimizer("sgd", &settings).unwrap()
    };
    let momentum = ("momentum", Argument::Float(0.9));
    vec![
        ("sgd", sgd(&[])),
        ("momentum", sgd(std::slice::from_ref(&momentum))),
        ("nesterov", sgd(&[momentum, ("nesterov", Argument::Boolean(true))])),
        ("adam", optimizer("adam", &[]).unwrap()),
        ("adamw", optimizer("adamw", &[]).unwrap()),
    ]
}

#[test]
fn what_was_saved_comes_back_bit_for_bit() {
    for (name, optimizer) in optimizers() {
        for n_gpus in [1, 2, 4, 5, 6, 8] {
            let what = format!("{name} on {n_gpus}");
            let compiled = network(n_gpus, "auto", optimizer.clone());
            let trainer = || models::trainer(&compiled, 0.01);
            let mut checkpoints = Checkpoints::new(folder(&format!("{name}_{n_gpus}")), 1);
            let mut first = trainer();
            train(&mut first, 3);
            let path = checkpoints.save(&mut first, &progress(2)).unwrap();
            let mut second = trainer();
            train(&mut second, 1);
            let checkpoint = Checkpoint::open(&path).unwrap();
            assert_eq!(second.restore(&checkpoint).unwrap(), progress(2), "{what}");
            assert_eq!(state(&mut second), state(&mut first), "{what}");
            assert_eq!(train(&mut second, 2), train(&mut first, 2), "{what}");
            assert_eq!(state(&mut second), state(&mut first), "{what}, two steps later");
        }
    }
}

#[test]
fn the_bytes_do_not_depend_on_the_plan() {
    let saved = |n_gpus, strategy: &str, name: &str| {
        let mut trainer = models::trainer(&network(n_gpus, strategy, super::network::adam()), 0.01);
        let path = Checkpoints::new(folder(name), 1).save(&mut trainer, &progress(0)).unwrap();
        files(&path)
    };
    let expected = saved(1, "auto", "plan_1");
    assert_eq!(
        expected.iter().map(|it| it.0.as_str()).collect::<Vec<_>>(),
        ["model.safetensors", "optimizer.safetensors", "run.json"]
    );
    assert!(expected == saved(8, "auto", "plan_8"));
    assert!(expected == saved(6, "model", "plan_6"));
}
