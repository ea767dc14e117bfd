//! Entries that are trained: the players of a GAN, and one function at two batch sizes. Any number
//! of devices gives the results of plain loops with the eager function in double precision.

use std::path::Path;

use soybean::{
    Config, Device, Metric, Network, Split, TrainConfig,
    checkpoint::{Checkpoints, Progress},
    eager::{self, Tensor},
    plan::{Input, Tables},
    runtime::{Trainer, View},
};

const RATE: f32 = 0.05;
const SEED: u64 = 7;
/// Distance of central differences: their error is about 1e-10.
const DISTANCE: f64 = 1e-5;

macro_rules! gans {
    ($($name:ident on $gpus:literal by $strategy:literal,)*) => {
        $(#[soybean::model(
            gpus = $gpus,
            strategy = $strategy,
            optimizer = adam(betas = (0.5, 0.9), eps = 0.01),
            groups = [("critic.*", adam(betas = (0.8, 0.9), eps = 0.01), learning_rate_factor = 0.5)],
            clip_norm = 0.3,
            entries = (discriminator(freeze = ["maker.*"]) = 2, generator(freeze = ["critic.*"]))
        )]
        pub(crate) mod $name {
            use soybean::{nn, prelude::*};

            fn maker(z: Tensor) -> Tensor {
                nn::linear(z, 3)
            }

            fn critic(x: Tensor) -> Tensor {
                nn::linear(nn::linear(x, 5).tanh().dropout(0.25), 1)
            }

            pub(crate) fn discriminator(
                real: Tensor<f32, 6, 3>,
                z: Tensor<f32, 4, 2>,
            ) -> (Tensor, Tensor) {
                let scores = critic(concat([real, maker(z)], 0));
                let (good, bad) = (scores.slice(0, 0, 6), scores.slice(0, 6, 10));
                ((-good).softplus().mean(..) + bad.softplus().mean(..), scores)
            }

            pub(crate) fn generator(z: Tensor<f32, 8, 2>) -> Tensor {
                (-critic(maker(z))).softplus().mean(..)
            }
        }

        #[test]
        fn $name() {
            // The critic takes two steps for each of the maker.
            check::<$name::Network>(12, &|step| usize::from(step % 3 == 2));
        })*
    };
}

gans! {
    gan_on_one on 1 by "auto",
    gan_on_two on 2 by "auto",
    gan_on_six on 6 by "auto",
    gan_on_eight on 8 by "auto",
    gan_on_four_by_data on 4 by "data",
}

/// Players in scopes, which entries and calls share: layers of another crate, an operator, and an
/// adapter beside weights that no entry trains.
#[soybean::model(
    gpus = 4,
    optimizer = adam(betas = (0.5, 0.9), eps = 0.01),
    groups = [("critic.*", adam(betas = (0.8, 0.9), eps = 0.01), learning_rate_factor = 0.5)],
    clip_norm = 0.3,
    entries = (
        discriminator(freeze = ["maker.*"]) = 2,
        generator(freeze = ["critic.*", "maker.*.linear.*"])
    )
)]
pub(crate) mod gan_in_scopes {
    use layer_crate::{blocks, operators};
    use soybean::{nn, prelude::*};

    fn make(z: Tensor) -> Tensor {
        let h = blocks::siamese(z, z.square());
        nn::linear_with_lora(h, 3, nn::Lora { rank: 2, scale: 4.0 })
    }

    fn judge(x: Tensor) -> Tensor {
        let h = nn::linear(x, 5).tanh().dropout(0.25);
        nn::linear(operators::distances_from_centers(h, 4), 1)
    }

    pub(crate) fn discriminator(real: Tensor<f32, 6, 3>, z: Tensor<f32, 4, 2>) -> Tensor {
        let made = scope("maker", || make(z));
        let good = scope("critic", || judge(real));
        let bad = scope("critic", || judge(made));
        (-good).softplus().mean(..) + bad.softplus().mean(..)
    }

    pub(crate) fn generator(z: Tensor<f32, 8, 2>) -> Tensor {
        let made = scope("maker", || make(z));
        (-scope("critic", || judge(made))).softplus().mean(..)
    }
}

