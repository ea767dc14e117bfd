//! Types of tensors: `Tensor<dtype, d0, d1, ..>`. Dims can be omitted, and so can the dtype `f32`.
//! An input of a model with a dtype alone is a scalar.

use soybean_plan::DType;
use syn::{GenericArgument, PathArguments, Type};

/// Number types of Rust and of accelerators that tensors cannot have. They are not mistaken for
/// dims.
const OTHER_DTYPES: [&str; 16] = [
    "f64", "f16", "bf16", "f128", "i8", "i16", "i64", "i128", "isize", "u8", "u16", "u32", "u64",
    "u128", "usize", "bool",
];

/// A type `Tensor<..>` as the user wrote it.
pub(crate) struct TensorType<'a> {
    pub(crate) dtype: Result<DType, &'a GenericArgument>,
    pub(crate) dims: Vec<&'a GenericArgument>,
    /// True for `Tensor` without type and dims.
    pub(crate) is_bare: bool,
}

impl<'a> TensorType<'a> {
    /// Returns the parts of `ty`, or `None` if it is another type.
    pub(crate) fn of(ty: &'a Type) -> Option<Self> {
        let path = match ty {
            Type::Path(path) => path,
            Type::Group(group) => return Self::of(&group.elem),
            Type::Paren(paren) => return Self::of(&paren.elem),
            _ => return None,
        };
        let segment = path.path.segments.last().filter(|it| it.ident == "Tensor")?;
        let mut dims: Vec<_> = match &segment.arguments {
            PathArguments::AngleBracketed(arguments) => arguments.args.iter().collect(),
            _ => Vec::new(),
        };
        let is_bare = dims.is_empty();
        let dtype = dims.first().and_then(|it| dtype(it));
        if dtype.is_some() {
            dims.remove(0);
        }
        Some(Self { dtype: dtype.unwrap_or(Ok(DType::F32)), dims, is_bare })
    }
}

/// Returns the dtype that an argument names, or `None` if it is a dim.
fn dtype(argument: &GenericArgument) -> Option<Result<DType, &GenericArgument>> {
    let GenericArgument::Type(Type::Path(path)) = argument else { return None };
    let name = path.path.get_ident()?.to_string();
    match name.as_str() {
        "f32" => Some(Ok(DType::F32)),
        "i32" => Some(Ok(DType::I32)),
        other => OTHER_DTYPES.contains(&other).then_some(Err(argument)),
    }
}
