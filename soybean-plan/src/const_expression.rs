//! Values as Rust expressions, from which generated code builds its statics.

mod tables;

use std::borrow::Cow;

/// A value that can be written as a constant expression of Rust.
///
/// The expression assumes that all types of this crate and [`Cow`] are imported.
pub trait ConstExpression {
    /// Appends the expression to `text`.
    fn write_expression(&self, text: &mut String);
}

/// Implements [`ConstExpression`] for structs, field by field.
macro_rules! struct_expression {
    ($($name:ident { $($field:ident)* })*) => {
        $(impl $crate::ConstExpression for $name {
            fn write_expression(&self, text: &mut String) {
                let Self { $($field),* } = self;
                text.push_str(concat!(stringify!($name), " { "));
                $(
                    text.push_str(concat!(stringify!($field), ": "));
                    $crate::ConstExpression::write_expression($field, text);
                    text.push_str(", ");
                )*
                text.push('}');
            }
        })*
    };
}

/// Implements [`ConstExpression`] for enums without fields, whose debug form is the variant's name.
macro_rules! variant_expression {
    ($($name:ident)*) => {
        $(impl $crate::ConstExpression for $name {
            fn write_expression(&self, text: &mut String) {
                text.push_str(&format!(concat!(stringify!($name), "::{:?}"), self));
            }
        })*
    };
}

/// Implements [`ConstExpression`] for enums whose variants have one field each.
macro_rules! wrapper_expression {
    ($name:ident { $($variant:ident)* }) => {
        impl $crate::ConstExpression for $name {
            fn write_expression(&self, text: &mut String) {
                match self {
                    $(Self::$variant(it) => {
                        text.push_str(concat!(stringify!($name), "::", stringify!($variant), "("));
                        $crate::ConstExpression::write_expression(it, text);
                    })*
                }
                text.push(')');
            }
        }
    };
}

pub(crate) use {struct_expression, variant_expression, wrapper_expression};

macro_rules! by_debug {
    ($($name:ty)*) => {
        $(impl ConstExpression for $name {
            fn write_expression(&self, text: &mut String) {
                text.push_str(&format!("{self:?}"));
            }
        })*
    };
}

// The debug form of these types is a Rust expression with the same value.
by_debug!(bool u8 u16 u64 usize i32 str);

impl ConstExpression for f64 {
    fn write_expression(&self, text: &mut String) {
        if self.is_nan() {
            text.push_str("f64::NAN");
        } else if self.is_infinite() {
            text.push_str(if *self > 0.0 { "f64::INFINITY" } else { "f64::NEG_INFINITY" });
        } else {
            text.push_str(&format!("{self:?}"));
        }
    }
}

impl<T: ConstExpression> ConstExpression for [T] {
    fn write_expression(&self, text: &mut String) {
        text.push('[');
        for (index, member) in self.iter().enumerate() {
            if index > 0 {
                text.push_str(", ");
            }
            member.write_expression(text);
        }
        text.push(']');
    }
}

impl<T: ConstExpression, const N: usize> ConstExpression for [T; N] {
    fn write_expression(&self, text: &mut String) {
        self.as_slice().write_expression(text);
    }
}

impl<T: ConstExpression> ConstExpression for Option<T> {
    fn write_expression(&self, text: &mut String) {
        match self {
            Some(it) => {
                text.push_str("Some(");
                it.write_expression(text);
                text.push(')');
            }
            None => text.push_str("None"),
        }
    }
}

impl ConstExpression for Cow<'static, str> {
    fn write_expression(&self, text: &mut String) {
        text.push_str("Cow::Borrowed(");
        str::write_expression(self, text);
        text.push(')');
    }
}

impl<T: ConstExpression + Clone> ConstExpression for Cow<'static, [T]> {
    fn write_expression(&self, text: &mut String) {
        text.push_str("Cow::Borrowed(&");
        <[T]>::write_expression(self, text);
        text.push(')');
    }
}
