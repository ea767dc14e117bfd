//! The path by which the user's crate names this library. Generated code is written with
//! `::soybean`, which is replaced if the library has another name there.
//!
//! The argument `crate = path` states the path. Otherwise the manifest tells it: a dependency can
//! have another name. If the library is none of the dependencies, it is re-exported by one of them,
//! and has the name by which the attribute was found.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::quote;
use toml::de::{DeTable, DeValue};

const LIBRARY: &str = "soybean";

/// The facts that a crate's manifest tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// The library's name in the crate, if the manifest tells it.
    name: Option<String>,
    /// True if the library is none of the dependencies.
    is_missing: bool,
    /// True if the crate is of the edition in which a `use` starts at the crate's root.
    pub(crate) is_2015: bool,
}

impl Manifest {
    /// Reads the manifest in a folder, once.
    pub(crate) fn read(folder: &Path) -> Self {
        thread_local! {
            static KNOWN: RefCell<BTreeMap<PathBuf, Manifest>> = const { RefCell::new(BTreeMap::new()) };
        }
        if let Some(known) = KNOWN.with_borrow(|it| it.get(folder).cloned()) {
            return known;
        }
        let text = |folder: &Path| fs::read_to_string(folder.join("Cargo.toml")).ok();
        let workspaces = folder.ancestors().filter_map(text).filter(|it| it.contains("[workspace"));
        let workspace = workspaces.into_iter().next().unwrap_or_default();
        let manifest = text(folder).map_or_else(Self::default, |it| Self::of(&it, &workspace));
        KNOWN.with_borrow_mut(|it| it.insert(folder.to_owned(), manifest.clone()));
        manifest
    }

    /// Reads the text of a manifest, and of that of its workspace.
    fn of(text: &str, workspace: &str) -> Self {
        let (Ok(manifest), Ok(workspace)) = (DeTable::parse(text), DeTable::parse(workspace))
        else {
            return Self::default();
        };
        let workspace = table(workspace.get_ref(), "workspace");
        let package = table(manifest.get_ref(), "package");
        let inherited = workspace.and_then(|it| table(it, "package"));
        let edition = package.and_then(|package| match table(package, "edition") {
            Some(_) => inherited.and_then(|it| string(it, "edition")),
            None => string(package, "edition"),
        });
        let is_2015 = package.is_some() && edition.is_none_or(|it| it == "2015");
        if package.and_then(|it| string(it, "name")) == Some(LIBRARY) {
            return Self { name: Some(LIBRARY.to_owned()), is_missing: false, is_2015 };
        }
        let shared = workspace.and_then(|it| table(it, "dependencies"));
        let targets = table(manifest.get_ref(), "target").into_iter().flat_map(|it| it.values());
        let sections = targets.filter_map(as_table).chain([manifest.get_ref()]);
        let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
        let sections = sections.flat_map(|it| kinds.into_iter().filter_map(|kind| table(it, kind)));
        let name = |(key, value): (&'_ str, &'_ _)| {
            let own = as_table(value);
            let is_shared = own.is_some_and(|it| it.contains_key("workspace"));
            let described = if is_shared { shared.and_then(|it| table(it, key)) } else { own };
            let package = described.and_then(|it| string(it, "package")).unwrap_or(key);
            (package == LIBRARY).then(|| key.replace('-', "_"))
        };
        let dependencies = sections.flat_map(|it| it.iter());
        let names = dependencies.filter_map(|(key, value)| name((&**key.get_ref(), value)));
        // Of several names, the library's own.
        let name = names.min_by_key(|it| it != LIBRARY);
        Self { is_missing: name.is_none(), name, is_2015 }
    }
}

/// The path that replaces `::soybean`.
pub(crate) struct Root {
    path: TokenStream,
    /// True if the path begins where the attribute stands, and not at a crate.
    is_relative: bool,
}

