//! The memory that is held at each step of a training step or a prediction, by what it is for.

use std::collections::BTreeMap;

use soybean_compiler::{Content, Report};

use super::json::list;

/// The size of the arena, the contents that are shown, from the bottom of the stack to its top, and for each step the bytes of each. Gaps are not shown.
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
