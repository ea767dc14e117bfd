//! Dependencies: functions and consts that an item names and does not define. They may be layers of
//! other modules and crates.
//!
//! Dependencies are found among the tokens, before names are resolved. A path before parentheses is
//! a call, and a path in capitals is a const. Definitions of the item itself are no dependencies.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use quote::quote;
use syn::{ItemUse, UseTree};

use crate::{
    evaluate::{parameter::PARAMETERS, scope::SCOPE},
    source_text::whole_text,
};

/// Keywords that are followed by parentheses and are no calls.
const KEYWORDS: [&str; 18] = [
    "as", "break", "else", "for", "if", "impl", "in", "let", "loop", "match", "move", "mut", "pub",
    "ref", "return", "unsafe", "where", "while",
];

/// Crates and types whose functions and consts are never layers.
const OTHERS: [&str; 19] = [
    "Self", "alloc", "bool", "char", "core", "f32", "f64", "i16", "i32", "i64", "i8", "isize",
    "std", "str", "u16", "u32", "u64", "u8", "usize",
];

/// A function or const that an item names and does not define.
pub(crate) struct Dependency {
    /// The path as the user wrote it.
    pub(crate) key: String,
    /// A path that resolves to the same outside of the item's functions.
    pub(crate) path: TokenStream,
    pub(crate) is_constant: bool,
    /// True if the path is a name that the item uses for nothing else.
    pub(crate) is_bare: bool,
}

/// Returns the dependencies of an item, in the order in which they are named. `may_import` tells
/// whether something outside of the item's functions may import a name. Imports within at most
/// `n_outer` groups are seen everywhere in the item, so paths keep the names that they give.
pub(crate) fn dependencies(
    item: &TokenStream,
    n_outer: usize,
    may_import: impl Fn(&str) -> bool,
) -> Vec<Dependency> {
    let mut scan = Scan { n_outer, ..Scan::default() };
    scan.stream(item.clone());
    let Scan { paths, defined, imports, prefixes, .. } = scan;
    let mut seen = BTreeSet::new();
    let mut dependencies = Vec::new();
    for Found { segments, leading, tokens, is_constant } in paths {
        let key = whole_text(&tokens);
        let own = segments.iter().position(|it| it != "self").unwrap_or(0);
        let is_defined = segments.len() == own + 1 && !leading && defined.contains(&segments[own]);
        if is_defined || is_other(&segments) || !seen.insert(key.clone()) {
            continue;
        }
        let import = imports.get(&segments[0]).filter(|_| !leading);
        if segments.len() == 1 && import.is_none() && !may_import(&segments[0]) {
            continue;
        }
        let is_bare = segments.len() == 1 && import.is_none() && !prefixes.contains(&segments[0]);
        let path = match import {
            Some(import) => {
                let rest = tokens.clone().into_iter().skip(1);
                let rest: TokenStream = rest.collect();
                quote!(#import #rest)
            }
            None => tokens.clone(),
        };
        dependencies.push(Dependency { key, path, is_constant, is_bare });
    }
    dependencies
}

/// Returns the names that `use` items import, or `None` if one of them may import any name.
pub(crate) fn imported_names(uses: &[&ItemUse]) -> Option<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for item in uses {
        let imports = imports(item);
        if imports.iter().any(|(_, path)| path.to_string().ends_with('*')) {
            return None;
        }
        names.extend(imports.into_iter().map(|(name, _)| name));
    }
    Some(names)
}

fn is_other(segments: &[String]) -> bool {
    let is_type = |it: &String| it.starts_with(|it: char| it.is_ascii_uppercase());
    let name = segments[segments.len() - 1].as_str();
    let is_built_in = PARAMETERS.contains(&name) || soybean_compiler::init_names().contains(&name);
    match segments {
        [_] => is_built_in,
        [.., module, _]
            if (is_built_in || name == SCOPE)
                && ["soybean", "prelude", "eager"].contains(&module.as_str()) =>
        {
            true
        }
        [first, rest @ ..] => {
            OTHERS.contains(&first.as_str())
                || is_type(first)
                || rest[..rest.len() - 1].iter().any(is_type)
        }
        [] => true,
    }
}

/// A path among the tokens.
struct Found {
    segments: Vec<String>,
    /// True if it begins with `::`.
    leading: bool,
    tokens: TokenStream,
    is_constant: bool,
}

