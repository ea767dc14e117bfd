//! Values in buffers, from the step that writes them to the last one that reads them.

use std::{collections::BTreeMap, ops::Range};

use soybean_plan::{BufferId, Step, Tables, overlaps};

use crate::memory::Memory;

/// A value in a buffer.
pub(crate) struct Value {
    pub(super) buffer: BufferId,
    /// The step that writes it.
    pub(super) writer: usize,
    /// The steps that read it.
    pub(super) readers: Vec<usize>,
}

impl Value {
    /// Returns the value that a step writes, if all that is known about its bytes is in the inputs
    /// of its readers: none reads it as part of another buffer or after the last step, and no other
    /// step writes to a part of it before.
    pub(super) fn new(memory: &Memory<'_>, buffer: BufferId, writer: usize) -> Option<Self> {
        if !memory.steps[writer].results.contains(&buffer) {
            return None;
        }
        let later = memory.steps.iter().enumerate().skip(writer + 1);
        let next = later.clone().find(|it| it.1.results.contains(&buffer));
        let end = next.map_or(memory.steps.len(), |it| it.0 + 1);
        let readers = later.take(end - writer - 1).filter(|it| it.1.inputs.contains(&buffer));
        let readers: Vec<usize> = readers.map(|it| it.0).collect();
        let range = memory.tables.range(buffer);
        let is_part = |it: &BufferId| *it != buffer && overlaps(&range, &memory.tables.range(*it));
        let is_whole = |it: &usize| {
            memory.writer(buffer, 0..*it) == Some(writer)
                && !memory.steps[*it].inputs.iter().any(is_part)
        };
        let is_known = readers.iter().all(is_whole)
            && !memory.tables.is_live_at_end(buffer)
            && !memory.is_needed(&readers, writer, buffer);
        is_known.then_some(Self { buffer, writer, readers })
    }
}

/// Returns the bytes of all values but some that are needed at any of the steps from the first to
/// the last of these. A buffer has a value from the step that writes it, or from the start, to the
/// last step that reads it before it is written again.
pub(crate) fn occupied(
    steps: &[Step],
    tables: &Tables,
    (first, last): (usize, usize),
    except: &[&Value],
) -> Vec<Range<usize>> {
    let mut spans: BTreeMap<BufferId, (usize, usize)> = BTreeMap::new();
    let mut ended: Vec<(BufferId, (usize, usize))> = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        for input in &step.inputs {
            spans.entry(*input).or_insert((0, at)).1 = at;
        }
        for result in &step.results {
            ended.extend(spans.insert(*result, (at, at)).map(|it| (*result, it)));
        }
    }
    let is_other = |&(buffer, (start, end)): &(BufferId, (usize, usize))| {
        let is_own = except.iter().any(|it| (it.buffer, it.writer) == (buffer, start));
        start <= last && first <= end && !is_own
    };
    let all = ended.into_iter().chain(spans).filter(is_other);
    all.map(|it| tables.range(it.0)).collect()
}
