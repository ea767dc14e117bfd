//! The memory at each step of a training step or a prediction, by content.

use soybean_compiler::{Content, Report};

use super::json::list;

/// Returns the size of the arena, the contents from the bottom of the stack to its top, and for
/// each of them its bytes at the first step, followed by the changes at the other steps. Gaps are
/// not shown.
pub(super) fn json(report: &Report) -> String {
    let shown = || Content::NAMES.into_iter().filter(|it| it.2 != Content::Gaps);
    let names = list(shown().map(|(name, ..)| format!("\"{name}\"")));
    let steps = report.memory_by_step();
    let changes = list(shown().map(|(.., content)| {
        let mut before = 0;
        list(steps.iter().map(|held| {
            let now = i128::from(held[&content]);
            let change = now - std::mem::replace(&mut before, now);
            change.to_string()
        }))
    }));
    let arena = report.peak_memory_bytes_per_gpu;
    format!("{{\"arena\":{arena},\"kinds\":{names},\"changes\":{changes}}}")
}