// Guards: `freeze`, `groups` and adapters of parameters in scopes, and what entries share of them.
#[test]
fn players_in_scopes() {
    check::<gan_in_scopes::Network>(12, &|step| usize::from(step % 3 == 2));
    let names = gan_in_scopes::Network::model().tables().parameters.iter();
    let names: Vec<&str> = names.map(|it| &*it.name).collect();
    let expected = [
        "maker.make.siamese.tower.residual.dense.0.w",
        "maker.make.siamese.tower.residual.dense.0.b",
        "maker.make.siamese.tower.residual.dense.1.w",
        "maker.make.siamese.tower.residual.dense.1.b",
        "maker.make.linear_with_lora.linear.weight",
        "maker.make.linear_with_lora.linear.bias",
        "maker.make.linear_with_lora.lora.a",
        "maker.make.linear_with_lora.lora.b",
        "critic.judge.linear.0.weight",
        "critic.judge.linear.0.bias",
        "critic.judge.distances_from_centers.centers",
        "critic.judge.linear.1.weight",
        "critic.judge.linear.1.bias",
    ];
    assert_eq!(names, expected);
}

macro_rules! buckets {
    ($($name:ident on $gpus:literal,)*) => {
        $(#[soybean::model(
            gpus = $gpus,
            optimizer = adam(betas = (0.5, 0.9), eps = 0.01),
            non_finite = "skip",
            entries = (small, large = 3)
        )]
        pub(crate) mod $name {
            use soybean::{nn, prelude::*};

            fn network(x: Tensor, y: Tensor) -> Tensor {
                nn::linear(nn::linear(x, 6).tanh(), 1).mse(y)
            }

            pub(crate) fn small(x: Tensor<f32, 2, 3>, y: Tensor<f32, 2, 1>) -> Tensor {
                network(x, y)
            }

            pub(crate) fn large(x: Tensor<f32, 12, 3>, y: Tensor<f32, 12, 1>) -> Tensor {
                network(x, y)
            }
        }

        #[test]
        fn $name() {
            check::<$name::Network>(10, &|step| usize::from(step % 5 != 1));
        })*
    };
}

buckets! {
    buckets_on_one on 1,
    buckets_on_two on 2,
    buckets_on_six on 6,
    buckets_on_eight on 8,
}

fn config() -> Config {
    Config { seed: SEED, learning_rate: RATE, device: Device::Cpu, ..Config::default() }
}

/// Returns the tensors of a batch.
fn batch(inputs: &[Input], step: usize) -> Vec<Vec<f32>> {
    let number = |at: usize| ((at * 37 + step * 101) % 64) as f32 / 32.0 - 1.0;
    let tensor = |(which, input): (usize, &Input)| {
        (0..input.tile.shape.n_elements()).map(|at| number(at + 1000 * which)).collect()
    };
    inputs.iter().enumerate().map(tensor).collect()
}

/// Runs a step of an entry, which moves and feeds the predicted bytes; returns its loss.
fn step<N: Network>(trainer: &mut Trainer, entry: usize, number: usize) -> f32 {
    let tables = N::model().tables();
    let batch = batch(tables.inputs_of(entry), number);
    let views: Vec<View<'_>> = batch.iter().map(|it| View::F32(it)).collect();
    let loss = trainer.step_by(entry, &views).unwrap();
    let training = tables.entries[entry].training.as_ref().unwrap();
    assert_eq!(trainer.moved_bytes(), training.bytes);
    assert_eq!(trainer.fed_bytes(), tables.fed_bytes(entry));
    loss
}

/// Parameters in double precision.
type Parameters = Vec<(Vec<usize>, Vec<f64>)>;

/// Returns the loss of a training step by the model's own function.
fn eager_loss<N: Network>(entry: usize, number: usize, parameters: &Parameters, step: u64) -> f64 {
    let tables: &Tables = N::model().tables();
    let inputs = tables.inputs_of(entry);
    let batch = batch(inputs, number);
    eager::in_training(SEED, step, || {
        eager::scope(|| {
            let wide = |it: &[f32]| it.iter().map(|it| f64::from(*it)).collect::<Vec<_>>();
            let inputs = batch.iter().zip(inputs);
            let inputs: Vec<Tensor> =
                inputs.map(|(it, input)| Tensor::new(&input.tile.shape[..], &wide(it))).collect();
            let made = tables.entries[entry].parameters.iter().map(|it| &parameters[*it]);
            let made: Vec<Tensor> = made.map(|(shape, it)| Tensor::new(&shape[..], it)).collect();
            eager::with_parameters(&made, || N::forward(entry, &inputs)[0].item())
        })
    })
}

/// Adam by plain loops, with the states of each parameter and the updates of each entry.
struct Reference {
    parameters: Parameters,
    means: Vec<Vec<[f64; 2]>>,
    n_updates: [i32; 2],
}

