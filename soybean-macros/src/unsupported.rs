//! Parts of Rust that are not in the language of models, with replacements.

use quote::ToTokens;
use syn::{Expr, ItemFn, Stmt};

/// Unsupported tokens, a description of them, and a replacement.
pub(crate) type Unsupported<'a> = (&'a dyn ToTokens, &'static str, &'static str);

const PLAIN_FN: &str = "a layer is a plain function, `fn layer(x: Tensor, width: usize) -> Tensor`";

/// Explains why an expression is not part of the language.
pub(crate) fn expression(expression: &Expr) -> Unsupported<'_> {
    match expression {
        Expr::While(it) => (
            &it.while_token,
            "`while`",
            "its number of rounds is not known when the model is built; use `for` over a constant range",
        ),
        Expr::Loop(it) => (&it.loop_token, "`loop`", "use `for` over a constant range"),
        Expr::Macro(it) => (&it.mac.path, "a macro call", MACRO),
        Expr::Closure(it) => (it, "a closure", "write a nested `fn`"),
        Expr::Match(it) => (&it.match_token, "`match`", "use `if` and `else`"),
        Expr::Async(it) => (&it.async_token, "`async`", PLAIN_FN),
        Expr::Await(it) => (&it.await_token, "`await`", PLAIN_FN),
        Expr::Let(it) => (it, "`if let`", "use `if` with a constant condition"),
        Expr::Struct(it) => (it, "a struct", "use a tuple or an array"),
        Expr::Try(it) => {
            (&it.question_token, "`?`", "operators do not return results; leave it out")
        }
        Expr::Unsafe(it) => (&it.unsafe_token, "`unsafe`", "leave it out"),
        Expr::Reference(it) => (it, "`&mut`", "return the new value: `h = layer(h)`"),
        Expr::Field(it) => (&it.member, "a named field", "use a tuple or an array"),
        Expr::Block(it) => (it, "a labelled block", "use `if` and `else`"),
        Expr::Break(it) => (it, "`break` with a label or a value", "use plain `break`"),
        Expr::Continue(it) => (it, "`continue` with a label", "use plain `continue`"),
        other => (other, "this expression", "use `let`, `for`, `if`, calls and operators"),
    }
}

/// Returns a replacement for a macro call.
pub(crate) const MACRO: &str =
    "the model is built before macros in it are expanded; call functions and operators";

/// Explains why a statement is not part of the language, if it is not.
pub(crate) fn statement(statement: &Stmt) -> Option<Unsupported<'_>> {
    match statement {
        Stmt::Macro(it) => Some((&it.mac.path, "a macro call", MACRO)),
        Stmt::Item(syn::Item::Fn(_) | syn::Item::Const(_) | syn::Item::Use(_)) => None,
        Stmt::Item(syn::Item::Macro(it)) => Some((&it.mac.path, "a macro call", MACRO)),
        Stmt::Item(it) => {
            Some((it, "this item", "a model's functions hold consts, functions and statements"))
        }
        Stmt::Local(it) => match &it.init {
            None => Some((it, "`let` without a value", "give the variable its value here")),
            Some(init) => {
                let (token, _) = init.diverge.as_ref()?;
                Some((token, "`let` with `else`", "use `if` with a constant condition"))
            }
        },
        Stmt::Expr(..) => None,
    }
}

/// Explains why a function cannot be called in a model, if it cannot.
pub(crate) fn function(function: &ItemFn) -> Option<Unsupported<'_>> {
    let signature = &function.sig;
    if let Some(token) = &signature.asyncness {
        return Some((token, "an `async` function", PLAIN_FN));
    }
    if let Some(abi) = &signature.abi {
        return Some((abi, "a foreign function", PLAIN_FN));
    }
    if let syn::Safety::Unsafe(token) = &signature.safety {
        return Some((token, "an `unsafe` function", PLAIN_FN));
    }
    if !signature.generics.params.is_empty() {
        return Some((
            &signature.generics,
            "a generic function",
            "pass sizes as ordinary arguments: `width: usize`",
        ));
    }
    signature.inputs.iter().find_map(|input| match input {
        syn::FnArg::Receiver(it) => Some((it as &dyn ToTokens, "`self`", PLAIN_FN)),
        syn::FnArg::Typed(_) => None,
    })
}
