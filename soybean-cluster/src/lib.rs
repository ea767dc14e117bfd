//! Cluster files: reads machines described in TOML into a [`Cluster`], and provides presets.
//!
//! A file describes one GPU and the levels that join GPUs, slowest first:
//!
//! ```
//! let text = r#"
//! [gpu]
//! name = "H100 SXM"
//! f32 = "67 TFLOP/s"
//! tf32 = "494 TFLOP/s"
//! bf16 = "989 TFLOP/s"
//! memory = "80 GB"
//! memory_bandwidth = "3.35 TB/s"
//! launch = "3 us"
//! efficiency = 0.7
//!
//! [[level]]
//! name = "nodes"
//! count = 2
//! bandwidth = "50 GB/s"
//! latency = "5 us"
//!
//! [[level]]
//! name = "gpus"
//! count = 8
//! bandwidth = "450 GB/s"
//! latency = "2 us"
//! "#;
//! let cluster = soybean_cluster::read("mine", "mine.toml", text)?;
//! assert_eq!(cluster.n_gpus(), 16);
//! # Ok::<(), soybean_cluster::Error>(())
//! ```
//!
//! [`soybean_plan::Device`] and [`soybean_plan::Level`] define the keys. `bandwidth` is that of one
//! link in each direction, and `gpus_per_link` is 1 by default. The optional table `[measured]` has
//! the times of [`soybean_plan::Measurements`], which [`write()`] writes.

mod error;
mod measured;
mod preset;
mod quantity;
mod table;
mod write;

use std::{borrow::Cow, io, path::Path};

use soybean_plan::{Cluster, Device, Level, caught, read_text};
use toml::de::{DeTable, DeValue};

pub use error::Error;
pub use preset::{preset, preset_names};
use quantity::{BYTES_PER_SECOND, FLOPS, SECONDS};
use table::{Place, Table};
pub use write::write;

/// The most bytes of a cluster file. Those with many measurements have some ten thousand.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Reads the text of a cluster file, for [`read()`].
///
/// # Errors
/// If the file cannot be read, has more than 1 MiB, or is no regular file.
pub fn text_of(path: &Path) -> io::Result<String> {
    read_text(path, MAX_FILE_BYTES)
}

/// Reads a cluster from the text of a file. `file` is the file's name in errors.
///
/// # Errors
/// If the text is no sound cluster file: the first error, with its line.
pub fn read(name: &str, file: &str, text: &str) -> Result<Cluster, Error> {
    let place = Place { file, text };
    let parsed = caught(|| DeTable::parse(text)).map_err(|panic| place.error(0, panic))?;
    let parsed = parsed.map_err(|error| {
        place.error(error.span().map_or(0, |it| it.start), error.message().to_owned())
    })?;
    let mut root = Table::new(place, "the file", parsed.span().start, parsed.get_ref());
    let device = device(root.table("gpu", "`[gpu]`")?)?;
    let levels = levels(&mut root)?;
    let measurements = measured::read(&mut root, levels.len())?;
    root.finish()?;
    let (name, levels) = (Cow::Owned(name.to_owned()), Cow::Owned(levels));
    Ok(Cluster { name, levels, device, measurements })
}

fn device(mut table: Table<'_>) -> Result<Device, Error> {
    let f32_flops = table.quantity("f32", &FLOPS)?;
    let device = Device {
        name: Cow::Owned(table.string("name")?),
        f32_flops,
        tf32_flops: table.quantity("tf32", &FLOPS)?,
        bf16_flops: table.quantity("bf16", &FLOPS)?,
        memory_bytes_per_second: table.quantity("memory_bandwidth", &BYTES_PER_SECOND)?,
        memory_bytes: table.bytes("memory")?,
        launch_seconds: table.quantity_from_zero("launch", &SECONDS)?,
        efficiency: table.share("efficiency")?,
    };
    table.finish()?;
    Ok(device)
}

fn levels(root: &mut Table<'_>) -> Result<Vec<Level>, Error> {
    let mut levels = Vec::new();
    let mut links = Vec::new();
    for mut table in root.levels()? {
        let gpus_per_link = table.optional_count("gpus_per_link")?;
        links.push(gpus_per_link.map(|(_, at)| at));
        levels.push(Level {
            name: Cow::Owned(table.string("name")?),
            count: table.count("count")?,
            link_bytes_per_second: table.quantity("bandwidth", &BYTES_PER_SECOND)?,
            gpus_per_link: gpus_per_link.map_or(1, |(count, _)| count),
            latency_seconds: table.quantity_from_zero("latency", &SECONDS)?,
        });
        table.finish()?;
    }
    let mut n_below = 1_usize;
    for (level, at) in levels.iter().zip(links).rev() {
        let n_sharing = level.gpus_per_link;
        if let Some(at) = at.filter(|_| !n_below.is_multiple_of(n_sharing)) {
            let message = format!(
                "`gpus_per_link` must divide the {n_below} GPUs of each of the {} {}, found {n_sharing}",
                level.count, level.name
            );
            return Err(root.place().error(at, message));
        }
        n_below = n_below.saturating_mul(level.count);
    }
    if n_below > MAX_GPUS {
        let message = format!("a cluster has at most {MAX_GPUS} GPUs, found {n_below}");
        return Err(root.place().error(0, message));
    }
    Ok(levels)
}

/// The largest number of GPUs of a cluster: 2^16, as of a mesh.
const MAX_GPUS: usize = 65_536;

/// Returns the type of a value, with its article.
fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
