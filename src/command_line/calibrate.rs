//! `bench --calibrate`: measures the devices, and writes them as a cluster file.

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

use soybean_runtime::Process;

use super::{CommandError, CommandModel, flags::Options};
use crate::calibration::Calibration;

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
    };
    let cluster = calibration.run(&mut progress)?;
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
    Ok(())
}

fn comment(devices: &str, n_ranks: usize) -> String {
    let plural = if n_ranks == 1 { "" } else { "s" };
    format!(
        "Measured by `bench --calibrate` of a program for {n_ranks} rank{plural}: {devices}.\n\
         All ranks ran each kernel at once, so the times hold for programs with as many ranks.\n\
         The speeds of `[gpu]` are the best ones that were measured in the program's precision, and\n\
         `memory` is what the largest measurement needed."
    )
}

fn fault(file: &Path, error: &io::Error) -> CommandError {
    CommandError::Failed(format!("cannot write {}: {error}", file.display()))
}
