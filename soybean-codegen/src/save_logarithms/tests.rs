//! Random steps in random memory compute the same with saved logarithms.

use soybean_plan::overlaps;

use super::*;
use crate::random_steps::{
    Dice, N_CELLS, N_ELEMENTS, Phase, attention as plain, difference, run, tables,
};

/// Returns random steps: attention, gradients that mostly read what an earlier forward step read,
/// and maps.
fn phase(dice: &mut Dice) -> Phase {
    let mut buffer = |n_elements: usize| {
        let place = if dice.below(4) > 0 { dice.below(6) * 24 } else { dice.below(N_CELLS - 24) };
        Buffer { offset: place * 4, n_elements, dtype: DType::F32 }
    };
    let buffers: Vec<Buffer> = (0..16).map(|it| buffer(N_ELEMENTS[it % 2])).collect();
    let range = |it: usize| {
        let Buffer { offset, n_elements, .. } = buffers[it];
        offset..offset + n_elements * 4
    };
    let (mut steps, mut kernels): (Vec<Step>, Vec<Kernel>) = (Vec::new(), Vec::new());
    let mut last: Option<Vec<BufferId>> = None;
    for _ in 0..40 {
        let form = AttentionForm::ALL[dice.below(5)];
        let n = N_ELEMENTS[dice.below(2)];
        let (kernel, lengths, results): (Kernel, Vec<usize>, Vec<usize>) = match dice.below(4) {
            0 => (difference(n).into(), vec![n; 2], vec![n]),
            _ => {
                let it = plain(form);
                let all = |lengths: Vec<usize>| lengths.into_iter().map(|n| it.heads * n).collect();
                let (inputs, results) = (all(it.input_lengths()), all(it.result_lengths()));
                (it.into(), inputs, results)
            }
        };
        let mut pick = |n: &usize| {
            let such: Vec<usize> =
                (0..buffers.len()).filter(|it| buffers[*it].n_elements == *n).collect();
            such[dice.below(such.len())]
        };
        let mut inputs: Vec<usize> = lengths.iter().map(&mut pick).collect();
        let results: Vec<usize> = results.iter().map(&mut pick).collect();
        if let (4, Some(last)) = (lengths.len(), &last) {
            inputs[..3].copy_from_slice(last);
        }
        let is_apart = results.iter().enumerate().all(|(at, result)| {
            let others = inputs.iter().chain(&results[..at]);
            others.copied().all(|it| !overlaps(&range(it), &range(*result)))
        });
        if is_apart {
            if lengths.len() == 3 {
                last = Some(inputs.clone());
            }
            steps.push(Step { kernel: kernels.len(), inputs, results });
            kernels.push(kernel);
        }
    }
    Phase { steps, kernels, buffers }
}

#[test]
fn steps_compute_the_same_with_saved_logarithms() {
    let (mut n_saved, mut n_kept, mut n_grown) = (0, 0, 0);
    for seed in 0..6000 {
        let dice = &mut Dice(seed);
        let Phase { steps, mut kernels, buffers } = phase(dice);
        let last: Vec<usize> =
            steps.iter().rev().take(1 + dice.below(3)).map(|it| it.results[0]).collect();
        let mut tables = tables(&buffers, &last);
        let expected = run(&steps, &kernels, &tables);
        let saved = save_logarithms(&steps, &mut kernels, &mut tables);
        let found = run(&saved, &kernels, &tables);
        let text = || {
            let line =
                |it: &Step| format!("{:?} = {} {:?}", it.results, kernels[it.kernel], it.inputs);
            let lines = |steps: &[Step]| steps.iter().map(line).collect::<Vec<_>>().join("\n");
            format!("{:?}\n{}\n->\n{}", tables.buffers, lines(&steps), lines(&saved))
        };
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
