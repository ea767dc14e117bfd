//! Numbers in files, and their conversion to the elements of a column.

use soybean_plan::{DType, f16};

use crate::{Values, ViewMut};

/// The representation of a number in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// The type.
    pub kind: ElementKind,
    /// The byte order.
    pub order: ByteOrder,
}

/// The types of numbers in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementKind {
    /// A byte that is 0 or 1.
    Bool,
    /// An unsigned integer of 8 bits.
    U8,
    /// A signed integer of 8 bits.
    I8,
    /// An unsigned integer of 16 bits.
    U16,
    /// A signed integer of 16 bits.
    I16,
    /// An unsigned integer of 32 bits.
    U32,
    /// A signed integer of 32 bits.
    I32,
    /// A signed integer of 64 bits.
    I64,
    /// An unsigned integer of 64 bits.
    U64,
    /// IEEE 754 half precision.
    F16,
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 double precision.
    F64,
}

/// The order of the bytes of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// The least significant byte comes first.
    Little,
    /// The most significant byte comes first.
    Big,
}

/// The conversion of a file's numbers to a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    /// A column of `f32`: each number times `scale`. The products must be finite.
    Numbers {
        /// The factor of all numbers, finite and not 0.
        scale: f32,
    },
    /// A column of `i32`: the integers themselves.
    Integers,
    /// A column of `i32`: class labels.
    Labels {
        /// Labels must be in `0..n_classes`.
        n_classes: usize,
    },
}

/// The error of a number that cannot be converted: its index, and what was expected and found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ConversionError {
    pub(super) place: usize,
    pub(super) message: String,
}

/// One number of a file, before it is put into a column.
#[derive(Clone, Copy)]
pub(super) enum Number {
    Whole(i64),
    /// A number that may be too large for `Whole`.
    Natural(u64),
    Real(f64),
}

impl ElementKind {
    /// Returns the size in bytes.
    #[must_use]
    pub const fn n_bytes(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    const fn is_whole(self) -> bool {
        !matches!(self, Self::F16 | Self::F32 | Self::F64)
    }
}

impl Form {
    /// Returns the type of the column.
    pub(super) const fn dtype(self) -> DType {
        match self {
            Self::Numbers { .. } => DType::F32,
            Self::Integers | Self::Labels { .. } => DType::I32,
        }
    }

    /// Appends a number to the elements of a column of this form.
    pub(super) fn push(self, number: Number, values: &mut Values) -> Result<(), String> {
        match (values, self) {
            (Values::F32(values), Self::Numbers { scale }) => values.push(scaled(number, scale)?),
            (Values::I32(values), Self::Integers) => values.push(whole(number)?),
            (Values::I32(values), Self::Labels { n_classes }) => {
                values.push(label(number, n_classes)?);
            }
            (Values::F32(_), Self::Integers | Self::Labels { .. })
            | (Values::I32(_), Self::Numbers { .. }) => {
                unreachable!("the column has the type of its form")
            }
        }
        Ok(())
    }
}

impl Element {
    /// Describes a little-endian number.
    #[must_use]
    pub const fn little(kind: ElementKind) -> Self {
        Self { kind, order: ByteOrder::Little }
    }

    /// Describes a big-endian number.
    #[must_use]
    pub const fn big(kind: ElementKind) -> Self {
        Self { kind, order: ByteOrder::Big }
    }

    /// Checks that numbers of this type can be converted to `form`.
    pub(super) fn check(self, form: Form) -> Result<(), String> {
        match form {
            Form::Integers | Form::Labels { .. } if !self.kind.is_whole() => {
                Err(format!("expected integers, found {:?}", self.kind))
            }
            Form::Numbers { .. } | Form::Integers | Form::Labels { .. } => Ok(()),
        }
    }

    /// Converts all numbers in these bytes to the elements of a column.
    pub(super) fn values(self, bytes: &[u8], form: Form) -> Result<Values, ConversionError> {
        let n = bytes.len() / self.kind.n_bytes();
        let mut values = Values::zeros(form.dtype(), n)
            .map_err(|error| ConversionError { place: 0, message: error.to_string() })?;
        self.convert(bytes, form, &mut values.view_mut())?;
        Ok(values)
    }

