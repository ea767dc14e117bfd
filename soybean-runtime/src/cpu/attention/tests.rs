//! Attention against plain loops.

#[path = "../../../tests/kernel_text/score_function.rs"]
mod score_function;

use soybean_plan::{AttentionBias, AttentionLayout, ScalarProgram};

use self::score_function::score_function;
use super::*;
use crate::cpu::random_data::{Dice, in_pool, region};

/// The changes of the scores of one head of keys, with its heads of queries.
struct Seen<'a> {
    /// Those of causal queries among the keys.
    positions: &'a [usize],
    /// The number of keys before the sequence.
    first_key: usize,
    /// Of queries and of keys; all equal if there are none.
    segments: [&'a [i32]; 2],
    /// A row for each query of each head.
    bias: Vec<f32>,
    /// Those that the function of scores reads, of each head of queries.
    heads: Vec<i32>,
}

/// The results of one head of keys, with its heads of queries, by plain loops: the weighted sum of
/// values, or the gradients of queries, keys and values.
fn head(it: &Attention, operands: &[&[f32]], seen: &Seen<'_>) -> Vec<Vec<f64>> {
    let (n, m, d, e) = (it.group * it.queries, it.keys, it.features, it.width);
    let dot = |x: &[f32], i: usize, y: &[f32], j: usize, length: usize| -> f64 {
        (0..length).map(|at| f64::from(x[i * length + at]) * f64::from(y[j * length + at])).sum()
    };
    let (query, key, value) = (operands[0], operands[1], operands[2]);
    let product = |i: usize, j: usize| it.scale * dot(query, i, key, j, d);
    let of_product = |program: &ScalarProgram, i: usize, j: usize| {
        let (position, head) = (seen.positions[i % it.queries], seen.heads[i / it.queries]);
        program.evaluate(&[product(i, j), position as f64, j as f64, head.into()], &[])[0]
    };
    let weights = weights(it, seen, &|i, j| match &it.score {
        Some(function) => of_product(&function.score, i, j),
        None => product(i, j),
    });
    let sum = |n_terms: usize, term: &dyn Fn(usize) -> f64| (0..n_terms).map(term).sum::<f64>();
    let mut results = vec![Vec::new(); 3];
    if it.form == AttentionForm::Forward {
        for (i, k) in (0..n).flat_map(|i| (0..e).map(move |k| (i, k))) {
            results[0].push(sum(m, &|j| weights[i * m + j] * f64::from(value[j * e + k])));
        }
        return vec![results.swap_remove(0)];
    }
    let gradient = operands[3];
    let mut slopes = vec![0.0; n * m];
    for (i, row) in slopes.chunks_mut(m.max(1)).enumerate() {
        let by_weight: Vec<f64> = (0..m).map(|j| dot(gradient, i, value, j, e)).collect();
        let mean = sum(m, &|j| weights[i * m + j] * by_weight[j]);
        for (j, slope) in row.iter_mut().enumerate() {
            let function = it.score.as_ref().and_then(|it| it.slope.as_ref());
            let of_score = function.map_or(1.0, |it| of_product(it, i, j));
            *slope = it.scale * of_score * weights[i * m + j] * (by_weight[j] - mean);
        }
    }
    for (i, k) in (0..n).flat_map(|i| (0..d).map(move |k| (i, k))) {
        results[0].push(sum(m, &|j| slopes[i * m + j] * f64::from(key[j * d + k])));
    }
    for (j, k) in (0..m).flat_map(|j| (0..d).map(move |k| (j, k))) {
        results[1].push(sum(n, &|i| slopes[i * m + j] * f64::from(query[i * d + k])));
    }
    for (j, k) in (0..m).flat_map(|j| (0..e).map(move |k| (j, k))) {
        results[2].push(sum(n, &|i| weights[i * m + j] * f64::from(gradient[i * e + k])));
    }
    let is_wanted =
        [it.form.has_query_gradient(), it.form.has_key_gradient(), it.form.has_value_gradient()];
    results.into_iter().zip(is_wanted).filter(|it| it.1).map(|it| it.0).collect()
}

