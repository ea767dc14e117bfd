//! The budget of an evaluation. A model that would take all time or memory ends with an error at
//! the place where its budget is spent.
//!
//! Work is counted, so the result does not depend on the machine.

use quote::ToTokens;

use crate::{diagnostic::Diagnostic, evaluate::Evaluator, value::Value};

/// What a budget limits.
#[derive(Clone, Copy)]
pub(super) enum Resource {
    /// Expressions and rounds of loops that are evaluated.
    Expressions,
    /// Calls of functions.
    Calls,
    /// Tensors of the graph. An operator may make several.
    Tensors,
    /// Members of arrays, tuples and ranges that are made or copied.
    Elements,
}

impl Resource {
    const N: usize = 4;

    const fn limit(self) -> usize {
        match self {
            Self::Expressions => 1_000_000,
            Self::Calls => 50_000,
            Self::Tensors => 50_000,
            Self::Elements => 4_000_000,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Expressions => "expressions",
            Self::Calls => "calls of functions",
            Self::Tensors => "tensors",
            Self::Elements => "elements of arrays",
        }
    }
}

/// The work of an evaluation so far.
#[derive(Default)]
pub(crate) struct Budget {
    spent: [usize; Resource::N],
    /// True once a limit is exceeded, which ends the evaluation.
    pub(super) is_spent: bool,
}

impl Evaluator<'_> {
    /// Counts work for these tokens. Returns false once the budget is spent, after reporting it.
    pub(super) fn spend(&mut self, resource: Resource, n: usize, at: &dyn ToTokens) -> bool {
        let spent = &mut self.budget.spent[resource as usize];
        *spent = spent.saturating_add(n);
        if *spent > resource.limit() && !self.budget.is_spent {
            self.report_spent(resource, at);
        }
        !self.budget.is_spent
    }

    /// Counts the tensors of the graph so far.
    pub(super) fn spend_tensors(&mut self, at: &dyn ToTokens) -> bool {
        let n_tensors = self.builder.graph().n_values();
        let n_new = n_tensors.saturating_sub(self.budget.spent[Resource::Tensors as usize]);
        self.spend(Resource::Tensors, n_new, at)
    }

    fn report_spent(&mut self, resource: Resource, at: &dyn ToTokens) {
        let (name, limit) = (resource.name(), resource.limit());
        let headline = format!("the model is too large: it has more than {limit} {name}");
        let help = "loops and calls are unrolled when the model is built; make them fewer";
        self.report(at, Diagnostic::new(headline).help(help));
        self.budget.is_spent = true;
    }
}

/// Returns the number of members of a value, at any depth.
pub(super) fn n_elements(value: &Value<'_>) -> usize {
    match value {
        Value::List(members) | Value::Tuple(members) | Value::Sequence(members) => {
            members.iter().fold(members.len(), |n, it| n.saturating_add(n_elements(it)))
        }
        Value::Struct(fields) => {
            fields.iter().fold(fields.len(), |n, (_, it)| n.saturating_add(n_elements(it)))
        }
        Value::Tensor(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Boolean(_)
        | Value::Text(_)
        | Value::Init(_)
        | Value::All
        | Value::Poison => 0,
    }
}
