//! The generated items: `Batch`, `Network`, `Trainer` or `Predictor`, and the program behind them.
//!
//! They are written as text and parsed once, because rustc's lexer is much faster than an
//! unoptimized macro that builds tokens one by one.

use std::path::Path;

use proc_macro2::TokenStream;
use quote::quote;
use soybean_plan::{DType, Mode};
use syn::Visibility;

use crate::{
    attribute::{Attribute, FORWARD},
    emit,
    evaluate::tensor::Assertion,
    expand::{Input, Success},
    item::{Form, Model, batch_name, runner},
    source_text::whole_text,
};

/// A constant by which cargo rebuilds the crate when the variable changes.
const TRACKED: &str = "const _: ::core::option::Option<&::core::primitive::str> = ::core::option_env!(\"SOYBEAN_GPUS\");\n";

/// Returns the user's item with the items generated for it.
pub(crate) fn expansion(model: &Model, attribute: &Attribute, success: &Success) -> TokenStream {
    let gpus = match success.compiled.report.n_gpus() {
        1 => "1 GPU".to_owned(),
        n_gpus => format!("{n_gpus} GPUs"),
    };
    let mode = success.compiled.report.mode();
    let mut module = interface(model, &success.inputs, mode, &gpus);
    module.push_str(&program(success));
    let path = path(model);
    let network = network(
        model,
        &format!("{path}__program::PLAN"),
        &format!("&{path}__program::Generated"),
        &forward(model, &success.inputs),
    );
    let mut inside = assertions(&success.assertions);
    inside.extend(watched(success.cluster_file.as_deref()));
    inside.extend(attribute.computed().map(|it| quote! { const _: () = { let _ = #it; }; }));
    inside.extend(tokens(&module));
    assemble(model, model.eager(TokenStream::new()), inside, tokens(&network))
}

/// Returns a constant by which cargo rebuilds the crate when the cluster's file changes.
pub(crate) fn watched(file: Option<&str>) -> TokenStream {
    let Some(file) = file else { return TokenStream::new() };
    let path = match Path::new(file).is_absolute() {
        true => quote!(#file),
        false => quote!(::core::concat!(::core::env!("CARGO_MANIFEST_DIR"), "/", #file)),
    };
    quote!(
        const _: &[::core::primitive::u8] = ::core::include_bytes!(#path);
    )
}

/// Returns the module with the program.
pub(crate) fn program(success: &Success) -> String {
    let mut module =
        "#[doc(hidden)]\n#[allow(clippy::all, clippy::pedantic, clippy::nursery)]\n".to_owned();
    module.push_str("pub(crate) mod __program {\n");
    emit::program(&mut module, &success.compiled, &success.recipe);
    module.push_str("}\n");
    module
}

/// Returns the path from the model to the module of generated items, with `::` at its end.
pub(crate) fn path(model: &Model) -> String {
    match model.form {
        Form::Function(_) => format!("{}::", model.name()),
        Form::Module(_) => String::new(),
    }
}

/// Adds generated items to the model's module, or for a function to a module beside it.
pub(crate) fn assemble(
    model: &Model,
    item: TokenStream,
    inside: TokenStream,
    network: TokenStream,
) -> TokenStream {
    match &model.form {
        Form::Module(_) => model.eager(quote!(#inside #network)),
        Form::Function(function) => {
            let (name, visibility) = (&function.sig.ident, &function.vis);
            let doc = format!("What is generated for the model `{name}`.");
            quote! {
                #item
                #[doc = #doc]
                #visibility mod #name { #inside }
                #network
            }
        }
    }
}

/// Parses text as tokens of the user's crate.
pub(crate) fn tokens(text: &str) -> TokenStream {
    const REASON: &str = "generated text is made of tokens";
    // Within a macro, `proc_macro2` would lex the text by itself before rustc does.
    if proc_macro::is_available() {
        return text.parse::<proc_macro::TokenStream>().expect(REASON).into();
    }
    text.parse().expect(REASON)
}

/// Returns the batches of all entries, `Network`, and `Trainer`, or `Predictor` in inference.
pub(crate) fn interface(model: &Model, inputs: &[Vec<Input>], mode: Mode, gpus: &str) -> String {
    let (name, visibility) = (model.name(), visibility(model));
    let mut text = format!("{TRACKED}\n");
    for (number, (entry, inputs)) in model.entry_names.iter().zip(inputs).enumerate() {
        batch(model, mode, (number, entry, inputs), &mut text);
    }
    let runner = runner(mode);
    let verb = match mode {
        Mode::Training => "Trains",
        Mode::Inference => "Runs",
    };
    text + &format!(
        r#"/// The model `{name}`, compiled for {gpus}.
#[derive(::core::fmt::Debug)]
{visibility} enum Network {{}}
/// {verb} the model `{name}` by its plan for {gpus}.
{visibility} type {runner} = ::soybean::{runner}<Network>;
"#
    )
}

/// Appends the type of an entry's batches, given the entry's number, name and arguments.
fn batch(model: &Model, mode: Mode, entry: (usize, &str, &[Input]), text: &mut String) {
    let (name, visibility) = (model.name(), visibility(model));
    let (number, entry, inputs) = entry;
    let mut fields = String::new();
    for input in inputs {
        let (field, element) = (&input.name, input.dtype.name());
        let shape = input.shape.map_or_else(String::new, |shape| format!(" is {shape}"));
        fields.push_str(&format!(
            "/// `{field}`{shape}, row by row.\npub {field}: &'a [::core::primitive::{element}],\n"
        ));
    }
    if inputs.is_empty() {
        fields.push_str("_nothing: ::core::marker::PhantomData<&'a ()>,\n");
    }
    let unit = match mode {
        Mode::Training => "step",
        Mode::Inference => "prediction",
    };
    let by = if entry == FORWARD { String::new() } else { format!(" by its entry `{entry}`") };
    let type_name = batch_name(entry);
    let views: Vec<_> = inputs.iter().map(view).collect();
    let views = views.join(", ");
    text.push_str(&format!(
        r#"/// The tensors of one {unit} of the model `{name}`{by}. Predictions do not read those on which no
/// output depends, such as labels; leave them out with `..Default::default()`.
#[derive(::core::clone::Clone, ::core::marker::Copy, ::core::fmt::Debug, ::core::default::Default)]
{visibility} struct {type_name}<'a> {{
{fields}}}
impl ::soybean::Batch<Network> for {type_name}<'_> {{
    const ENTRY: ::core::primitive::usize = {number};
    fn with_views<R>(&self, use_views: impl ::core::ops::FnOnce(&[::soybean::runtime::View<'_>]) -> ::core::result::Result<R, ::soybean::Error>) -> ::core::result::Result<R, ::soybean::Error> {{
        use_views(&[{views}])
    }}
}}
"#
    ));
}

fn view(input: &Input) -> String {
    let variant = match input.dtype {
        DType::F32 | DType::Bf16 => "F32",
        DType::I32 => "I32",
    };
    format!("::soybean::runtime::View::{variant}(self.{})", input.name)
}

/// Returns the implementation of a model's `Network`, with these expressions for its parts.
pub(crate) fn network(model: &Model, plan: &str, generated: &str, forward: &str) -> String {
    let path = path(model);
    let batch = batch_name(&model.entry_names[0]);
    format!(
        r#"impl ::soybean::Network for {path}Network {{
    const PLAN: ::soybean::plan::Plan = {plan};
    type Batch<'a> = {path}{batch}<'a>;
    fn model() -> &'static dyn ::soybean::runtime::Model {{
        {generated}
    }}
    #[allow(unused_variables)]
    fn forward(entry: ::core::primitive::usize, inputs: &[::soybean::Tensor]) -> ::std::vec::Vec<::soybean::Tensor> {{
        {forward}
    }}
}}
"#
    )
}

/// Returns the parts of a model's `Network` as items of a type.
pub(crate) fn parts(forward: &str) -> String {
    format!(
        r#"pub(crate) const __PLAN: ::soybean::plan::Plan = __program::PLAN;
pub(crate) fn __program() -> &'static dyn ::soybean::runtime::Model {{
    &__program::Generated
}}
#[allow(unused_variables)]
pub(crate) fn __forward(entry: ::core::primitive::usize, inputs: &[::soybean::Tensor]) -> ::std::vec::Vec<::soybean::Tensor> {{
    {forward}
}}
"#
    )
}

/// Returns calls of the user's entries on eager tensors.
pub(crate) fn forward(model: &Model, inputs: &[Vec<Input>]) -> String {
    let call = |(number, ((entry, _), inputs)): (usize, ((&str, _), &Vec<Input>))| {
        let function = match model.form {
            Form::Function(_) => model.name().to_string(),
            Form::Module(_) => entry.to_owned(),
        };
        let arguments: Vec<_> = (0..inputs.len()).map(|index| format!("inputs[{index}]")).collect();
        let arguments = arguments.join(", ");
        format!("{number} => ::soybean::Outputs::into_tensors({function}({arguments})),\n")
    };
    let calls: String = model.entries().zip(inputs).enumerate().map(call).collect();
    format!("match entry {{\n{calls}_ => ::core::unreachable!(\"no such entry\"),\n}}")
}

/// Returns the visibility of generated items: the model's own, seen from within its module.
fn visibility(model: &Model) -> String {
    match (&model.form, model.visibility()) {
        (_, Visibility::Public(_)) => "pub".to_owned(),
        (Form::Module(_), visibility) => whole_text(visibility),
        (Form::Function(_), Visibility::Inherited) => "pub(super)".to_owned(),
        (Form::Function(_), Visibility::Restricted(_)) => "pub(crate)".to_owned(),
    }
}

/// Returns assertions by which rustc checks the values that the macro computed for the user's dims.
pub(crate) fn assertions(assertions: &[Assertion]) -> TokenStream {
    let mut seen = std::collections::BTreeSet::new();
    let mut tokens = TokenStream::new();
    for Assertion { dim, extent } in assertions {
        if seen.insert(dim.to_string()) {
            let message = format!("the macro took this dim to be {extent}");
            tokens.extend(quote! { const _: () = ::core::assert!(#dim == #extent, #message); });
        }
    }
    tokens
}
