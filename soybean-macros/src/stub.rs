//! Stubs: types in place of the generated ones, for models with errors and for editors.
//!
//! They avoid further errors in the rest of the user's crate.

use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, quote};
use soybean_plan::{DType, Mode};
use syn::{FnArg, Item, ItemConst, ItemFn, Pat, Visibility};

use crate::{
    attribute::mode_of,
    erase::erase_dims,
    evaluate::Evaluator,
    expand::Input,
    generate, imports,
    item::{Form, Model, arguments},
    prelude, recovery,
    tensor_type::TensorType,
};

/// Writes the plan of no program.
pub(crate) fn plan(mode: Mode) -> String {
    format!(
        r#"::soybean::plan::Plan {{
    mode: ::soybean::plan::Mode::{mode:?}, n_gpus: 1, strategy: "", is_optimal: false, bytes_total: 0, accumulate: 1, accumulate_bytes: 0, peak_memory_bytes_per_gpu: 0, text: "", summary: "", recipe: "",
}}"#
    )
}

/// Returns the arguments of each entry as far as their tokens tell.
pub(crate) fn inputs(model: &Model) -> Vec<Vec<Input>> {
    let input = |input: &syn::PatType| {
        let Pat::Ident(pattern) = &*input.pat else { return None };
        let dtype = TensorType::of(&input.ty).and_then(|it| it.dtype.ok()).unwrap_or(DType::F32);
        Some(Input::without_value(pattern.ident.clone(), dtype))
    };
    let inputs = |it: &ItemFn| arguments(it).filter_map(input).collect();
    model.named_entries().map(|(_, it)| it.map_or_else(Vec::new, inputs)).collect()
}

/// Returns the user's item unchanged, and types without a program.
pub(crate) fn for_editor(model: &Model, inputs: &[Vec<Input>], mode: Mode) -> TokenStream {
    let (inside, network) = generated(model, inputs, mode);
    generate::assemble(model, model.eager(TokenStream::new()), inside, network)
}

/// Returns the errors, and the user's item without the bodies that would show them again.
pub(crate) fn for_faults(
    model: &Model,
    attribute: &TokenStream,
    evaluator: &Evaluator<'_>,
) -> TokenStream {
    let mode = mode_of(attribute);
    let mut errors = evaluator.diagnostics.to_compile_errors();
    errors.extend(left_to_rustc(evaluator));
    let (inside, network) = generated(model, &inputs(model), mode);
    match &model.form {
        Form::Function(function) => {
            let item = without_body(&with_tensors(function));
            let expansion = generate::assemble(model, item, inside, network);
            let used = imports::used_in(quote!(#attribute #function));
            quote!(#errors #used #expansion)
        }
        Form::Module(module) => {
            let (attributes, visibility, name) = (&module.attrs, &module.vis, &module.ident);
            // Without the prelude, each signature would be one more error.
            let prelude = prelude::lacking(module).map(|_| {
                quote!(
                    use ::soybean::prelude::*;
                )
            });
            let is_reported = errors_are_ours(evaluator);
            let items = model.items().iter().filter(|it| !is_reported || !is_of_bodies(model, it));
            let items = items.filter_map(|item| without_fault(model, item, mode));
            quote! {
                #errors
                #(#attributes)*
                #[allow(unused, unreachable_pub)]
                #visibility mod #name { #prelude #(#items)* #inside #network }
            }
        }
    }
}

/// Returns whether the macro reports all errors, so that rustc need not see what it would refuse.
fn errors_are_ours(evaluator: &Evaluator<'_>) -> bool {
    !evaluator.diagnostics.is_empty() && evaluator.left_to_rustc.is_none()
}

/// Returns whether an item is a private const that bodies alone read, which are left out. rustc
/// would compute it, however large it is.
fn is_of_bodies(model: &Model, item: &Item) -> bool {
    let Item::Const(constant) = item else { return false };
    let is_needed = |other: &Item| match other {
        Item::Fn(it) if it.sig.constness.is_none() => {
            names(erase_dims(it.sig.to_token_stream()), constant)
        }
        Item::Macro(_) => false,
        other => !std::ptr::eq(other, item) && names(other.to_token_stream(), constant),
    };
    matches!(constant.vis, Visibility::Inherited) && !model.items().iter().any(is_needed)
}

fn names(tokens: TokenStream, constant: &ItemConst) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(it) => it == constant.ident,
        TokenTree::Group(it) => names(it.stream(), constant),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

/// Returns an error that only shows if rustc does not report those that the macro leaves to it.
pub(crate) fn left_to_rustc(evaluator: &Evaluator<'_>) -> Option<TokenStream> {
    let error = evaluator.left_to_rustc.as_ref()?;
    Some(recovery::unread(error.span(), &error.to_string()))
}

fn generated(model: &Model, inputs: &[Vec<Input>], mode: Mode) -> (TokenStream, TokenStream) {
    let inside = generate::interface(model, inputs, mode, "no GPUs");
    let network =
        generate::network(model, &plan(mode), "::core::unreachable!()", "::core::unreachable!()");
    (generate::tokens(&inside), generate::tokens(&network))
}

/// Returns the part of the item that compiles without further errors.
fn without_fault(model: &Model, item: &Item, mode: Mode) -> Option<TokenStream> {
    match item {
        // Consts may call it. rustc reports its errors.
        Item::Fn(it) if it.sig.constness.is_some() => Some(it.to_token_stream()),
        Item::Fn(it) if model.entries().any(|(_, entry)| std::ptr::eq(entry, it)) => {
            Some(without_body(&with_tensors(it)))
        }
        Item::Fn(it) => Some(without_body(it)),
        Item::Macro(_) => None,
        other if model.generated_name(other, mode).is_some() => None,
        other => Some(erase_dims(quote!(#other))),
    }
}

/// Returns an entry all of whose arguments are tensors. The macro has reported those that are not.
fn with_tensors(function: &ItemFn) -> ItemFn {
    let mut function = function.clone();
    for input in &mut function.sig.inputs {
        if let FnArg::Typed(it) = input
            && TensorType::of(&it.ty).is_none()
        {
            *it.ty = syn::parse_quote!(::soybean::Tensor);
        }
    }
    function
}

/// Returns the function with its signature only.
pub(crate) fn without_body(function: &ItemFn) -> TokenStream {
    let (visibility, signature) = (&function.vis, &function.sig);
    let signature = erase_dims(quote!(#visibility #signature));
    quote! { #[allow(unused, clippy::all)] #signature { ::core::unreachable!() } }
}
