//! Tests of all calls of a trainer on GPUs.

use soybean::{
    Device,
    plan::{Kernel, Precision},
};

use soybean_fake_cuda::virtual_gpus::{Machine, on_virtual_gpus};
use soybean_test_support::models::sgd;

use super::networks::{Columns, Model, assert_near};

#[test]
fn set_parameters_are_returned_unchanged() {
    on_virtual_gpus("cuda::calls::set_parameters_are_returned_unchanged", &[], |_| {
        for n_ranks in [1, 6, 8] {
            let model = Model::perceptron(n_ranks, Precision::F32, sgd(0.0));
            let tables = model.tables();
            let mut trainer = model.trainer(Device::Cuda);
            assert_eq!(
                trainer.parameters().unwrap(),
                model.trainer(Device::Cpu).parameters().unwrap()
            );
            let batch = Columns::new(tables, 0);
            let first = trainer.step(&batch.views()).unwrap();
            let mut parameters = trainer.parameters().unwrap();
            let second = trainer.step(&batch.views()).unwrap();
            assert_ne!(trainer.parameters().unwrap(), parameters);
            trainer.set_parameters(&parameters).unwrap();
            assert_eq!(trainer.parameters().unwrap(), parameters);
            assert_eq!(trainer.step(&batch.views()).unwrap(), second);
            parameters.iter_mut().for_each(|it| it.1.data.fill(0.0));
            trainer.set_parameters(&parameters).unwrap();
            // With zero logits, all classes have the same probability.
            let loss = trainer.evaluate(&batch.views()).unwrap().loss;
            assert_near(&[loss], &[12.0_f32.ln()], 1e-6, &format!("{first}, then zeros"));
        }
    });
}

/// Evaluations with averaged parameters must not disturb a queued batch.
#[test]
fn evaluation_can_use_averaged_parameters() {
    on_virtual_gpus("cuda::calls::evaluation_can_use_averaged_parameters", &[], |machine| {
        let model = Model::perceptron(8, Precision::F32, sgd(0.9));
        let batch = |step| Columns::new(model.tables(), step);
        let losses = |seed, is_evaluated: bool| {
            machine.reset(seed);
            let mut trainer = model.trainer(Device::Cuda);
            trainer.queue(&batch(0).views()).unwrap();
            let step = |step| {
                let loss = trainer.step_queued(Some(&batch(step + 1).views())).unwrap();
                if is_evaluated {
                    let parameters = trainer.parameters().unwrap();
                    let mut zeros = parameters.clone();
                    zeros.iter_mut().for_each(|it| it.1.data.fill(0.0));
                    trainer.set_parameters(&zeros).unwrap();
                    let loss = trainer.evaluate(&batch(9).views()).unwrap().loss;
                    assert_near(&[loss], &[12.0_f32.ln()], 1e-6, "zeros");
                    trainer.set_parameters(&parameters).unwrap();
                }
                loss
            };
            (0..4_usize).map(step).collect::<Vec<_>>()
        };
        let expected = losses(0, false);
        assert!((1..6).all(|seed| losses(seed, true) == expected));
    });
}

#[test]
fn two_trainers_take_turns() {
    on_virtual_gpus("cuda::calls::two_trainers_take_turns", &[], |_| {
        let models = [(8, Precision::F32), (4, Precision::Bf16)]
            .map(|(n_ranks, precision)| Model::perceptron(n_ranks, precision, sgd(0.9)));
        let loss = |trainer: &mut soybean::runtime::Trainer, model: &Model, step| {
            trainer.step(&Columns::new(model.tables(), step).views()).unwrap()
        };
        let alone = models.each_ref().map(|model| {
            let mut trainer = model.trainer(Device::Cuda);
            (0..4).map(|step| loss(&mut trainer, model, step)).collect::<Vec<_>>()
        });
        let mut trainers = models.each_ref().map(|it| it.trainer(Device::Cuda));
        for step in 0..4 {
            for ((trainer, model), alone) in trainers.iter_mut().zip(&models).zip(&alone) {
                assert_eq!(loss(trainer, model, step), alone[step]);
            }
        }
    });
}