    /// Converts the numbers in these bytes and stores them in memory for as many elements.
    pub(super) fn convert(
        self,
        bytes: &[u8],
        form: Form,
        into: &mut ViewMut<'_>,
    ) -> Result<(), ConversionError> {
        use Number::{Natural, Real, Whole};
        if self.kind == ElementKind::Bool
            && let Some(place) = bytes.iter().position(|it| *it > 1)
        {
            let message = format!("expected 0 or 1 for a bool, found {}", bytes[place]);
            return Err(ConversionError { place, message });
        }
        let target = Target { big: self.order == ByteOrder::Big, form, into };
        match self.kind {
            ElementKind::Bool | ElementKind::U8 => {
                target.fill(bytes, |it: [u8; 1]| Whole(i64::from(it[0])))
            }
            ElementKind::I8 => target.fill(bytes, |it| Whole(i8::from_le_bytes(it).into())),
            ElementKind::U16 => target.fill(bytes, |it| Whole(u16::from_le_bytes(it).into())),
            ElementKind::I16 => target.fill(bytes, |it| Whole(i16::from_le_bytes(it).into())),
            ElementKind::U32 => target.fill(bytes, |it| Whole(u32::from_le_bytes(it).into())),
            ElementKind::I32 => target.fill(bytes, |it| Whole(i32::from_le_bytes(it).into())),
            ElementKind::I64 => target.fill(bytes, |it| Whole(i64::from_le_bytes(it))),
            ElementKind::U64 => target.fill(bytes, |it| Natural(u64::from_le_bytes(it))),
            ElementKind::F16 => {
                target.fill(bytes, |it| Real(f16::to_f32(u16::from_le_bytes(it)).into()))
            }
            ElementKind::F32 => target.fill(bytes, |it| Real(f32::from_le_bytes(it).into())),
            ElementKind::F64 => target.fill(bytes, |it| Real(f64::from_le_bytes(it))),
        }
    }
}

/// The destination of converted numbers.
struct Target<'a, 'b> {
    big: bool,
    form: Form,
    into: &'a mut ViewMut<'b>,
}

impl Target<'_, '_> {
    /// Stores all numbers. `read` takes little-endian bytes.
    fn fill<const N: usize>(
        self,
        bytes: &[u8],
        read: impl Fn([u8; N]) -> Number,
    ) -> Result<(), ConversionError> {
        let read = |bytes: &[u8; N]| {
            let mut bytes = *bytes;
            if self.big {
                bytes.reverse();
            }
            read(bytes)
        };
        let numbers = bytes.as_chunks().0.iter().map(read).enumerate();
        let at = |place: usize| move |message| ConversionError { place, message };
        match (self.into, self.form) {
            (ViewMut::F32(into), Form::Numbers { scale }) => {
                for ((place, number), to) in numbers.zip(into.iter_mut()) {
                    *to = scaled(number, scale).map_err(at(place))?;
                }
            }
            (ViewMut::I32(into), Form::Integers) => {
                for ((place, number), to) in numbers.zip(into.iter_mut()) {
                    *to = whole(number).map_err(at(place))?;
                }
            }
            (ViewMut::I32(into), Form::Labels { n_classes }) => {
                for ((place, number), to) in numbers.zip(into.iter_mut()) {
                    *to = label(number, n_classes).map_err(at(place))?;
                }
            }
            (ViewMut::F32(_), Form::Integers | Form::Labels { .. })
            | (ViewMut::I32(_), Form::Numbers { .. }) => {
                unreachable!("the column has the type of its form")
            }
        }
        Ok(())
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "rounded to the precision of columns"
)]
fn scaled(number: Number, scale: f32) -> Result<f32, String> {
    let value = match number {
        Number::Whole(number) => number as f32,
        Number::Natural(number) => number as f32,
        Number::Real(number) => number as f32,
    };
    let scaled = value * scale;
    if scaled.is_finite() && scale != 0.0 {
        return Ok(scaled);
    }
    check_scale(scale)?;
    Err(number.is_not("a finite number"))
}

/// Checks the factor of a column, by which nothing must be lost.
pub(super) fn check_scale(scale: f32) -> Result<(), String> {
    match scale.is_finite() && scale != 0.0 {
        true => Ok(()),
        false => Err(format!("`scale` must be a finite number other than 0, found {scale}")),
    }
}

fn whole(number: Number) -> Result<i32, String> {
    let whole = match number {
        Number::Whole(number) => i32::try_from(number).ok(),
        Number::Natural(number) => i32::try_from(number).ok(),
        Number::Real(_) => None,
    };
    whole.ok_or_else(|| number.is_not("an integer of 32 bits"))
}

fn label(number: Number, n_classes: usize) -> Result<i32, String> {
    let is_label = |it: &i32| usize::try_from(*it).is_ok_and(|label| label < n_classes);
    let label = whole(number).ok().filter(is_label);
    label.ok_or_else(|| number.is_not(&format!("a label in 0..{n_classes}")))
}

impl Number {
    /// Says what was expected instead.
    fn is_not(self, expected: &str) -> String {
        match self {
            Self::Whole(number) => format!("expected {expected}, found {number}"),
            Self::Natural(number) => format!("expected {expected}, found {number}"),
            Self::Real(number) => format!("expected {expected}, found {number:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_naturals_are_numbers_but_no_integers_of_32_bits() {
        let (element, bytes) = (Element::little(ElementKind::U64), u64::MAX.to_le_bytes());
        let numbers = element.values(&bytes, Form::Numbers { scale: 0.5 });
        assert_eq!(numbers, Ok(Values::F32(vec![2_f32.powi(63)])));
        let message = "expected an integer of 32 bits, found 18446744073709551615".to_owned();
        assert_eq!(
            element.values(&bytes, Form::Integers),
            Err(ConversionError { place: 0, message })
        );
    }
}
