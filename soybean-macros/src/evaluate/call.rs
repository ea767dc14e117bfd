//! Calls of functions: the model's own, `param` and `buffer`, and operators.

use std::rc::Rc;

use quote::ToTokens;
use syn::{
    Expr, ExprCall, ExprPath, FnArg, ItemFn, ReturnType, Stmt, Token, Type, ext::IdentExt,
    punctuated::Punctuated,
};

use crate::{
    diagnostic::Diagnostic,
    evaluate::{
        Call, Evaluator, Exit, Flow, Linked, budget::Resource, expression::peeled,
        operator::is_assignment, parameter::PARAMETERS, scope::SCOPE,
    },
    operator::{self, Declaration, signature_text},
    scope::{Definition, Frame, Items},
    source_text::{place, whole_text},
    suggestion, unsupported,
    value::Value,
};

impl<'a> Evaluator<'a> {
    pub(super) fn call(&mut self, call: &'a ExprCall) -> Flow<'a> {
        if let Some(poison) = self.refuse_names(&call.args, &whole_text(&call.func)) {
            return Ok(poison);
        }
        let Expr::Path(callee) = peeled(&call.func) else {
            self.report(&call.func, "a model can call named functions only");
            return Ok(Value::Poison);
        };
        let text = whole_text(&callee.path);
        if let Some(variable) = self.frame().variable(&text) {
            let value = variable.value.clone();
            if !value.is_poisoned() {
                let kind = value.kind();
                self.report(callee, format!("`{text}` is {kind}; only functions can be called"));
            }
            self.all(&call.args)?;
            return Ok(Value::Poison);
        }
        let own = text.strip_prefix("self::").unwrap_or(&text);
        let items = Rc::clone(&self.frame().items);
        match items.find(own) {
            Some((Definition::Function(function), scope)) => {
                return self.layer(call, function, scope);
            }
            Some((Definition::Constant(_) | Definition::Static(_), _)) => {
                return Ok(self.report(callee, format!("`{own}` is a const, not a function")));
            }
            None => {}
        }
        match self.linked(&items, &text) {
            Some(Linked::To(Definition::Function(function), scope)) => {
                return self.layer(call, function, scope);
            }
            Some(Linked::To(Definition::Constant(_) | Definition::Static(_), _)) => {
                return Ok(self.report(callee, format!("`{text}` is a const, not a function")));
            }
            Some(Linked::Unmarked) if is_function(&text) || library_name(&text) != text => {}
            Some(Linked::Unmarked) => return self.unmarked_function(call, callee, &text, &items),
            Some(Linked::Faulty) => {
                self.all(&call.args)?;
                return Ok(Value::Poison);
            }
            None => {}
        }
        let name = library_name(&text);
        match name {
            _ if PARAMETERS.contains(&name) => self.parameter(name, call),
            SCOPE => self.scope(call),
            _ if soybean_compiler::init_names().contains(&name) => self.init(name, call),
            _ if soybean_compiler::function_names().contains(&name) => {
                let values = self.all(&call.args)?;
                let operands: Vec<_> = call.args.iter().zip(values).collect();
                Ok(self.operator(name, callee, &operands))
            }
            _ => self.unknown_function(call, callee, name, &items),
        }
    }

    /// Reports arguments that are given by name, as in Python.
    pub(super) fn refuse_names(
        &mut self,
        arguments: &'a Punctuated<Expr, Token![,]>,
        function: &str,
    ) -> Option<Value<'a>> {
        let named = arguments.iter().find_map(|it| match it {
            Expr::Assign(it) => Some(it),
            _ => None,
        })?;
        let message = Diagnostic::new("Rust has no arguments by name");
        let message = match suggestion::call_of(function) {
            _ if whole_text(&named.left) == "keepdim" => {
                message.help("reductions leave the dims out: `x.mean(1).unsqueeze(1)` keeps one")
            }
            Some(call) => message.help(format!("give the values in this order: `{call}`")),
            None => message.help("give the values in the order of the function's parameters"),
        };
        Some(self.report(named, message))
    }

