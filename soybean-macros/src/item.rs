//! The annotated item: a function, or a module that holds consts, layers and `forward`.

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use soybean_plan::Mode;
use syn::{FnArg, Item, ItemFn, ItemMod, PatType, Visibility};

use crate::{
    attribute::FORWARD,
    dependency::{Dependency, dependencies, imported_names},
    diagnostic::{Diagnostic, Diagnostics},
    erase::erase_dims,
    evaluate::call::is_function,
    prelude,
    source_text::whole_text,
    tensor_type::TensorType,
    unsupported,
};

/// Returns the name of the generated type that runs a model.
pub(crate) const fn runner(mode: Mode) -> &'static str {
    match mode {
        Mode::Training => "Trainer",
        Mode::Inference => "Predictor",
    }
}

/// An item with the attribute.
pub(crate) struct Model {
    pub(crate) tokens: TokenStream,
    pub(crate) form: Form,
    /// The names of the functions of a module that run by themselves.
    pub(crate) entry_names: Vec<String>,
}

/// The two kinds of models.
pub(crate) enum Form {
    /// A function.
    Function(Box<ItemFn>),
    /// A module with a function `forward`, or other entries.
    Module(Box<ItemMod>),
}

impl Model {
    /// Parses the item.
    ///
    /// # Errors
    /// If it has a syntax error, or is neither a function nor a module.
    pub(crate) fn parse(tokens: TokenStream, entry_names: Vec<String>) -> syn::Result<Self> {
        Self::of(syn::parse2(tokens.clone())?, tokens, entry_names)
    }

    /// Returns the model that is an item with these tokens.
    ///
    /// # Errors
    /// If it is neither a function nor a module.
    pub(crate) fn of(
        item: Item,
        tokens: TokenStream,
        entry_names: Vec<String>,
    ) -> syn::Result<Self> {
        let form = match item {
            Item::Fn(it) => Form::Function(Box::new(it)),
            Item::Mod(it) => Form::Module(Box::new(it)),
            other => {
                let message = "`#[soybean::model]` applies to functions and inline modules";
                return Err(syn::Error::new_spanned(other, message));
            }
        };
        Ok(Self { tokens, form, entry_names })
    }

    /// Returns the name of the model.
    pub(crate) fn name(&self) -> &Ident {
        match &self.form {
            Form::Function(it) => &it.sig.ident,
            Form::Module(it) => &it.ident,
        }
    }

    /// Returns the visibility of the model, and so of the generated items.
    pub(crate) fn visibility(&self) -> &Visibility {
        match &self.form {
            Form::Function(it) => &it.vis,
            Form::Module(_) => {
                self.entries().next().map_or(&Visibility::Inherited, |(_, it)| &it.vis)
            }
        }
    }

    /// Returns the items that the model can name.
    pub(crate) fn items(&self) -> &[Item] {
        match &self.form {
            Form::Function(_) => &[],
            Form::Module(it) => it.content.as_ref().map_or(&[], |(_, items)| items),
        }
    }

    /// Returns the names of the entries, and the function of each that is there.
    pub(crate) fn named_entries(&self) -> impl Iterator<Item = (&str, Option<&ItemFn>)> {
        let function = |name: &str| match &self.form {
            Form::Function(it) => Some(&**it),
            Form::Module(_) => self.items().iter().find_map(|item| match item {
                Item::Fn(it) if it.sig.ident == name => Some(it),
                _ => None,
            }),
        };
        self.entry_names.iter().map(move |it| (&**it, function(it)))
    }

