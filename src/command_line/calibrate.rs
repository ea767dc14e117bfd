//! `bench --calibrate`: measures the devices, and writes them as a cluster file.

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

use soybean_explain::{Changes, compile_again, readable_seconds};
use soybean_plan::{Cluster, Plan};
use soybean_runtime::{
    Config, Error, Predictor, Process, Trainer,
    data::{Values, View},
};

use super::{CommandError, CommandModel, flags::Options, random::random_inputs};
use crate::calibration::{Calibration, Times};

pub(super) fn calibrate(
    model: &CommandModel,
    options: &Options,
    process: Process,
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    let Some(file) = &options.calibrate else { return Ok(()) };
    // A file that cannot be written should fail before minutes of measurements.
    if process.is_first() {
        fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(file)
            .map_err(|it| fault(file, &it))?;
    }
    let tables = model.model.tables();
    let mut progress = |part: &str| {
        if process.is_first() {
            // A closed standard error does not stop the measurements.
            let _ = writeln!(io::stderr(), "measuring {part}");
        }
    };
    let calibration = Calibration {
        mesh: tables.mesh,
        precision: tables.precision,
        config: &options.run.trainer,
        max_bytes: options.max_kernel_bytes.unwrap_or(u64::MAX),
        program_bytes: tables.arena_bytes as u64,
    };
    let mut own = OwnSteps::new(model, &options.run.trainer);
    let cluster = calibration.run(&mut || own.measure(), &mut progress)?;
    if process.is_first() {
        let n_ranks = tables.mesh.n_ranks();
        let text = soybean_cluster::write(&cluster, &comment(&cluster.device.name, n_ranks));
        fs::write(file, text).map_err(|it| fault(file, &it))?;
    }
    let (n_kernels, measurements) = (cluster.measurements.kernels.len(), &cluster.measurements);
    writeln!(output, "devices      {}", cluster.device.name)?;
    writeln!(output, "kernels      {n_kernels} measured")?;
    writeln!(output, "collectives  {} fitted", measurements.collectives.len())?;
    writeln!(output, "written      {}", file.display())?;
    let predicted = predicted_seconds(&model.plan, cluster)?;
    let measured = own.times.seconds();
    let error = 100.0 * (predicted / measured - 1.0);
    let (measured, predicted) = (readable_seconds(measured), readable_seconds(predicted));
    let what = own.name();
    writeln!(output, "{what:<11}  {measured} measured, {predicted} predicted ({error:+.0} %)")?;
    Ok(())
}

/// Returns the time of an update or prediction of the program, as a plan for the cluster predicts
/// it: its steps one after another on the CPU, where nothing overlaps.
fn predicted_seconds(plan: &Plan, cluster: Cluster) -> Result<f64, CommandError> {
    let changes = Changes { cluster: Some(cluster), ..Changes::default() };
    let report = compile_again(&changes.apply(plan.recipe)?)?.report;
    let prediction = report.prediction.expect("clusters have predictions");
    Ok(prediction.serial_seconds)
}

/// The program's own steps on random inputs, which are measured between trials.
struct OwnSteps<'a> {
    model: &'a CommandModel,
    config: &'a Config,
    batch: Vec<Values>,
    /// The times of updates or of predictions.
    times: Times,
}

impl<'a> OwnSteps<'a> {
    fn new(model: &'a CommandModel, config: &'a Config) -> Self {
        let batch = random_inputs(&model.model.tables().inputs, config.seed);
        Self { model, config, batch, times: Times::default() }
    }

    fn is_inference(&self) -> bool {
        self.model.model.tables().loss.is_none()
    }

    /// Returns what is measured.
    fn name(&self) -> &'static str {
        if self.is_inference() { "prediction" } else { "update" }
    }

    /// Measures updates or predictions.
    fn measure(&mut self) -> Result<(), Error> {
        let (model, config) = (self.model.model, self.config.clone());
        let batch: Vec<View<'_>> = self.batch.iter().map(Values::view).collect();
        if self.is_inference() {
            let mut predictor = Predictor::new(model, config)?;
            return self.times.measure(N_STEPS, || predictor.predict(&batch).map(drop));
        }
        let mut trainer = Trainer::new(model, config)?;
        let n_steps = model.tables().accumulate;
        let update = || (0..n_steps).try_for_each(|_| trainer.step(&batch).map(drop));
        self.times.measure(N_STEPS, update)
    }
}

/// Measured updates or predictions in each round.
const N_STEPS: usize = 10;

fn comment(devices: &str, n_ranks: usize) -> String {
    let plural = if n_ranks == 1 { "" } else { "s" };
    format!(
        "Measured by `bench --calibrate` of a program for {n_ranks} rank{plural}: {devices}.\n\
         All ranks ran each kernel at once, so the times hold for programs with as many ranks, and\n\
         with about as much memory: kernels find their tensors in caches or not.\n\
         The speeds of `[gpu]` are the best ones that were measured in the program's precision, and\n\
         `memory` is what the largest measurement needed."
    )
}

fn fault(file: &Path, error: &io::Error) -> CommandError {
    CommandError::Failed(format!("cannot write {}: {error}", file.display()))
}
