//! How the types of `soybean-plan` are written as Rust. A field or variant that is missing here does not compile.

use soybean_plan::{
    Attention, AttentionForm, AxisSet, Binary, Buffer, Collective, CollectiveKind, Combine,
    Concatenation, Constant, Contraction, Convolution, ConvolutionForm, DType, Embedding,
    EmbeddingForm, Init, Input, Instruction, Kernel, Map, MatrixStrides, Mesh, NonFinite, Output,
    Padding, Parameter, Permutation, Placement, Pooling, PoolingForm, Precision, Reduction, Rows,
    RunScalar, ScalarProgram, Shape, State, Strides, Tables, Tile, Tiling, Unary,
};

use super::{literal::Emit, write_to};

macro_rules! structs {
    ($($name:ident { $($field:ident)* })*) => {
        $(impl Emit for $name {
            fn emit(&self, text: &mut String) {
                let Self { $($field),* } = self;
                text.push_str(concat!(stringify!($name), " { "));
                $(
                    text.push_str(concat!(stringify!($field), ": "));
                    $field.emit(text);
                    text.push_str(", ");
                )*
                text.push('}');
            }
        })*
    };
}

structs! {
    Tables {
        name mesh precision arena_bytes buffers inputs parameters states constants scalars loss gradient_norm
        accumulate ema non_finite outputs train_bytes evaluate_bytes
    }
    Buffer { offset n_elements dtype }
    Input { name dtype tile buffer n_classes is_queried }
    Parameter { name tile buffer init is_trained }
    State { name tile buffer }
    Constant { tile buffer }
    Output { name dtype tile buffer rows }
    Tile { shape tiling }
    Contraction { batch rows columns depth left right result }
    MatrixStrides { batch row column }
    Map { extents inputs program }
    Reduction { map combine result }
    Permutation { extents input }
    Convolution {
        form batch groups channels filters image window result stride padding dilation
    }
    Pooling { form planes image window result stride padding }
    Padding { input result low fill }
    Concatenation { outer lengths }
    Embedding { form n_indices rows vocabulary width }
    Attention { form heads queries keys features width is_causal scale }
    Collective { kind dtype combine axes shape from to }
    ScalarProgram { instructions results }
}

// Enums without fields, whose debug form is the variant's name.
macro_rules! names {
    ($($name:ident)*) => {
        $(impl Emit for $name {
            fn emit(&self, text: &mut String) {
                write_to(text, format_args!(concat!(stringify!($name), "::{:?}"), self));
            }
        })*
    };
}

names!(DType Precision NonFinite Combine CollectiveKind ConvolutionForm PoolingForm EmbeddingForm AttentionForm Unary Binary);

// Enums whose variants have one field each.
macro_rules! wrappers {
    ($($name:ident { $($variant:ident)* })*) => {
        $(impl Emit for $name {
            fn emit(&self, text: &mut String) {
                match self {
                    $(Self::$variant(it) => {
                        text.push_str(concat!(stringify!($name), "::", stringify!($variant), "("));
                        it.emit(text);
                    })*
                }
                text.push(')');
            }
        })*
    };
}

wrappers! {
    Kernel { Contract Map Reduce Permute Convolve Pool Pad Concatenate Embed Attend Communicate }
}

impl Emit for Mesh {
    fn emit(&self, text: &mut String) {
        if self.sizes().eq(Self::new(self.n_ranks()).sizes()) {
            write_to(text, format_args!("Mesh::new({})", self.n_ranks()));
        } else {
            write_to(text, format_args!("Mesh::of(&{self})"));
        }
        for (extent, axis) in self.first_axes() {
            write_to(text, format_args!(".with_first_axis({extent}, {axis})"));
        }
    }
}

impl Emit for AxisSet {
    fn emit(&self, text: &mut String) {
        write_to(text, format_args!("AxisSet({})", self.0));
    }
}

impl Emit for Shape {
    fn emit(&self, text: &mut String) {
        write_to(text, format_args!("Shape::new(&{:?})", &self[..]));
    }
}

impl Emit for Strides {
    fn emit(&self, text: &mut String) {
        // Entries that are not given are 0.
        let n_given = self.0.iter().rposition(|&it| it != 0).map_or(0, |last| last + 1);
        write_to(text, format_args!("Strides::new(&{:?})", &self.0[..n_given]));
    }
}

impl Emit for Tiling {
    fn emit(&self, text: &mut String) {
        text.push_str("Tiling::new(&");
        self.placements().emit(text);
        text.push(')');
    }
}

impl Emit for Placement {
    fn emit(&self, text: &mut String) {
        match self {
            Self::Replicated => text.push_str("Placement::Replicated"),
            Self::Split(dim) => write_to(text, format_args!("Placement::Split({dim})")),
            Self::Partial => text.push_str("Placement::Partial"),
        }
    }
}

impl Emit for Rows {
    fn emit(&self, text: &mut String) {
        match self {
            Self::Fixed => text.push_str("Rows::Fixed"),
            Self::Own { dim } => write_to(text, format_args!("Rows::Own {{ dim: {dim} }}")),
            Self::Mixed => text.push_str("Rows::Mixed"),
        }
    }
}

impl Emit for Init {
    fn emit(&self, text: &mut String) {
        let (name, [(first, a), (second, b)]) = match self {
            Self::Constant(value) => {
                text.push_str("Init::Constant(");
                value.emit(text);
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
        a.emit(text);
        write_to(text, format_args!(", {second}: "));
        b.emit(text);
        text.push_str(" }");
    }
}

impl Emit for RunScalar {
    fn emit(&self, text: &mut String) {
        match self {
            Self::LearningRate => text.push_str("RunScalar::LearningRate"),
            Self::UpdateNumber => text.push_str("RunScalar::UpdateNumber"),
            Self::Noise => text.push_str("RunScalar::Noise"),
            Self::IsUpdate => text.push_str("RunScalar::IsUpdate"),
            Self::LossScale => text.push_str("RunScalar::LossScale"),
            Self::OneMinusPower { base } => {
                text.push_str("RunScalar::OneMinusPower { base: ");
                base.emit(text);
                text.push_str(" }");
            }
        }
    }
}

impl Emit for Instruction {
    fn emit(&self, text: &mut String) {
        text.push_str("Instruction::");
        match self {
            Self::Input(input) => write_to(text, format_args!("Input({input})")),
            Self::Scalar(scalar) => write_to(text, format_args!("Scalar({scalar})")),
            Self::Constant(value) => {
                text.push_str("Constant(");
                value.emit(text);
                text.push(')');
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
