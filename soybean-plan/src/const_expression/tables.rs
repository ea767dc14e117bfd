//! Constant expressions of types other than kernels.
//!
//! A field or variant that is missing here does not compile.

use std::{
    fmt::{self, Write as _},
    ops::Range,
};

use super::{ConstExpression, struct_expression, variant_expression};
use crate::{
    AxisSet, Binary, Bucket, Buffer, Collective, CollectiveKind, Constant, DType, DigitOrder,
    Entry, Halo, Init, Input, Instruction, MAX_RANK, Mesh, NextValue, NonFinite, Output, Parameter,
    Placement, Precision, Rows, RunScalar, ScalarProgram, Shape, State, Strides, Tables, Tile,
    Tiling, TrainingStep, Unary,
};

struct_expression! {
    Tables {
        name mesh precision arena_bytes buffers entries inputs parameters states constants scalars
        accumulate_loss accumulate ema non_finite next_values outputs accumulate_bytes
    }
    Entry { name n_calls inputs outputs has_loss_weight parameters bytes training }
    TrainingStep { loss gradient_norm bytes trains_like }
    DigitOrder { first_axis n_parts is_balanced }
    Buffer { offset n_elements dtype }
    Input { name dtype tile buffer n_classes ignored_label is_queried }
    Parameter { name tile layout buffer init is_trained use_hash }
    State { name tile layout buffer }
    NextValue { buffer before tensor }
    Constant { tile buffer }
    Output { name dtype tile buffer rows }
    Tile { shape padded tiling }
    Bucket { collectives }
    Collective { kind dtype combine axes shape from to halo }
    ScalarProgram { instructions results }
}

variant_expression!(DType Precision NonFinite CollectiveKind Unary Binary);

fn write_to(text: &mut String, arguments: fmt::Arguments<'_>) {
    text.write_fmt(arguments).expect("writing to a string cannot fail");
}

impl ConstExpression for Mesh {
    fn write_expression(&self, text: &mut String) {
        if self.sizes().eq(Self::new(self.n_ranks()).sizes()) {
            write_to(text, format_args!("Mesh::new({})", self.n_ranks()));
        } else {
            write_to(text, format_args!("Mesh::of(&{self})"));
        }
        for (extent, order) in self.digit_orders() {
            write_to(text, format_args!(".with_digit_order({extent}, "));
            order.write_expression(text);
            text.push(')');
        }
    }
}

impl ConstExpression for Range<usize> {
    fn write_expression(&self, text: &mut String) {
        write_to(text, format_args!("{}..{}", self.start, self.end));
    }
}

impl ConstExpression for AxisSet {
    fn write_expression(&self, text: &mut String) {
        write_to(text, format_args!("AxisSet({})", self.0));
    }
}

impl ConstExpression for Halo {
    fn write_expression(&self, text: &mut String) {
        text.push_str("Halo::NONE");
        for dim in (0..MAX_RANK).filter(|&dim| self.is_along(dim)) {
            let (before, after) = (self.before[dim], self.after[dim]);
            write_to(text, format_args!(".with({dim}, [{before}, {after}])"));
        }
    }
}

impl ConstExpression for Shape {
    fn write_expression(&self, text: &mut String) {
        write_to(text, format_args!("Shape::new(&{:?})", &self[..]));
    }
}

impl ConstExpression for Strides {
    fn write_expression(&self, text: &mut String) {
        // Missing entries are 0.
        let n_given = self.0.iter().rposition(|&it| it != 0).map_or(0, |last| last + 1);
        write_to(text, format_args!("Strides::new(&{:?})", &self.0[..n_given]));
    }
}

impl ConstExpression for Tiling {
    fn write_expression(&self, text: &mut String) {
        text.push_str("Tiling::new(&");
        self.placements().write_expression(text);
        text.push(')');
    }
}

impl ConstExpression for Placement {
    fn write_expression(&self, text: &mut String) {
        match self {
            Self::Replicated => text.push_str("Placement::Replicated"),
            Self::Split(dim) => write_to(text, format_args!("Placement::Split({dim})")),
            Self::Partial => text.push_str("Placement::Partial"),
        }
    }
}

impl ConstExpression for Rows {
    fn write_expression(&self, text: &mut String) {
        match self {
            Self::Fixed => text.push_str("Rows::Fixed"),
            Self::Own { dim } => write_to(text, format_args!("Rows::Own {{ dim: {dim} }}")),
            Self::Mixed => text.push_str("Rows::Mixed"),
        }
    }
}

impl ConstExpression for Init {
    fn write_expression(&self, text: &mut String) {
        let (name, [(first, a), (second, b)]) = match self {
            Self::Constant(value) => {
                text.push_str("Init::Constant(");
                value.write_expression(text);
                text.push(')');
                return;
            }
            Self::Normal { mean, std } => ("Normal", [("mean", mean), ("std", std)]),
            Self::TruncatedNormal { mean, std } => {
                ("TruncatedNormal", [("mean", mean), ("std", std)])
            }
            Self::Uniform { low, high } => ("Uniform", [("low", low), ("high", high)]),
        };
        write_to(text, format_args!("Init::{name} {{ {first}: "));
        a.write_expression(text);
        write_to(text, format_args!(", {second}: "));
        b.write_expression(text);
        text.push_str(" }");
    }
}

impl ConstExpression for RunScalar {
    fn write_expression(&self, text: &mut String) {
        match self {
            Self::LearningRate => text.push_str("RunScalar::LearningRate"),
            Self::UpdateNumber => text.push_str("RunScalar::UpdateNumber"),
            Self::Noise => text.push_str("RunScalar::Noise"),
            Self::LossScale => text.push_str("RunScalar::LossScale"),
            Self::HasBatch => text.push_str("RunScalar::HasBatch"),
            Self::InverseSteps => text.push_str("RunScalar::InverseSteps"),
            Self::OneMinusPower { base } => {
                text.push_str("RunScalar::OneMinusPower { base: ");
                base.write_expression(text);
                text.push_str(" }");
            }
        }
    }
}

impl ConstExpression for Instruction {
    fn write_expression(&self, text: &mut String) {
        text.push_str("Instruction::");
        match self {
            Self::Input(input) => write_to(text, format_args!("Input({input})")),
            Self::Integer(input) => write_to(text, format_args!("Integer({input})")),
            Self::Scalar(scalar) => write_to(text, format_args!("Scalar({scalar})")),
            Self::Constant(value) => {
                text.push_str("Constant(");
                value.write_expression(text);
                text.push(')');
            }
            Self::IntegerConstant(value) => {
                write_to(text, format_args!("IntegerConstant({value})"));
            }
            Self::Unary(function, x) => {
                write_to(text, format_args!("Unary(Unary::{function:?}, {x})"));
            }
            Self::Binary(function, x, y) => {
                write_to(text, format_args!("Binary(Binary::{function:?}, {x}, {y})"));
            }
            Self::Select(condition, x, y) => {
                write_to(text, format_args!("Select({condition}, {x}, {y})"));
            }
        }
    }
}
