//! Names of parameters: the path of calls and loop iterations that leads to their `param`.
//!
//! The third call of `dense` in `forward` gives `dense.2.w`, and an only call gives `dense.w`. The
//! number of calls is known only after the caller has been evaluated, so names are made at the end.
//!
//! A scope is a call with a name of its own. It is one call, however often it is made, so that the
//! calls within it count from the start again, and their parameters are the same.

use std::collections::BTreeMap;

use syn::Expr;

/// The number of a call of one of the model's functions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CallId(usize);

impl CallId {
    /// Returns the number.
    pub(crate) fn index(self) -> usize {
        self.0
    }
}

/// The calls and parameters of a model.
pub(crate) struct Naming<'a> {
    calls: Vec<Call>,
    /// The calls by their callers, names and numbers.
    ids: BTreeMap<(CallId, String, Option<usize>), CallId>,
    /// The largest number of calls of a function in one evaluation of a caller.
    n_calls: BTreeMap<(CallId, String), usize>,
    parameters: Vec<Parameter<'a>>,
    /// The last parameter of each call and own name.
    by_name: BTreeMap<(CallId, String), usize>,
    tensors: Vec<Tensor>,
}

/// A tensor that the user gave a name.
struct Tensor {
    value: soybean_compiler::Value,
    call: CallId,
    own_name: String,
}

struct Call {
    caller: Option<CallId>,
    /// The name of the function or scope.
    name: String,
    /// The number of earlier calls of the same function in the same caller; `None` for a scope.
    index: Option<usize>,
    /// How often it was begun.
    n_begun: usize,
    /// The number of calls of each function since it was last begun.
    n_calls: BTreeMap<String, usize>,
}

impl Call {
    fn entry() -> Self {
        let n_calls = BTreeMap::new();
        Self { caller: None, name: String::new(), index: None, n_begun: 1, n_calls }
    }
}

/// A call of `param`.
pub(crate) struct Parameter<'a> {
    /// The tensor; `None` if it had errors.
    pub(crate) value: Option<soybean_compiler::Value>,
    /// The user's expression of the name.
    pub(crate) name: &'a Expr,
    /// The tokens of the call, for errors that are found later.
    pub(crate) at: &'a syn::ExprCall,
    call: CallId,
    own_name: String,
    /// The time, counted from 1, at which its call was begun when it was last asked for.
    begun: usize,
}

impl<'a> Naming<'a> {
    /// The evaluation of the first entry, which adds no prefix to the names of its parameters.
    pub(crate) const ROOT: CallId = CallId(0);

    pub(crate) fn new() -> Self {
        Self {
            calls: vec![Call::entry()],
            ids: BTreeMap::new(),
            n_calls: BTreeMap::new(),
            parameters: Vec::new(),
            by_name: BTreeMap::new(),
            tensors: Vec::new(),
        }
    }

    /// Begins the evaluation of another entry, which adds no prefix to names either.
    pub(crate) fn begin_entry(&mut self) -> CallId {
        self.calls.push(Call::entry());
        CallId(self.calls.len() - 1)
    }

    /// Returns the evaluation of the entry in which a parameter is made.
    pub(crate) fn entry(&self, parameter: &Parameter<'_>) -> CallId {
        let mut id = parameter.call;
        while let Some(caller) = self.calls[id.0].caller {
            id = caller;
        }
        id
    }

    /// Records that `caller` calls `function`.
    pub(crate) fn enter(&mut self, caller: CallId, function: &str) -> CallId {
        let n_calls = self.calls[caller.0].n_calls.entry(function.to_owned()).or_default();
        let index = *n_calls;
        *n_calls += 1;
        let most = self.n_calls.entry((caller, function.to_owned())).or_default();
        *most = (*most).max(index + 1);
        self.begin(caller, function, Some(index))
    }

    /// Records that `caller` begins the scope of this name.
    pub(crate) fn enter_scope(&mut self, caller: CallId, name: &str) -> CallId {
        self.begin(caller, name, None)
    }

    fn begin(&mut self, caller: CallId, name: &str, index: Option<usize>) -> CallId {
        let new = CallId(self.calls.len());
        let id = *self.ids.entry((caller, name.to_owned(), index)).or_insert(new);
        if id == new {
            let (caller, name, n_calls) = (Some(caller), name.to_owned(), BTreeMap::new());
            self.calls.push(Call { caller, name, index, n_begun: 0, n_calls });
        }
        let call = &mut self.calls[id.0];
        call.n_begun += 1;
        call.n_calls.clear();
        id
    }

