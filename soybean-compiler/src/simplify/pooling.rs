//! The gradient of ReLU before max pooling, as a map of pooled elements, of which there are fewer.
//!
//! The gradient of a maximum is zero but at the pixel that attains it. ReLU is positive there where
//! the maximum is. So the gradients of the results can be masked instead of those of the pixels,
//! and the numbers stay the same.

use soybean_plan::{PoolingForm, ScalarProgram, Unary};

use crate::{
    operators::{elementwise::Elementwise, pool::Pool},
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

/// Returns the map of ReLU's result and of its gradient to the gradient of ReLU's operand.
fn relu_gradient() -> Option<ScalarProgram> {
    let gradient = scalar::derivative(&scalar::unary(Unary::Relu), 0, 1)?;
    Some(scalar::compact(&gradient).1)
}
