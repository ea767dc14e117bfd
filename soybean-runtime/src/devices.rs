//! A report of the available devices, for users who want to know why a run uses one of them.

use std::{fmt, thread};

#[cfg(feature = "cuda")]
use crate::cuda::devices as cuda;
#[cfg(not(feature = "cuda"))]
use crate::{Error, ErrorKind};

/// The devices and libraries that [`devices`] found.
///
/// It displays as one line with the device that [`Device::Auto`](crate::Device::Auto) uses, then
/// one line for each device and each library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devices {
    /// True if programs can run on GPUs.
    has_gpus: bool,
    summary: String,
    lines: Vec<(String, String)>,
}

/// Finds all devices and the libraries that they need. This takes up to a second if there are such
/// libraries.
#[must_use]
pub fn devices() -> Devices {
    let n_cores = thread::available_parallelism().map_or(1, usize::from);
    let mut lines = vec![("CPU".to_owned(), format!("{n_cores} cores"))];
    let usable = usable();
    lines.extend(others());
    let summary = match &usable {
        Ok(1) => "`auto` runs on the GPU".to_owned(),
        Ok(n_gpus) => format!("`auto` runs on {n_gpus} GPUs"),
        Err(why) => format!("`auto` runs on the CPU: {why}"),
    };
    Devices { has_gpus: usable.is_ok(), summary, lines }
}

impl Devices {
    /// Returns true if programs can run on GPUs.
    #[must_use]
    pub const fn has_gpus(&self) -> bool {
        self.has_gpus
    }
}

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary)?;
        let width = self.lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        self.lines.iter().try_for_each(|(name, known)| write!(f, "\n  {name:<width$}  {known}"))
    }
}

#[cfg(feature = "cuda")]
fn usable() -> Result<usize, String> {
    cuda::usable().map_err(|error| error.to_string())
}

#[cfg(feature = "cuda")]
fn others() -> Vec<(String, String)> {
    cuda::lines()
}

#[cfg(not(feature = "cuda"))]
pub(crate) fn usable() -> Result<usize, String> {
    Err("expected the feature `cuda`, found that this program is built without it".to_owned())
}

/// Returns the error of a program that was asked to use GPUs but built without them.
#[cfg(not(feature = "cuda"))]
pub(crate) fn not_built_in() -> Error {
    let message = "expected a device that is built in (cpu), found cuda: the feature `cuda` is off";
    Error::new(ErrorKind::Device, message)
}

#[cfg(not(feature = "cuda"))]
fn others() -> Vec<(String, String)> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_says_what_is_used() {
        let line = |name: &str, known: &str| (name.to_owned(), known.to_owned());
        let lines = vec![line("CPU", "2 cores"), line("driver", "for CUDA 13.0")];
        let summary = "`auto` runs on 2 GPUs".to_owned();
        let devices = Devices { has_gpus: true, summary, lines };
        let text = "`auto` runs on 2 GPUs\n  CPU     2 cores\n  driver  for CUDA 13.0";
        assert_eq!(devices.to_string(), text);
    }

    #[test]
    fn the_cpu_is_always_there() {
        let text = devices().to_string();
        assert!(text.contains("\n  CPU"), "{text}");
        assert_eq!(devices().has_gpus(), !text.starts_with("`auto` runs on the CPU: "), "{text}");
    }
}