/// Returns the weights of keys for each query of the group, given the scores without bias.
fn weights(it: &Attention, seen: &Seen<'_>, score: &dyn Fn(usize, usize) -> f64) -> Vec<f64> {
    let (n, m) = (it.group * it.queries, it.keys);
    let mut weights = vec![0.0; n * m];
    for (i, row) in weights.chunks_mut(m.max(1)).enumerate() {
        let position = seen.positions[i % it.queries];
        let is_seen = |j: usize| {
            let is_near = it.window.is_none_or(|window| j + window > position);
            (!it.is_causal || j <= position && is_near && j >= seen.first_key)
                && seen.segments[0][i % it.queries] == seen.segments[1][j]
        };
        let score = |j: usize| match is_seen(j) {
            true => score(i, j) + f64::from(seen.bias[i * m + j]),
            false => f64::NEG_INFINITY,
        };
        let scores: Vec<f64> = (0..m).map(score).collect();
        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if most > f64::NEG_INFINITY {
            let total: f64 = scores.iter().map(|it| (it - most).exp()).sum();
            let weighted = row.iter_mut().zip(scores);
            weighted.for_each(|(weight, score)| *weight = (score - most).exp() / total);
        }
    }
    weights
}

/// Returns increasing positions of queries among the keys: all, or some of a longer sequence.
fn positions(dice: &mut Dice, it: &Attention) -> Vec<usize> {
    if let Some(halo) = it.halo {
        return (halo..halo + it.queries).collect();
    }
    let mut next = 0;
    let mut position = |_| {
        next += if it.is_part { 1 + dice.below(3) * dice.below(it.keys + 2) } else { 1 };
        next - 1
    };
    (0..it.queries).map(&mut position).collect()
}

/// Random inputs after the operands; segments are all equal and the bias is empty without them.
struct Masks {
    positions: Vec<usize>,
    /// The number of keys before the sequence.
    first_key: usize,
    segments: [Vec<i32>; 2],
    bias: Vec<f32>,
    heads: Vec<i32>,
}

impl Masks {
    fn new(dice: &mut Dice, it: &Attention) -> Self {
        let positions = positions(dice, it);
        let first_key = it.halo.map_or(0, |halo| dice.below(halo + 1));
        let limit = if it.segments.is_some() { 3 } else { 1 };
        let segments = [it.queries, it.keys].map(|n| {
            let n = it.segments.unwrap_or(1) * n;
            (0..n).map(|_| i32::try_from(dice.below(limit)).unwrap()).collect()
        });
        let n_bias = it.bias.map_or(0, |bias| bias.matrices * bias.rows * it.keys);
        let mut bias = dice.buffer(n_bias, DType::F32);
        for it in &mut bias {
            *it = if *it > 1.0 { f32::NEG_INFINITY } else { *it };
        }
        let n_heads = it.n_head_numbers().unwrap_or(1);
        let heads = (0..n_heads).map(|_| i32::try_from(dice.below(5)).unwrap()).collect();
        Self { positions, first_key, segments, bias, heads }
    }

    /// Returns the inputs that a kernel has, as words in memory.
    fn inputs(&self, it: &Attention) -> Vec<(Vec<f32>, DType)> {
        let words = |it: &[i32]| -> Vec<f32> {
            it.iter().map(|it| f32::from_bits(it.cast_unsigned())).collect()
        };
        let of_sequence = self.positions.iter().map(|at| match it.halo {
            Some(_) => at - self.first_key,
            None => *at,
        });
        let positions: Vec<i32> = of_sequence.map(|it| i32::try_from(it).unwrap()).collect();
        let has_segments = it.segments.is_some();
        let [of_queries, of_keys] = &self.segments;
        let all = [
            has_segments.then(|| (words(of_queries), DType::I32)),
            has_segments.then(|| (words(of_keys), DType::I32)),
            it.bias.map(|_| (self.bias.clone(), DType::F32)),
            it.n_head_numbers().map(|_| (words(&self.heads), DType::I32)),
            it.has_positions().then(|| (words(&positions), DType::I32)),
        ];
        all.into_iter().flatten().collect()
    }

    /// Returns what a head of keys sees.
    fn of_head(&self, it: &Attention, head: usize) -> Seen<'_> {
        let row = head * it.segments.unwrap_or(1) / it.heads;
        let [of_queries, of_keys] = &self.segments;
        let segments =
            [&of_queries[row * it.queries..][..it.queries], &of_keys[row * it.keys..][..it.keys]];
        let number = |member: usize| self.heads[(head * it.group + member) % self.heads.len()];
        let heads = (0..it.group).map(number).collect();
        let Self { positions, first_key, .. } = self;
        let bias = bias_of(it, head, &self.bias);
        Seen { positions, first_key: *first_key, segments, bias, heads }
    }
}

