//! Random steps in random memory compute the same with saved logarithms.

use super::*;
use crate::random_steps::{
    Dice, N_CELLS, N_ELEMENTS, Phase, attention as plain, described, difference, random_attention,
    run, tables,
};

/// Returns random steps: attention, gradients that mostly read what an earlier forward step read,
/// and maps.
fn phase(dice: &mut Dice) -> Phase {
    let mut phase = Phase::new(dice, 16, 4);
    let mut last: Option<Vec<BufferId>> = None;
    for _ in 0..40 {
        let n = N_ELEMENTS[dice.below(2)];
        let (kernel, lengths, results) = match dice.below(4) {
            0 => (difference(n).into(), vec![n; 2], vec![n]),
            _ => random_attention(dice),
        };
        let mut pick = |n: &usize| {
            let buffers = phase.buffers.iter().enumerate();
            let such = buffers.filter(|it| it.1.n_elements == *n).map(|it| it.0);
            let such: Vec<usize> = such.collect();
            such[dice.below(such.len())]
        };
        let mut inputs: Vec<usize> = lengths.iter().map(&mut pick).collect();
        let results: Vec<usize> = results.iter().map(&mut pick).collect();
        if let (4, Some(last)) = (lengths.len(), &last) {
            inputs[..3].copy_from_slice(last);
        }
        if phase.push(kernel, &inputs, &results) && lengths.len() == 3 {
            last = Some(inputs);
        }
    }
    phase
}

#[test]
fn steps_compute_the_same_with_saved_logarithms() {
    let (mut n_saved, mut n_kept, mut n_grown) = (0, 0, 0);
    for seed in 0..6000 {
        let dice = &mut Dice(seed);
        let phase = phase(dice);
        let last = phase.last_results(dice, 3);
        let Phase { steps, mut kernels, buffers } = phase;
        let mut tables = tables(&buffers, &last);
        let expected = run(&steps, &kernels, &tables);
        let saved = save_logarithms(&steps, &mut kernels, &mut tables);
        let found = run(&saved, &kernels, &tables);
        let text = || described(&tables, &kernels, [&steps, &saved]);
        assert_eq!(expected, found, "{seed}: {last:?}\n{}", text());
        let gradients = saved.iter().filter(|it| it.inputs.len() >= 4);
        let (with, without): (Vec<&Step>, Vec<&Step>) =
            gradients.partition(|it| it.inputs.len() == 6);
        (n_saved, n_kept) = (n_saved + with.len(), n_kept + without.len());
        n_grown += usize::from(tables.arena_bytes > N_CELLS * 4);
    }
    let found = format!("{n_saved} saved, {n_kept} not, {n_grown} behind the arena");
    assert!(n_saved > 1000 && n_kept > 1000 && n_grown > 100, "{found}");
}

#[test]
fn only_gradients_of_the_same_computation_read_logarithms() {
    let forward = plain(AttentionForm::Forward);
    let gradient = plain(AttentionForm::KeyGradient);
    assert!(is_gradient_of(&gradient, &forward));
    assert!(!is_gradient_of(&forward, &forward));
    for other in [
        Attention { scale: 0.2, ..gradient.clone() },
        Attention { is_causal: true, ..gradient.clone() },
        Attention { window: Some(2), ..gradient.clone() },
        Attention {
            layout: AttentionLayout { operands: [1, 1, 1, 2], ..AttentionLayout::HEADS_FIRST },
            ..gradient
        },
    ] {
        assert!(!is_gradient_of(&other, &forward), "{other:?}");
    }
}
