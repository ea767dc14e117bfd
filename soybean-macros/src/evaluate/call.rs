//! Calls of functions: the model's own, `param` and `buffer`, and operators.

use std::rc::Rc;

use syn::{Expr, ExprCall, ExprPath, FnArg, ItemFn, ReturnType};

use crate::{
    diagnostic::Diagnostic,
    evaluate::{Call, Evaluator, Exit, Flow, Linked, expression::peeled, parameter::PARAMETERS},
    naming::Naming,
    scope::{Definition, Frame, Items},
    source_text::whole_text,
    suggestion, unsupported,
    value::Value,
};

impl<'a> Evaluator<'a> {
    pub(super) fn call(&mut self, call: &'a ExprCall) -> Flow<'a> {
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
            Some((Definition::Constant(_), _)) => {
                return Ok(self.report(callee, format!("`{own}` is a const, not a function")));
            }
            None => {}
        }
        match self.linked(&items, &text) {
            Some(Linked::To(Definition::Function(function), scope)) => {
                return self.layer(call, function, scope);
            }
            Some(Linked::To(Definition::Constant(_), _)) => {
                return Ok(self.report(callee, format!("`{text}` is a const, not a function")));
            }
            Some(Linked::Unmarked) => return self.unmarked_function(call, callee, &text, &items),
            Some(Linked::Faulty) => {
                self.all(&call.args)?;
                return Ok(Value::Poison);
            }
            None => {}
        }
        let facade = text.trim_start_matches("::").strip_prefix("soybean::");
        let name = facade.map_or(text.as_str(), |it| it.strip_prefix("prelude::").unwrap_or(it));
        match name {
            "param" | "buffer" => self.parameter(name, call),
            _ if soybean_compiler::init_names().contains(&name) => self.init(name, call),
            _ if soybean_compiler::function_names().contains(&name) => {
                let values = self.all(&call.args)?;
                let operands: Vec<_> = call.args.iter().zip(values).collect();
                Ok(self.operator(name, callee, &operands))
            }
            _ => self.unknown_function(call, callee, name, &items),
        }
    }

    fn unknown_function(
        &mut self,
        call: &'a ExprCall,
        callee: &'a ExprPath,
        name: &str,
        items: &Items<'a>,
    ) -> Flow<'a> {
        let help = match (name.rsplit_once("::"), nearest_function(name, items)) {
            (None, Some(nearest)) => format!("did you mean `{nearest}`?"),
            (Some(_), _) => {
                "a model calls functions of its own module; write `x.relu()` for operators".into()
            }
            (None, None) => format!(
                "the macro sees only the tokens that it annotates: define `fn {name}` inside the annotated `mod`"
            ),
        };
        let headline = format!("unknown function `{name}`");
        self.report(callee, Diagnostic::new(headline).help(help));
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
            Diagnostic::new(format!("`{name}` is neither a function of the model nor a layer"))
                .help("write `#[soybean::layer]` on it, or move it into the annotated `mod`");
        if let Some(nearest) = nearest_function(name, items) {
            message = message.help(format!("or did you mean `{nearest}`?"));
        }
        self.report(callee, message);
        self.all(&call.args)?;
        Ok(Value::Poison)
    }

    /// Calls a function of the model, or a layer.
    fn layer(
        &mut self,
        call: &'a ExprCall,
        function: &'a ItemFn,
        scope: Rc<Items<'a>>,
    ) -> Flow<'a> {
        let arguments = self.all(&call.args)?;
        if let Some(unsupported) = unsupported::function(function) {
            return Ok(self.unsupported(unsupported));
        }
        let name = &function.sig.ident;
        let (n_expected, n_found) = (function.sig.inputs.len(), arguments.len());
        if n_expected != n_found {
            let plural = if n_expected == 1 { "" } else { "s" };
            let headline = format!("`{name}` takes {n_expected} argument{plural}, found {n_found}");
            let message =
                Diagnostic::new(headline).note("fn", format!("`{}`", whole_text(&function.sig)));
            return Ok(self.report(call, message));
        }
        if self.calls.iter().any(|it| std::ptr::eq(it.function, function)) {
            let headline =
                format!("recursion is not part of the model language: `{name}` calls itself");
            let message = Diagnostic::new(headline).help("use `for` over a constant range");
            return Ok(self.report(call, message));
        }
        let caller = self.frame().call;
        let id = self.naming.enter(caller, &name.to_string());
        let is_in_model = self.frame().items.is_of_model();
        self.calls.push(Call { function, call, is_in_model });
        self.frames.push(Frame::new(scope, id));
        let result = self.body(function, arguments);
        self.frames.pop();
        self.calls.pop();
        Ok(result)
    }

    /// Evaluates a function's body in the frame on top.
    pub(super) fn body(&mut self, function: &'a ItemFn, arguments: Vec<Value<'a>>) -> Value<'a> {
        let is_forward = self.frame().call == Naming::ROOT && self.calls.is_empty();
        for (input, argument) in function.sig.inputs.iter().zip(arguments) {
            let FnArg::Typed(input) = input else { continue };
            let value = match is_forward || self.has_type(&argument, &input.ty, &input.pat) {
                true => argument,
                false => Value::Poison,
            };
            self.bind(&input.pat, value);
        }
        let result = match self.block(&function.block) {
            Ok(value) | Err(Exit::Return(value)) => value,
            Err(Exit::Break | Exit::Continue) => Value::Poison,
        };
        match &function.sig.output {
            ReturnType::Type(_, ty) if !self.has_type(&result, ty, ty) => Value::Poison,
            ReturnType::Type(..) | ReturnType::Default => result,
        }
    }
}

/// Returns the function with the most similar name that a model can call, if there is one.
fn nearest_function(name: &str, items: &Items<'_>) -> Option<String> {
    let functions = items.names(|it| matches!(it, Definition::Function(_)));
    let inits = soybean_compiler::init_names();
    let operators = soybean_compiler::function_names();
    let known = functions.iter().chain(&inits).chain(&operators).copied().chain(PARAMETERS);
    suggestion::nearest(name, known).map(str::to_owned)
}
