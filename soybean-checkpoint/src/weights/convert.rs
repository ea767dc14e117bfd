//! Conversion of elements of other types to `f32`.

use std::path::Path;

use safetensors::Dtype;
use soybean_plan::{bf16, f16};

use super::matching::Match;
use crate::{
    Error,
    tensor_file::{Reader, checkpoint_error},
};

/// Returns true if elements of this type can be converted to `f32`.
pub(super) const fn is_number(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F32 | Dtype::F64 | Dtype::F16 | Dtype::BF16)
}

/// Converts the bytes of elements to the nearest `f32` and appends them.
pub(super) fn append(dtype: Dtype, bytes: &[u8], to: &mut Vec<f32>) {
    match dtype {
        Dtype::F64 => to.extend(doubles(bytes).map(single)),
        Dtype::F16 => to.extend(words(bytes).map(f16::to_f32)),
        Dtype::BF16 => to.extend(words(bytes).map(bf16::to_f32)),
        _ => to.extend(bytes.as_chunks().0.iter().map(|it| f32::from_le_bytes(*it))),
    }
}

/// Checks that no finite 64-bit number becomes infinite.
pub(super) fn check(path: &Path, matches: &[Option<Match<'_>>]) -> Result<(), Error> {
    let is_double =
        |it: &Option<Match<'_>>| it.as_ref().is_some_and(|it| it.entry.dtype == Dtype::F64);
    if !matches.iter().any(is_double) {
        return Ok(());
    }
    let mut reader = Reader::open(path)?;
    for found in matches {
        let mut too_large = None;
        let is_double = is_double(found);
        let entry = reader.next(&mut |bytes| {
            let is_too_large = |it: &f64| it.is_finite() && single(*it).is_infinite();
            if is_double && too_large.is_none() {
                too_large = doubles(bytes).find(is_too_large);
            }
        })?;
        if let (Some(number), Some(entry)) = (too_large, entry) {
            let (path, name) = (path.display(), &entry.name);
            return Err(checkpoint_error(format!(
                "{path}: `{name}`: expected numbers in the range of f32, found {number:e}"
            )));
        }
    }
    Ok(())
}

fn doubles(bytes: &[u8]) -> impl Iterator<Item = f64> {
    bytes.as_chunks().0.iter().map(|it| f64::from_le_bytes(*it))
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u16> {
    bytes.as_chunks().0.iter().map(|it| u16::from_le_bytes(*it))
}

#[expect(clippy::cast_possible_truncation, reason = "rounded on purpose")]
const fn single(number: f64) -> f32 {
    number as f32
}
