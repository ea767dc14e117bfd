//! Random attention and its gradients.

use soybean_plan::{Attention, AttentionBias, AttentionForm, AttentionLayout, DType, Kernel};

use crate::{
    case::{BF16_TOLERANCE, Case, Data},
    dice::Dice,
    operands::{Types, scaled},
    score_function::score_function,
};

pub(crate) fn case(dice: &mut Dice) -> Case {
    let sides = [1, 2, 3, 8, 17, 24, 64, 70, 128, 200];
    let lengths = [1, 2, 7, 33, 64, 65, 130, 150];
    let (queries, keys) = (dice.pick(&lengths), dice.pick(&lengths));
    let heads = dice.pick(&[1, 2, 3]);
    of(dice, [heads, queries, keys], &sides)
}

/// Heads of the sizes of large models, over tiles that are whole and some that are not.
pub(crate) fn usual_heads(dice: &mut Dice) -> Case {
    let (queries, keys) = (dice.pick(&[64, 131, 192, 256]), dice.pick(&[64, 128, 150, 257]));
    let side = dice.pick(&[64, 64, 128, 256]);
    of(dice, [1, queries, keys], &[side])
}

/// Without queries or keys, there is nothing to sum.
pub(crate) fn empty(dice: &mut Dice) -> Case {
    let sizes = dice.pick(&[[2, 0, 3], [2, 3, 0], [0, 3, 3]]);
    of(dice, sizes, &[4])
}

fn of(dice: &mut Dice, [heads, queries, keys]: [usize; 3], sides: &[usize]) -> Case {
    let form = dice.pick(AttentionForm::ALL);
    let (features, width) = (dice.pick(sides), dice.pick(sides));
    let is_causal = dice.below(2) == 0;
    let window = dice.pick(&[None, Some(1), Some(9), Some(40), Some(100)]).filter(|_| is_causal);
    let group = dice.pick(&[1, 1, 2, 3]);
    let bias = AttentionBias {
        matrices: dice.pick(&[1, group, heads * group]),
        repeats: dice.pick(&[1, group]),
        rows: dice.pick(&[1, queries]),
    };
    let mut it = Attention {
        form,
        heads,
        group,
        queries,
        keys,
        features,
        width,
        is_causal,
        window,
        is_part: dice.below(2) == 0,
        halo: None,
        segments: dice.pick(&[None, None, Some(1), Some(heads)]),
        score: score_function(dice.below(5), dice.pick(&[1, group, heads * group])),
        bias: dice.pick(&[None, Some(bias)]).filter(|_| queries > 0),
        pairs: 0,
        scale: dice.pick(&[0.125, 1.0, -0.5]),
        layout: AttentionLayout::HEADS_FIRST,
        saves_logarithms: false,
    };
    with_halo(dice, &mut it);
    // Scores have a size near 1, and so have sums over queries or keys.
    let lengths = it.input_lengths();
    let n_terms = [1, features, width.max(features), it.group * queries];
    let types = Types::new(dice, lengths.len());
    let each = types.inputs.iter().zip(lengths).zip(n_terms);
    let inputs = each.map(|((dtype, size), n_terms)| scaled(dice, *dtype, heads * size, n_terms));
    let mut inputs: Vec<Data> = inputs.collect();
    inputs.extend(masks(dice, &it, types.inputs[0]));
    let tolerance = types.tolerance();
    let results = it.result_lengths().into_iter().map(|n| (types.result, heads * n)).collect();
    it.layout = layout(dice, &it);
    let (precision, variant) = (types.precision, dice.below(4));
    Case { precision, variant, ..Case::new(it, inputs, results, tolerance) }
}

/// Leaves some parts of causal sequences only the keys around them.
fn with_halo(dice: &mut Dice, it: &mut Attention) {
    if it.is_causal && it.is_part && it.score.is_none() && it.queries > 0 && dice.below(2) == 0 {
        let most = it.window.map_or(70, |it| it - 1);
        let halo = dice.pick(&[0, most / 2, most]);
        (it.halo, it.keys) = (Some(halo), halo + it.queries);
    }
}

/// Gradients that can read saved logarithms.
pub(crate) struct Saving {
    it: Attention,
    /// The gradients without them.
    pub(crate) apart: Case,
}

impl Saving {
    pub(crate) fn new(apart: Case) -> Option<Self> {
        let Kernel::Attend(it) = &apart.kernel else { return None };
        let it = Attention { saves_logarithms: true, ..it.clone() };
        (it.form != AttentionForm::Forward).then_some(Self { it, apart })
    }

