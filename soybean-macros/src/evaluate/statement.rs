//! Blocks, `let` and assignments.

use std::rc::Rc;

use quote::ToTokens;
use syn::{Block, Expr, ExprAssign, Local, Pat, PatIdent, Stmt};

use crate::{
    diagnostic::Diagnostic,
    evaluate::{Evaluator, Flow},
    scope::{Items, Variable},
    suggestion, unsupported,
    value::Value,
};

impl<'a> Evaluator<'a> {
    pub(super) fn block(&mut self, block: &'a Block) -> Flow<'a> {
        let frame = self.frame();
        let n_variables = frame.variables.len();
        let outer = Rc::clone(&frame.items);
        let items: Vec<_> = block.stmts.iter().filter_map(item).collect();
        if !items.is_empty() {
            frame.items = Items::within(&outer, items);
        }
        let result = self.statements(&block.stmts);
        let frame = self.frame();
        frame.variables.truncate(n_variables);
        frame.items = outer;
        result
    }

    fn statements(&mut self, statements: &'a [Stmt]) -> Flow<'a> {
        let mut last = Value::UNIT;
        for statement in statements {
            last = self.statement(statement)?;
        }
        Ok(last)
    }

    fn statement(&mut self, statement: &'a Stmt) -> Flow<'a> {
        if let Some(unsupported) = unsupported::statement(statement) {
            self.unsupported(unsupported);
            if let Stmt::Local(local) = statement {
                self.bind(&local.pat, Value::Poison);
            }
            return Ok(Value::UNIT);
        }
        match statement {
            Stmt::Local(local) => self.local(local),
            Stmt::Expr(expression, None) => self.expression(expression),
            Stmt::Expr(expression, Some(_)) => self.expression(expression).map(|_| Value::UNIT),
            Stmt::Macro(it) if it.semi_token.is_some() => {
                self.macro_call(&it.mac).map(|_| Value::UNIT)
            }
            Stmt::Macro(it) => self.macro_call(&it.mac),
            Stmt::Item(_) => Ok(Value::UNIT),
        }
    }

    fn local(&mut self, local: &'a Local) -> Flow<'a> {
        let Some(init) = &local.init else { return Ok(Value::UNIT) };
        let mut value = self.expression(&init.expr)?;
        if let Pat::Type(typed) = &local.pat
            && !self.has_type(&value, &typed.ty, &*init.expr)
        {
            value = Value::Poison;
        }
        self.bind(&local.pat, value);
        Ok(Value::UNIT)
    }

    /// Binds the variables of a pattern.
    pub(super) fn bind(&mut self, pattern: &'a Pat, value: Value<'a>) {
        match pattern {
            Pat::Ident(it) if it.by_ref.is_none() && it.subpat.is_none() => {
                self.bind_name(it, value);
            }
            Pat::Wild(_) => {}
            Pat::Type(it) => self.bind(&it.pat, value),
            Pat::Paren(it) => self.bind(&it.pat, value),
            Pat::Reference(it) => self.bind(&it.pat, value),
            Pat::Tuple(it) => self.bind_members(pattern, it.elems.iter(), value),
            Pat::Slice(it) => self.bind_members(pattern, it.elems.iter(), value),
            Pat::Struct(it) => self.bind_fields(it, &value),
            other => {
                let message = "this pattern is not part of the model language";
                self.report(
                    other,
                    Diagnostic::new(message)
                        .help("use names, `_`, tuples, arrays and structs of them"),
                );
            }
        }
    }

    pub(super) fn bind_name(&mut self, pattern: &'a PatIdent, value: Value<'a>) {
        let (name, is_mutable) = (pattern.ident.to_string(), pattern.mutability.is_some());
        self.name_tensor(&name, &value);
        self.frame().variables.push(Variable { name, value, is_mutable });
    }

    /// Records the user's name for a tensor, or for the members of a tuple or array.
    fn name_tensor(&mut self, name: &str, value: &Value<'a>) {
        match value {
            Value::Tensor(tensor) => {
                let frame = self.frame();
                let (call, rounds) = (frame.call, frame.rounds.clone());
                self.naming.add_tensor(call, name, &rounds, *tensor);
            }
            Value::List(members) | Value::Tuple(members) => {
                for (index, member) in members.iter().enumerate() {
                    self.name_tensor(&format!("{name}[{index}]"), member);
                }
            }
            Value::Struct(fields) => {
                for (field, member) in fields {
                    self.name_tensor(&format!("{name}.{field}"), member);
                }
            }
            Value::Integer(_)
            | Value::Float(_)
            | Value::Boolean(_)
            | Value::Text(_)
            | Value::Sequence(_)
            | Value::Init(_)
            | Value::All
            | Value::Poison => {}
        }
    }

    fn bind_members(
        &mut self,
        pattern: &'a Pat,
        patterns: impl ExactSizeIterator<Item = &'a Pat>,
        value: Value<'a>,
    ) {
        let members = match value {
            Value::Tuple(members) | Value::List(members) if members.len() == patterns.len() => {
                members
            }
            Value::Poison => vec![Value::Poison; patterns.len()],
            other => {
                let n_patterns = patterns.len();
                let found = match &other {
                    Value::Tuple(it) | Value::List(it) => {
                        format!("{} of {}", other.kind(), it.len())
                    }
                    _ => other.kind().to_owned(),
                };
                self.report(
                    pattern,
                    format!("this pattern takes {n_patterns} values, found {found}"),
                );
                vec![Value::Poison; n_patterns]
            }
        };
        for (pattern, member) in patterns.zip(members) {
            self.bind(pattern, member);
        }
    }

    pub(super) fn assign(&mut self, assign: &'a ExprAssign) -> Flow<'a> {
        let value = self.expression(&assign.right)?;
        self.store(&assign.left, value);
        Ok(Value::UNIT)
    }

    /// Assigns a value to the variable, or the member of one, that `target` names.
    pub(super) fn store(&mut self, target: &'a Expr, value: Value<'a>) {
        if let Expr::Tuple(targets) = target {
            let members = match value {
                Value::Tuple(members) if members.len() == targets.elems.len() => members,
                _ => vec![Value::Poison; targets.elems.len()],
            };
            for (target, member) in targets.elems.iter().zip(members) {
                self.store(target, member);
            }
            return;
        }
        if matches!(target, Expr::Infer(_)) {
            return;
        }
        let Some((name, path)) = self.place(target) else { return };
        if path.is_empty() {
            self.name_tensor(&name, &value);
        }
        let Some(variable) = self.frame().variable(&name) else {
            self.unknown_variable(target, &name);
            return;
        };
        let is_poisoned = variable.value.is_poisoned();
        let slot = path.iter().try_fold(&mut variable.value, |slot, index| match slot {
            Value::List(members) | Value::Tuple(members) => members.get_mut(*index),
            _ => None,
        });
        match slot {
            Some(slot) => *slot = value,
            None if is_poisoned => {}
            None => {
                self.report(target, "there is no such member");
            }
        }
    }

    /// Resolves `target` to a variable and the path of indices within it, or reports an error.
    fn place(&mut self, target: &'a Expr) -> Option<(String, Vec<usize>)> {
        let (base, index) = match target {
            Expr::Path(it) if it.path.get_ident().is_some() => {
                return it.path.get_ident().map(|it| (it.to_string(), Vec::new()));
            }
            Expr::Paren(it) => return self.place(&it.expr),
            Expr::Index(it) => (&it.expr, self.value(&it.index)),
            Expr::Field(syn::ExprField { base, member: syn::Member::Unnamed(index), .. }) => {
                (base, Value::Integer(i64::from(index.index)))
            }
            other => {
                self.report(other, "a value can be assigned to a variable, or to a member of one");
                return None;
            }
        };
        let index = match index {
            Value::Integer(index) => usize::try_from(index).ok(),
            _ => None,
        };
        let (name, mut path) = self.place(base)?;
        path.push(index?);
        Some((name, path))
    }

    pub(super) fn unknown_variable(&mut self, at: &dyn ToTokens, name: &str) -> Value<'a> {
        let frame = self.frame();
        let items = Rc::clone(&frame.items);
        let variables: Vec<_> = frame.variables.iter().map(|it| it.name.clone()).collect();
        let constants = items.names(|it| matches!(it, crate::scope::Definition::Constant(_)));
        let known = variables.iter().map(String::as_str).chain(constants);
        let help = suggestion::nearest(name, known).map_or_else(
            || "the macro sees only the tokens that it annotates: put the const into the annotated `mod`".to_owned(),
            |nearest| format!("did you mean `{nearest}`?"),
        );
        let headline = format!("`{name}` is not known when the model is built");
        self.report_unless_read(at, Diagnostic::new(headline).help(help))
    }

    /// Poisons the variables that `tokens`, which were not evaluated, may have assigned.
    pub(super) fn forget_variables_in(&mut self, tokens: &dyn ToTokens) {
        let words = source_words(tokens);
        for variable in &mut self.frame().variables {
            if variable.is_mutable && words.contains(&variable.name) {
                variable.value = Value::Poison;
            }
        }
    }
}

fn item(statement: &Stmt) -> Option<&syn::Item> {
    match statement {
        Stmt::Item(item) => Some(item),
        _ => None,
    }
}

/// Returns all identifiers among the tokens.
fn source_words(tokens: &dyn ToTokens) -> Vec<String> {
    fn collect(tokens: proc_macro2::TokenStream, words: &mut Vec<String>) {
        for token in tokens {
            match token {
                proc_macro2::TokenTree::Ident(it) => words.push(it.to_string()),
                proc_macro2::TokenTree::Group(it) => collect(it.stream(), words),
                _ => {}
            }
        }
    }
    let mut words = Vec::new();
    collect(tokens.to_token_stream(), &mut words);
    words
}
