//! The table of settings. Flags, keys of TOML files, `config.toml` and the documentation follow
//! from it.

use super::{device, files, setting::Setting, training};

/// Returns all settings, in the order of the help text.
pub(crate) fn settings() -> impl Iterator<Item = &'static Setting> {
    training::SETTINGS.iter().chain(device::SETTINGS).chain(files::SETTINGS)
}