    /// Returns the parameter of this name that `call` made when it was begun before, and records
    /// that the call asks for it once more. `None` if there is none.
    pub(crate) fn shared(
        &mut self,
        call: CallId,
        name: &str,
        rounds: &[usize],
    ) -> Option<&Parameter<'a>> {
        let number = *self.by_name.get(&(call, in_rounds(name, rounds)))?;
        let (parameter, n_begun) = (&mut self.parameters[number], self.calls[call.0].n_begun);
        let is_earlier = parameter.begun < n_begun;
        parameter.begun = n_begun;
        is_earlier.then_some(parameter)
    }

    /// Records a parameter that `call` makes in these iterations of its loops.
    pub(crate) fn add_parameter(
        &mut self,
        call: CallId,
        name: (&str, &'a Expr),
        rounds: &[usize],
        at: &'a syn::ExprCall,
        value: Option<soybean_compiler::Value>,
    ) {
        let own_name = in_rounds(name.0, rounds);
        let begun = self.calls[call.0].n_begun;
        self.by_name.insert((call, own_name.clone()), self.parameters.len());
        self.parameters.push(Parameter { value, name: name.1, at, call, own_name, begun });
    }

    /// Records that `call` names a tensor in these iterations of its loops.
    pub(crate) fn add_tensor(
        &mut self,
        call: CallId,
        name: &str,
        rounds: &[usize],
        value: soybean_compiler::Value,
    ) {
        self.tensors.push(Tensor { value, call, own_name: in_rounds(name, rounds) });
    }

    /// Returns the named tensors with their full names, in the order of naming. A repeated name is
    /// followed by its number: `h#2`.
    pub(crate) fn tensors(&self) -> Vec<(String, soybean_compiler::Value)> {
        let mut n_given: BTreeMap<String, usize> = BTreeMap::new();
        let mut named = |it: &Tensor| {
            let name = self.prefix(it.call) + &it.own_name;
            let n_given = n_given.entry(name.clone()).or_default();
            *n_given += 1;
            match n_given {
                1 => (name, it.value),
                number => (format!("{name}#{number}"), it.value),
            }
        };
        self.tensors.iter().map(&mut named).collect()
    }

    /// Returns the paths of all calls, by their numbers.
    pub(crate) fn layers(&self) -> Vec<String> {
        let path = |id| self.prefix(CallId(id)).trim_end_matches('.').to_owned();
        (0..self.calls.len()).map(path).collect()
    }

    /// Returns all parameters with their full names, in the order in which the model makes them.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = (String, &Parameter<'a>)> {
        self.parameters.iter().map(|it| (self.prefix(it.call) + &it.own_name, it))
    }

    /// Returns the path of a call, with a dot at its end.
    fn prefix(&self, id: CallId) -> String {
        let call = &self.calls[id.0];
        let Some(caller) = call.caller else { return String::new() };
        let prefix = self.prefix(caller);
        let name = &call.name;
        match (call.index, self.n_calls.get(&(caller, name.clone()))) {
            (Some(index), Some(2..)) => format!("{prefix}{name}.{index}."),
            (Some(_) | None, _) => format!("{prefix}{name}."),
        }
    }
}

fn in_rounds(name: &str, rounds: &[usize]) -> String {
    let rounds = rounds.iter().map(|round| format!(".{round}"));
    std::iter::once(name.to_owned()).chain(rounds).collect()
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::Naming;

    #[test]
    fn only_repeated_calls_are_numbered() {
        let (name, call) = (parse_quote!("w"), parse_quote!(param("w", [1], normal(0.1))));
        let mut naming = Naming::new();
        let block = naming.enter(Naming::ROOT, "block");
        let first = naming.enter(block, "dense");
        let second = naming.enter(block, "dense");
        let other = naming.enter(Naming::ROOT, "dense");
        let rounds: [(_, &[usize]); 4] =
            [(first, &[]), (second, &[1, 0]), (other, &[]), (Naming::ROOT, &[2])];
        for (id, rounds) in rounds {
            naming.add_parameter(id, ("w", &name), rounds, &call, None);
        }
        let names: Vec<_> = naming.parameters().map(|(name, _)| name).collect();
        assert_eq!(names, ["block.dense.0.w", "block.dense.1.w.1.0", "dense.w", "w.2"]);
    }

    // Guards: a scope that begins again has the same parameters, at any depth.
    #[test]
    fn scopes_are_one_call() {
        let (name, call) = (parse_quote!("w"), parse_quote!(param("w", [1], normal(0.1))));
        let mut naming = Naming::new();
        let cell = naming.enter(Naming::ROOT, "cell");
        let mut found = Vec::new();
        for caller in [Naming::ROOT, Naming::ROOT, cell] {
            let tower = naming.enter_scope(caller, "tower");
            for _ in 0..2 {
                let dense = naming.enter(tower, "dense");
                found.push(naming.shared(dense, "w", &[]).is_some());
                if found.last() == Some(&false) {
                    naming.add_parameter(dense, ("w", &name), &[], &call, None);
                }
            }
        }
        assert_eq!(found, [false, false, true, true, false, false]);
        let names: Vec<_> = naming.parameters().map(|(name, _)| name).collect();
        let expected =
            ["tower.dense.0.w", "tower.dense.1.w", "cell.tower.dense.0.w", "cell.tower.dense.1.w"];
        assert_eq!(names, expected);
        // Once in one evaluation of the scope, however often that is.
        naming.add_parameter(cell, ("b", &name), &[], &call, None);
        assert!(naming.shared(cell, "b", &[]).is_none());
    }
}
