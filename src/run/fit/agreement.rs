//! What several processes read for themselves and must find alike: checkpoints and data.

use std::{path::Path, sync::Arc};

use soybean_plan::Input;
use soybean_runtime::{
    Error, ErrorKind, Process, Trainer,
    checkpoint::Checkpoint,
    data::{Dataset, LoaderOptions},
};

use crate::run::{
    Split,
    batches::{batch_size, hash, loader},
};

/// Opens in all processes the checkpoint that the first one has found in the run's folder.
pub(super) fn open_checkpoint_of_first(
    trainer: &mut Trainer,
    out: &Path,
    found: Result<Option<Checkpoint>, Error>,
) -> Result<Option<Checkpoint>, Error> {
    let found = trainer.together(found)?;
    let name = found.as_ref().and_then(|it| it.path().strip_prefix(out).ok());
    let name = name.map(|it| it.to_string_lossy().into_owned()).unwrap_or_default();
    let name = trainer.text_of_first(&name)?;
    if name.is_empty() {
        return Ok(None);
    }
    let opened = match found {
        Some(checkpoint) => Ok(checkpoint),
        None => Checkpoint::open(out.join(&name)).map_err(|error| {
            let message = format!(
                "{error}; the first process resumes from {name}, and all processes must read the same folder"
            );
            Error::new(ErrorKind::Checkpoint, message)
        }),
    };
    trainer.together(opened).map(Some)
}

/// Checks that all processes have data of the same size, with the same first batch.
pub(super) fn check_data(
    trainer: &mut Trainer,
    split: &Split,
    inputs: &[Input],
    seed: u64,
) -> Result<(), Error> {
    if trainer.process() == Process::ONLY {
        return Ok(());
    }
    let batch_rows = batch_size(inputs)?;
    for (part, dataset, options) in [
        ("training", &split.train, LoaderOptions::training(batch_rows, seed)),
        ("held-out", &split.held_out, LoaderOptions::evaluation(batch_rows)),
    ] {
        let text = description(part, dataset, inputs, options);
        let text = trainer.together(text)?;
        trainer.agree(&format!("{part} data"), &text)?;
    }
    Ok(())
}

fn description(
    part: &str,
    dataset: &Arc<dyn Dataset>,
    inputs: &[Input],
    options: LoaderOptions,
) -> Result<String, Error> {
    let first = loader(part, dataset, inputs, LoaderOptions { n_threads: 0, ..options })?.next();
    let hash = first.transpose()?.map_or(0, |it| hash(&it));
    Ok(format!("{} rows and a first batch with the hash {hash:016x}", dataset.n_rows()))
}
