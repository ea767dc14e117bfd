//! The bias of attention: its matrices, and its gradient.
//!
//! The gradient of a bias is that of the scores, summed over the dims along which the bias is
//! repeated. It has a number for each query and key, and so have the scores that it is made of.
//! Primitive operators compute it. A bias that is not trained has no gradient.

use soybean_plan::{AttentionBias, Combine, Register, Shape, Unary};

use super::Attend;
use crate::{
    operator::{GradientBuilder, OperatorCall},
    operators::{
        contract::Contract, elementwise::all_dims, iota::Iota, reduce::Reduce, reshape::Reshape,
    },
    scalar::ScalarBuilder,
    signature::{FactorId, factor_id},
    value::Value,
};

/// Returns how heads of queries `[.., n, d]` share the matrices of a bias `[.., n, m]`, whose dims
/// may be 1 instead: first ones that all heads before share, last ones that heads in a row share.
pub(super) fn matrices(bias: &Shape, query: &Shape) -> AttentionBias {
    let n_leading = query.len() - 2;
    let is_shared = |dim: &usize| bias[*dim] != query[*dim];
    let n_last = (0..n_leading).rev().take_while(is_shared).count();
    let own = n_leading - n_last;
    AttentionBias {
        matrices: bias[..own].iter().product(),
        repeats: query[own..n_leading].iter().product::<usize>().max(1),
        rows: bias[n_leading],
    }
}

/// Returns whether [`matrices`] describes a bias: no dim is repeated between two that are not.
pub(crate) fn is_in_turn(bias: &[usize], leading: &[usize]) -> bool {
    let mut own = (0..leading.len()).filter(|it| bias[*it] == leading[*it] && leading[*it] != 1);
    let Some(first) = own.next() else { return true };
    let last = own.next_back().unwrap_or(first);
    (first..=last).all(|it| bias[it] == leading[it])
}

/// Adds the gradient of the bias of a call.
///
/// d bias = w (g - sum(w g)) for weights w and their gradients g, where sums are over keys; summed
/// over the dims of extent 1.
pub(super) fn gradient(
    attend: &Attend,
    call: &OperatorCall<'_>,
    builder: &mut dyn GradientBuilder,
) -> Value {
    let (query, key, value) = (call.operands[0], call.operands[1], call.operands[2]);
    let products = products(builder, query, key);
    let by_weight = self::products(builder, call.gradient, value);
    let shape = builder.shape(products);
    let (all, rows) = (all_dims(&shape), all_dims(&shape)[..shape.len() - 1].to_vec());
    let scores = Masked::new(attend, call, builder, shape).scores(builder, products);
    let maxima = builder.add(Reduce::new(shape, Combine::Max, rows.clone()).into(), &[scores]);
    let mut it = ScalarBuilder::default();
    let (score, most) = (it.input(0), it.input(1));
    let (difference, zero) = (it.sub(score, most), it.constant(0.0));
    let power = it.unary(Unary::Exp, difference);
    // A key that is not seen weighs nothing, also beside no other.
    let hidden = it.constant(f64::NEG_INFINITY);
    let is_hidden = it.equal(score, hidden);
    let power = it.select(is_hidden, zero, power);
    let operands = [all.clone(), rows.clone()];
    let powers = builder.add_elementwise(shape, &operands, it.finish(power), &[scores, maxima]);
    let totals = builder.sum_to(powers, &rows);
    let mut it = ScalarBuilder::default();
    let (power, slope) = (it.input(0), it.input(1));
    let product = it.mul(power, slope);
    let operands = [all.clone(), all.clone()];
    let weighted =
        builder.add_elementwise(shape, &operands, it.finish(product), &[powers, by_weight]);
    let sums = builder.sum_to(weighted, &rows);
    let mut it = ScalarBuilder::default();
    let (power, slope, total, sum) = (it.input(0), it.input(1), it.input(2), it.input(3));
    let (mean, weight) = (it.div(sum, total), it.div(power, total));
    let difference = it.sub(slope, mean);
    let (slope, zero) = (it.mul(weight, difference), it.constant(0.0));
    let is_empty = it.equal(total, zero);
    let slope = it.select(is_empty, zero, slope);
    let operands = [all.clone(), all.clone(), rows.clone(), rows];
    let values = [powers, by_weight, totals, sums];
    let slopes = builder.add_elementwise(shape, &operands, it.finish(slope), &values);
    let of_bias = builder.shape(call.operands[attend.bias_at().expect("the call has a bias")]);
    let kept: Vec<FactorId> =
        all.into_iter().filter(|it| of_bias[*it as usize] == shape[*it as usize]).collect();
    let sum = if kept.len() == shape.len() { slopes } else { builder.sum_to(slopes, &kept) };
    builder.add(Reshape { shape: of_bias }.into(), &[sum])
}