    /// Returns the forward computation, whose result has the type and layout of its gradient.
    pub(crate) fn forward(&self) -> Case {
        let mut it = Attention { form: AttentionForm::Forward, ..self.it.clone() };
        it.layout.results[0] = it.layout.operands[3];
        if let Some(score) = &mut it.score {
            score.slope = None;
        }
        let (mut inputs, n_rows) = (self.apart.inputs.clone(), it.heads * it.group * it.queries);
        let dtype = inputs.remove(3).dtype;
        let results = vec![(dtype, n_rows * it.width), (DType::F32, n_rows)];
        let precision = self.apart.precision;
        Case { precision, ..Case::new(it, inputs, results, self.apart.tolerance) }
    }

    /// Returns the gradients that read these results of the forward computation.
    pub(crate) fn gradient(&self, saved: Vec<Vec<f32>>) -> Case {
        let Case { precision, variant, tolerance, results, inputs, .. } = &self.apart;
        let dtype = inputs[3].dtype;
        let saved = saved.into_iter().zip([dtype, DType::F32]);
        let saved = saved.map(|(numbers, dtype)| Data { dtype, numbers });
        let with_saved = inputs.iter().cloned().chain(saved).collect();
        // The result may be rounded, and weights are where all that the forward computation reads
        // is.
        let is_rounded =
            dtype == DType::Bf16 || inputs[..3].iter().all(|it| it.dtype == DType::Bf16);
        let least = if is_rounded { BF16_TOLERANCE } else { 0.0 };
        let case = Case::new(self.it.clone(), with_saved, results.clone(), tolerance.max(least));
        Case { precision: *precision, variant: *variant, ..case }
    }
}

/// Returns a layout in which the rows of some heads alternate, or of none.
pub(crate) fn layout(dice: &mut Dice, it: &Attention) -> AttentionLayout {
    let mut number = |group: usize| {
        let is_whole = |n: &usize| it.heads.is_multiple_of(*n);
        let heads: Vec<usize> = (1..=it.heads.max(1)).filter(is_whole).collect();
        if dice.below(3) == 0 { 1 } else { group * dice.pick(&heads) }
    };
    let (group, form) = (it.group, it.form);
    let operands = [number(group), number(1), number(1), number(group)];
    let of_queries = matches!(form, AttentionForm::Forward) || form.has_query_gradient();
    let results = [number(if of_queries { group } else { 1 }), number(1), number(1)];
    AttentionLayout { operands, results }
}

/// Returns segments, bias of this type, numbers of heads and positions, if they are read. A segment
/// has several neighbors, and some segments are in other places again.
pub(crate) fn masks(dice: &mut Dice, it: &Attention, dtype: DType) -> Vec<Data> {
    let mut masks = Vec::new();
    for n in it.segments.into_iter().flat_map(|rows| [rows * it.queries, rows * it.keys]) {
        let length = dice.pick(&[1, 20, 70]);
        let mut segment = 0;
        let mut next = |at: usize| {
            if at.is_multiple_of(length) {
                segment = dice.below(4);
            }
            segment as f32
        };
        masks.push(Data { dtype: DType::I32, numbers: (0..n).map(&mut next).collect() });
    }
    if let Some(bias) = it.bias {
        let mut data = scaled(dice, dtype, bias.matrices * bias.rows * it.keys, 1);
        // Keys are hidden.
        for number in data.numbers.iter_mut().filter(|it| **it > 0.8) {
            *number = f32::NEG_INFINITY;
        }
        masks.push(data);
    }
    let heads = it.n_head_numbers().map(|n| (0..n).map(|_| dice.below(5) as f32).collect());
    masks.extend(heads.map(|numbers| Data { dtype: DType::I32, numbers }));
    masks.extend(it.has_positions().then(|| positions(dice, it)));
    masks
}

/// Returns increasing positions of queries: all, or some of a longer sequence. With a halo, only
/// the first one matters.
pub(crate) fn positions(dice: &mut Dice, it: &Attention) -> Data {
    let mut next = it.halo.map_or(0, |halo| dice.below(halo + 2));
    let mut position = |_| {
        next += if it.is_part { 1 + dice.below(3) * dice.below(it.keys + 2) } else { 1 };
        (next - 1) as f32
    };
    Data { dtype: DType::I32, numbers: (0..it.queries).map(&mut position).collect() }
}
