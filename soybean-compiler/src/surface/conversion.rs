//! Conversions between types of elements.

use soybean_plan::DType;

use super::{Arguments, Row, SampleArgument};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    operators::elementwise::Elementwise,
    scalar,
    value::Value,
};

pub(super) const TABLE: &[Row] = &[
    Row {
        name: "to_f32",
        doc: "The same numbers as `f32`.",
        arguments: &["input"],
        build: |builder, arguments| convert(builder, arguments, DType::F32),
        samples: &[
            &[SampleArgument::Labels { shape: &[3, 4], n_classes: 5 }],
            &[SampleArgument::tensor(&[4, 6])],
        ],
    },
    Row {
        name: "to_i32",
        doc: "The integer parts as `i32`, rounded towards zero; no gradient flows through it.",
        arguments: &["input"],
        build: |builder, arguments| convert(builder, arguments, DType::I32),
        samples: &[
            &[SampleArgument::tensor(&[4, 6])],
            &[SampleArgument::Labels { shape: &[3], n_classes: 5 }],
        ],
    },
];

fn convert(
    builder: &mut Builder,
    arguments: &Arguments<'_>,
    dtype: DType,
) -> Result<Argument, CallDiagnostic> {
    Ok(Argument::Tensor(converted(builder, arguments.any_tensor(0)?, dtype)))
}

/// Returns the tensor with elements of another type.
pub(super) fn converted(builder: &mut Builder, value: Value, dtype: DType) -> Value {
    if builder.dtype(value) == dtype {
        return value;
    }
    let program = match builder.dtype(value) {
        DType::I32 => scalar::float(),
        DType::F32 | DType::Bf16 => scalar::identity(),
    };
    let map = Elementwise::same(builder.shape(value), 1, program);
    builder.graph.add(Elementwise { dtype, ..map }.into(), &[value])
}
