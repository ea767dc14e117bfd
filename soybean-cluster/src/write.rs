//! Writes clusters as files.

use std::fmt::{self, Write};

use soybean_plan::{Cluster, Device, Level, MeasuredKernel, Measurements, measured_names};

use crate::quantity::{BYTES_PER_SECOND, FLOPS, SECONDS};

/// Writes a cluster as the text of a file, from which [`read`](crate::read()) reads it back. Speeds
/// and times are rounded to six digits. Each line of `comment` becomes a comment at the top.
///
/// # Panics
/// Never: writing to a string does not fail.
#[must_use]
pub fn write(cluster: &Cluster, comment: &str) -> String {
    let mut text = String::new();
    for line in comment.lines() {
        text.push_str(format!("# {line}").trim_end());
        text.push('\n');
    }
    write_all(cluster, &mut text).expect("writing to a string does not fail");
    text
}

fn write_all(cluster: &Cluster, f: &mut String) -> fmt::Result {
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
    writeln!(f, "[gpu]\nname = {}", string(name))?;
    writeln!(f, "f32 = \"{}\"", FLOPS.write(*f32_flops))?;
    writeln!(f, "tf32 = \"{}\"", FLOPS.write(*tf32_flops))?;
    writeln!(f, "bf16 = \"{}\"", FLOPS.write(*bf16_flops))?;
    writeln!(f, "memory = \"{memory_bytes} B\"")?;
    writeln!(f, "memory_bandwidth = \"{}\"", BYTES_PER_SECOND.write(*memory_bytes_per_second))?;
    writeln!(f, "launch = \"{}\"\nefficiency = {efficiency}", SECONDS.write(*launch_seconds))?;
    for level in cluster.levels.iter() {
        let Level { name, count, link_bytes_per_second, gpus_per_link, latency_seconds } = level;
        writeln!(f, "\n[[level]]\nname = {}\ncount = {count}", string(name))?;
        writeln!(f, "bandwidth = \"{}\"", BYTES_PER_SECOND.write(*link_bytes_per_second))?;
        writeln!(f, "gpus_per_link = {gpus_per_link}")?;
        writeln!(f, "latency = \"{}\"", SECONDS.write(*latency_seconds))?;
    }
    match &cluster.measurements {
        it if *it == Measurements::default() => Ok(()),
        it => write_measurements(it, f),
    }
}

fn write_measurements(measurements: &Measurements, f: &mut String) -> fmt::Result {
    let Measurements { step_seconds, kernels, collectives } = measurements;
    writeln!(f, "\n[measured]\n# The time of a step besides kernels and collectives.")?;
    writeln!(f, "step = \"{}\"", SECONDS.write(*step_seconds))?;
    writeln!(f, "\n# Operations, bytes read and written, and seconds of a kernel on one rank.")?;
    writeln!(f, "[measured.kernels]")?;
    for name in measured_names() {
        let rows: Vec<&MeasuredKernel> = kernels.iter().filter(|it| it.name == name).collect();
        if rows.is_empty() {
            continue;
        }
        writeln!(f, "{name} = [")?;
        for MeasuredKernel { operations, bytes, seconds, .. } in rows {
            writeln!(f, "    [{operations}, {bytes}, {seconds:.5e}],")?;
        }
        writeln!(f, "]")?;
    }
    if collectives.is_empty() {
        return Ok(());
    }
    writeln!(
        f,
        "\n# Ranks of a group, seconds before the first byte, and bytes that each of them"
    )?;
    writeln!(f, "# receives per second.\n[measured.collectives]")?;
    for of_kind in collectives.chunk_by(|one, other| one.kind == other.kind) {
        writeln!(f, "{} = [", of_kind[0].kind.name())?;
        for it in of_kind {
            let (latency, speed) = (it.latency_seconds, it.bytes_per_second);
            writeln!(f, "    [{}, {latency:.5e}, {speed:.5e}],", it.n_ranks)?;
        }
        writeln!(f, "]")?;
    }
    Ok(())
}

/// Returns a basic string of TOML.
fn string(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            it if it.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(it))),
            it => quoted.push(it),
        }
    }
    quoted.push('"');
    quoted
}
