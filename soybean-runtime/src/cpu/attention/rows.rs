//! Loops over rows of scores, compiled for every instruction set.

#[cfg(target_arch = "x86_64")]
use crate::cpu::math::Fused;
use crate::cpu::{
    isa::{Isa, for_each_isa},
    math::{self, MultiplyAdd, Separate},
};

/// Number of independent accumulators, for speed and because short sums have smaller rounding
/// errors.
const N_LANES: usize = 32;

/// The loops for one instruction set.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    /// Replaces `n` scores `s` by `exp(scale * s - max)`. The maximum (third) is first raised to
    /// the largest scaled score. Writes the sum (fourth). Scores are replaced by 0 if all so far
    /// are minus infinity.
    pub(super) exponentiate: unsafe fn(*mut f32, usize, f32, &mut f32, &mut f32),
    /// Multiplies `n` elements by a number.
    pub(super) scale: unsafe fn(*mut f32, usize, f32),
    /// Replaces `n` scores `s` by `scale * s` plus their bias.
    pub(super) add_bias: unsafe fn(*mut f32, *const f32, usize, f32),
    /// Replaces those of `n` scores by minus infinity whose keys have other segments than this.
    pub(super) hide_others: unsafe fn(*mut f32, *const i32, usize, i32),
    /// Sums the products of `n` elements of two rows.
    pub(super) dot: unsafe fn(*const f32, *const f32, usize, &mut f32),
    /// Replaces `n` weights `w` and gradients `g` by `w / total` and `scale * w / total * (g -
    /// mean)`, the gradients of scores.
    pub(super) softmax_gradient: unsafe fn(*mut f32, *mut f32, usize, SoftmaxGradient),
    /// Multiplies `n` gradients by slopes. A gradient of 0 stays, whatever the slope.
    pub(super) multiply_slopes: unsafe fn(*mut f32, *const f32, usize),
}

/// Parameters of the softmax gradient of a row.
#[derive(Clone, Copy)]
pub(super) struct SoftmaxGradient {
    pub(super) total: f32,
    pub(super) mean: f32,
    pub(super) scale: f32,
}

impl Rows {
    pub(super) fn new(isa: Isa) -> Self {
        Self {
            exponentiate: exponentiate(isa),
            scale: scale(isa),
            add_bias: add_bias(isa),
            hide_others: hide_others(isa),
            dot: dot(isa),
            softmax_gradient: softmax_gradient(isa),
            multiply_slopes: multiply_slopes(isa),
        }
    }
}

for_each_isa! {
    exponentiate [] []
    unsafe fn(*mut f32, usize, f32, &mut f32, &mut f32),
    weigh_body (row: *mut f32, n: usize, scale: f32, max_score: &mut f32, sum: &mut f32)
}

for_each_isa! {
    scale [] []
    unsafe fn(*mut f32, usize, f32), scale_body (row: *mut f32, n: usize, factor: f32)
}

for_each_isa! {
    add_bias [] []
    unsafe fn(*mut f32, *const f32, usize, f32), add_bias_body (row: *mut f32, bias: *const f32, n: usize, scale: f32)
}

for_each_isa! {
    hide_others [] []
    unsafe fn(*mut f32, *const i32, usize, i32), hide_others_body (row: *mut f32, segments: *const i32, n: usize, segment: i32)
}

for_each_isa! {
    dot [] []
    unsafe fn(*const f32, *const f32, usize, &mut f32), dot_body (a: *const f32, b: *const f32, n: usize, sum: &mut f32)
}

for_each_isa! {
    softmax_gradient [] []
    unsafe fn(*mut f32, *mut f32, usize, SoftmaxGradient), grade_body (weights: *mut f32, gradients: *mut f32, n: usize, numbers: SoftmaxGradient)
}

for_each_isa! {
    multiply_slopes [] []
    unsafe fn(*mut f32, *const f32, usize), slopes_body (gradients: *mut f32, slopes: *const f32, n: usize)
}

/// # Safety
/// The row has `n` elements.
#[inline(always)]
unsafe fn weigh_body<M: MultiplyAdd>(
    row: *mut f32,
    n: usize,
    scale: f32,
    max_score: &mut f32,
    sum: &mut f32,
) {
    // SAFETY: required of the caller.
    let row = unsafe { std::slice::from_raw_parts_mut(row, n) };
    let mut lanes = [*max_score; N_LANES];
    let (chunks, rest) = row.as_chunks::<N_LANES>();
    for chunk in chunks {
        for (lane, score) in lanes.iter_mut().zip(chunk) {
            *lane = math::maximum(*lane, scale * score);
        }
    }
    for (lane, score) in lanes.iter_mut().zip(rest) {
        *lane = math::maximum(*lane, scale * score);
    }
    *max_score = lanes.into_iter().fold(*max_score, math::maximum);
    if *max_score == f32::NEG_INFINITY {
        // The difference of two infinities would be no number.
        row.fill(0.0);
        *sum = 0.0;
        return;
    }
    let mut lanes = [0.0; N_LANES];
    let (chunks, rest) = row.as_chunks_mut::<N_LANES>();
    for chunk in chunks {
        for (lane, score) in lanes.iter_mut().zip(chunk) {
            *score = math::exp::<M>(M::multiply_add(scale, *score, -*max_score));
            *lane += *score;
        }
    }
    for (lane, score) in lanes.iter_mut().zip(rest) {
        *score = math::exp::<M>(M::multiply_add(scale, *score, -*max_score));
        *lane += *score;
    }
    *sum = lanes.into_iter().sum();
}