fn check(dice: &mut Dice, attention: &Attention) {
    let heads = attention.heads;
    let isa = dice.pick(&Isa::all());
    let n_threads = dice.pick(&[1, 2, 3]);
    let mut kernel = AttentionKernel::new(attention, isa, n_threads);
    let mut workspaces: Vec<Workspace> = (0..n_threads).map(|_| Workspace::new(isa)).collect();
    let lengths = attention.input_lengths();
    let mut inputs: Vec<Vec<f32>> =
        lengths.iter().map(|n| dice.buffer(heads * n, DType::F32)).collect();
    let mut regions: Vec<Region> = inputs.iter_mut().map(|it| region(it, DType::F32)).collect();
    let masks = Masks::new(dice, attention);
    let mut of_masks = masks.inputs(attention);
    regions.extend(of_masks.iter_mut().map(|(words, dtype)| region(words, *dtype)));
    let n_results = attention.result_lengths();
    let mut results: Vec<Vec<f32>> =
        n_results.iter().map(|it| vec![f32::NAN; heads * it]).collect();
    let to: Vec<Region> = results.iter_mut().map(|it| region(it, DType::F32)).collect();
    let mut scratch = vec![f32::NAN; kernel.n_scratch()];
    // SAFETY: the buffers are this test's.
    in_pool(|| unsafe { kernel.run(&mut workspaces, &mut scratch, &regions, &to) }.unwrap());
    let of_heads = |tensors: Vec<Vec<f32>>, alternating: &[usize], sizes: Vec<[usize; 3]>| {
        let each = tensors.into_iter().zip(alternating).zip(sizes);
        let each = each.map(|((it, n), [group, rows, columns])| {
            heads_first(&it, *n, [heads * group, rows, columns])
        });
        each.collect::<Vec<Vec<f32>>>()
    };
    let inputs = of_heads(inputs, &attention.layout.operands, attention.operand_sizes());
    let results = of_heads(results, &attention.layout.results, attention.result_sizes());
    for number in 0..heads {
        let operands: Vec<&[f32]> =
            inputs.iter().zip(&lengths).map(|(it, n)| &it[number * n..(number + 1) * n]).collect();
        let expected = head(attention, &operands, &masks.of_head(attention, number));
        assert_eq!(expected.len(), results.len());
        for ((result, n), expected) in results.iter().zip(&n_results).zip(expected) {
            for (found, expected) in result[number * n..(number + 1) * n].iter().zip(expected) {
                // Scores of size up to 10 in single precision give weights a relative error of
                // 1e-6; sums have up to some thousand terms of size 10.
                let error = (f64::from(*found) - expected).abs();
                assert!(
                    error <= 2e-5 * expected.abs().max(5.0),
                    "{attention:?} {isa:?} {n_threads}: {found}, not {expected}"
                );
            }
        }
    }
}

/// Returns a tensor with one head after another, given one in which the rows of some alternate.
fn heads_first(
    tensor: &[f32],
    alternating: usize,
    [n_heads, n_rows, columns]: [usize; 3],
) -> Vec<f32> {
    let heads = 0..n_heads;
    let rows = heads.flat_map(|head| {
        let first = AttentionLayout::first_row(alternating, head, n_rows);
        (0..n_rows).map(move |row| first + row * alternating)
    });
    rows.flat_map(|row| tensor[row * columns..][..columns].iter().copied()).collect()
}

/// Returns what is added to the scores of a head of keys.
fn bias_of(it: &Attention, head: usize, bias: &[f32]) -> Vec<f32> {
    let row = |row: usize| match it.bias {
        Some(sizes) => {
            let matrix = sizes.matrix(head * it.group + row / it.queries);
            let of_matrix = if sizes.rows == 1 { 0 } else { row % it.queries };
            bias[(matrix * sizes.rows + of_matrix) * it.keys..][..it.keys].to_vec()
        }
        None => vec![0.0; it.keys],
    };
    (0..it.group * it.queries).flat_map(row).collect()
}