/// Adds the products of the rows of `[.., n, d]` and `[.., m, d]`, `[.., n, m]`. The second may
/// lack the last leading dim, that of the heads that share it.
fn products(builder: &mut dyn GradientBuilder, left: Value, right: Value) -> Value {
    let (n_leading, n_shared) = (builder.shape(left).len() - 2, builder.shape(right).len() - 2);
    let dims = |n: usize, rest: [usize; 2]| -> Vec<FactorId> {
        (0..n).chain(rest.map(|it| it + n_leading)).map(factor_id).collect()
    };
    let contract = Contract {
        left: dims(n_leading, [0, 2]),
        right: dims(n_shared, [1, 2]),
        result: dims(n_leading, [0, 1]),
    };
    builder.add(contract.into(), &[left, right])
}

/// The scores of a call: scaled products with the bias, minus infinity for keys that are not seen.
struct Masked<'a> {
    attend: &'a Attend,
    /// The shape of the scores.
    shape: Shape,
    /// The operands after the products, with their dims.
    operands: Vec<(Value, Vec<FactorId>)>,
}

impl<'a> Masked<'a> {
    fn new(
        attend: &'a Attend,
        call: &OperatorCall<'_>,
        builder: &mut dyn GradientBuilder,
        shape: Shape,
    ) -> Self {
        let (query_dim, key_dim) = (factor_id(shape.len() - 2), factor_id(shape.len() - 1));
        let mut operands = Vec::new();
        let bias = call.operands[attend.bias_at().expect("the call has a bias")];
        let of_bias = builder.shape(bias);
        let own: Vec<FactorId> = all_dims(&shape)
            .into_iter()
            .filter(|it| of_bias[*it as usize] == shape[*it as usize])
            .collect();
        let squeezed = own.iter().map(|it| shape[*it as usize]).collect();
        let bias = if own.len() == shape.len() {
            bias
        } else {
            builder.add(Reshape { shape: squeezed }.into(), &[bias])
        };
        operands.push((bias, own));
        if let Some(at) = attend.segments_at() {
            for (at, dim) in [(at, query_dim), (at + 1, key_dim)] {
                let n_rows = builder.shape(call.operands[at]).len() - 1;
                let dims = (0..n_rows).map(factor_id).chain([dim]).collect();
                operands.push((call.operands[at], dims));
            }
        }
        if attend.is_causal {
            let positions = *call.operands.last().expect("causal attention reads positions");
            let keys = builder.add(Iota::new(attend.keys).into(), &[]);
            operands.extend([(positions, vec![query_dim]), (keys, vec![key_dim])]);
        }
        Self { attend, shape, operands }
    }

    fn scores(&self, builder: &mut dyn GradientBuilder, products: Value) -> Value {
        let mut it = ScalarBuilder::default();
        let (product, added) = (it.input(0), it.input(1));
        let scaled = it.scale(product, self.attend.scale);
        let mut score = it.add(scaled, added);
        let hidden = it.constant(f64::NEG_INFINITY);
        let mut next = 2;
        if self.attend.has_segments {
            let (of_query, of_key) = (it.integer(next), it.integer(next + 1));
            let is_same = it.equal(of_query, of_key);
            score = it.select(is_same, score, hidden);
            next += 2;
        }
        if self.attend.is_causal {
            let (query, key) = (it.integer(next), it.integer(next + 1));
            let is_hidden = is_outside(&mut it, query, key, self.attend.window);
            score = it.select(is_hidden, hidden, score);
        }
        let (mut values, mut dims) = (vec![products], vec![all_dims(&self.shape)]);
        values.extend(self.operands.iter().map(|it| it.0));
        dims.extend(self.operands.iter().map(|it| it.1.clone()));
        builder.add_elementwise(self.shape, &dims, it.finish(score), &values)
    }
}

/// Adds 1 if a key is after the query's own position, or before its window.
pub(crate) fn is_outside(
    it: &mut ScalarBuilder,
    query: Register,
    key: Register,
    window: Option<usize>,
) -> Register {
    let is_later = it.greater(key, query);
    let Some(window) = window else { return is_later };
    let (query, key) = (it.unary(Unary::Float, query), it.unary(Unary::Float, key));
    let (distance, last) = (it.sub(query, key), it.constant(window as f64 - 1.0));
    let is_too_early = it.greater(distance, last);
    let one = it.constant(1.0);
    it.select(is_later, one, is_too_early)
}
