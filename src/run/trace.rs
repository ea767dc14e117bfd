//! Traces of single steps.

use std::{fs, path::Path};

use soybean_runtime::{Error, ErrorKind, Process, Trace};

/// Writes a trace into a file, in the first process.
pub(crate) fn write(trace: &Trace, process: Process, file: &Path) -> Result<(), Error> {
    if !process.is_first() {
        return Ok(());
    }
    fs::write(file, trace.to_json()).map_err(|error| {
        let file = file.display();
        Error::new(ErrorKind::Output, format!("cannot write the trace into {file}: {error}"))
    })
}
