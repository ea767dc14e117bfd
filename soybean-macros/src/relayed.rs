//! The expansion of models that use layers from elsewhere, in two halves: before and after the
//! relay.
//!
//! The first half emits the user's item in its place, before its errors are known. The second half
//! emits the bodies of its functions, unless there are errors that rustc would report again.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::{Attribute as Annotation, FnArg, Item, ItemFn, Safety};

use crate::{
    attribute::{Attribute, entries_of, mode_of},
    dependency::Dependency,
    erase::erase_dims,
    evaluate::Evaluator,
    expand::{self, Environment},
    generate, imports,
    item::{Form, Model},
    layers::{Layers, Link},
    relay::{self, Arrived, Stage, State, identity},
    stub,
};

/// Expands the first half: the user's item, and the call of the second half.
pub(crate) fn start(
    model: &Model,
    attribute: TokenStream,
    dependencies: &[Dependency],
) -> TokenStream {
    let id = identity(model.name(), &model.tokens);
    let bodies = bodies_name(&id);
    let mode = mode_of(&attribute);
    let state = State { stage: Stage::Model, attribute, item: model.tokens.clone(), id };
    let chain = relay::beside_model(dependencies, &state);
    let gpus = "the GPUs that it is declared for";
    let inside = generate::interface(model, &stub::inputs(model), mode, gpus);
    let inside = generate::tokens(&inside);
    let beside = quote! {
        #[doc(hidden)]
        #[allow(non_camel_case_types, dead_code)]
        enum #bodies {}
        #chain
    };
    match &model.form {
        Form::Function(function) => {
            let item = erase_dims(outer(function, &bodies));
            generate::assemble(model, item, inside, beside)
        }
        Form::Module(module) => {
            let mut module = module.clone();
            for item in module.content.iter_mut().flat_map(|(_, items)| items) {
                if let Item::Fn(it) = item
                    && can_wait(it)
                {
                    *item = Item::Verbatim(outer(it, &bodies));
                }
            }
            model.eager_of(quote!(#module), quote!(#inside #beside))
        }
    }
}

/// Expands the second half: the generated items, or the errors.
pub(crate) fn arrived(arrived: Arrived, environment: &Environment) -> TokenStream {
    let Arrived { state, bundles } = arrived;
    let model = match Model::parse(state.item, entries_of(&state.attribute)) {
        Ok(model) => model,
        Err(error) => return error.to_compile_error(),
    };
    let dependencies = model.dependencies();
    let layers = Layers::new(&dependencies, bundles);
    let mut evaluator = Evaluator::new(model.items(), &layers);
    let attribute = Attribute::parse(state.attribute, &mut evaluator.diagnostics);
    let bodies = bodies_name(&state.id);
    let functions = functions(&model);
    let Some(success) = expand::build(&model, &attribute, environment, &mut evaluator) else {
        let whole = functions.iter().map(|it| it.to_token_stream()).collect();
        let errors = imports::used_beside(&evaluator.diagnostics.to_compile_errors(), whole);
        let unreachable = "::core::unreachable!()";
        let network =
            generate::network(&model, &stub::plan(attribute.mode), unreachable, unreachable);
        let network = generate::tokens(&network);
        let functions = functions.iter().map(|it| stub::without_body(&seen_outside(it)));
        let is_layer = |it: &&Dependency| matches!(layers.links[&it.key], Link::To(_));
        let used = dependencies.iter().filter(is_layer).map(|it| &it.path);
        return quote! {
            #errors
            #network
            impl #bodies { #(#functions)* }
            #(#[allow(unused_qualifications)] const _: () = { let _ = #used; };)*
        };
    };
    let program = generate::tokens(&generate::program(&success));
    let network = generate::tokens(&generate::network(
        &model,
        "__program::PLAN",
        "&__program::Generated",
        &generate::forward(&model, &success.inputs),
    ));
    let functions = functions.iter().map(|it| inner(it));
    let assertions = generate::assertions(&success.assertions);
    let constants = dependencies.iter().filter(|it| it.is_constant).map(|it| &it.path);
    let computed = attribute.computed();
    let watched = generate::watched(success.cluster_file.as_deref());
    quote! {
        #program
        #network
        impl #bodies { #(#functions)* }
        #assertions
        #watched
        #(#[allow(unused_qualifications)] const _: () = { let _ = #constants; };)*
        #(const _: () = { let _ = #computed; };)*
    }
}

fn bodies_name(id: &str) -> Ident {
    format_ident!("__Bodies_{id}")
}

/// Returns the functions whose bodies are emitted in the second half.
fn functions(model: &Model) -> Vec<&ItemFn> {
    match &model.form {
        Form::Function(it) => vec![it],
        Form::Module(_) => model.items().iter().filter_map(waiting).collect(),
    }
}

fn waiting(item: &Item) -> Option<&ItemFn> {
    match item {
        Item::Fn(it) if can_wait(it) => Some(it),
        _ => None,
    }
}

/// Returns whether a function can pass its arguments on to a function with its body. Other
/// functions are not part of the model language.
fn can_wait(function: &ItemFn) -> bool {
    let signature = &function.sig;
    let is_plain = signature.generics.params.is_empty() && signature.asyncness.is_none();
    is_plain && signature.abi.is_none() && !matches!(signature.safety, Safety::Unsafe(_))
}

/// Returns the function that others call, which calls the one with the body.
fn outer(function: &ItemFn, bodies: &Ident) -> TokenStream {
    let mut signature = function.sig.clone();
    let mut names = Vec::new();
    for (index, input) in signature.inputs.iter_mut().enumerate() {
        if let FnArg::Typed(it) = input {
            let name = match &*it.pat {
                syn::Pat::Ident(it) => it.ident.clone(),
                _ => format_ident!("argument_{index}"),
            };
            *it.pat = syn::Pat::Verbatim(quote!(#name));
            names.push(name);
        }
    }
    let (visibility, name) = (&function.vis, &signature.ident);
    let annotations = function.attrs.iter().filter(|it| !it.path().is_ident("expect"));
    quote!(#(#annotations)* #visibility #signature { #bodies::#name(#(#names),*) })
}

/// Returns the function with the body.
fn inner(function: &ItemFn) -> TokenStream {
    let mut inner = seen_outside(function);
    let is_inner = |it: &Annotation| !it.path().is_ident("doc") && !it.path().is_ident("must_use");
    inner.attrs.retain(is_inner);
    erase_dims(quote!(#inner))
}

/// Returns the function with a visibility for calls from outside of the blocks.
fn seen_outside(function: &ItemFn) -> ItemFn {
    ItemFn { vis: syn::parse_quote!(pub(crate)), ..function.clone() }
}
