//! The expansion of models that use layers from elsewhere, in two halves: before and after the
//! relay.
//!
//! The first half emits the user's item in its place, before its errors are known. Its functions
//! call those of a type with the bodies, which the second half emits. It does not if there are
//! errors that rustc would report again, and it is not expanded if rustc cannot resolve a name.
//! Then the functions of a trait take their place, and the first half uses the imports that the
//! bodies would, so that the rest of the crate has no further errors or warnings.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote};
use soybean_plan::Mode;
use syn::{Attribute as Annotation, FnArg, Item, ItemFn, Safety, Signature};

use crate::{
    attribute::{Attribute, entries_of, mode_of},
    dependency::Dependency,
    erase::erase_dims,
    evaluate::Evaluator,
    expand::{self, Environment},
    generate, imports,
    item::{Form, Model},
    layers::Layers,
    relay::{self, Arrived, Stage, State, identity},
    stub,
};

/// Expands the first half: the user's item, and the call of the second half.
pub(crate) fn start(
    model: &Model,
    attribute: TokenStream,
    dependencies: &[Dependency],
    environment: &Environment,
) -> TokenStream {
    let id = identity(model.name(), &model.tokens);
    let bodies = bodies_name(&id);
    let mode = mode_of(&attribute);
    let bodies_of_model = functions(model).into_iter().map(ToTokens::to_token_stream);
    let used = imports::used_in(bodies_of_model.chain([attribute.clone()]).collect());
    let state = State { stage: Stage::Model, attribute, item: model.tokens.clone(), id };
    let chain = relay::beside_model(dependencies, &state, &environment.manifest);
    let gpus = "the GPUs that it is declared for";
    let mut inside = generate::interface(model, &stub::inputs(model), mode, gpus);
    let network = generate::network(
        model,
        &format!("{bodies}::__PLAN"),
        &format!("{bodies}::__program()"),
        &format!("{bodies}::__forward(entry, inputs)"),
    );
    let substitutes = substitutes(model, &bodies, mode);
    let network = generate::tokens(&network);
    let beside = quote! {
        #[doc(hidden)]
        #[allow(non_camel_case_types, dead_code)]
        enum #bodies {}
        #substitutes
        #network
        #used
        #chain
    };
    inside.push('\n');
    let inside = generate::tokens(&inside);
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

/// Expands the second half: the generated items, or the errors. Returns the number of the item's
/// modules around it, too.
pub(crate) fn arrived(arrived: Arrived, environment: &Environment) -> (TokenStream, usize) {
    let Arrived { state, bundles } = arrived;
    let model = match Model::parse(state.item, entries_of(&state.attribute)) {
        Ok(model) => model,
        Err(error) => return (error.to_compile_error(), 0),
    };
    let n_modules = match &model.form {
        Form::Function(_) => 0,
        Form::Module(_) => 1,
    };
    let dependencies = model.dependencies();
    let layers = Layers::new(&dependencies, bundles);
    let mut evaluator = Evaluator::new(model.items(), &layers);
    let attribute = Attribute::parse(state.attribute, &mut evaluator.diagnostics);
    let bodies = bodies_name(&state.id);
    let functions = functions(&model);
    let Some(success) = expand::build(&model, &attribute, environment, &mut evaluator) else {
        let errors = evaluator.diagnostics.to_compile_errors();
        let left = stub::left_to_rustc(&evaluator);
        let unmarked = unmarked(&evaluator.unmarked, &dependencies);
        return (quote!(#errors #unmarked #left), n_modules);
    };
    let program = generate::tokens(&generate::program(&success));
    let parts = generate::tokens(&generate::parts(&generate::forward(&model, &success.inputs)));
    let functions = functions.iter().map(|it| inner(it));
    let assertions = generate::assertions(&success.assertions);
    let constants = dependencies.iter().filter(|it| it.is_constant).map(|it| &it.path);
    let computed = attribute.computed();
    let watched = generate::watched(success.cluster_file.as_deref());
    let second = quote! {
        #program
        impl #bodies { #parts #(#functions)* }
        #assertions
        #watched
        #(#[allow(unused_qualifications)] const _: () = { let _ = #constants; };)*
        #(const _: () = { let _ = #computed; };)*
    };
    (second, n_modules)
}

/// Returns what rustc refuses with these messages, at the paths of items that are no layers. If a
/// path leads to nothing, rustc has reported that, and this is no further error.
fn unmarked(found: &[(String, String)], dependencies: &[Dependency]) -> TokenStream {
    let check = |(path, message): &(String, String)| {
        let index = dependencies.iter().position(|it| it.key == *path)?;
        let alias = relay::alias(index, &dependencies[index]);
        let message = message.replace('{', "{{").replace('}', "}}");
        Some(quote! {
            const _: fn() = || {
                #[diagnostic::on_unimplemented(message = #message, label = "not known to the macro")]
                trait Marked {}
                fn is_marked<T: Marked>(_: T) {}
                is_marked(#alias)
            };
        })
    };
    found.iter().filter_map(check).collect()
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
/// functions are not part of the model language, or are called by consts.
fn can_wait(function: &ItemFn) -> bool {
    let signature = &function.sig;
    let is_plain = signature.generics.params.is_empty() && signature.asyncness.is_none();
    is_plain
        && signature.constness.is_none()
        && signature.abi.is_none()
        && !matches!(signature.safety, Safety::Unsafe(_))
}

/// Returns the functions and consts of the type of bodies that take the place of those that the
/// second half does not emit. Those of the type itself go before them.
fn substitutes(model: &Model, bodies: &Ident, mode: Mode) -> TokenStream {
    let trait_name = format_ident!("{bodies}Substitutes");
    let plan = generate::tokens(&stub::plan(mode));
    let signatures = functions(model).into_iter().map(|it| {
        let (signature, _) = with_names(it);
        erase_dims(quote!(#signature { ::core::unreachable!() }))
    });
    quote! {
        #[doc(hidden)]
        #[allow(warnings)]
        trait #trait_name {
            const __PLAN: ::soybean::plan::Plan = #plan;
            fn __program() -> &'static dyn ::soybean::runtime::Model { ::core::unreachable!() }
            fn __forward(_: ::core::primitive::usize, _: &[::soybean::Tensor]) -> ::std::vec::Vec<::soybean::Tensor> {
                ::core::unreachable!()
            }
            #(#signatures)*
        }
        impl #trait_name for #bodies {}
    }
}

/// Returns the signature with a name for each parameter, and the names.
fn with_names(function: &ItemFn) -> (Signature, Vec<Ident>) {
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
    (signature, names)
}

/// Returns the function that others call, which calls the one with the body.
fn outer(function: &ItemFn, bodies: &Ident) -> TokenStream {
    let (signature, names) = with_names(function);
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
