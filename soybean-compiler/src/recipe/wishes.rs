//! The options of the search as lines of a recipe; options with default values are omitted.

mod measurements;

use std::{borrow::Cow, fmt};

use soybean_plan::{Cluster, Device, Level, Measurements};

use super::read::datum::Datum;
use crate::tiling::{MAX_WORK, Objective, Padding, SearchEffort, SearchRequest, is_max_work};

/// Writes all but the strategy.
pub(super) fn write(request: &SearchRequest, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if let Some(memory) = request.memory {
        writeln!(f, "memory {memory}")?;
    }
    if !request.shares {
        writeln!(f, "shares false")?;
    }
    if request.keeps_images_whole {
        writeln!(f, "keeps_images_whole true")?;
    }
    if let Some(cluster) = &request.cluster {
        write_cluster(cluster, f)?;
        measurements::write(&cluster.measurements, f)?;
    }
    match request.effort {
        SearchEffort::Standard => {}
        SearchEffort::Rough | SearchEffort::Thorough => {
            writeln!(f, "search {:?}", request.effort.name())?;
        }
    }
    match request.padding {
        Padding::Auto => {}
        Padding::Off | Padding::All => writeln!(f, "padding {:?}", request.padding.name())?,
    }
    if request.max_work.to_bits() != MAX_WORK.to_bits() {
        writeln!(f, "max_work {:?}", request.max_work)?;
    }
    match request.objective {
        Objective::Bytes => Ok(()),
        Objective::Time => writeln!(f, "objective {:?}", request.objective.name()),
    }
}

fn write_cluster(cluster: &Cluster, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Device {
        name,
        f32_flops,
        tf32_flops,
        bf16_flops,
        memory_bytes_per_second,
        memory_bytes,
        launch_seconds,
        efficiency,
    } = &cluster.device;
    write!(
        f,
        "cluster {:?} [{name:?}, {f32_flops:?}, {tf32_flops:?}, {bf16_flops:?}, {memory_bytes_per_second:?}, {memory_bytes}, {launch_seconds:?}, {efficiency:?}]",
        cluster.name
    )?;
    for level in cluster.levels.iter() {
        let Level { name, count, link_bytes_per_second, gpus_per_link, latency_seconds } = level;
        write!(
            f,
            " [{name:?}, {count}, {link_bytes_per_second:?}, {gpus_per_link}, {latency_seconds:?}]"
        )?;
    }
    writeln!(f)
}

/// Reads a line that [`write()`] wrote, if it is one.
pub(super) fn read(
    request: &mut SearchRequest,
    word: &str,
    data: &[Datum],
) -> Result<bool, String> {
    match (word, data) {
        ("memory", [bytes]) => request.memory = Some(bytes.count()? as u64),
        ("shares", [Datum::Boolean(shares)]) => request.shares = *shares,
        ("keeps_images_whole", [Datum::Boolean(whole)]) => request.keeps_images_whole = *whole,
        ("search", [Datum::Text(name)]) => request.effort = name.parse()?,
        ("padding", [Datum::Text(name)]) => request.padding = name.parse()?,
        ("max_work", [number]) => {
            request.max_work = number.number()?;
            if !is_max_work(request.max_work) {
                return Err(format!("`max_work` is a number from 1, not {}", request.max_work));
            }
        }
        ("objective", [Datum::Text(name)]) => request.objective = name.parse()?,
        ("cluster", [Datum::Text(name), device, levels @ ..]) => {
            let levels: Vec<Level> = levels.iter().map(level).collect::<Result<_, _>>()?;
            request.cluster = Some(Cluster {
                name: Cow::Owned(name.clone()),
                levels: Cow::Owned(levels),
                device: self::device(device)?,
                measurements: Measurements::default(),
            });
        }
        _ => match &mut request.cluster {
            Some(cluster) => return measurements::read(&mut cluster.measurements, word, data),
            None => return Ok(false),
        },
    }
    Ok(true)
}

fn device(datum: &Datum) -> Result<Device, String> {
    let [Datum::Text(name), speeds @ .., memory_bytes, launch, efficiency] = datum.list()? else {
        return Err("a GPU is a name and seven numbers".to_owned());
    };
    let [f32_flops, tf32_flops, bf16_flops, memory] = speeds else {
        return Err("a GPU has four speeds".to_owned());
    };
    Ok(Device {
        name: Cow::Owned(name.clone()),
        f32_flops: f32_flops.number()?,
        tf32_flops: tf32_flops.number()?,
        bf16_flops: bf16_flops.number()?,
        memory_bytes_per_second: memory.number()?,
        memory_bytes: memory_bytes.count()? as u64,
        launch_seconds: launch.number()?,
        efficiency: efficiency.number()?,
    })
}

fn level(datum: &Datum) -> Result<Level, String> {
    let [Datum::Text(name), count, bandwidth, gpus_per_link, latency] = datum.list()? else {
        return Err("a level is a name and four numbers".to_owned());
    };
    Ok(Level {
        name: Cow::Owned(name.clone()),
        count: count.count()?,
        link_bytes_per_second: bandwidth.number()?,
        gpus_per_link: gpus_per_link.count()?,
        latency_seconds: latency.number()?,
    })
}