/// # Safety
/// The row has `n` elements.
#[inline(always)]
unsafe fn scale_body<M: MultiplyAdd>(row: *mut f32, n: usize, factor: f32) {
    // SAFETY: required of the caller.
    let row = unsafe { std::slice::from_raw_parts_mut(row, n) };
    row.iter_mut().for_each(|it| *it *= factor);
}

/// # Safety
/// Both rows have `n` elements and do not overlap.
#[inline(always)]
unsafe fn add_bias_body<M: MultiplyAdd>(row: *mut f32, bias: *const f32, n: usize, scale: f32) {
    // SAFETY: required of the caller.
    let row = unsafe { std::slice::from_raw_parts_mut(row, n) };
    // SAFETY: as above.
    let bias = unsafe { std::slice::from_raw_parts(bias, n) };
    for (score, bias) in row.iter_mut().zip(bias) {
        *score = M::multiply_add(scale, *score, *bias);
    }
}

/// # Safety
/// Both rows have `n` elements and do not overlap.
#[inline(always)]
unsafe fn hide_others_body<M: MultiplyAdd>(
    row: *mut f32,
    segments: *const i32,
    n: usize,
    segment: i32,
) {
    // SAFETY: required of the caller.
    let row = unsafe { std::slice::from_raw_parts_mut(row, n) };
    // SAFETY: as above.
    let segments = unsafe { std::slice::from_raw_parts(segments, n) };
    for (score, other) in row.iter_mut().zip(segments) {
        *score = if *other == segment { *score } else { f32::NEG_INFINITY };
    }
}

/// # Safety
/// Both rows have `n` elements.
#[inline(always)]
unsafe fn dot_body<M: MultiplyAdd>(a: *const f32, b: *const f32, n: usize, sum: &mut f32) {
    // SAFETY: required of the caller.
    let a = unsafe { std::slice::from_raw_parts(a, n) };
    // SAFETY: as above.
    let b = unsafe { std::slice::from_raw_parts(b, n) };
    let mut lanes = [0.0; N_LANES];
    let ((a, rest_a), (b, rest_b)) = (a.as_chunks::<N_LANES>(), b.as_chunks::<N_LANES>());
    for (a, b) in a.iter().zip(b) {
        for (lane, (a, b)) in lanes.iter_mut().zip(a.iter().zip(b)) {
            *lane = M::multiply_add(*a, *b, *lane);
        }
    }
    for (lane, (a, b)) in lanes.iter_mut().zip(rest_a.iter().zip(rest_b)) {
        *lane = M::multiply_add(*a, *b, *lane);
    }
    *sum = lanes.into_iter().sum();
}

/// # Safety
/// Both rows have `n` elements and do not overlap.
#[inline(always)]
unsafe fn grade_body<M: MultiplyAdd>(
    weights: *mut f32,
    gradients: *mut f32,
    n: usize,
    SoftmaxGradient { total, mean, scale }: SoftmaxGradient,
) {
    // SAFETY: required of the caller.
    let weights = unsafe { std::slice::from_raw_parts_mut(weights, n) };
    // SAFETY: as above.
    let gradients = unsafe { std::slice::from_raw_parts_mut(gradients, n) };
    // A query that sees no key has weights of 0.
    let (share, mean) = if total == 0.0 { (0.0, 0.0) } else { (1.0 / total, mean) };
    for (weight, gradient) in weights.iter_mut().zip(gradients) {
        *weight *= share;
        *gradient = scale * *weight * (*gradient - mean);
    }
}

/// # Safety
/// Both rows have `n` elements and do not overlap.
#[inline(always)]
unsafe fn slopes_body<M: MultiplyAdd>(gradients: *mut f32, slopes: *const f32, n: usize) {
    // SAFETY: required of the caller.
    let gradients = unsafe { std::slice::from_raw_parts_mut(gradients, n) };
    // SAFETY: as above.
    let slopes = unsafe { std::slice::from_raw_parts(slopes, n) };
    for (gradient, slope) in gradients.iter_mut().zip(slopes) {
        *gradient = if *gradient == 0.0 { 0.0 } else { *gradient * slope };
    }
}
