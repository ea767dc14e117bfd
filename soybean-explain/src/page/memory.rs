//! The memory at each step of a training step or a prediction, by content.

use std::collections::BTreeMap;

use soybean_compiler::{Content, Report};

use super::json::list;

/// Returns the size of the arena, the contents from the bottom of the stack to its top, and the
/// bytes of each at each step. Gaps are not shown.
pub(super) fn json(report: &Report) -> String {
    let shown = || Content::NAMES.into_iter().filter(|it| it.2 != Content::Gaps);
    let names = list(shown().map(|(name, ..)| format!("\"{name}\"")));
    let row = |held: &BTreeMap<Content, u64>| {
        list(shown().map(|(.., content)| held[&content].to_string()))
    };
    let used = list(report.memory_by_step().iter().map(row));
    let arena = report.peak_memory_bytes_per_gpu;
    format!("{{\"arena\":{arena},\"kinds\":{names},\"used\":{used}}}")
}