impl Reference {
    /// Runs a step of an entry that trains these parameters; returns its loss.
    fn step<N: Network>(
        &mut self,
        entry: usize,
        number: usize,
        trained: &[(usize, f64, f64)],
    ) -> f64 {
        let step = number as u64 + 1;
        let loss = eager_loss::<N>(entry, number, &self.parameters, step);
        let mut gradients: Vec<Vec<f64>> = Vec::new();
        for &(parameter, ..) in trained {
            let n_elements = self.parameters[parameter].1.len();
            let mut slope = |element: usize| {
                let here = self.parameters[parameter].1[element];
                let mut at = |value: f64| {
                    self.parameters[parameter].1[element] = value;
                    eager_loss::<N>(entry, number, &self.parameters, step)
                };
                let slope = (at(here + DISTANCE) - at(here - DISTANCE)) / (2.0 * DISTANCE);
                self.parameters[parameter].1[element] = here;
                slope
            };
            gradients.push((0..n_elements).map(&mut slope).collect());
        }
        let tables = N::model().tables();
        let norm = gradients.iter().flatten().map(|it| it * it).sum::<f64>().sqrt();
        let is_clipped = tables.non_finite == soybean::plan::NonFinite::Stop;
        let factor = if is_clipped { (0.3 / (norm + 1e-6)).min(1.0) } else { 1.0 };
        let class = tables.entries[entry].training.as_ref().unwrap().trains_like;
        self.n_updates[class] += 1;
        let t = self.n_updates[class];
        for (&(parameter, beta, rate), gradients) in trained.iter().zip(gradients) {
            let means = self.means[parameter].iter_mut();
            let elements = self.parameters[parameter].1.iter_mut().zip(means);
            for ((p, [mean, square]), gradient) in elements.zip(gradients) {
                let gradient = factor * gradient;
                *mean = beta * *mean + (1.0 - beta) * gradient;
                *square = 0.9 * *square + 0.1 * gradient * gradient;
                let (mean, square) =
                    (*mean / (1.0 - beta.powi(t)), *square / (1.0 - 0.9_f64.powi(t)));
                *p -= rate * f64::from(RATE) * mean / (square.sqrt() + 0.01);
            }
        }
        loss
    }
}

/// Compares losses and parameters of some steps with those of plain loops, and resumes from a
/// checkpoint in between.
fn check<N: Network>(n_steps: usize, entry_of: &dyn Fn(usize) -> usize) {
    let mut trainer = Trainer::new(N::model(), config()).unwrap();
    let start = trainer.parameters().unwrap();
    let wide = |data: &[f32]| data.iter().map(|it| f64::from(*it)).collect::<Vec<f64>>();
    let parameters: Parameters =
        start.iter().map(|(_, it)| (it.shape.clone(), wide(&it.data))).collect();
    let means = parameters.iter().map(|(_, it)| vec![[0.0; 2]; it.len()]).collect();
    let mut reference = Reference { parameters, means, n_updates: [0; 2] };
    let has_players = start.iter().any(|it| it.0.starts_with("critic."));
    let trained = |entry: usize| -> Vec<(usize, f64, f64)> {
        let named = start.iter().enumerate().map(|(number, it)| (number, it.0.as_str()));
        let own =
            named.filter(|(_, name)| !has_players || name.starts_with("critic.") == (entry == 0));
        // The weights beside an adapter are frozen in all entries.
        let own = own.filter(|(_, name)| !name.contains("with_lora.linear"));
        let of_critic = has_players && entry == 0;
        own.map(|it| if of_critic { (it.0, 0.8, 0.5) } else { (it.0, 0.5, 1.0) }).collect()
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("entries");
    let mut checkpoints = Checkpoints::new(folder.join(&*N::model().tables().name), 1);
    for number in 0..n_steps {
        let entry = entry_of(number);
        let found = f64::from(step::<N>(&mut trainer, entry, number));
        let expected = reference.step::<N>(entry, number, &trained(entry));
        assert!((found - expected).abs() <= 2e-5, "step {number}: {found}, not {expected}");
        if number == n_steps / 2 {
            checkpoints.save(&mut trainer, &Progress::default()).unwrap();
            let counters = trainer.counters();
            trainer = Trainer::new(N::model(), config()).unwrap();
            trainer.restore(&checkpoints.latest().unwrap().checkpoint.unwrap()).unwrap();
            assert_eq!(trainer.counters(), counters);
        }
    }
    for ((name, found), (_, expected)) in
        trainer.parameters().unwrap().iter().zip(&reference.parameters)
    {
        for (found, expected) in wide(&found.data).iter().zip(expected) {
            let difference = (found - expected).abs();
            assert!(difference <= 3e-5, "`{name}`: {found}, not {expected}");
        }
    }
}

#[soybean::model(
    gpus = 2,
    optimizer = adam(betas = (0.5, 0.9)),
    entries = (discriminator(freeze = ["maker.*"]), generator(freeze = ["critic.*"]))
)]
mod line {
    use soybean::{nn, prelude::*};