/// Returns a layout in which the rows of some heads alternate, or of none.
fn layout(dice: &mut Dice, form: AttentionForm, [heads, group]: [usize; 2]) -> AttentionLayout {
    let mut number = |group: usize| {
        let whole = [1, 2, 3, heads].map(|it| if heads.is_multiple_of(it) { it } else { 1 });
        if dice.below(2) == 0 { 1 } else { group * dice.pick(&whole) }
    };
    let of_queries = form == AttentionForm::Forward || form.has_query_gradient();
    AttentionLayout {
        operands: [number(group), number(1), number(1), number(group)],
        results: [number(if of_queries { group } else { 1 }), number(1), number(1)],
    }
}

fn random(dice: &mut Dice, lengths: &[usize]) -> Attention {
    let form = dice.pick(AttentionForm::ALL);
    let sides = [1, 2, 3, 8, 17, 64, 70];
    let is_causal = dice.below(2) == 0;
    let windows = [None, None, Some(1), Some(2), Some(20), Some(64), Some(500)];
    let (heads, group): (usize, usize) = (dice.pick(&[1, 2, 3, 4, 6]), dice.pick(&[1, 1, 2, 3, 4]));
    let queries = dice.pick(lengths);
    // Rows and matrices divide the heads.
    let segments = dice.pick(&[None, None, Some(1), Some(heads), Some(heads.div_ceil(2))]);
    let bias = AttentionBias {
        matrices: dice.pick(&[1, group, heads * group]),
        repeats: 1,
        rows: dice.pick(&[1, queries]),
    };
    let last = AttentionBias { matrices: heads, repeats: group, rows: queries };
    Attention {
        form,
        heads,
        group,
        queries,
        keys: dice.pick(lengths),
        features: dice.pick(&sides),
        width: dice.pick(&sides),
        is_causal,
        window: if is_causal { dice.pick(&windows) } else { None },
        is_part: dice.below(2) == 0,
        halo: None,
        segments: segments.filter(|it| heads.is_multiple_of(*it)),
        score: score_function(dice.below(6), dice.pick(&[1, group, heads * group])),
        bias: dice.pick(&[None, None, Some(bias), Some(last)]),
        pairs: 0,
        scale: dice.pick(&[0.125, 0.5, -0.25]),
        layout: layout(dice, form, [heads, group]),
        saves_logarithms: false,
    }
}

#[test]
fn random_attention_agrees_with_plain_loops() {
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let attention = random(&mut dice, &[1, 2, 7, 33, 64, 65, 150]);
        check(&mut dice, &attention);
    }
}

#[test]
fn keys_before_the_sequence_are_not_seen() {
    for seed in 0..200 {
        let mut dice = Dice(seed);
        let attention = random(&mut dice, &[1, 2, 33, 64, 65, 150]);
        let halo = dice.pick(&[0, 1, 7, 63, 64, 200]);
        let (keys, window) =
            (halo + attention.queries, dice.pick(&[Some(halo + 1), Some(5), None]));
        let part = Attention { is_causal: true, is_part: true, score: None, ..attention };
        check(&mut dice, &Attention { keys, window, halo: Some(halo), ..part });
    }
}

#[test]
fn attention_over_several_blocks_agrees_with_plain_loops() {
    for seed in 0..16 {
        let mut dice = Dice(seed);
        let attention = random(&mut dice, &[300, 2500]);
        let (features, width) = (dice.pick(&[4, 9]), dice.pick(&[4, 9]));
        let of_one = |it: AttentionBias| AttentionBias { matrices: 1, ..it };
        let (segments, bias) = (attention.segments.map(|_| 1), attention.bias.map(of_one));
        // Plain loops take long for functions.
        let score = attention.score.clone().filter(|_| seed % 4 == 0);
        let attention = Attention { segments, bias, score, ..attention };
        let layout = AttentionLayout::HEADS_FIRST;
        check(&mut dice, &Attention { features, width, heads: 1, layout, ..attention });
    }
}

#[test]
fn without_keys_all_is_zero() {
    for form in AttentionForm::ALL.iter().copied() {
        let attention = Attention { group: 3, ..Attention::new(form, 2, [5, 0], [3, 4]) };
        check(&mut Dice(0), &attention);
    }
}
