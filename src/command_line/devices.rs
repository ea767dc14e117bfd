//! `devices`: which devices and libraries are found, and which are used.

use std::io::Write;

use super::CommandError;

pub(super) fn devices(output: &mut dyn Write) -> Result<(), CommandError> {
    Ok(writeln!(output, "{}", soybean_runtime::devices())?)
}
