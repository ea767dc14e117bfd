//! Traces of single steps.

use std::{fs, path::Path};

use soybean_runtime::{Error, ErrorKind, Trace, Trainer, View};

/// A step on the batch that was queued, whose trace goes into a file; the first process writes it.
pub(crate) fn traced(
    trainer: &mut Trainer,
    next: Option<&[View<'_>]>,
    file: &Path,
) -> Result<(f32, Trace), Error> {
    let (loss, trace) = trainer.trace_queued(next)?;
    if !trainer.process().is_first() {
        return Ok((loss, trace));
    }
    fs::write(file, trace.to_json()).map_err(|error| {
        let file = file.display();
        Error::new(ErrorKind::Output, format!("cannot write the trace into {file}: {error}"))
    })?;
    Ok((loss, trace))
}
