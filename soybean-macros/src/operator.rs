//! `#[soybean::operator]`: a function for the CPU becomes an operator of models.
//!
//! The function itself gets a hidden name. Its own name is given to a function of eager tensors, to
//! a type with the operator's description, and to a macro. The macro passes on a *declaration*: a
//! function that carries the notation as an attribute, and whose body calls the gradient function.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote};
use soybean_plan::IndexNotation;
use syn::{
    Attribute as Annotation, FnArg, ItemFn, LitStr, Pat, Path, Token,
    ext::IdentExt,
    parse::{Parse, ParseStream},
};

use crate::{
    diagnostic::{Diagnostic, Diagnostics},
    expand::Environment,
    layer,
    relay::identity,
    source_text::whole_text,
    stub, suggestion,
};

/// The name of the attribute of declarations.
const DECLARATION: &str = "__custom";

/// The parameters of the body of a declaration besides the operands.
pub(crate) const RESULT: &str = "__result";
pub(crate) const GRADIENT: &str = "__gradient";

/// The arguments of the attribute.
struct Attribute {
    notation: LitStr,
    /// The function that computes gradients; `None` if no gradient flows through the operator.
    gradient: Option<Path>,
    cuda: Option<LitStr>,
}

impl Parse for Attribute {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        const EXPECTED: &str = "expected the operator in index notation: \"bk,jk->bj\"";
        let notation: LitStr =
            input.parse().map_err(|error| syn::Error::new(error.span(), EXPECTED))?;
        let (mut gradient, mut cuda) = (None, None);
        while !input.is_empty() {
            input.parse::<Token![,]>()?;
            if input.is_empty() {
                break;
            }
            let name = input.call(Ident::parse_any)?;
            input.parse::<Token![=]>()?;
            match name.to_string().as_str() {
                "gradient" => gradient = Some(input.parse::<Path>()?),
                "cuda" => cuda = Some(input.parse()?),
                "crate" => drop(input.parse::<Path>()?),
                other => {
                    let help = suggestion::help(other, "arguments", &["gradient", "cuda"]);
                    let message = format!("unknown argument `{other}`\n  help: {help}");
                    return Err(syn::Error::new(name.span(), message));
                }
            }
        }
        let Some(gradient) = gradient else {
            let message = "the operator needs its gradient: `gradient = function`, or `gradient = none` if none flows through it";
            return Err(syn::Error::new(notation.span(), message));
        };
        let gradient = Some(gradient).filter(|it| !it.is_ident("none"));
        Ok(Self { notation, gradient, cuda })
    }
}