    fn maker(z: Tensor) -> Tensor {
        nn::linear(z, 1)
    }

    fn critic(x: Tensor) -> Tensor {
        nn::linear(nn::linear(x, 16).relu(), 1)
    }

    pub fn discriminator(real: Tensor<f32, 64, 1>, z: Tensor<f32, 64, 1>) -> Tensor {
        let scores = critic(concat([real, maker(z)], 0));
        let (good, bad) = (scores.slice(0, 0, 64), scores.slice(0, 64, 128));
        (-good).softplus().mean(..) + bad.softplus().mean(..)
    }

    pub fn generator(z: Tensor<f32, 64, 1>) -> (Tensor, Tensor) {
        let made = maker(z);
        ((-critic(made)).softplus().mean(..), made)
    }
}

/// The maker learns to make numbers around 2, where the real ones are. The types of batches choose
/// the entries, also in evaluations and predictions.
#[test]
fn a_gan_learns_where_the_data_are() {
    let config = Config { learning_rate: 0.02, ..config() };
    let mut trainer = line::Trainer::new(config).unwrap();
    let normal = |at: usize| {
        let uniform = |it: usize| ((it * 7919 + 13) % 1009) as f32 / 1009.0;
        (0..4).map(|it| uniform(4 * at + it)).sum::<f32>() - 2.0
    };
    let numbers = |from: usize, mean: f32, width: f32| -> Vec<f32> {
        (0..64).map(|it| mean + width * normal(from + it)).collect()
    };
    let mean = |trainer: &mut line::Trainer, z: &[f32]| {
        let made = &trainer.predict(&line::Generator { z }).unwrap()[0];
        assert_eq!(made.shape, [64, 1]);
        made.data.iter().sum::<f32>() / 64.0
    };
    let before = mean(&mut trainer, &numbers(0, 0.0, 1.0));
    assert!((before - 2.0).abs() > 1.0, "{before}");
    for step in 0..600 {
        let (real, z) = (numbers(128 * step, 2.0, 0.5), numbers(128 * step + 64, 0.0, 1.0));
        let of_critic = trainer.step(&line::Discriminator { real: &real, z: &z }).unwrap();
        let batch = line::Generator { z: &z };
        let evaluated = trainer.evaluate(&batch).unwrap().loss;
        let of_maker = trainer.step(&batch).unwrap();
        assert!((evaluated - of_maker).abs() <= 1e-5, "{evaluated}, {of_maker}");
        assert!(of_critic.is_finite() && of_critic < 4.0, "step {step}: {of_critic}");
    }
    let after = mean(&mut trainer, &numbers(7, 0.0, 1.0));
    assert!((after - 2.0).abs() < 0.5, "{before}, {after}");
    let counters = trainer.counters();
    assert_eq!((counters.n_steps, counters.n_updates), (1200, 1200));
    assert_eq!(counters.n_updates_by.0[..2], [600, 600]);
}

/// A loader of rows feeds one entry, so runs over a data set are refused.
#[test]
fn runs_over_data_need_one_entry() {
    let mut trainer = line::Trainer::new(config()).unwrap();
    let data = Split::random::<buckets_on_one::Network>(100, 20, 0);
    let error = trainer.fit(&TrainConfig::new(1, 0.1), &data).unwrap_err().to_string();
    let expected = "expected a model with one entry, found `line` with the entries discriminator, generator: call `Trainer::step` with their batches";
    assert_eq!(error, expected);
    let held_out = data.held_out.clone();
    let error = trainer.evaluate_dataset(held_out, &Metric::usual()).unwrap_err().to_string();
    assert_eq!(error, expected);
}

/// A queued batch runs the entry that takes it.
#[test]
fn batches_of_any_entry_are_queued() {
    let (mut queued, mut plain) =
        (line::Trainer::new(config()).unwrap(), line::Trainer::new(config()).unwrap());
    let (real, z) = ([2.0; 64], [0.5; 64]);
    let (of_critic, of_maker) =
        (line::Discriminator { real: &real, z: &z }, line::Generator { z: &z });
    for _ in 0..2 {
        queued.queue(&of_maker).unwrap();
        let losses = [queued.step_queued(Some(&of_critic)), queued.step_queued(None)];
        let expected = [plain.step(&of_maker), plain.step(&of_critic)];
        assert_eq!(losses.map(Result::unwrap), expected.map(Result::unwrap));
    }
}
