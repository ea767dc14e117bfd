//! How plain values are written as Rust.

use std::{borrow::Cow, fmt::Write as _};

/// A value that can be written as an expression of Rust, for use in constants.
pub(super) trait Emit {
    /// Appends the expression to `text`.
    fn emit(&self, text: &mut String);
}

macro_rules! by_debug {
    ($($name:ty)*) => {
        $(impl Emit for $name {
            fn emit(&self, text: &mut String) {
                write!(text, "{self:?}").expect("writing to a string cannot fail");
            }
        })*
    };
}

// The debug form of these types is an expression of Rust that gives the value back.
by_debug!(bool u8 u16 u64 usize i32 str);

impl Emit for f64 {
    fn emit(&self, text: &mut String) {
        if self.is_nan() {
            text.push_str("f64::NAN");
        } else if self.is_infinite() {
            text.push_str(if *self > 0.0 { "f64::INFINITY" } else { "f64::NEG_INFINITY" });
        } else {
            write!(text, "{self:?}").expect("writing to a string cannot fail");
        }
    }
}

impl<T: Emit> Emit for [T] {
    fn emit(&self, text: &mut String) {
        text.push('[');
        for (index, member) in self.iter().enumerate() {
            if index > 0 {
                text.push_str(", ");
            }
            member.emit(text);
        }
        text.push(']');
    }
}

impl<T: Emit, const N: usize> Emit for [T; N] {
    fn emit(&self, text: &mut String) {
        self.as_slice().emit(text);
    }
}

impl<T: Emit> Emit for Option<T> {
    fn emit(&self, text: &mut String) {
        match self {
            Some(it) => {
                text.push_str("Some(");
                it.emit(text);
                text.push(')');
            }
            None => text.push_str("None"),
        }
    }
}

impl Emit for Cow<'static, str> {
    fn emit(&self, text: &mut String) {
        text.push_str("Cow::Borrowed(");
        str::emit(self, text);
        text.push(')');
    }
}

impl<T: Emit + Clone> Emit for Cow<'static, [T]> {
    fn emit(&self, text: &mut String) {
        text.push_str("Cow::Borrowed(&");
        <[T]>::emit(self, text);
        text.push(')');
    }
}