    /// Returns the functions that run by themselves, with their names.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, &ItemFn)> {
        self.named_entries().filter_map(|(name, function)| Some((name, function?)))
    }

    /// Returns the arguments of all entries as the user wrote them, entry by entry.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = &PatType> {
        self.entries().flat_map(|(_, it)| arguments(it))
    }

    /// Returns the functions and consts that the model names and does not define, which may be
    /// layers.
    pub(crate) fn dependencies(&self) -> Vec<Dependency> {
        let uses = self.items().iter().filter_map(|item| match item {
            Item::Use(it) => Some(it),
            _ => None,
        });
        let imported = match &self.form {
            Form::Function(_) => None,
            Form::Module(_) => imported_names(&uses.collect::<Vec<_>>()),
        };
        // What a glob or the surroundings import under an operator's name is the operator.
        let is_imported = |name: &str| match &imported {
            Some(imported) => imported.contains(name),
            None => !is_function(name),
        };
        let n_outer = match &self.form {
            Form::Function(_) => 0,
            Form::Module(_) => 1,
        };
        dependencies(&self.tokens, n_outer, is_imported)
    }

    /// Reports errors in the item itself.
    pub(crate) fn check(&self, mode: Mode, diagnostics: &mut Diagnostics) {
        match &self.form {
            Form::Function(_) => {}
            Form::Module(it) => {
                let Some((_, items)) = &it.content else {
                    let message = Diagnostic::new("the macro cannot see into the file of a module")
                        .help("write the module inline: `mod name { .. }`");
                    diagnostics.report(it, &message);
                    return;
                };
                items.iter().for_each(|item| self.check_item(item, mode, diagnostics));
                self.check_entries(it, diagnostics);
                prelude::check(it, diagnostics);
            }
        }
        for input in self.inputs().filter(|it| TensorType::of(&it.ty).is_none()) {
            let name = whole_text(&input.pat);
            let headline = format!("the model's argument `{name}` must be a `Tensor`");
            diagnostics.report(&input.ty, &Diagnostic::new(headline).help(dims_help(&name)));
        }
        for (_, entry) in self.entries().filter(|(_, it)| it.sig.inputs.is_empty()) {
            let message = Diagnostic::new("a model takes the tensors of a batch, at least one")
                .help("write them as arguments: `x: Tensor<f32, 512, 784>`");
            diagnostics.report(&entry.sig, &message);
        }
    }

    fn check_entries(&self, module: &ItemMod, diagnostics: &mut Diagnostics) {
        for (entry, function) in self.named_entries() {
            match function {
                None => {
                    let name = &module.ident;
                    let message = Diagnostic::new(format!("the model `{name}` has no `{entry}`"))
                        .help(format!(
                            "add `pub fn {entry}(x: Tensor<f32, 512, 784>, ..) -> Tensor {{ .. }}`"
                        ));
                    diagnostics.report(name, &message);
                }
                Some(function) if matches!(function.vis, Visibility::Inherited) => {
                    let message = Diagnostic::new(format!("the model's `{entry}` must be public"))
                        .help(format!("write `pub fn {entry}`"));
                    diagnostics.report(&function.sig.ident, &message);
                }
                Some(_) => {}
            }
        }
    }

    /// Returns the item's name, if the macro generates an item of this name in the model's module.
    pub(crate) fn generated_name<'a>(&self, item: &'a Item, mode: Mode) -> Option<&'a Ident> {
        let name = match item {
            Item::Struct(it) => &it.ident,
            Item::Enum(it) => &it.ident,
            Item::Type(it) => &it.ident,
            Item::Mod(it) => &it.ident,
            _ => return None,
        };
        let is_batch = self.entry_names.iter().any(|it| *name == batch_name(it));
        let generated = ["Network", runner(mode), "__program"];
        (is_batch || generated.iter().any(|it| *name == *it)).then_some(name)
    }

    fn check_item(&self, item: &Item, mode: Mode, diagnostics: &mut Diagnostics) {
        if let Item::Macro(it) = item {
            let message = Diagnostic::new("a macro call is not part of the model language")
                .help(unsupported::MACRO);
            diagnostics.report(&it.mac.path, &message);
        }
        if let Some(name) = self.generated_name(item, mode) {
            let message =
                Diagnostic::new(format!("`{name}` is what the macro generates for the model"))
                    .help("give this item another name");
            diagnostics.report(name, &message);
        }
    }

    /// Returns the user's item as ordinary Rust, with `inside` added at the end of its module.
    pub(crate) fn eager(&self, inside: TokenStream) -> TokenStream {
        self.eager_of(self.tokens.clone(), inside)
    }

    /// Returns the same for a variant of the item's tokens.
    pub(crate) fn eager_of(&self, tokens: TokenStream, inside: TokenStream) -> TokenStream {
        let erased = erase_dims(tokens);
        match &self.form {
            Form::Function(_) => erased,
            Form::Module(_) => {
                let mut trees: Vec<TokenTree> = erased.into_iter().collect();
                if let Some(TokenTree::Group(body)) = trees.last_mut()
                    && body.delimiter() == Delimiter::Brace
                {
                    let mut extended = Group::new(Delimiter::Brace, {
                        let mut stream = body.stream();
                        stream.extend(inside);
                        stream
                    });
                    extended.set_span(body.span());
                    *body = extended;
                }
                trees.into_iter().collect()
            }
        }
    }
}

/// Returns how the dims of an input are written.
pub(crate) fn dims_help(name: &str) -> String {
    format!("write its dims into its type: `{name}: Tensor<f32, 512, 784>`")
}

/// Returns the arguments of a function as the user wrote them.
pub(crate) fn arguments(function: &ItemFn) -> impl Iterator<Item = &PatType> {
    function.sig.inputs.iter().filter_map(|input| match input {
        FnArg::Typed(it) => Some(it),
        FnArg::Receiver(_) => None,
    })
}

/// Returns the name of the generated type of an entry's batches: `Batch` for `forward`, and for
/// others their names in camel case.
pub(crate) fn batch_name(entry: &str) -> String {
    if entry == FORWARD {
        return "Batch".to_owned();
    }
    let word = |word: &str| -> String {
        let mut letters = word.chars();
        letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
    };
    entry.split('_').map(word).collect()
}
