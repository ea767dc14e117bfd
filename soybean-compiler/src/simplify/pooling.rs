//! Work on the gradients of max pooling, done on the gradients of its results, of which there are
//! fewer.
//!
//! The gradient of a maximum is zero but at the pixel that attains it. ReLU is positive there where
//! the maximum is. So the gradients of the results can be masked instead of those of the pixels,
//! and the numbers stay the same. The sum over the pixels is that over the results, so the gradient
//! of a bias can be taken from these, too.

use soybean_plan::{Combine, PoolingForm, ScalarProgram, Unary};

use crate::{
    graph::Graph,
    operator::Operator,
    operators::{elementwise::Elementwise, pool::Pool, reduce::Reduce},
    rewrite::Rewriter,
    scalar,
    value::Value,
};

/// Returns the gradient of ReLU as that of the pooling after it, if this map masks such a gradient
/// and alone reads it.
pub(super) fn masked_after(
    rewriter: &mut Rewriter<'_>,
    value: Value,
    map: &Elementwise,
) -> Option<Value> {
    let old = rewriter.old;
    let [image, of_image] = old.operands(value)[..] else { return None };
    let gradient = old.operator_as::<Pool>(of_image)?;
    let [pooled, of_result] = old.operands(of_image)[..] else { return None };
    let is_gradient = gradient.form == PoolingForm::MaxGradient && pooled == image;
    let is_free = old.users(of_image).len() == 1 && old.node(of_image).pinned.is_none();
    let same = Elementwise::same(map.extents, 2, relu_gradient()?);
    if !is_gradient || !is_free || *map != same {
        return None;
    }
    let maximum = Pool { form: PoolingForm::Max, ..gradient.clone() };
    let forward = old.users(image).into_iter().find(|it| {
        old.operator_as::<Pool>(*it) == Some(&maximum) && old.node(*it).pinned.is_none()
    })?;
    let operands = [image, forward, of_result].map(|it| rewriter.replacement(it));
    let [Some(image), Some(forward), Some(of_result)] = operands else { return None };
    let mask = Elementwise::same(maximum.result(), 2, same.program);
    let masked = rewriter.graph.add(mask.into(), &[forward, of_result]);
    let node = old.node(of_image);
    Some(rewriter.graph.add_like(node, gradient.clone().into(), &[image, masked]))
}

/// Returns a sum over all pixels of gradients of max pooling as one over the gradients of results.
pub(super) fn summed_before(
    graph: &Graph,
    operator: Operator,
    operands: Vec<Value>,
) -> (Operator, Vec<Value>) {
    let summed = |sum: &Reduce| {
        let &[of_image] = &operands[..] else { return None };
        let gradient = graph.operator_as::<Pool>(of_image)?;
        let of_pixels = Reduce::new(gradient.image, Combine::Sum, sum.kept.clone());
        let is_sum = *sum == of_pixels && sum.kept.iter().all(|it| *it < 2);
        let of_result = graph.operands(of_image).get(1).copied()?;
        let of_results = Reduce::new(gradient.result(), Combine::Sum, sum.kept.clone());
        let is_maximum = gradient.form == PoolingForm::MaxGradient;
        (is_maximum && is_sum).then(|| (of_results.into(), vec![of_result]))
    };
    operator.downcast_ref().and_then(summed).unwrap_or((operator, operands))
}

/// Returns the map of ReLU's result and of its gradient to the gradient of ReLU's operand.
fn relu_gradient() -> Option<ScalarProgram> {
    let gradient = scalar::derivative(&scalar::unary(Unary::Relu), 0, 1)?;
    Some(scalar::compact(&gradient).1)
}
