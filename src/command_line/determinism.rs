//! `check --determinism`: runs the same steps several times and compares the bits of losses and
//! parameters.

use std::{collections::BTreeSet, io::Write, num::NonZero, sync::Arc, thread};

use soybean_runtime::{Array, Config, Device, Trainer, View, data::Dataset};

use super::{CommandError, CommandModel, flags::Options};
use crate::run::first;

/// Steps of a run. After the first step, all computed values have reached the parameters, and later
/// steps spread them.
const N_STEPS: usize = 5;

pub(super) fn check(
    model: &CommandModel,
    options: &Options,
    dataset: &Arc<dyn Dataset>,
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    let tables = model.model.tables();
    let batch = first("training", dataset, &tables.inputs)?;
    let batch = batch.views();
    let run = |config: &Config| Run::new(model, config, &batch);
    let expected = run(&options.run.trainer)?;
    let n_numbers: usize = expected.parameters.iter().map(|it| it.1.data.len()).sum();
    let n_parameters = expected.parameters.len();
    writeln!(
        output,
        "first {:<46} {N_STEPS} losses, {n_parameters} parameters of {n_numbers} numbers",
        expected.place
    )?;
    output.flush()?;
    let configs = configs(&options.run.trainer, tables.mesh.n_ranks());
    let mut n_different = 0;
    for config in &configs {
        let found = run(config)?;
        let difference = difference(&expected, &found);
        n_different += usize::from(difference.is_some());
        let (verdict, said) = match difference {
            None => ("ok   ", "the same bits".to_owned()),
            Some(difference) => ("FAIL ", difference),
        };
        writeln!(output, "{verdict} {:<46} {said}", found.place)?;
        output.flush()?;
    }
    match n_different {
        0 => Ok(writeln!(output, "all {} comparisons found the same bits", configs.len())?),
        _ => {
            let n_runs = configs.len();
            Err(CommandError::Failed(format!(
                "{n_different} of {n_runs} comparisons found other bits"
            )))
        }
    }
}

/// Returns the configuration itself and, on the CPU, the same with one, two and three threads per
/// rank and with all cores.
fn configs(config: &Config, n_ranks: usize) -> Vec<Config> {
    let mut configs = vec![config.clone()];
    let is_on_gpus = match config.device {
        Device::Cpu => false,
        Device::Cuda => true,
        Device::Auto => soybean_runtime::devices().has_gpus(),
    };
    if is_on_gpus {
        return configs;
    }
    let n_cores = thread::available_parallelism().map_or(1, NonZero::get);
    let n_each = |n_threads: usize| (n_threads / n_ranks).max(1);
    let counts = [1, 2, 3].map(|it| it * n_ranks).into_iter().chain([n_cores]);
    let mut seen = BTreeSet::from([n_each(config.threads.unwrap_or(n_cores))]);
    let others = counts.filter(|it| seen.insert(n_each(*it)));
    configs.extend(others.map(|it| Config { threads: Some(it), ..config.clone() }));
    configs
}

/// The results of some steps.
struct Run {
    /// The devices and threads of the run.
    place: String,
    losses: Vec<f32>,
    parameters: Vec<(String, Array)>,
}

impl Run {
    fn new(
        model: &CommandModel,
        config: &Config,
        batch: &[View<'_>],
    ) -> Result<Self, CommandError> {
        let mut trainer = Trainer::new(model.model, config.clone())?;
        let losses = (0..N_STEPS).map(|_| trainer.step(batch)).collect::<Result<_, _>>()?;
        let parameters = trainer.parameters()?;
        Ok(Self { place: trainer.device_line(), losses, parameters })
    }
}

/// Returns the first number whose bits differ between two runs.
fn difference(expected: &Run, found: &Run) -> Option<String> {
    let losses = first_difference(&expected.losses, &found.losses);
    if let Some(step) = losses {
        let (first, then) = (expected.losses[step], found.losses[step]);
        return Some(format!("loss of step {}: {first} at first, then {then}", step + 1));
    }
    expected.parameters.iter().zip(&found.parameters).find_map(|((name, first), (_, then))| {
        let at = first_difference(&first.data, &then.data)?;
        let differs = |it: &(&f32, &f32)| it.0.to_bits() != it.1.to_bits();
        let n_different = first.data.iter().zip(&then.data).filter(differs).count();
        let (element, n) = (coordinates(at, &first.shape), first.data.len());
        let (first, then) = (first.data[at], then.data[at]);
        Some(format!("`{name}` at {element:?}: {first} at first, then {then}; {n_different} of {n} numbers differ"))
    })
}

/// Returns the index of the first element whose bits differ.
fn first_difference(expected: &[f32], found: &[f32]) -> Option<usize> {
    expected.iter().zip(found).position(|(expected, found)| expected.to_bits() != found.to_bits())
}

/// Returns the coordinates of an element of a tensor of this shape.
fn coordinates(mut index: usize, shape: &[usize]) -> Vec<usize> {
    let mut coordinates: Vec<usize> = shape
        .iter()
        .rev()
        .map(|extent| {
            let coordinate = index % extent;
            index /= extent;
            coordinate
        })
        .collect();
    coordinates.reverse();
    coordinates
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> Run {
        let array = |shape: &[usize]| {
            let data = (0..shape.iter().product()).map(|it: usize| it as f32).collect();
            Array { shape: shape.to_vec(), data, ..Array::default() }
        };
        let parameters = vec![("b".to_owned(), array(&[3])), ("w".to_owned(), array(&[2, 3]))];
        Run { place: String::new(), losses: vec![0.5, 0.25], parameters }
    }

    #[test]
    fn the_first_number_that_differs_is_named() {
        assert_eq!(difference(&run(), &run()), None);
        let mut other = run();
        (other.parameters[1].1.data[4], other.parameters[1].1.data[0]) = (4.000_000_5, -0.0);
        let said = "`w` at [0, 0]: 0 at first, then -0; 2 of 6 numbers differ";
        assert_eq!(difference(&run(), &other).as_deref(), Some(said));
        other.losses[1] = 0.250_000_03;
        let said = "loss of step 2: 0.25 at first, then 0.25000003";
        assert_eq!(difference(&run(), &other).as_deref(), Some(said));
    }

    #[test]
    fn other_numbers_of_threads_are_tried_on_the_cpu_only() {
        let config = Config { device: Device::Cpu, threads: Some(8), ..Config::default() };
        let threads: Vec<_> = configs(&config, 4).iter().map(|it| it.threads).collect();
        assert_eq!(threads[..3], [Some(8), Some(4), Some(12)]);
        let config = Config { device: Device::Cuda, ..config };
        assert_eq!(configs(&config, 4), [config]);
    }
}