#[derive(Default)]
struct Scan {
    paths: Vec<Found>,
    /// Functions, consts and variables that the item defines, at any depth.
    defined: BTreeSet<String>,
    /// The names that `use` items in functions import.
    imports: BTreeMap<String, TokenStream>,
    /// The first segments of paths.
    prefixes: BTreeSet<String>,
    /// The number of groups around the tokens.
    depth: usize,
    n_outer: usize,
}

impl Scan {
    fn stream(&mut self, stream: TokenStream) {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        let mut index = 0;
        while index < tokens.len() {
            index = match &tokens[index] {
                TokenTree::Ident(it) if it == "use" => self.import(&tokens, index),
                TokenTree::Ident(it) if it == "fn" || it == "const" => {
                    match tokens.get(index + 1) {
                        Some(TokenTree::Ident(it)) if it == "fn" => index + 1,
                        name => {
                            self.define(name);
                            index + 2
                        }
                    }
                }
                TokenTree::Ident(_) => self.path(&tokens, index),
                TokenTree::Punct(it) if it.as_char() == '#' => index + 2,
                TokenTree::Group(it) => {
                    self.depth += 1;
                    self.stream(it.stream());
                    self.depth -= 1;
                    index + 1
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => index + 1,
            };
        }
    }

    fn define(&mut self, token: Option<&TokenTree>) {
        if let Some(TokenTree::Ident(name)) = token {
            self.defined.insert(name.to_string());
        }
    }

    /// Reads the `use` item at `start`.
    fn import(&mut self, tokens: &[TokenTree], start: usize) -> usize {
        let length = tokens[start..].iter().position(|it| is_punct(Some(it), ';'));
        let end = length.map_or(tokens.len(), |it| start + it + 1);
        let item: TokenStream = tokens[start..end].iter().cloned().collect();
        if let Ok(item) = syn::parse2::<ItemUse>(item)
            && self.depth > self.n_outer
        {
            self.imports.extend(imports(&item));
        }
        end
    }

    /// Reads the path at `start`.
    fn path(&mut self, tokens: &[TokenTree], start: usize) -> usize {
        let separator =
            |at: usize| is_punct(tokens.get(at), ':') && is_punct(tokens.get(at + 1), ':');
        let mut segments = Vec::new();
        let mut end = start;
        while let Some(TokenTree::Ident(it)) = tokens.get(end) {
            segments.push(it.to_string());
            end += 1;
            match (separator(end), tokens.get(end + 2)) {
                (true, Some(TokenTree::Ident(_))) => end += 2,
                _ => break,
            }
        }
        if segments.len() > 1 {
            self.prefixes.insert(segments[0].clone());
        }
        let leading = start >= 2 && separator(start - 2);
        let before = start - if leading { 2 } else { 0 };
        if segments.len() == 1 && KEYWORDS.contains(&segments[0].as_str()) {
            if matches!(segments[0].as_str(), "let" | "for" | "mut") {
                self.define(tokens.get(end));
            }
            return end;
        }
        if is_punct(tokens.get(end), ':') && segments.len() == 1 {
            self.defined.insert(segments[0].clone());
        }
        let is_member = before >= 1
            && is_punct(tokens.get(before - 1), '.')
            && !(before >= 2 && is_punct(tokens.get(before - 2), '.'));
        let name = &segments[segments.len() - 1];
        let is_call = matches!(tokens.get(end), Some(TokenTree::Group(it)) if it.delimiter() == Delimiter::Parenthesis);
        let is_parameter = PARAMETERS.contains(&name.as_str()) && !is_member;
        let is_constant = !is_call && is_in_capitals(name);
        let is_function = is_call && name.starts_with(|it: char| it.is_lowercase() || it == '_');
        if !is_member && !is_punct(tokens.get(end), '!') && (is_constant || is_function) {
            let tokens = tokens[before..end].iter().cloned().collect();
            self.paths.push(Found { segments, leading, tokens, is_constant });
        }
        match tokens.get(end) {
            Some(TokenTree::Group(arguments)) if is_call && is_parameter => {
                self.parameter(arguments.stream());
                end + 1
            }
            _ => end,
        }
    }

    /// Reads the arguments of a `param`, of which the last is not a call of a layer.
    fn parameter(&mut self, arguments: TokenStream) {
        let mut tokens: Vec<TokenTree> = arguments.into_iter().collect();
        let last = tokens.iter().rposition(|it| is_punct(Some(it), ','));
        if let (Some(last), true) = (last, matches!(tokens.last(), Some(TokenTree::Group(_))))
            && last + 3 == tokens.len()
        {
            tokens.remove(last + 1);
        }
        self.stream(tokens.into_iter().collect());
    }
}

/// Returns the names that a `use` item imports, with their paths. A glob is a star.
fn imports(item: &ItemUse) -> Vec<(String, TokenStream)> {
    fn walk(tree: &UseTree, prefix: &TokenStream, found: &mut Vec<(String, TokenStream)>) {
        let mut add = |name: &Ident, path: TokenStream| found.push((name.to_string(), path));
        match tree {
            UseTree::Path(it) => {
                let (name, separator) = (&it.ident, &it.colon2_token);
                // The prelude contains no layers.
                let is_ours = prefix.to_string().trim_start_matches(':').trim() == "soybean ::";
                if name == "prelude" && (is_ours || matches!(&*it.tree, UseTree::Glob(_))) {
                    return;
                }
                walk(&it.tree, &quote!(#prefix #name #separator), found);
            }
            UseTree::Name(it) if it.ident == "self" => {
                let mut path: Vec<TokenTree> = prefix.clone().into_iter().collect();
                path.truncate(path.len().saturating_sub(2));
                if let Some(TokenTree::Ident(name)) = path.last().cloned() {
                    add(&name, path.into_iter().collect());
                }
            }
            UseTree::Name(it) => {
                let name = &it.ident;
                add(name, quote!(#prefix #name));
            }
            UseTree::Rename(it) => {
                let name = &it.ident;
                add(&it.rename, quote!(#prefix #name));
            }
            UseTree::Glob(it) => found.push(("*".to_owned(), quote!(#prefix #it))),
            UseTree::Group(it) => it.items.iter().for_each(|it| walk(it, prefix, found)),
        }
    }
    let mut found = Vec::new();
    let leading = &item.leading_colon;
    walk(&item.tree, &quote!(#leading), &mut found);
    found
}

/// Returns whether a name is written as those of consts are.
pub(crate) fn is_in_capitals(name: &str) -> bool {
    name.starts_with(|it: char| it.is_ascii_uppercase())
        && name.chars().all(|it| it.is_ascii_uppercase() || it.is_ascii_digit() || it == '_')
}

fn is_punct(token: Option<&TokenTree>, character: char) -> bool {
    matches!(token, Some(TokenTree::Punct(it)) if it.as_char() == character)
}

#[cfg(test)]
mod tests {
    use proc_macro2::TokenStream;

    use super::dependencies;

    fn check(item: &str, expected: &[&str]) {
        let item: TokenStream = item.parse().expect("the test's source has tokens");
        let found = dependencies(&item, 0, |_| true);
        let found: Vec<_> = found
            .iter()
            .map(|it| format!("{} = {}", it.key, it.path).replace(" :: ", "::"))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn calls_and_consts_that_are_defined_elsewhere() {
        check(
            "fn f(x: Tensor<f32, BATCH, { 2 * sizes::WIDTH }>, n: usize) -> Tensor {
                 const OWN: usize = 3;
                 const fn twice(n: usize) -> usize { 2 * n }
                 fn inner(x: Tensor) -> Tensor { x.relu().sum(twice(OWN)) }
                 use crate::nn::{head as h, tail};
                 let g = if (n > 2) { 1 } else { usize::MAX };
                 for i in 0..count(x) { h(inner(self::inner(x))); }
                 assert!(true);
                 tail::end(x.matmul(param(\"w\", [2], normal(0.1)))) + ::nn::dense(x, std::f64::consts::PI) + g(x)
             }",
            &[
                "BATCH = BATCH",
                "sizes::WIDTH = sizes::WIDTH",
                "count = count",
                "h = crate::nn::head",
                "tail::end = crate::nn::tail::end",
                "::nn::dense =::nn::dense",
            ],
        );
    }

    #[test]
    fn most_models_have_none() {
        check("fn f(x: Tensor<f32, 4, 6>) -> Tensor { (x * 2).mean(..) }", &[]);
        check(
            "fn f(x: Tensor) -> Tensor { use soybean::prelude::{param, stack}; x.mean(..) }",
            &[],
        );
    }
}
