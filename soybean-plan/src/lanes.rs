//! The steps of a program in two lanes of one rank: kernels one after another, and beside them
//! collectives one after another. A step starts when its lane is free and the steps that it needs
//! have ended. All ranks run the same steps, so one rank stands for all.

use std::collections::BTreeMap;

use crate::{BufferId, Kernel, Lane, Step};

/// The earlier steps on which a step depends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepNeeds {
    /// Those that write its inputs.
    pub reads: Vec<usize>,
    /// These, and those that read or write what it overwrites.
    pub needs: Vec<usize>,
}

impl StepNeeds {
    /// Returns the dependencies of each step by the numbers of buffers, whatever their places in
    /// memory are.
    #[must_use]
    pub fn of(steps: &[Step]) -> Vec<Self> {
        let mut writer: BTreeMap<BufferId, usize> = BTreeMap::new();
        let mut readers: BTreeMap<BufferId, Vec<usize>> = BTreeMap::new();
        let mut all = Vec::with_capacity(steps.len());
        for (at, step) in steps.iter().enumerate() {
            let reads: Vec<usize> =
                step.inputs.iter().filter_map(|it| writer.get(it)).copied().collect();
            let overwrites = step.results.iter().filter_map(|it| writer.get(it));
            let before = step.results.iter().filter_map(|it| readers.get(it)).flatten();
            let needs = reads.iter().chain(overwrites).chain(before).copied().collect();
            all.push(Self { reads, needs });
            step.inputs.iter().for_each(|&it| readers.entry(it).or_default().push(at));
            writer.extend(step.results.iter().map(|&it| (it, at)));
        }
        all
    }
}

/// Returns the lane of a kernel. Copies within a rank are kernels.
#[must_use]
pub fn lane(kernel: &Kernel) -> Lane {
    match kernel.transfer() {
        Some(_) => Lane::Communication,
        None => Lane::Compute,
    }
}

/// Returns the start and end of each step in seconds, given its lane and duration. The steps of a
/// lane run in their order.
#[must_use]
pub fn lane_spans(needs: &[StepNeeds], durations: &[(Lane, f64)]) -> Vec<[f64; 2]> {
    let mut free = [0.0_f64; 2];
    let mut spans: Vec<[f64; 2]> = Vec::with_capacity(needs.len());
    for (StepNeeds { needs, .. }, &(lane, seconds)) in needs.iter().zip(durations) {
        let start = needs.iter().map(|&it| spans[it][1]).fold(free[lane as usize], f64::max);
        free[lane as usize] = start + seconds;
        spans.push([start, start + seconds]);
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(inputs: &[usize], results: &[usize]) -> Step {
        Step { kernel: 0, inputs: inputs.to_vec(), results: results.to_vec() }
    }

    #[test]
    fn a_step_needs_writers_and_the_readers_of_what_it_overwrites() {
        let steps = [step(&[0], &[1]), step(&[1], &[2]), step(&[2], &[0]), step(&[0], &[2])];
        let needs: Vec<Vec<usize>> = StepNeeds::of(&steps).into_iter().map(|it| it.needs).collect();
        assert_eq!(needs, [vec![], vec![0], vec![1, 0], vec![2, 1, 2]]);
    }

    #[test]
    fn lanes_run_beside_each_other() {
        // A kernel of 2 s, a collective of its result of 5 s, a kernel of 3 s, and one of the
        // collective's result.
        let steps = [step(&[0], &[1]), step(&[1], &[2]), step(&[1], &[3]), step(&[2], &[4])];
        let durations = [
            (Lane::Compute, 2.0),
            (Lane::Communication, 5.0),
            (Lane::Compute, 3.0),
            (Lane::Compute, 1.0),
        ];
        let spans = lane_spans(&StepNeeds::of(&steps), &durations);
        assert_eq!(spans, [[0.0, 2.0], [2.0, 7.0], [2.0, 5.0], [7.0, 8.0]]);
    }
}
