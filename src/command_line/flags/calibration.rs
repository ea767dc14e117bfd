//! The flags of calibrations.

use soybean_plan::parse_bytes;

use super::{Command, Flag, Target};
use crate::run::setting::{set, some_path};

pub(super) const FLAGS: &[Flag] = &[
    Flag {
        name: "calibrate",
        value: "FILE",
        help: "instead measure kernels and collectives, and write a cluster file for `plan --cluster`",
        commands: &[Command::Bench, Command::BenchPredictor],
        target: Target::Option(|options, text| set(&mut options.calibrate, some_path(text))),
    },
    Flag {
        name: "max-kernel",
        value: "SIZE",
        help: "with --calibrate: the most bytes that a kernel reads and writes, from 64kB (no limit)",
        commands: &[Command::Bench, Command::BenchPredictor],
        target: Target::Option(|options, text| {
            set(&mut options.max_kernel_bytes, kernel_bytes(text).map(Some))
        }),
    },
];

/// Parses the most bytes of a measured kernel, which leave some kernels of each kind.
fn kernel_bytes(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    match bytes >= MIN_KERNEL_BYTES {
        true => Ok(bytes),
        false => Err(format!("expected at least 64kB, found `{text}`")),
    }
}

/// The least limit of a measured kernel's bytes.
const MIN_KERNEL_BYTES: u64 = 64_000;
