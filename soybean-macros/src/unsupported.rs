//! Parts of Rust that are not in the language of models, with replacements.

use quote::ToTokens;
use syn::{Expr, ItemFn, Stmt};

/// Tokens that are not part of the language.
pub(crate) struct Unsupported<'a> {
    pub(crate) tokens: &'a dyn ToTokens,
    /// The kind of the tokens, with its article.
    pub(crate) kind: &'static str,
    /// A replacement, as help.
    pub(crate) instead: &'static str,
}

fn unsupported<'a>(
    tokens: &'a dyn ToTokens,
    kind: &'static str,
    instead: &'static str,
) -> Unsupported<'a> {
    Unsupported { tokens, kind, instead }
}

const PLAIN_FN: &str = "a layer is a plain function, `fn layer(x: Tensor, width: usize) -> Tensor`";

/// Explains why an expression is not part of the language.
pub(crate) fn expression(expression: &Expr) -> Unsupported<'_> {
    match expression {
        Expr::While(it) => unsupported(
            &it.while_token,
            "`while`",
            "its number of rounds is not known when the model is built; use `for` over a constant range",
        ),
        Expr::Loop(it) => unsupported(&it.loop_token, "`loop`", "use `for` over a constant range"),
        Expr::Closure(it) => unsupported(it, "a closure", "write a nested `fn`"),
        Expr::Async(it) => unsupported(&it.async_token, "`async`", PLAIN_FN),
        Expr::Await(it) => unsupported(&it.await_token, "`await`", PLAIN_FN),
        Expr::Let(it) => unsupported(it, "`if let`", "use `if` with a constant condition"),
        Expr::Try(it) => {
            unsupported(&it.question_token, "`?`", "operators do not return results; leave it out")
        }
        Expr::Unsafe(it) => unsupported(&it.unsafe_token, "`unsafe`", "leave it out"),
        Expr::Reference(it) => unsupported(it, "`&mut`", "return the new value: `h = layer(h)`"),
        Expr::Block(it) => unsupported(it, "a labeled block", "use `if` and `else`"),
        Expr::Break(it) => unsupported(it, "`break` with a label or a value", "use plain `break`"),
        Expr::Continue(it) => unsupported(it, "`continue` with a label", "use plain `continue`"),
        other => {
            unsupported(other, "this expression", "use `let`, `for`, `if`, calls and operators")
        }
    }
}

/// Returns a replacement for a macro call.
pub(crate) const MACRO: &str =
    "the model is built before macros in it are expanded; call functions and operators";

/// Explains why a statement is not part of the language, if it is not.
pub(crate) fn statement(statement: &Stmt) -> Option<Unsupported<'_>> {
    match statement {
        Stmt::Item(
            syn::Item::Fn(_) | syn::Item::Const(_) | syn::Item::Static(_) | syn::Item::Use(_),
        ) => None,
        Stmt::Item(syn::Item::Macro(it)) => Some(unsupported(&it.mac.path, "a macro call", MACRO)),
        Stmt::Item(it) => Some(unsupported(
            it,
            "this item",
            "a model's functions hold consts, functions and statements",
        )),
        Stmt::Local(it) => match &it.init {
            None => {
                Some(unsupported(it, "`let` without a value", "give the variable its value here"))
            }
            Some(init) => {
                let (token, _) = init.diverge.as_ref()?;
                Some(unsupported(token, "`let` with `else`", "use `if` with a constant condition"))
            }
        },
        Stmt::Expr(..) | Stmt::Macro(_) => None,
    }
}

/// Explains why a function cannot be called in a model, if it cannot.
pub(crate) fn function(function: &ItemFn) -> Option<Unsupported<'_>> {
    let signature = &function.sig;
    if let Some(token) = &signature.asyncness {
        return Some(unsupported(token, "an `async` function", PLAIN_FN));
    }
    if let Some(abi) = &signature.abi {
        return Some(unsupported(abi, "a foreign function", PLAIN_FN));
    }
    if let syn::Safety::Unsafe(token) = &signature.safety {
        return Some(unsupported(token, "an `unsafe` function", PLAIN_FN));
    }
    if !signature.generics.params.is_empty() {
        return Some(unsupported(
            &signature.generics,
            "a generic function",
            "pass sizes as ordinary arguments: `width: usize`",
        ));
    }
    signature.inputs.iter().find_map(|input| match input {
        syn::FnArg::Receiver(it) => Some(unsupported(it, "`self`", PLAIN_FN)),
        syn::FnArg::Typed(_) => None,
    })
}
