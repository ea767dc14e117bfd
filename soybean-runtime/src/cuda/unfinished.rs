//! The tasks of a step that have not ended, for the error about a step that lasts too long.

use std::{
    collections::BTreeMap,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use soybean_plan::Lane;

use super::{
    device_set::DeviceSet,
    phase::{Phase, TaskLabel},
    queue_progress::QueueProgress,
    rank_context::RankContext,
    step_launch::{PhaseTasks, StepLaunch},
};
use crate::Error;

/// Time for which GPUs are asked what they have not finished.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Describes what each rank of this process has not finished of a step that is still being queued.
///
/// The driver may not answer while a thread waits for room in a launch queue. Then the description
/// names the tasks that the threads are queueing.
pub(super) fn unfinished_launch(launch: &Arc<StepLaunch>) -> String {
    let (sender, receiver) = mpsc::channel();
    let asked = Arc::clone(launch);
    let ask = move || {
        let found = unfinished_tasks(&asked.devices, &asked.tasks, &asked.progress);
        drop(asked);
        // Nobody waits any longer if it took too long.
        let _late = sender.send(found);
    };
    let spawned = thread::Builder::new().name("unfinished tasks".to_owned()).spawn(ask);
    let answer = spawned.ok().and_then(|_| receiver.recv_timeout(ANSWER_TIMEOUT).ok());
    answer.and_then(Result::ok).unwrap_or_else(|| {
        let StepLaunch { devices, tasks, progress, .. } = &**launch;
        let ranks = devices.contexts.iter().map(|context| {
            let task = next_task(&tasks.phase, progress, context);
            (context.rank, task.into_iter().collect())
        });
        by_tasks(ranks)
    })
}

/// Describes what each rank of this process has not finished of a step that was queued task by
/// task, such as `ranks 0, 2: all-reduce 7`.
pub(super) fn unfinished_tasks(
    devices: &DeviceSet,
    PhaseTasks { phase, events }: &PhaseTasks,
    progress: &QueueProgress,
) -> Result<String, Error> {
    let mut ranks = Vec::new();
    for (index, context) in devices.contexts.iter().enumerate() {
        let n_queued = progress.n_queued(context.gpu_index);
        let mut tasks = Vec::new();
        for lane in Lane::ALL.into_iter().filter(|it| phase.uses(*it)) {
            tasks.extend(unfinished_in_lane(context, phase, (lane, n_queued), |task| {
                events.end_of(task, index).map(|it| it.is_complete()).transpose()
            })?);
        }
        if tasks.is_empty() {
            tasks.extend(next_task(phase, progress, context));
        }
        ranks.push((context.rank, tasks));
    }
    Ok(by_tasks(ranks.into_iter()))
}

/// Lists the ranks by their unfinished tasks.
fn by_tasks(ranks: impl Iterator<Item = (usize, Vec<String>)>) -> String {
    let mut ranks_by_tasks: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (rank, tasks) in ranks.filter(|it| !it.1.is_empty()) {
        ranks_by_tasks.entry(tasks.join(" and ")).or_default().push(rank.to_string());
    }
    let lists = ranks_by_tasks.iter().map(|(tasks, ranks)| {
        let many = if ranks.len() == 1 { "" } else { "s" };
        format!("rank{many} {}: {tasks}", ranks.join(", "))
    });
    let lists: Vec<String> = lists.collect();
    if lists.is_empty() { "no task".to_owned() } else { lists.join("; ") }
}

/// Returns the task that the thread of a rank is queueing, such as `the start of all-reduce 7`.
fn next_task(phase: &Phase, progress: &QueueProgress, context: &RankContext) -> Option<String> {
    let task = phase.tasks.get(progress.n_queued(context.gpu_index))?;
    Some(format!("the start of {}", name(&task.label)))
}

fn name(TaskLabel { name, kernel, .. }: &TaskLabel) -> String {
    kernel.map_or_else(|| (*name).to_owned(), |kernel| format!("{name} {kernel}"))
}

/// Returns the first task of a lane that has not ended, of the tasks that are queued. `has_ended`
/// knows that of some tasks only, so this may be a range: the first task is one of them.
fn unfinished_in_lane(
    context: &RankContext,
    phase: &Phase,
    (lane, n_queued): (Lane, usize),
    has_ended: impl Fn(usize) -> Result<Option<bool>, Error>,
) -> Result<Option<String>, Error> {
    if context.lane(lane).is_idle()? {
        return Ok(None);
    }
    let queued = 0..phase.tasks.len().min(n_queued);
    let mut candidates: Vec<usize> = Vec::new();
    for task in queued.filter(|it| phase.tasks[*it].lane == lane) {
        candidates.push(task);
        match has_ended(task)? {
            Some(true) => candidates.clear(),
            Some(false) => break,
            None => {}
        }
    }
    let name = |task: &usize| name(&phase.tasks[*task].label);
    Ok(match &candidates[..] {
        [] => None,
        [task] => Some(name(task)),
        [first, .., last] => {
            let n_candidates = candidates.len();
            Some(format!("one of {n_candidates} tasks from {} to {}", name(first), name(last)))
        }
    })
}
