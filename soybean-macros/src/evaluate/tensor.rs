//! Dims in types: those of the model's inputs, and checks of other tensors.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use soybean_compiler::check_extents;
use soybean_plan::{DType, MAX_RANK, Shape};
use syn::{Expr, GenericArgument, Lit, PatType, Type};

use crate::{
    diagnostic::Diagnostic, evaluate::Evaluator, item::dims_help, source_text::whole_text,
    tensor_type::TensorType, value::Value,
};

/// A dim that the user wrote, with the value that the macro computed.
pub(crate) struct Assertion {
    pub(crate) dim: TokenStream,
    pub(crate) extent: usize,
}

impl<'a> Evaluator<'a> {
    /// Returns the dtype and shape of an argument of `forward`.
    pub(crate) fn input(&mut self, input: &'a PatType) -> Option<(DType, Shape)> {
        let name = whole_text(&input.pat);
        let help = dims_help(&name);
        let ty = TensorType::of(&input.ty)?;
        if ty.is_bare {
            let headline = format!("the shape of the model's argument `{name}` is not known");
            let help = format!("{help}; `Tensor<f32>` is a scalar");
            self.report(&input.ty, Diagnostic::new(headline).help(help));
            return None;
        }
        self.dtype_and_shape(&input.ty, &ty)
    }

    /// Checks that a tensor has the dims of its type. rustc checks other types.
    pub(super) fn has_type(&mut self, value: &Value<'a>, ty: &'a Type, at: &dyn ToTokens) -> bool {
        match (value, ty) {
            (Value::Tuple(members), Type::Tuple(types)) if members.len() == types.elems.len() => {
                let results: Vec<_> = members
                    .iter()
                    .zip(&types.elems)
                    .map(|(member, ty)| self.has_type(member, ty, at))
                    .collect();
                results.into_iter().all(|it| it)
            }
            (Value::Tensor(tensor), _) => match TensorType::of(ty) {
                Some(parts) if !parts.dims.is_empty() => self.has_dims(*tensor, ty, &parts, at),
                _ => true,
            },
            _ => true,
        }
    }

    fn has_dims(
        &mut self,
        tensor: soybean_compiler::Value,
        ty: &'a Type,
        parts: &TensorType<'a>,
        at: &dyn ToTokens,
    ) -> bool {
        let Some((dtype, shape)) = self.dtype_and_shape(ty, parts) else { return true };
        let (found_dtype, found_shape) = (self.builder.dtype(tensor), self.builder.shape(tensor));
        if (found_dtype, found_shape) == (dtype, shape) {
            return true;
        }
        let headline = format!(
            "the type says {dtype} {shape}, but this tensor is {found_dtype} {found_shape}"
        );
        self.report(at, Diagnostic::new(headline).note("type", format!("`{}`", whole_text(ty))));
        false
    }

    /// Returns whether a tensor has the dtype and the dims of its type.
    pub(super) fn fits(
        &mut self,
        tensor: soybean_compiler::Value,
        ty: &'a Type,
        parts: &TensorType<'a>,
    ) -> bool {
        let found = (self.builder.dtype(tensor), self.builder.shape(tensor));
        self.dtype_and_shape(ty, parts).is_none_or(|it| it == found)
    }

    pub(super) fn dtype_and_shape(
        &mut self,
        ty: &'a Type,
        parts: &TensorType<'a>,
    ) -> Option<(DType, Shape)> {
        Some((self.dtype(parts)?, self.shape_of(ty, parts)?))
    }

    fn dtype(&mut self, ty: &TensorType<'a>) -> Option<DType> {
        match ty.dtype {
            Ok(dtype) => Some(dtype),
            Err(argument) => {
                let headline = format!("tensors are of f32 or i32, found {}", whole_text(argument));
                self.report(argument, headline);
                None
            }
        }
    }

    fn shape_of(&mut self, at: &'a Type, ty: &TensorType<'a>) -> Option<Shape> {
        let n_dims = ty.dims.len();
        if n_dims > MAX_RANK {
            self.report(at, format!("a tensor has at most {MAX_RANK} dims, found {n_dims}"));
            return None;
        }
        let extents: Vec<_> = ty.dims.iter().map(|it| self.dim_argument(it)).collect();
        let extents = extents.into_iter().collect::<Option<Vec<_>>>()?;
        self.is_possible(at, &extents).then(|| Shape::new(&extents))
    }

    /// Checks that a tensor with these extents is not too large.
    pub(super) fn is_possible(&mut self, at: &dyn ToTokens, extents: &[usize]) -> bool {
        let checked = check_extents(extents);
        checked.map_err(|message| self.report(at, message)).is_ok()
    }

    fn dim_argument(&mut self, argument: &'a GenericArgument) -> Option<usize> {
        let path = match argument {
            GenericArgument::Type(ty) => as_path(ty),
            _ => None,
        };
        let value = match (path, argument) {
            (Some(path), _) => self.path(path),
            (None, GenericArgument::Const(expression)) => self.value(expression),
            (None, other) => {
                self.report(
                    other,
                    Diagnostic::new("expected a dim")
                        .help("a dim is a number, a const, or `{ an expression }` of them"),
                );
                return None;
            }
        };
        let extent = self.dim(argument, &value)?;
        if self.frame().items.is_root() && !is_literal(argument) {
            self.assertions.push(Assertion { dim: quote!(#argument), extent });
        }
        Some(extent)
    }

    /// Converts the value to the extent of a dim.
    pub(super) fn dim(&mut self, at: &dyn ToTokens, value: &Value<'a>) -> Option<usize> {
        let found = match value {
            Value::Poison => return None,
            Value::Integer(extent) => match usize::try_from(*extent) {
                Ok(extent) if extent > 0 => return Some(extent),
                _ => extent.to_string(),
            },
            other => other.kind().to_owned(),
        };
        let headline = format!(
            "a dim must be a positive integer that is known when the model is built, found {found}"
        );
        self.report(at, headline);
        None
    }
}

/// Returns the const of a dim, which parses as a type.
fn as_path(ty: &Type) -> Option<&syn::Path> {
    match ty {
        Type::Path(it) => Some(&it.path).filter(|_| it.qself.is_none()),
        Type::Group(it) => as_path(&it.elem),
        _ => None,
    }
}

fn is_literal(argument: &GenericArgument) -> bool {
    matches!(argument, GenericArgument::Const(Expr::Lit(it)) if matches!(it.lit, Lit::Int(_)))
}