/// Expands the attribute.
pub(crate) fn expand(
    attribute: TokenStream,
    tokens: TokenStream,
    environment: &Environment,
) -> TokenStream {
    let function = match syn::parse2::<ItemFn>(tokens.clone()) {
        Ok(function) => function,
        Err(_) if environment.is_editor => return tokens,
        Err(error) => {
            let error = match syn::parse2::<syn::Item>(tokens.clone()) {
                Ok(item) => {
                    let message = "`#[soybean::operator]` applies to functions";
                    syn::Error::new_spanned(item, message)
                }
                Err(_) => error,
            };
            let error = error.to_compile_error();
            return quote!(#error #tokens);
        }
    };
    let arguments = attribute.clone();
    let attribute = match syn::parse2::<Attribute>(attribute) {
        Ok(attribute) => attribute,
        Err(error) => {
            let (error, stub) = (error.to_compile_error(), stub(&function));
            return quote!(#error #stub);
        }
    };
    let mut diagnostics = Diagnostics::default();
    let Some(names) = checked(&function, &attribute, &mut diagnostics) else {
        let (errors, stub) = (diagnostics.to_compile_errors(), stub(&function));
        return quote!(#errors #stub);
    };
    let id = identity(&function.sig.ident, &tokens);
    let items = items(&function, &attribute, &names, &symbol(&id));
    if environment.is_editor {
        return items;
    }
    let declaration = declaration(&function, &attribute, &names, &symbol(&id));
    let relayed = layer::relayed(&function.sig.ident, &function.vis, id, declaration, arguments);
    quote!(#items #relayed)
}

/// Returns the operands' names, or reports what is wrong with the function or the attribute.
fn checked(
    function: &ItemFn,
    attribute: &Attribute,
    diagnostics: &mut Diagnostics,
) -> Option<Vec<Ident>> {
    let notation = match IndexNotation::parse(&attribute.notation.value()) {
        Ok(notation) => notation,
        Err(message) => {
            let message = Diagnostic::new(message)
                .help("the letters of the dims of each operand and of the result: \"bk,jk->bj\"");
            diagnostics.report(&attribute.notation, &message);
            return None;
        }
    };
    let signature = &function.sig;
    let n_operands = notation.operands().len();
    let (expected, found) = (n_operands + 1, signature.inputs.len());
    let is_generic = signature.generics.type_params().count() == 1
        && signature.generics.const_params().count() == 0;
    if !is_generic || expected != found {
        let headline = match is_generic {
            true => format!("the function takes {expected} tensors, found {found} parameters"),
            false => "the function is generic in the type of its numbers".to_owned(),
        };
        let operands = "_: TensorRef<'_, F>, ".repeat(n_operands);
        let name = &signature.ident;
        let help = format!("`fn {name}<F: Float>({operands}result: TensorMut<'_, F>)`");
        diagnostics.report(signature, &Diagnostic::new(headline).help(help));
        return None;
    }
    let mut names = Vec::new();
    for input in signature.inputs.iter().take(n_operands) {
        let name = match input {
            FnArg::Typed(it) => match &*it.pat {
                Pat::Ident(it) => Some(it.ident.clone()),
                _ => None,
            },
            FnArg::Receiver(_) => None,
        };
        let letter = |name: &Ident| notation.letters().iter().any(|it| name == &it.to_string());
        match name {
            Some(name) if letter(&name) => {
                let message = format!("`{name}` is both an operand and a dim");
                diagnostics.report(input, &message.into());
            }
            Some(name) => names.push(name),
            None => diagnostics.report(input, &"an operand is a name".into()),
        }
    }
    (names.len() == n_operands).then_some(names)
}

/// Returns a function of eager tensors with the operator's name, so that rustc does not report that
/// there is none.
fn stub(function: &ItemFn) -> TokenStream {
    let (visibility, name) = (&function.vis, &function.sig.ident);
    let id = identity(name, &function.to_token_stream());
    let operands = function.sig.inputs.iter().skip(1).map(|_| quote!(_: ::soybean::Tensor));
    let definition = layer::faulty(name, visibility, &id);
    // Its signature names what the user has imported for it.
    let mut kernel = function.clone();
    kernel.sig.ident = format_ident!("__{name}_kernel");
    let kernel = stub::without_body(&kernel);
    quote! {
        #[allow(dead_code)]
        #kernel
        #[allow(dead_code, unused_variables)]
        #visibility fn #name(#(#operands),*) -> ::soybean::Tensor { ::core::unreachable!() }
        #definition
    }
}

/// The beginning of the symbols of operators.
const SYMBOLS: &str = "__soybean_operator_";

/// Returns the symbol of the function for the CPU.
fn symbol(id: &str) -> Ident {
    format_ident!("{SYMBOLS}{id}")
}

/// Returns the items that the user's function becomes.
fn items(function: &ItemFn, attribute: &Attribute, names: &[Ident], symbol: &Ident) -> TokenStream {
    let (visibility, name) = (&function.vis, &function.sig.ident);
    let docs = function.attrs.iter().filter(|it| is_doc(it));
    let functions = functions(function, names.len(), symbol);
    let of_gradient =
        attribute.gradient.as_ref().map(|it| gradient_of_slice(name, it, names.len()));
    let description = description(function, attribute, names, symbol);
    quote! {
        #functions
        #of_gradient
        #(#docs)*
        #visibility fn #name(#(#names: ::soybean::Tensor),*) -> ::soybean::Tensor {
            #name::OPERATOR.call(&[#(#names),*])
        }
        #description
    }
}

fn is_doc(annotation: &Annotation) -> bool {
    annotation.path().is_ident("doc")
}

fn in_f64(name: &Ident) -> Ident {
    format_ident!("__{name}_in_f64")
}

fn gradient_name(name: &Ident) -> Ident {
    format_ident!("__{name}_gradient")
}

/// Returns the user's function under a hidden name, and the functions of slices that call it in
/// both precisions.
fn functions(function: &ItemFn, n_operands: usize, symbol: &Ident) -> TokenStream {
    let mut kernel = function.clone();
    kernel.attrs.retain(|it| !is_doc(it));
    kernel.vis = syn::Visibility::Inherited;
    kernel.sig.ident = format_ident!("__{}_kernel", function.sig.ident);
    let (kernel_name, in_f64) = (&kernel.sig.ident, in_f64(&function.sig.ident));
    let operands: Vec<TokenStream> = (0..n_operands).map(|it| quote!(operands[#it])).collect();
    let exported = symbol.to_string();
    // The symbol contains a hash of the crate, the function and its position, so no other function
    // has it.
    quote! {
        #kernel
        #[doc(hidden)]
        #[unsafe(export_name = #exported)]
        fn #symbol(
            operands: &[::soybean::operator::TensorRef<'_, ::core::primitive::f32>],
            result: ::soybean::operator::TensorMut<'_, ::core::primitive::f32>,
        ) {
            #kernel_name(#(#operands,)* result)
        }
        fn #in_f64(
            operands: &[::soybean::operator::TensorRef<'_, ::core::primitive::f64>],
            result: ::soybean::operator::TensorMut<'_, ::core::primitive::f64>,
        ) {
            #kernel_name(#(#operands,)* result)
        }
    }
}

/// Returns the gradient function as a function of a slice.
fn gradient_of_slice(name: &Ident, gradient: &Path, n_operands: usize) -> TokenStream {
    let name = gradient_name(name);
    // The operands, the result, and its gradient.
    let arguments = (0..n_operands + 2).map(|it| quote!(tensors[#it]));
    quote! {
        fn #name(tensors: &[::soybean::Tensor]) -> ::std::vec::Vec<::soybean::Tensor> {
            ::soybean::Outputs::into_tensors(#gradient(#(#arguments),*))
        }
    }
}

/// Returns a type of the operator's name, whose constant is the operator's description.
fn description(
    function: &ItemFn,
    attribute: &Attribute,
    names: &[Ident],
    symbol: &Ident,
) -> TokenStream {
    let (visibility, name) = (&function.vis, &function.sig.ident);
    let Attribute { notation, gradient, cuda } = attribute;
    let (in_f64, of_slice) = (in_f64(name), gradient_name(name));
    let gradient = optional(gradient.as_ref().map(|_| quote!(#of_slice)));
    let cuda = optional(cuda.as_ref().map(ToTokens::to_token_stream));
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let text = name.to_string();
    let about = format!("The operator `{name}`.");
    quote! {
        #[doc = #about]
        #[allow(non_camel_case_types)]
        #[derive(::core::fmt::Debug)]
        #visibility enum #name {}
        impl #name {
            /// The operator's description, with which it can be checked.
            pub const OPERATOR: ::soybean::operator::Operator = ::soybean::operator::Operator {
                name: #text,
                notation: #notation,
                operands: &[#(#names),*],
                function: #symbol,
                function_in_f64: #in_f64,
                gradient: #gradient,
                cuda: #cuda,
            };
        }
    }
}

fn optional(tokens: Option<TokenStream>) -> TokenStream {
    match tokens {
        Some(tokens) => quote!(::core::option::Option::Some(#tokens)),
        None => quote!(::core::option::Option::None),
    }
}

/// Returns what models read of the operator.
fn declaration(
    function: &ItemFn,
    attribute: &Attribute,
    names: &[Ident],
    symbol: &Ident,
) -> TokenStream {
    let (visibility, name) = (&function.vis, &function.sig.ident);
    let Attribute { notation, gradient, cuda } = attribute;
    let (result, of_result) = (format_ident!("{RESULT}"), format_ident!("{GRADIENT}"));
    let body = gradient.as_ref().map(|path| quote!(#path(#(#names,)* #result, #of_result)));
    let (symbol, kind) = (symbol.to_string(), format_ident!("{DECLARATION}"));
    quote! {
        #[#kind(#notation, #symbol, #cuda)]
        #visibility fn #name(#(#names: Tensor),*) -> Tensor { #body }
    }
}

/// Returns the text of a function's signature. That of a declaration is not in the user's source.
pub(crate) fn signature_text(function: &ItemFn) -> String {
    if Declaration::of(function).is_none() {
        return whole_text(&function.sig);
    }
    let parameters: Vec<String> =
        parameters(function).into_iter().map(|it| format!("{it}: Tensor")).collect();
    format!("fn {}({}) -> Tensor", function.sig.ident, parameters.join(", "))
}

/// Returns the names of a function's parameters.
pub(crate) fn parameters(function: &ItemFn) -> Vec<String> {
    let name = |input: &FnArg| match input {
        FnArg::Typed(it) => whole_text(&it.pat),
        FnArg::Receiver(it) => whole_text(it),
    };
    function.sig.inputs.iter().map(name).collect()
}

/// The content of a declaration.
pub(crate) struct Declaration {
    pub(crate) notation: String,
    pub(crate) symbol: String,
    pub(crate) cuda: Option<String>,
}

impl Declaration {
    /// Returns the declaration that a function is; `None` if it is an ordinary one.
    pub(crate) fn of(function: &ItemFn) -> Option<Self> {
        let annotation = function.attrs.iter().find(|it| it.path().is_ident(DECLARATION))?;
        annotation.parse_args().ok()
    }
}

impl Parse for Declaration {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let notation = input.parse::<LitStr>()?.value();
        input.parse::<Token![,]>()?;
        let symbol: LitStr = input.parse()?;
        // Generated code declares the symbol as that of a safe function. Only the attribute exports
        // functions of such names.
        let is_name = |it: char| it.is_ascii_alphanumeric() || it == '_';
        if !symbol.value().starts_with(SYMBOLS) || !symbol.value().chars().all(is_name) {
            return Err(syn::Error::new(symbol.span(), "expected the symbol of an operator"));
        }
        let symbol = symbol.value();
        input.parse::<Token![,]>()?;
        let cuda = if input.is_empty() { None } else { Some(input.parse::<LitStr>()?.value()) };
        Ok(Self { notation, symbol, cuda })
    }
}

/// Returns the attribute `#[soybean::operator]` of a function, if it has it.
pub(crate) fn attribute_of(function: &ItemFn) -> Option<&Annotation> {
    function
        .attrs
        .iter()
        .find(|it| it.path().segments.last().is_some_and(|it| it.ident == "operator"))
}
