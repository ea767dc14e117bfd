//! Attention against plain loops.

use super::*;
use crate::cpu::random_data::{Dice, in_pool, region};

/// The results of one head by plain loops: the weighted sum of values, or the gradients of queries,
/// keys and values.
fn head(it: &Attention, operands: &[&[f32]]) -> Vec<f64> {
    let (n, m, d, e) = (it.queries, it.keys, it.features, it.width);
    let dot = |x: &[f32], i: usize, y: &[f32], j: usize, length: usize| -> f64 {
        (0..length).map(|at| f64::from(x[i * length + at]) * f64::from(y[j * length + at])).sum()
    };
    let (query, key, value) = (operands[0], operands[1], operands[2]);
    let mut weights = vec![0.0; n * m];
    for (i, row) in weights.chunks_mut(m.max(1)).enumerate() {
        let n_seen = if it.is_causal { m.min(i + 1) } else { m };
        let scores: Vec<f64> = (0..n_seen).map(|j| it.scale * dot(query, i, key, j, d)).collect();
        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = scores.iter().map(|it| (it - most).exp()).sum();
        row.iter_mut()
            .zip(scores)
            .for_each(|(weight, score)| *weight = (score - most).exp() / total);
    }
    let sum = |n_terms: usize, term: &dyn Fn(usize) -> f64| (0..n_terms).map(term).sum::<f64>();
    let mut results = Vec::new();
    if it.form == AttentionForm::Forward {
        for (i, k) in (0..n).flat_map(|i| (0..e).map(move |k| (i, k))) {
            results.push(sum(m, &|j| weights[i * m + j] * f64::from(value[j * e + k])));
        }
        return results;
    }
    let gradient = operands[3];
    let mut slopes = vec![0.0; n * m];
    for (i, row) in slopes.chunks_mut(m.max(1)).enumerate() {
        let by_weight: Vec<f64> = (0..m).map(|j| dot(gradient, i, value, j, e)).collect();
        let mean = sum(m, &|j| weights[i * m + j] * by_weight[j]);
        for (j, slope) in row.iter_mut().enumerate() {
            *slope = it.scale * weights[i * m + j] * (by_weight[j] - mean);
        }
    }
    for (i, k) in (0..n).flat_map(|i| (0..d).map(move |k| (i, k))) {
        results.push(sum(m, &|j| slopes[i * m + j] * f64::from(key[j * d + k])));
    }
    for (j, k) in (0..m).flat_map(|j| (0..d).map(move |k| (j, k))) {
        results.push(sum(n, &|i| slopes[i * m + j] * f64::from(query[i * d + k])));
    }
    for (j, k) in (0..m).flat_map(|j| (0..e).map(move |k| (j, k))) {
        results.push(sum(n, &|i| weights[i * m + j] * f64::from(gradient[i * e + k])));
    }
    results
}

fn check(dice: &mut Dice, attention: &Attention) {
    let Attention { form, heads, queries, keys, features, width, .. } = *attention;
    let lengths = [queries * features, keys * features, keys * width, queries * width];
    let n_inputs = if form == AttentionForm::Forward { 3 } else { 4 };
    let isa = dice.pick(&Isa::all());
    let n_threads = dice.pick(&[1, 2, 3]);
    let kernel = AttentionKernel::new(attention, isa, n_threads);
    let mut workspaces: Vec<Workspace> = (0..n_threads).map(|_| Workspace::new(isa)).collect();
    let mut inputs: Vec<Vec<f32>> =
        lengths[..n_inputs].iter().map(|n| dice.buffer(heads * n, DType::F32)).collect();
    let regions: Vec<Region> = inputs.iter_mut().map(|it| region(it, DType::F32)).collect();
    let n_result = match form {
        AttentionForm::Forward => lengths[3],
        AttentionForm::Gradient => lengths[..3].iter().sum(),
    };
    let mut result = vec![f32::NAN; heads * n_result];
    let to = region(&mut result, DType::F32);
    let mut scratch = vec![f32::NAN; kernel.n_scratch()];
    // SAFETY: the buffers are this test's.
    in_pool(|| unsafe { kernel.run(&mut workspaces, &mut scratch, &regions, &to) }.unwrap());
    for number in 0..heads {
        let operands: Vec<&[f32]> =
            inputs.iter().zip(lengths).map(|(it, n)| &it[number * n..(number + 1) * n]).collect();
        let expected = head(attention, &operands);
        let found = &result[number * n_result..(number + 1) * n_result];
        for (found, expected) in found.iter().zip(expected) {
            // Scores of size up to 10 in single precision give weights a relative error of 1e-6;
            // sums have up to some thousand terms of size 10.
            let error = (f64::from(*found) - expected).abs();
            assert!(
                error <= 2e-5 * expected.abs().max(5.0),
                "{attention:?} {isa:?} {n_threads}: {found}, not {expected}"
            );
        }
    }
}

fn random(dice: &mut Dice, lengths: &[usize]) -> Attention {
    let form = dice.pick(&[AttentionForm::Forward, AttentionForm::Gradient]);
    let sides = [1, 2, 3, 8, 17, 64, 70];
    Attention {
        form,
        heads: dice.pick(&[1, 2, 3, 5]),
        queries: dice.pick(lengths),
        keys: dice.pick(lengths),
        features: dice.pick(&sides),
        width: dice.pick(&sides),
        is_causal: dice.below(2) == 0,
        scale: dice.pick(&[0.125, 0.5, -0.25]),
    }
}

#[test]
fn random_attention_agrees_with_plain_loops() {
    for seed in 0..150 {
        let mut dice = Dice(seed);
        let attention = random(&mut dice, &[1, 2, 7, 33, 64, 65, 150]);
        check(&mut dice, &attention);
    }
}

#[test]
fn attention_over_several_blocks_agrees_with_plain_loops() {
    for seed in 0..6 {
        let mut dice = Dice(seed);
        let attention = random(&mut dice, &[300, 2500]);
        let (features, width) = (dice.pick(&[4, 9]), dice.pick(&[4, 9]));
        check(&mut dice, &Attention { features, width, heads: 1, ..attention });
    }
}

#[test]
fn without_keys_all_is_zero() {
    for form in [AttentionForm::Forward, AttentionForm::Gradient] {
        let attention = Attention {
            form,
            heads: 2,
            queries: 5,
            keys: 0,
            features: 3,
            width: 4,
            is_causal: false,
            scale: 1.0,
        };
        check(&mut Dice(0), &attention);
    }
}
