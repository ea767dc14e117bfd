//! The results of a call as one tensor, for all operators.

use soybean::Tensor;
use soybean_compiler::{Argument, Builder, Value};

use soybean_test_support::models::call;

/// Returns the results of a call as one `f32` tensor; several are flattened into a vector.
pub(crate) fn joined(builder: &mut Builder, result: Argument) -> Value {
    let parts = match result {
        Argument::List(parts) if parts.len() > 1 => parts,
        Argument::List(one) => return call(builder, "to_f32", &one),
        one => return call(builder, "to_f32", &[one]),
    };
    let mut flat = |part: Argument| {
        let part = call(builder, "to_f32", &[part]);
        let row = call(builder, "unsqueeze", &[Argument::Tensor(part), Argument::Integer(0)]);
        let flat = call(builder, "flatten", &[Argument::Tensor(row)]);
        Argument::Tensor(call(builder, "squeeze", &[Argument::Tensor(flat), Argument::Integer(0)]))
    };
    let parts = parts.into_iter().map(&mut flat).collect();
    call(builder, "concat", &[Argument::List(parts), Argument::Integer(0)])
}

/// Returns eager results as one tensor, in the same way.
pub(crate) fn eager_joined(results: &[Tensor]) -> Tensor {
    match results {
        [one] => *one,
        _ => {
            let elements: Vec<f64> = results.iter().flat_map(|it| it.to_vec()).collect();
            Tensor::new([elements.len()], &elements)
        }
    }
}
