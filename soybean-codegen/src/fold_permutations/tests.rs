//! Random steps in random memory compute the same without permutations of heads.

use soybean_plan::{Shape, Strides};

use super::*;
use crate::random_steps::{
    Dice, N_CELLS, N_ELEMENTS, Phase, SIZES, described, difference, random_attention, run, tables,
};

/// Returns the permutation of all heads of a tensor: of `[rows, heads, columns]` to `[heads, rows,
/// columns]` or back.
fn permutation(n_elements: usize, result: Order) -> Permutation {
    let [_, _, rows, columns] = SIZES;
    let heads = n_elements / (rows * columns);
    let (extents, strides) = match result {
        Order::Heads => ([heads, rows, columns], [columns, heads * columns, 1]),
        Order::Rows => ([rows, heads, columns], [columns, rows * columns, 1]),
    };
    Permutation { extents: Shape::new(&extents), input: Strides::new(&strides) }
}

/// Returns a random kernel with the numbers of elements of its inputs and results.
fn kernel(dice: &mut Dice) -> (Kernel, Vec<usize>, Vec<usize>) {
    let n = N_ELEMENTS[dice.below(2)];
    match dice.below(8) {
        0 | 1 => (difference(n).into(), vec![n; 2], vec![n]),
        2..5 => (permutation(n, Order::Heads).into(), vec![n], vec![n]),
        5 => (permutation(n, Order::Rows).into(), vec![n], vec![n]),
        _ => random_attention(dice),
    }
}

fn phase(dice: &mut Dice) -> Phase {
    let mut phase = Phase::new(dice, 14, 8);
    let mut recent: Vec<usize> = (0..phase.buffers.len()).collect();
    while phase.steps.len() < 14 {
        let (kernel, inputs, results) = kernel(dice);
        let mut pick = |n: &usize, n_recent: usize| {
            let such = recent.iter().rev().filter(|it| phase.buffers[**it].n_elements == *n);
            let such: Vec<usize> = such.take(n_recent).copied().collect();
            such[dice.below(such.len())]
        };
        let inputs: Vec<usize> = inputs.iter().map(|n| pick(n, 3)).collect();
        let results: Vec<usize> = results.iter().map(|n| pick(n, 100)).collect();
        if phase.push(kernel, &inputs, &results) {
            recent.retain(|it| !results.contains(it));
            recent.extend(&results);
        }
    }
    phase
}

#[test]
fn steps_compute_the_same_without_permutations() {
    let (mut n_folded, mut n_moved, mut n_grown) = (0, 0, 0);
    for seed in 0..6000 {
        let dice = &mut Dice(seed);
        let phase = phase(dice);
        let last = phase.last_results(dice, 3);
        let Phase { steps, mut kernels, buffers } = phase;
        let mut tables = tables(&buffers, &last);
        let expected = run(&steps, &kernels, &tables);
        let mut moved = BTreeMap::new();
        let folded = fold_permutations(&steps, &mut kernels, &mut tables, &mut moved);
        let found = run(&folded, &kernels, &tables);
        let text = || described(&tables, &kernels, [&steps, &folded]);
        assert_eq!(expected, found, "{seed}: {last:?}\n{}", text());
        n_folded += steps.len() - folded.len();
        assert!(moved.keys().copied().eq(buffers.len()..tables.buffers.len()), "{seed}");
        assert!(moved.values().all(|it| *it < buffers.len()), "{seed}");
        n_moved += moved.len();
        n_grown += usize::from(tables.arena_bytes > N_CELLS * 4);
    }
    let found = format!("{n_folded} folded, {n_moved} moved, {n_grown} behind the arena");
    assert!(n_folded > 300 && n_moved > 100 && n_grown > 50, "{found}");
}

#[test]
fn permutations_of_whole_groups_are_found() {
    let permutation = |extents: &[usize], input: &[usize]| Permutation {
        extents: Shape::new(extents),
        input: Strides::new(input),
    };
    // Of [2, 5, 3, 8]: batch, rows, heads and columns.
    let to_heads = permutation(&[2, 3, 5, 8], &[120, 8, 24, 1]);
    assert_eq!(alternating(&to_heads, 6, [1, 5, 8], Order::Heads), Some(3));
    assert_eq!(alternating(&to_heads, 2, [3, 5, 8], Order::Heads), Some(3));
    // Half a group does not alternate.
    assert_eq!(alternating(&to_heads, 1, [6, 5, 8], Order::Heads), None);
    assert_eq!(alternating(&to_heads, 6, [1, 5, 8], Order::Rows), None);
    assert_eq!(alternating(&to_heads, 5, [1, 6, 8], Order::Heads), None);
    let to_rows = permutation(&[2, 5, 3, 8], &[120, 8, 40, 1]);
    assert_eq!(alternating(&to_rows, 6, [1, 5, 8], Order::Rows), Some(3));
    // The columns of a head move.
    let transposed = permutation(&[2, 3, 5, 8], &[120, 40, 1, 5]);
    assert_eq!(alternating(&transposed, 6, [1, 5, 8], Order::Heads), None);
}
