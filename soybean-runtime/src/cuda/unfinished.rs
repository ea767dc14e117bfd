//! The tasks of a step that have not ended, for the error about a step that lasts too long.

use std::collections::BTreeMap;

use soybean_plan::Lane;

use super::{
    device_set::{DeviceSet, PhaseEvents},
    phase::{Phase, TaskLabel},
    rank_context::RankContext,
};
use crate::Error;

/// Describes what each rank of this process has not finished of a step that was queued task by
/// task, such as `ranks 0, 2: all-reduce 7`.
pub(super) fn unfinished_tasks(
    devices: &DeviceSet,
    phase: &Phase,
    events: &PhaseEvents,
) -> Result<String, Error> {
    let mut ranks_by_tasks: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (index, context) in devices.contexts.iter().enumerate() {
        let mut tasks = Vec::new();
        for lane in Lane::ALL.into_iter().filter(|it| phase.uses(*it)) {
            tasks.extend(unfinished_in_lane(context, phase, lane, |task| {
                events.end_of(task, index).map(|it| it.is_complete()).transpose()
            })?);
        }
        if !tasks.is_empty() {
            ranks_by_tasks.entry(tasks.join(" and ")).or_default().push(context.rank.to_string());
        }
    }
    let lists = ranks_by_tasks.iter().map(|(tasks, ranks)| {
        let many = if ranks.len() == 1 { "" } else { "s" };
        format!("rank{many} {}: {tasks}", ranks.join(", "))
    });
    let lists: Vec<String> = lists.collect();
    Ok(if lists.is_empty() { "no task".to_owned() } else { lists.join("; ") })
}

/// Returns the first task of a lane that has not ended. `has_ended` knows that of some tasks only,
/// so this may be a range: the first task is one of them.
fn unfinished_in_lane(
    context: &RankContext,
    phase: &Phase,
    lane: Lane,
    has_ended: impl Fn(usize) -> Result<Option<bool>, Error>,
) -> Result<Option<String>, Error> {
    if context.lane(lane).is_idle()? {
        return Ok(None);
    }
    let tasks = (0..phase.tasks.len()).filter(|it| phase.tasks[*it].lane == lane);
    let mut candidates: Vec<usize> = Vec::new();
    for task in tasks {
        candidates.push(task);
        match has_ended(task)? {
            Some(true) => candidates.clear(),
            Some(false) => break,
            None => {}
        }
    }
    let name = |task: &usize| {
        let TaskLabel { name, kernel, .. } = &phase.tasks[*task].label;
        kernel.map_or_else(|| (*name).to_owned(), |kernel| format!("{name} {kernel}"))
    };
    Ok(match &candidates[..] {
        [] => None,
        [task] => Some(name(task)),
        [first, .., last] => {
            let n_candidates = candidates.len();
            Some(format!("one of {n_candidates} tasks from {} to {}", name(first), name(last)))
        }
    })
}
