//! The innermost loops: sums of shifted planes, and products of a plane with shifted planes.

use crate::cpu::math::MultiplyAdd;

/// The elements of a block of sums, which stay in registers. Shorter blocks would be unrolled
/// before they are vectorized.
pub(super) const BLOCK: usize = 64;

/// An element of a filter.
pub(super) struct Element {
    /// The shift of the pixels that it sees.
    pub(super) shift: usize,
    /// The place of its weight.
    pub(super) weight: usize,
}

/// Computes `to[i] = sum over elements of weights[weight] * from[i + shift]`.
#[inline(always)]
pub(super) fn sums<M: MultiplyAdd>(
    from: &[f32],
    elements: &[Element],
    weights: &[f32],
    to: &mut [f32],
) {
    for (number, block) in to.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
        let mut sums = [0.0; BLOCK];
        for element in elements {
            let weight = weights[element.weight];
            let from = &from[number * BLOCK + element.shift..][..BLOCK];
            for (sum, from) in sums.iter_mut().zip(from) {
                *sum = M::multiply_add(weight, *from, *sum);
            }
        }
        *block = sums;
    }
}

/// Adds `with[i] * from[i + shift]` to the partial sums of each element.
#[inline(always)]
pub(super) fn products<M: MultiplyAdd>(
    from: &[f32],
    elements: &[Element],
    with: &[f32],
    to: &mut [[f32; BLOCK]],
) {
    for (element, to) in elements.iter().zip(to) {
        let from = &from[element.shift..][..with.len()];
        let mut sums = *to;
        for (from, with) in from.as_chunks::<BLOCK>().0.iter().zip(with.as_chunks::<BLOCK>().0) {
            for ((sum, from), with) in sums.iter_mut().zip(from).zip(with) {
                *sum = M::multiply_add(*from, *with, *sum);
            }
        }
        *to = sums;
    }
}
