//! `bench --calibrate`: measures the devices, and writes them as a cluster file.

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

use soybean_explain::{Changes, compile_again, readable_seconds};
use soybean_plan::{Cluster, Plan};
use soybean_runtime::Process;

use super::{CommandError, CommandModel, flags::Options, random::random_inputs};
use crate::calibration::{CalibratingProgram, Calibration};

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
    let batch = random_inputs(&tables.inputs, options.run.trainer.seed);
    let program = compile_again(&Changes::default().apply(model.plan.recipe)?)?.program;
    let mut own = CalibratingProgram::new(program, batch);
    let cluster = calibration.run(&mut own, &mut progress)?;
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
    let measured = own.seconds();
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
