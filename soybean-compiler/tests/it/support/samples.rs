//! Samples as calls: their tensors are parameters and inputs with values.

use std::collections::BTreeMap;

use soybean_compiler::{Argument, Builder, SampleArgument, Value};
use soybean_plan::{DType, Init};

/// Returns an argument of a sample as one of a call; its tensors are sources with values.
pub(crate) fn argument(
    builder: &mut Builder,
    sources: &mut BTreeMap<Value, Vec<f64>>,
    argument: &SampleArgument,
) -> Argument {
    let at = sources.len();
    match *argument {
        SampleArgument::Tensor { shape, low, high } => {
            let value = builder.parameter(&format!("p{at}"), shape, Init::Constant(0.0));
            sources.insert(value, numbers(shape, low, high, at));
            Argument::Tensor(value)
        }
        SampleArgument::Buffer { shape, low, high } => {
            let value = builder.buffer(&format!("b{at}"), shape, Init::Constant(0.0));
            sources.insert(value, numbers(shape, low, high, at));
            Argument::Tensor(value)
        }
        SampleArgument::Labels { shape, n_classes } => {
            let value = builder.input(&format!("labels{at}"), DType::I32, shape);
            let n: usize = shape.iter().product();
            sources.insert(value, (0..n).map(|it| ((it + at) * 5 % n_classes) as f64).collect());
            Argument::Tensor(value)
        }
        SampleArgument::Integer(value) => Argument::Integer(value),
        SampleArgument::Float(value) => Argument::Float(value),
        SampleArgument::List(items) => {
            Argument::List(items.iter().map(|&it| Argument::Integer(it)).collect())
        }
        SampleArgument::Boolean(value) => Argument::Boolean(value),
        SampleArgument::Text(text) => Argument::Text(text.to_owned()),
        SampleArgument::Array(items) => {
            Argument::List(items.iter().map(|it| self::argument(builder, sources, it)).collect())
        }
        SampleArgument::Function(function) => function.build(builder),
        SampleArgument::All => Argument::All,
    }
}

fn numbers(shape: &[usize], low: f64, high: f64, at: usize) -> Vec<f64> {
    let n: usize = shape.iter().product();
    (0..n).map(|it| low + (high - low) * noise(it + 1000 * at)).collect()
}

/// Numbers that look random and are the same in every run, in `0..1`.
pub(crate) fn noise(seed: usize) -> f64 {
    let mut bits = (seed as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    ((bits ^ (bits >> 32)) >> 11) as f64 / (1_u64 << 53) as f64
}
