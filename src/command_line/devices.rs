//! `devices`: lists the devices and libraries that are found, and those that are used.

use std::io::Write;

use super::CommandError;

pub(super) fn devices(output: &mut dyn Write) -> Result<(), CommandError> {
    Ok(writeln!(output, "{}", soybean_runtime::devices())?)
}