/// Checks that each rank has spans on both streams, and that all spans have valid times within the
/// step.
fn assert_sound(json: &str, n_ranks: u64) {
    let json: serde_json::Value = serde_json::from_str(json).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    for rank in 0..n_ranks {
        for stream in ["compute", "communication"] {
            let is_here = |it: &&serde_json::Value| {
                it["ph"] == "X" && it["pid"] == rank && it["cat"] == stream
            };
            let spans: Vec<_> = events.iter().filter(is_here).collect();
            assert!(!spans.is_empty(), "rank {rank}, {stream}");
            let number = |span: &serde_json::Value, name: &str| span[name].as_f64().unwrap();
            let is_sound =
                |it: &&serde_json::Value| number(it, "ts") >= 0.0 && number(it, "dur") >= 0.0;
            assert!(spans.iter().all(is_sound), "rank {rank}, {stream}: {spans:?}");
            let has_rate = |it: &&serde_json::Value| it["args"]["MB"].as_f64() > Some(0.0);
            assert!(spans.iter().any(has_rate), "rank {rank}, {stream}: {spans:?}");
        }
    }
}

#[test]
fn traces_show_all_ranks_and_streams() {
    on_virtual_gpus("cuda::calls::traces_show_all_ranks_and_streams", &[], trace);
}

#[test]
fn traces_show_ranks_that_share_gpus() {
    let settings = [("SOYBEAN_FAKE_DEVICES", "3")];
    on_virtual_gpus("cuda::calls::traces_show_ranks_that_share_gpus", &settings, trace);
}

fn trace(machine: &Machine) {
    let model = Model::perceptron(8, Precision::F32, sgd(0.9));
    let tables = model.tables();
    for seed in 0..5 {
        machine.reset(seed);
        let mut on_cpu = model.trainer(Device::Cpu);
        let mut trainer = model.trainer(Device::Cuda);
        for step in 0..4 {
            let (batch, next) = (Columns::new(tables, step), Columns::new(tables, step + 1));
            let expected = on_cpu.step(&batch.views()).unwrap();
            if step == 0 {
                trainer.queue(&batch.views()).unwrap();
            }
            // Traced and untraced steps give the same result.
            let loss = if step % 2 == 0 {
                trainer.step_queued(Some(&next.views())).unwrap()
            } else {
                let (loss, trace) = trainer.trace_queued(Some(&next.views())).unwrap();
                assert_sound(&trace.to_json(), 8);
                loss
            };
            assert_near(&[loss], &[expected], 1e-4, &format!("step {step}"));
        }
    }
}

/// Epilogues are fused: there are fewer launches than steps in the program.
#[test]
fn epilogues_are_fused_into_products() {
    on_virtual_gpus("cuda::calls::epilogues_are_fused_into_products", &[], |machine| {
        let model = Model::perceptron(1, Precision::F32, sgd(0.0));
        let Model::Program(program) = &model else { unreachable!("perceptrons are programs") };
        let is_product =
            |it: &&soybean::plan::Step| matches!(program.kernels[it.kernel], Kernel::Contract(_));
        let n_products = program.train[0].iter().filter(is_product).count() as u64;
        let mut trainer = model.trainer(Device::Cuda);
        machine.reset(0);
        trainer.step(&Columns::new(model.tables(), 0).views()).unwrap();
        assert_eq!(machine.n_calls("cublasLtMatmul"), n_products);
        let n_others = machine.n_calls("cuLaunchKernel");
        let n_steps = program.train[0].len() as u64;
        println!("{n_steps} steps: {n_products} products and {n_others} kernels");
        // Each remaining step is at least one launch. The biases of three layers and two
        // activations are fused.
        assert!(n_products + n_others + 5 <= n_steps, "{n_products} and {n_others} of {n_steps}");
    });
}
