//! The clusters that come with the crate.

use soybean_plan::Cluster;

use crate::read;

macro_rules! presets {
    ($($name:literal,)*) => {
        /// The names of the presets, with the texts of their files.
        const PRESETS: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../presets/", $name, ".toml"))),)*];
    };
}

presets! {
    "p2.8xlarge",
    "dgx-h100",
    "dgx-h200",
    "2x8-h100-ib",
    "pcie-4x4090",
}

/// Returns the preset with this name.
///
/// # Panics
/// Never: tests read all presets.
#[must_use]
pub fn preset(name: &str) -> Option<Cluster> {
    let &(name, text) = PRESETS.iter().find(|(it, _)| *it == name)?;
    Some(read(name, name, text).expect("presets are read by a test"))
}

/// Returns the names of all presets.
pub fn preset_names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|&(name, _)| name)
}