impl Root {
    /// Returns the path for an item with these arguments of the attribute; `None` if it is
    /// `::soybean`.
    pub(crate) fn of(attribute: &TokenStream, manifest: &Manifest) -> Option<Self> {
        if let Some(path) = argument(attribute) {
            let first = path.clone().into_iter().next().map(|it| it.to_string());
            let is_relative = matches!(first.as_deref(), Some("self" | "super"));
            return Some(Self { path, is_relative });
        }
        match &manifest.name {
            Some(name) if name == LIBRARY => None,
            Some(name) => {
                let name = Ident::new(name, Span::call_site());
                Some(Self { path: quote!(::#name), is_relative: false })
            }
            None if manifest.is_missing => {
                let name = Ident::new(LIBRARY, Span::call_site());
                Some(Self { path: quote!(#name), is_relative: true })
            }
            None => None,
        }
    }

    /// Puts the path into an expansion that stands within this number of modules of its own.
    pub(crate) fn put_into(&self, expansion: TokenStream, n_modules: usize) -> TokenStream {
        let mut result: Vec<TokenTree> = Vec::new();
        for token in expansion {
            match (&result[..], token) {
                (
                    [.., TokenTree::Punct(first), TokenTree::Punct(second)],
                    TokenTree::Ident(name),
                ) if name == LIBRARY && first.as_char() == ':' && second.as_char() == ':' => {
                    let before = result.iter().rev().nth(2);
                    let is_end = matches!(before, Some(TokenTree::Ident(it)) if !is_keyword(it));
                    if is_end {
                        result.push(name.into());
                        continue;
                    }
                    result.truncate(result.len() - 2);
                    if self.is_relative {
                        result.extend((0..n_modules).flat_map(|_| quote!(super::)));
                    }
                    result.extend(self.path.clone());
                }
                (before, TokenTree::Group(group)) => {
                    let is_module = group.delimiter() == Delimiter::Brace
                        && matches!(before, [.., TokenTree::Ident(it), TokenTree::Ident(_)] if it == "mod");
                    let stream = self.put_into(group.stream(), n_modules + usize::from(is_module));
                    let mut group_of_path = Group::new(group.delimiter(), stream);
                    group_of_path.set_span(group.span());
                    result.push(group_of_path.into());
                }
                (_, other) => result.push(other),
            }
        }
        result.into_iter().collect()
    }
}

/// Puts the path into an expansion. In edition 2015, paths to the standard library begin at a crate
/// although they stand at tokens of the user.
pub(crate) fn in_crate(
    expansion: TokenStream,
    root: Option<&Root>,
    n_modules: usize,
    manifest: &Manifest,
) -> TokenStream {
    let expansion = match root {
        Some(root) => root.put_into(expansion, n_modules),
        None => expansion,
    };
    if manifest.is_2015 { at_crates(expansion) } else { expansion }
}

fn at_crates(expansion: TokenStream) -> TokenStream {
    let mut tokens: Vec<TokenTree> = expansion.into_iter().collect();
    for position in 0..tokens.len() {
        if let TokenTree::Group(group) = &tokens[position] {
            let mut inner = Group::new(group.delimiter(), at_crates(group.stream()));
            inner.set_span(group.span());
            tokens[position] = inner.into();
        }
        let is_crate =
            matches!(&tokens[position], TokenTree::Ident(it) if it == "core" || it == "std");
        if is_crate && position >= 2 {
            for token in &mut tokens[position - 2..position] {
                token.set_span(token.span().resolved_at(Span::call_site()));
            }
        }
    }
    tokens.into_iter().collect()
}

/// Returns whether a path can begin after a word.
fn is_keyword(word: &Ident) -> bool {
    syn::parse_str::<Ident>(&word.to_string()).is_err()
}

/// Returns the value of the argument `crate = path`.
pub(crate) fn argument(attribute: &TokenStream) -> Option<TokenStream> {
    let tokens: Vec<TokenTree> = attribute.clone().into_iter().collect();
    let is = |token: &TokenTree, text: &str| token.to_string() == text;
    let start = tokens.windows(2).position(|it| is(&it[0], "crate") && is(&it[1], "="))?;
    let path = tokens[start + 2..].iter().take_while(|it| !is(it, ","));
    Some(path.cloned().collect())
}

fn as_table<'t>(value: &'t toml::Spanned<DeValue<'_>>) -> Option<&'t DeTable<'t>> {
    match value.get_ref() {
        DeValue::Table(it) => Some(it),
        _ => None,
    }
}

fn table<'t>(parent: &'t DeTable<'_>, key: &str) -> Option<&'t DeTable<'t>> {
    as_table(parent.get(key)?)
}

fn string<'t>(parent: &'t DeTable<'_>, key: &str) -> Option<&'t str> {
    match parent.get(key)?.get_ref() {
        DeValue::String(it) => Some(it),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proc_macro2::TokenStream;

    use super::{Manifest, Root};

    const WORKSPACE: &str = "[workspace.package]\nedition = \"2021\"\n\
         [workspace.dependencies]\nsb = { package = \"soybean\", version = \"0.1\" }";

    fn check(manifest: &str, attribute: &str, expected: &str) {
        let tokens = |text: &str| text.parse::<TokenStream>().unwrap();
        let manifest = Manifest::of(&format!("[package]\nname = \"a\"\n{manifest}"), WORKSPACE);
        let code = tokens(
            "use ::soybean::a; mod m { fn f(x: ::soybean::B) -> ::soybean::B { std::soybean } }",
        );
        let found = match Root::of(&tokens(attribute), &manifest) {
            Some(root) => root.put_into(code, 0),
            None => code,
        };
        assert_eq!(found.to_string(), tokens(expected).to_string());
    }

    // Guards: a library with another name, of its own or of its workspace, and a re-exported one.
    #[test]
    fn the_path_is_found() {
        let named = |name: &str| {
            format!("use {name}::a; mod m {{ fn f(x: {name}::B) -> {name}::B {{ std::soybean }} }}")
        };
        let sb = named("::sb");
        check("[dependencies]\nsoybean = \"0.1\"", "", &named("::soybean"));
        check("[dependencies]\nsb = { package = \"soybean\", version = \"0.1\" }", "", &sb);
        check("[dev-dependencies.sb]\npackage = \"soybean\"", "", &sb);
        check("[target.'cfg(unix)'.dependencies]\nsb.package = \"soybean\"", "", &sb);
        check("[dependencies]\nsb.workspace = true", "gpus = 2", &sb);
        let both = "[dependencies]\nsb.workspace = true\nsoybean = \"0.1\"";
        check(both, "", &named("::soybean"));
        check(both, "gpus = 2, crate = ::b::c, mode = \"x\"", &named("::b::c"));
        check(
            "",
            "crate = super::c",
            "use super::c::a; mod m { fn f(x: super::super::c::B) -> super::super::c::B { std::soybean } }",
        );
        check(
            "",
            "",
            "use soybean::a; mod m { fn f(x: super::soybean::B) -> super::soybean::B { std::soybean } }",
        );
    }

    // Guards: the edition decides where a `use` starts.
    #[test]
    fn the_edition_is_found() {
        let is_2015 = |manifest: &str| Manifest::of(manifest, WORKSPACE).is_2015;
        assert!(is_2015("[package]\nname = \"a\""));
        assert!(!is_2015("[package]\nname = \"a\"\nedition = \"2018\""));
        assert!(!is_2015("[package]\nname = \"a\"\nedition.workspace = true"));
    }
}
