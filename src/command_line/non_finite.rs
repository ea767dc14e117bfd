//! `check --non-finite`: trains one epoch, and names the first tensor that is not finite.

use std::{io::Write, sync::Arc};

use soybean_runtime::{
    Config, Device, Trainer,
    data::{Dataset, LoaderOptions},
};

use super::{CommandError, CommandModel, flags::Options};
use crate::{
    non_finite::first_non_finite,
    run::{batch_size, loader},
};

pub(super) fn check(
    model: &CommandModel,
    options: &Options,
    dataset: &Arc<dyn Dataset>,
    output: &mut dyn Write,
) -> Result<(), CommandError> {
    let tables = model.model.tables();
    let config = &options.run.trainer;
    let batch_rows = batch_size(&tables.inputs)?;
    let loading = LoaderOptions::training(batch_rows, config.seed);
    let loader = loader("training", dataset, &tables.inputs, loading)?;
    // Only the CPU looks at each tensor.
    let mut trainer = Trainer::new(model.model, Config { device: Device::Cpu, ..config.clone() })?;
    writeln!(output, "{}", trainer.device_line())?;
    let n_steps = loader.n_batches();
    for (number, batch) in loader.enumerate() {
        let found =
            first_non_finite(&mut trainer, tables, model.plan.recipe, (0, &batch?.views()))?;
        if let Some(found) = found {
            return Err(CommandError::Failed(format!("step {}: {found}", number + 1)));
        }
    }
    Ok(writeln!(output, "all tensors of {n_steps} steps are finite")?)
}
