//! The table `[measured]`: times of kernels and speeds of collectives, in rows of numbers.

use std::borrow::Cow;

use soybean_plan::{
    CollectiveKind, MeasuredCollective, MeasuredKernel, Measurements, measured_names,
};

use crate::{error::Error, quantity::SECONDS, table::Table};

/// Reads the table of a cluster with this many levels; no measurements if it is missing.
pub(crate) fn read(root: &mut Table<'_>, n_levels: usize) -> Result<Measurements, Error> {
    let Some(mut table) = root.optional_table("measured", "`[measured]`")? else {
        return Ok(Measurements::default());
    };
    let step_seconds = table.quantity_from_zero("step", &SECONDS)?;
    let kernels = kernels(table.optional_table("kernels", "`[measured.kernels]`")?)?;
    let collectives = table.optional_table("collectives", "`[measured.collectives]`")?;
    if let Some(it) = collectives.as_ref().filter(|_| n_levels != 1) {
        let message = format!(
            "`[measured.collectives]` holds for clusters of one level, found {n_levels} levels"
        );
        return Err(root.place().error(it.at(), message));
    }
    let collectives = self::collectives(collectives)?;
    table.finish()?;
    let (kernels, collectives) = (Cow::Owned(kernels), Cow::Owned(collectives));
    Ok(Measurements { step_seconds, kernels, collectives })
}

/// The largest number in a row that is an exact integer.
const MAX_EXACT: f64 = (1_u64 << 53) as f64;

fn is_count(number: f64) -> bool {
    (0.0..=MAX_EXACT).contains(&number) && number.fract() == 0.0
}

fn is_positive(number: f64) -> bool {
    number > 0.0 && number.is_finite()
}

#[expect(clippy::cast_possible_truncation, reason = "counts are exact integers")]
#[expect(clippy::cast_sign_loss, reason = "counts are at least 0")]
fn kernels(table: Option<Table<'_>>) -> Result<Vec<MeasuredKernel>, Error> {
    const ROW: &str = "[operations, bytes, seconds], such as [524288, 49152, 1.2e-5]";
    let mut kernels = Vec::new();
    let Some(mut table) = table else { return Ok(kernels) };
    for name in measured_names() {
        let is_right = |&[operations, bytes, seconds]: &[f64; 3]| {
            is_count(operations) && is_count(bytes) && is_positive(seconds)
        };
        let rows = table.rows(name, ROW, is_right)?;
        kernels.extend(rows.into_iter().map(|[operations, bytes, seconds]| MeasuredKernel {
            name: Cow::Borrowed(name),
            operations: operations as u64,
            bytes: bytes as u64,
            seconds,
        }));
    }
    table.finish()?;
    Ok(kernels)
}

#[expect(clippy::cast_possible_truncation, reason = "counts are exact integers")]
#[expect(clippy::cast_sign_loss, reason = "counts are at least 0")]
fn collectives(table: Option<Table<'_>>) -> Result<Vec<MeasuredCollective>, Error> {
    const ROW: &str =
        "[ranks, seconds, bytes per second], such as [8, 1.5e-6, 3.2e9], of at least 2 ranks";
    let mut collectives = Vec::new();
    let Some(mut table) = table else { return Ok(collectives) };
    // Halo exchanges get the speed of all-to-alls.
    let unmeasured = [CollectiveKind::Slice, CollectiveKind::HaloExchange];
    for kind in CollectiveKind::ALL.into_iter().filter(|it| !unmeasured.contains(it)) {
        let is_right = |&[n_ranks, latency, speed]: &[f64; 3]| {
            is_count(n_ranks)
                && n_ranks >= 2.0
                && is_positive(speed)
                && (latency == 0.0 || is_positive(latency))
        };
        let rows = table.rows(kind.name(), ROW, is_right)?;
        collectives.extend(rows.into_iter().map(|[n_ranks, latency_seconds, speed]| {
            let n_ranks = n_ranks as usize;
            MeasuredCollective { kind, n_ranks, latency_seconds, bytes_per_second: speed }
        }));
    }
    table.finish()?;
    Ok(collectives)
}