    fn unknown_function(
        &mut self,
        call: &'a ExprCall,
        callee: &'a ExprPath,
        name: &str,
        items: &Items<'a>,
    ) -> Flow<'a> {
        let last = name.rsplit("::").next().unwrap_or(name);
        let help = match (suggestion::help_with_function(last), nearest_function(name, items)) {
            (Some(help), _) => help,
            (None, _) if last != name => {
                "a model calls functions of its own module; write `x.relu()` for operators".into()
            }
            (None, Some(nearest)) => format!("did you mean `{nearest}`?"),
            (None, None) => format!(
                "the macro sees only the tokens that it annotates: define `fn {name}` inside the annotated `mod`"
            ),
        };
        let headline = format!("unknown function `{name}`");
        self.report_unless_read(callee, Diagnostic::new(headline).help(help));
        self.all(&call.args)?;
        Ok(Value::Poison)
    }

    fn unmarked_function(
        &mut self,
        call: &'a ExprCall,
        callee: &'a ExprPath,
        name: &str,
        items: &Items<'a>,
    ) -> Flow<'a> {
        let mut message =
            Diagnostic::new(format!("`{name}` is neither a function of the model nor a layer"));
        let operator = suggestion::help_with_function(name);
        if let Some(help) = &operator {
            message = message.help(help);
        }
        message =
            message.help("write `#[soybean::layer]` on it, or move it into the annotated `mod`");
        if let (None, Some(nearest)) = (operator, nearest_function(name, items)) {
            message = message.help(format!("or did you mean `{nearest}`?"));
        }
        self.report_unmarked(callee, name, message);
        self.all(&call.args)?;
        Ok(Value::Poison)
    }

    /// Reports a path to what is neither a layer nor marked as a constant. Of a path with a module,
    /// only rustc knows whether there is such an item.
    pub(super) fn report_unmarked(
        &mut self,
        at: &dyn ToTokens,
        path: &str,
        message: Diagnostic,
    ) -> Value<'a> {
        if !path.contains("::") || !self.frame().items.is_of_model() {
            return self.report(at, message);
        }
        if self.unmarked.iter().all(|it| it.0 != path) {
            self.unmarked.push((path.to_owned(), message.text()));
        }
        Value::Poison
    }

    /// Calls a function of the model, or a layer.
    fn layer(
        &mut self,
        call: &'a ExprCall,
        function: &'a ItemFn,
        scope: Rc<Items<'a>>,
    ) -> Flow<'a> {
        let arguments = self.all(&call.args)?;
        if let Some(attribute) = operator::attribute_of(function) {
            let message = Diagnostic::new("an operator is not part of a model's module")
                .help("define it outside of the module, and import it: `use super::operator;`");
            return Ok(self.report(attribute, message));
        }
        if let Some(unsupported) = unsupported::function(function) {
            return Ok(self.unsupported(unsupported));
        }
        let name = &function.sig.ident;
        let (n_expected, n_found) = (function.sig.inputs.len(), arguments.len());
        if n_expected != n_found {
            let plural = if n_expected == 1 { "" } else { "s" };
            let headline = format!("`{name}` takes {n_expected} argument{plural}, found {n_found}");
            let message =
                Diagnostic::new(headline).note("fn", format!("`{}`", signature_text(function)));
            return Ok(self.report(call, message));
        }
        if self.calls.iter().any(|it| std::ptr::eq(it.function, function)) {
            let headline =
                format!("recursion is not part of the model language: `{name}` calls itself");
            let message = Diagnostic::new(headline).help("use `for` over a constant range");
            return Ok(self.report(call, message));
        }
        if !self.spend(Resource::Calls, 1, call) {
            return Err(Exit::Spent);
        }
        let caller = self.frame().call;
        let id = self.naming.enter(caller, &name.unraw().to_string());
        let owner = self.frame().items.owner();
        self.calls.push(Call { function, call, owner, place: place(call) });
        self.frames.push(Frame::new(Rc::clone(&scope), id));
        let mismatches = self.mismatches(function, &arguments);
        let result = match (mismatches.is_empty(), Declaration::of(function)) {
            (true, Some(declaration)) => {
                self.custom(call, (function, &declaration), (scope, id), arguments)
            }
            (true, None) => self.body(function, arguments),
            (false, _) => Value::Poison,
        };
        self.frames.pop();
        self.calls.pop();
        self.report_mismatches(call, function, &mismatches);
        Ok(result)
    }

    /// Evaluates a function's body in the frame on top.
    pub(super) fn body(&mut self, function: &'a ItemFn, arguments: Vec<Value<'a>>) -> Value<'a> {
        for (input, argument) in function.sig.inputs.iter().zip(arguments) {
            if let FnArg::Typed(input) = input {
                self.bind(&input.pat, argument);
            }
        }
        let result = match self.block(&function.block) {
            Ok(value) | Err(Exit::Return(value)) => value,
            Err(Exit::Break | Exit::Continue | Exit::Spent) => Value::Poison,
        };
        if let (Value::Tuple(members), Some(semicolon)) = (&result, last_semicolon(function))
            && members.is_empty()
        {
            let name = &function.sig.ident;
            let headline = format!("`{name}` returns nothing: its last expression ends with `;`");
            return self.report(semicolon, Diagnostic::new(headline).help("remove this semicolon"));
        }
        match &function.sig.output {
            ReturnType::Type(_, ty) if !self.has_type(&result, ty, ty) => Value::Poison,
            ReturnType::Type(..) | ReturnType::Default => result,
        }
    }
}

/// Returns whether a name is a function of the prelude, unless the user imports another one.
pub(crate) fn is_function(name: &str) -> bool {
    name == SCOPE || soybean_compiler::function_names().contains(&name)
}

/// Returns the name of a function of the library's prelude, or the whole path of another one.
pub(crate) fn library_name(path: &str) -> &str {
    match path.rsplit_once("::") {
        Some((module, name)) => match module.rsplit("::").next() {
            Some("soybean" | "prelude" | "eager") => name,
            _ => path,
        },
        None => path,
    }
}

/// Returns the semicolon that keeps a function from returning its last expression.
fn last_semicolon(function: &ItemFn) -> Option<&Token![;]> {
    let returns_nothing = match &function.sig.output {
        ReturnType::Default => true,
        ReturnType::Type(_, ty) => matches!(&**ty, Type::Tuple(it) if it.elems.is_empty()),
    };
    match function.block.stmts.last()? {
        _ if returns_nothing => None,
        Stmt::Expr(Expr::Binary(it), _) if is_assignment(&it.op) => None,
        Stmt::Expr(
            Expr::Binary(_)
            | Expr::Call(_)
            | Expr::MethodCall(_)
            | Expr::Paren(_)
            | Expr::Path(_)
            | Expr::Tuple(_)
            | Expr::Unary(_),
            semicolon,
        ) => semicolon.as_ref(),
        _ => None,
    }
}

/// Returns the function with the most similar name that a model can call, if there is one.
fn nearest_function(name: &str, items: &Items<'_>) -> Option<String> {
    let functions = items.names(|it| matches!(it, Definition::Function(_)));
    let inits = soybean_compiler::init_names();
    let operators = soybean_compiler::function_names();
    let known = functions.iter().chain(&inits).chain(&operators).copied();
    let known = known.chain(PARAMETERS).chain([SCOPE]);
    suggestion::nearest(name, known).map(str::to_owned)
}
