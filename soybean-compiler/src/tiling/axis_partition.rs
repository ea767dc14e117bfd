//! Partitions of the mesh axes: symmetry classes, and blocks of axes that get a common placement.

use std::collections::BTreeMap;

use soybean_plan::AxisSet;

use super::{
    instance::Instance,
    problem::{Label, TilingProblem},
};

/// Returns the symmetry classes of axes: exchanging two axes of a class changes no cost.
pub(super) fn symmetry_classes(problem: &TilingProblem<'_>) -> Vec<AxisSet> {
    let mut classes: Vec<(usize, AxisSet)> = Vec::new();
    for axis in 0..problem.mesh.n_axes() {
        match classes.iter_mut().find(|it| problem.are_symmetric(it.0, axis)) {
            Some((_, class)) => *class = class.with(axis),
            None => classes.push((axis, AxisSet::EMPTY.with(axis))),
        }
    }
    classes.into_iter().map(|it| it.1).collect()
}

/// Returns some of the partitions of all axes into blocks, those first by whose blocks most
/// variables can have their orbits.
pub(super) fn legal_partitions(orbits: &Instance<'_>, labels: &[usize]) -> Vec<Vec<AxisSet>> {
    let mut partitions = axis_partitions(orbits, labels);
    partitions.truncate(MAX_PARTITIONS);
    // Blocks may have the wanted sizes, but not the axes that can split a dim.
    let (problem, classes) = (orbits.problem, orbits.resolution.classes());
    let mut equal: BTreeMap<(usize, Label), Vec<usize>> = BTreeMap::new();
    for (variable, label) in orbits.plan(labels).into_iter().enumerate() {
        equal.entry((problem.variables[variable].kind(), label)).or_default().push(variable);
    }
    partitions.sort_by_cached_key(|blocks| -> usize {
        let is_misfit = |((_, like), variables): &(&(usize, Label), &Vec<usize>)| {
            problem.axis_assignments(variables[0], like, &classes, blocks).is_empty()
        };
        equal.iter().filter(is_misfit).map(|(_, variables)| variables.len()).sum()
    });
    partitions
}

/// Returns partitions of all axes into blocks, those first whose sizes fit the orbits of most
/// variables, and of these the coarsest.
pub(super) fn axis_partitions(orbits: &Instance<'_>, labels: &[usize]) -> Vec<Vec<AxisSet>> {
    let mut partitions = vec![Vec::new()];
    for class in orbits.resolution.classes() {
        let wanted = group_sizes(orbits, labels, class);
        let n_misfits = |blocks: &[usize]| -> usize {
            let misfits = wanted.iter().filter(|(sizes, _)| !fits(blocks, sizes));
            misfits.map(|(_, n_variables)| n_variables).sum()
        };
        let mut ranked = partitions_of(class.0.count_ones() as usize);
        ranked.sort_by_key(|it| (n_misfits(it), it.len()));
        let blocks = |sizes: &Vec<usize>| {
            let mut axes = class.iter();
            sizes.iter().map(|&n| axes.by_ref().take(n).collect()).collect::<Vec<AxisSet>>()
        };
        let both_ways = |sizes: &Vec<usize>| {
            let mut ways = vec![sizes.clone(), sizes.iter().rev().copied().collect()];
            ways.dedup();
            ways
        };
        let ranked = ranked.iter().take(MAX_OF_CLASS).flat_map(both_ways);
        let of_class: Vec<Vec<AxisSet>> = ranked.map(|it| blocks(&it)).collect();
        let with = |option: &Vec<AxisSet>| {
            let join = |before: &Vec<AxisSet>| before.iter().chain(option).copied().collect();
            partitions.iter().map(join).collect::<Vec<Vec<AxisSet>>>()
        };
        partitions = of_class.iter().flat_map(with).collect();
    }
    partitions
}

/// The most partitions of all axes that are tried.
const MAX_PARTITIONS: usize = 8;
/// The most partitions of one class that are considered.
const MAX_OF_CLASS: usize = 4;

/// Counts the variables for each list of group sizes: how many axes of the class have each
/// placement, sorted.
fn group_sizes(
    orbits: &Instance<'_>,
    labels: &[usize],
    class: AxisSet,
) -> BTreeMap<Vec<usize>, usize> {
    let mut wanted: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
    for (variable, &label) in labels.iter().enumerate() {
        let splits = orbits.label(variable, label).splits();
        let mut sizes: BTreeMap<Option<u8>, usize> = BTreeMap::new();
        class.iter().for_each(|axis| *sizes.entry(splits[axis]).or_default() += 1);
        let mut sizes: Vec<usize> = sizes.into_values().collect();
        sizes.sort_unstable();
        *wanted.entry(sizes).or_default() += 1;
    }
    wanted
}

/// Returns all integer partitions of a number, largest parts first.
fn partitions_of(number: usize) -> Vec<Vec<usize>> {
    fn descend(rest: usize, most: usize, parts: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) {
        if rest == 0 {
            all.push(parts.clone());
        }
        for part in (1..=rest.min(most)).rev() {
            parts.push(part);
            descend(rest - part, part, parts, all);
            parts.pop();
        }
    }
    let mut all = Vec::new();
    descend(number, number, &mut Vec::new(), &mut all);
    all
}

/// Returns whether the blocks can be combined into groups of these sizes.
fn fits(blocks: &[usize], sizes: &[usize]) -> bool {
    let Some((&first, rest)) = blocks.split_first() else {
        return sizes.iter().all(|it| *it == 0);
    };
    (0..sizes.len()).filter(|&at| sizes[at] >= first).any(|at| {
        let mut sizes = sizes.to_vec();
        sizes[at] -= first;
        fits(rest, &sizes)
    })
}
