//! The prelude: reports that a model's module uses names of it and does not import them.
//!
//! The macro knows these names without imports, and rustc would report each use of each of them.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use quote::ToTokens;
use soybean_compiler::init_names;
use syn::ItemMod;

use crate::{
    diagnostic::{Diagnostic, Diagnostics},
    evaluate::{call::is_function, parameter::PARAMETERS},
};

/// Keywords that are followed by the name that they define.
const DEFINITIONS: [&str; 10] =
    ["const", "enum", "fn", "for", "let", "mod", "mut", "static", "struct", "type"];

/// Reports that the module lacks the prelude, at the first name that it lacks.
pub(crate) fn check(module: &ItemMod, diagnostics: &mut Diagnostics) {
    let name = &module.ident;
    if let Some(first) = lacking_layers(module) {
        let message = Diagnostic::new(format!("`nn` is not imported into the module `{name}`"))
            .help("write `use soybean::{nn, prelude::*};`; a crate of this name is `::nn`");
        diagnostics.report(&first, &message);
    }
    let Some(first) = lacking(module) else { return };
    let message = Diagnostic::new(format!("`{first}` is not imported into the module `{name}`"))
        .help(format!("write `use soybean::prelude::*;` at the start of `mod {name}`"));
    diagnostics.report(&first, &message);
}

/// Returns the first use of `nn`, which the module neither imports nor defines.
fn lacking_layers(module: &ItemMod) -> Option<Ident> {
    let scan = Scan::of(module)?;
    let is_known = scan.has_other_glob || scan.defined.contains("nn");
    scan.layers.filter(|_| !is_known)
}

/// Returns the first name of the prelude that the module uses, and neither imports nor defines.
pub(crate) fn lacking(module: &ItemMod) -> Option<Ident> {
    let scan = Scan::of(module)?;
    match scan.has_glob {
        true => None,
        false => scan.used.into_iter().find(|it| !scan.defined.contains(&it.to_string())),
    }
}

/// The names among the tokens of a module, at any depth.
#[derive(Default)]
struct Scan {
    /// Uses of names of the prelude.
    used: Vec<Ident>,
    /// Names that the module defines or imports.
    defined: BTreeSet<String>,
    /// True if the module imports a glob, which may contain any name.
    has_glob: bool,
    /// True if it imports another one than a prelude.
    has_other_glob: bool,
    /// The first use of the module `nn`.
    layers: Option<Ident>,
}

impl Scan {
    fn of(module: &ItemMod) -> Option<Self> {
        let (_, items) = module.content.as_ref()?;
        let mut scan = Self::default();
        items.iter().for_each(|it| scan.stream(it.to_token_stream()));
        Some(scan)
    }

    fn stream(&mut self, stream: TokenStream) {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        let mut position = 0;
        while let Some(token) = tokens.get(position) {
            match token {
                TokenTree::Ident(it) if it == "use" => {
                    let rest = &tokens[position..];
                    let length = rest.iter().position(|it| is_punct(Some(it), ';'));
                    let end = position + length.unwrap_or(rest.len());
                    self.import(tokens[position..end].iter().cloned().collect());
                    position = end;
                }
                TokenTree::Ident(it) => self.name(it, &tokens, position),
                TokenTree::Group(it) => self.stream(it.stream()),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
            position += 1;
        }
    }

    fn import(&mut self, stream: TokenStream) {
        let mut last = None;
        for token in stream {
            match token {
                TokenTree::Ident(it) => {
                    last = Some(it.to_string());
                    self.defined.insert(it.to_string());
                }
                TokenTree::Group(it) => self.import(it.stream()),
                TokenTree::Punct(it) => {
                    let is_glob = it.as_char() == '*';
                    self.has_glob |= is_glob;
                    self.has_other_glob |= is_glob && last.as_deref() != Some("prelude");
                    continue;
                }
                TokenTree::Literal(_) => {}
            }
        }
    }

    fn name(&mut self, name: &Ident, tokens: &[TokenTree], position: usize) {
        let before = |n: usize| position.checked_sub(n).and_then(|it| tokens.get(it));
        let is_defined = match before(1) {
            Some(TokenTree::Ident(it)) => DEFINITIONS.contains(&it.to_string().as_str()),
            _ => false,
        };
        if is_defined {
            self.defined.insert(name.to_string());
        }
        let is_in_path = is_punct(before(1), ':') && is_punct(before(2), ':');
        let is_call = matches!(tokens.get(position + 1), Some(TokenTree::Group(it)) if it.delimiter() == Delimiter::Parenthesis);
        if name == "nn"
            && !is_in_path
            && is_punct(tokens.get(position + 1), ':')
            && is_punct(tokens.get(position + 2), ':')
        {
            self.layers.get_or_insert_with(|| name.clone());
        }
        if !is_in_path && !is_punct(before(1), '.') && is_of_prelude(&name.to_string(), is_call) {
            self.used.push(name.clone());
        }
    }
}

fn is_of_prelude(name: &str, is_call: bool) -> bool {
    let is_function =
        PARAMETERS.contains(&name) || init_names().contains(&name) || is_function(name);
    name == "Tensor" || is_call && is_function
}

fn is_punct(token: Option<&TokenTree>, character: char) -> bool {
    matches!(token, Some(TokenTree::Punct(it)) if it.as_char() == character)
}

#[cfg(test)]
mod tests {
    use super::lacking;

    fn check(module: &str, expected: Option<&str>) {
        let module = syn::parse_str(module).unwrap();
        assert_eq!(lacking(&module).map(|it| it.to_string()).as_deref(), expected);
    }

    #[test]
    fn only_modules_that_lack_names_are_found() {
        let body = "fn f(x: Tensor<f32, 4>) -> Tensor { x.normal(1) * param(\"w\", [4], ones()) }";
        check(&format!("mod m {{ {body} }}"), Some("Tensor"));
        check(&format!("mod m {{ use soybean::Tensor; {body} }}"), Some("param"));
        check(&format!("mod m {{ use soybean::prelude::*; {body} }}"), None);
        check(&format!("mod m {{ use soybean::{{nn, prelude::*}}; {body} }}"), None);
        check(&format!("mod m {{ use super::*; {body} }}"), None);
        check(&format!("mod m {{ use soybean::prelude::{{Tensor, ones, param}}; {body} }}"), None);
        let layers = |text: &str| super::lacking_layers(&syn::parse_str(text).unwrap()).is_some();
        assert!(layers("mod m { use soybean::prelude::*; fn f() { nn::linear(x, 2) } }"));
        assert!(!layers("mod m { use soybean::{nn, prelude::*}; fn f() { nn::linear(x, 2) } }"));
        assert!(!layers("mod m { use super::*; fn f() { nn::linear(x, 2); ::nn::g() } }"));
        check("mod m { struct Tensor; fn ones() { let stack = Tensor; stack(ones()) } }", None);
        check("mod m { fn f(x: soybean::Tensor) { soybean::prelude::ones(); x.concat(1) } }", None);
    }
}
