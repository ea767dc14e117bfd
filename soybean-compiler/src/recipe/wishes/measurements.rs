//! The measured times of a cluster as lines of a recipe, after that of the cluster.

use std::{borrow::Cow, fmt};

use soybean_plan::{CollectiveKind, MeasuredCollective, MeasuredKernel, Measurements};

use crate::recipe::read::datum::Datum;

/// Writes the lines; none without measurements.
pub(super) fn write(measurements: &Measurements, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Measurements { step_seconds, kernels, collectives } = measurements;
    if *measurements == Measurements::default() {
        return Ok(());
    }
    write!(f, "measured_kernels {step_seconds:?}")?;
    for MeasuredKernel { name, operations, bytes, seconds } in kernels.iter() {
        write!(f, " [{name:?}, {operations}, {bytes}, {seconds:?}]")?;
    }
    write!(f, "\nmeasured_collectives")?;
    for it in collectives.iter() {
        let MeasuredCollective { kind, n_ranks, latency_seconds, bytes_per_second } = it;
        let name = kind.name();
        write!(f, " [{name:?}, {n_ranks}, {latency_seconds:?}, {bytes_per_second:?}]")?;
    }
    writeln!(f)
}

/// Reads a line that [`write()`] wrote, if it is one.
pub(super) fn read(
    measurements: &mut Measurements,
    word: &str,
    data: &[Datum],
) -> Result<bool, String> {
    match (word, data) {
        ("measured_kernels", [step, kernels @ ..]) => {
            measurements.step_seconds = step.number()?;
            measurements.kernels =
                Cow::Owned(kernels.iter().map(kernel).collect::<Result<_, _>>()?);
        }
        ("measured_collectives", collectives) => {
            measurements.collectives =
                Cow::Owned(collectives.iter().map(collective).collect::<Result<_, _>>()?);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn kernel(datum: &Datum) -> Result<MeasuredKernel, String> {
    let [Datum::Text(name), operations, bytes, seconds] = datum.list()? else {
        return Err("a measured kernel is a name and three numbers".to_owned());
    };
    Ok(MeasuredKernel {
        name: Cow::Owned(name.clone()),
        operations: operations.count()? as u64,
        bytes: bytes.count()? as u64,
        seconds: seconds.number()?,
    })
}

fn collective(datum: &Datum) -> Result<MeasuredCollective, String> {
    let [Datum::Text(name), n_ranks, latency, speed] = datum.list()? else {
        return Err("a measured collective is a name and three numbers".to_owned());
    };
    let kind = CollectiveKind::ALL.into_iter().find(|it| it.name() == name);
    Ok(MeasuredCollective {
        kind: kind.ok_or_else(|| format!("`{name}` is no collective"))?,
        n_ranks: n_ranks.count()?,
        latency_seconds: latency.number()?,
        bytes_per_second: speed.number()?,
    })
}
