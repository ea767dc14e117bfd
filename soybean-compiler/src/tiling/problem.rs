//! The search problem of a network on a mesh: a variable for each tensor's tiling and for each operator's form, and the costs of their pairs.
//!
//! A cost is bytes moved over all ranks, times [`BYTE`], plus a share of memory below that, so that among plans of equal bytes the one that
//! stores the least wins.

use std::collections::BTreeMap;

use soybean_plan::{Mesh, Tiling};

use super::{
    pairwise::{Edge, Pairwise},
    space::{Space, Splits},
    tiled::Tiled,
};
use crate::{
    graph::Value,
    network::Network,
    operator::Rules,
    signature::{Form, Signature, forms},
};

/// The cost of one byte moved.
pub(super) const BYTE: u64 = 1 << 20;

/// The costs of all tilings of a network, and what its variables stand for.
pub(super) struct Problem<'a> {
    pub(super) network: &'a Network,
    pub(super) mesh: Mesh,
    pub(super) costs: Pairwise,
    pub(super) meanings: Vec<Meaning>,
    /// Which operators read and make which tensors.
    pub(super) uses: Vec<Use>,
    spaces: Vec<Space>,
}

/// A tensor as an operand or the result of an operator.
pub(super) struct Use {
    /// The tensor's variable.
    pub(super) tensor: usize,
    /// The operator's variable.
    pub(super) operator: usize,
    /// The tensor.
    pub(super) value: Value,
    /// Which operand it is; none if it is the result.
    pub(super) operand: Option<usize>,
}

/// What a variable stands for.
pub(super) enum Meaning {
    /// The tiling of this tensor, and of its next value if it is updated.
    Tensor { value: Value, space: usize },
    /// The form in which this tensor is computed.
    Operator { value: Value, signature: Signature, forms: Vec<Form> },
}

impl<'a> Problem<'a> {
    pub(super) fn new(network: &'a Network, mesh: Mesh) -> Self {
        let (costs, meanings, uses, spaces) =
            (Pairwise::default(), Vec::new(), Vec::new(), Vec::new());
        let mut this = Self { network, mesh, costs, meanings, uses, spaces };
        let tensors = this.add_tensors();
        let mut known_forms: Vec<(Signature, Vec<Form>)> = Vec::new();
        for value in network.graph.values() {
            let Some(operator) = network.graph.operator(value) else { continue };
            let signature = operator.signature(&network.graph.operand_shapes(value));
            let forms = this.forms(&mut known_forms, &signature);
            let operator = this.add_variable(vec![0; forms.len()]);
            this.meanings.push(Meaning::Operator { value, signature, forms });
            let operands = network
                .graph
                .operands(value)
                .into_iter()
                .enumerate()
                .map(|(at, it)| (it, Some(at)));
            for (value, operand) in operands.chain([(value, None)]) {
                this.add_use(Use { tensor: tensors[value.index()], operator, value, operand });
            }
        }
        this.costs.merge_parallel_edges();
        this
    }

    fn add_use(&mut self, usage: Use) {
        let table = self.table(&usage);
        self.costs.edges.push(Edge { first: usage.tensor, second: usage.operator, table });
        self.uses.push(usage);
    }

    fn add_variable(&mut self, unary: Vec<u64>) -> usize {
        self.costs.unary.push(unary);
        self.costs.unary.len() - 1
    }

    /// The variable of each tensor; a next value shares its source's.
    fn add_tensors(&mut self) -> Vec<usize> {
        let graph = &self.network.graph;
        let source_of: BTreeMap<Value, Value> =
            self.network.updates.iter().map(|&(source, next)| (next, source)).collect();
        let total: u64 = graph.values().map(|it| self.bytes_of(it)).sum();
        let mut variables = Vec::with_capacity(graph.n_values());
        for value in graph.values() {
            if let Some(source) = source_of.get(&value) {
                variables.push(variables[source.index()]);
                continue;
            }
            let space = self.add_space(value);
            // Memory counts for less than one byte moved, whatever its sum over all tensors.
            let share = |n_parts: u64| {
                (self.bytes_of(value) / n_parts) as f64 / total as f64 * (BYTE / 2) as f64
            };
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "shares lie in 0..=2^19"
            )]
            let shares = (0..self.spaces[space].stored().len())
                .map(|it| share(self.spaces[space].n_parts(it)) as u64)
                .collect();
            variables.push(self.add_variable(shares));
            self.meanings.push(Meaning::Tensor { value, space });
        }
        variables
    }

    pub(super) fn bytes_of(&self, value: Value) -> u64 {
        let node = self.network.graph.node(value);
        (node.shape.n_elements() * node.dtype.bytes()) as u64
    }

    fn add_space(&mut self, value: Value) -> usize {
        let splits = Splits::new(&self.mesh, &self.network.graph.shape(value));
        self.spaces.iter().position(|it| *it.splits() == splits).unwrap_or_else(|| {
            self.spaces.push(Space::new(splits));
            self.spaces.len() - 1
        })
    }

    fn forms(&self, known: &mut Vec<(Signature, Vec<Form>)>, signature: &Signature) -> Vec<Form> {
        if let Some((_, forms)) = known.iter().find(|(it, _)| it == signature) {
            return forms.clone();
        }
        let forms = forms(signature, &self.mesh);
        known.push((signature.clone(), forms.clone()));
        forms
    }

    /// The costs of converting between a tensor's tilings (rows) and the tilings that an operator's forms (columns) need or give.
    fn table(&self, usage: &Use) -> Vec<u64> {
        let (Meaning::Tensor { space, .. }, Meaning::Operator { signature, forms, .. }) =
            (&self.meanings[usage.tensor], &self.meanings[usage.operator])
        else {
            unreachable!("uses lead from tensors to operators")
        };
        let space = &self.spaces[*space];
        let (n_ranks, bytes) = (self.mesh.n_ranks() as u64, self.bytes_of(usage.value));
        let tiling = |form: &Form| match usage.operand {
            Some(operand) => signature.operand_tiling(operand, form),
            None => signature.result_tiling(form),
        };
        let columns: Vec<usize> = forms.iter().map(|form| space.position(&tiling(form))).collect();
        let mut table = Vec::with_capacity(columns.len() * space.stored().len());
        for row in 0..space.stored().len() {
            for &column in &columns {
                let (from, to) =
                    if usage.operand.is_some() { (row, column) } else { (column, row) };
                let units = space.costs_from(from)[to];
                table.push(if units == 0 { 0 } else { units * bytes / n_ranks * BYTE });
            }
        }
        table
    }

    /// The tilings of a tensor variable.
    pub(super) fn space(&self, space: usize) -> &Space {
        &self.spaces[space]
    }

    /// Whether two states of a variable differ along this axis at most.
    pub(super) fn agree_off(&self, variable: usize, one: usize, other: usize, axis: usize) -> bool {
        let mut axes = (0..self.mesh.n_axes()).filter(|&it| it != axis);
        match &self.meanings[variable] {
            Meaning::Tensor { space, .. } => {
                let tilings = self.spaces[*space].stored();
                axes.all(|it| tilings[one].on(it) == tilings[other].on(it))
            }
            Meaning::Operator { forms, .. } => {
                axes.all(|it| forms[one].0[it] == forms[other].0[it])
            }
        }
    }

    /// The plan that these states stand for.
    pub(super) fn tiled(&self, states: &[usize]) -> Tiled {
        let n_values = self.network.graph.n_values();
        let mut tilings = vec![Tiling::replicated(self.mesh.n_axes()); n_values];
        let mut forms = vec![None; n_values];
        for (meaning, &state) in self.meanings.iter().zip(states) {
            match meaning {
                Meaning::Tensor { value, space } => {
                    tilings[value.index()] = self.spaces[*space].stored()[state];
                }
                Meaning::Operator { value, forms: all, .. } => {
                    forms[value.index()] = Some(all[state].clone());
                }
            }
        }
        for &(source, next) in &self.network.updates {
            tilings[next.index()] = tilings[source.index()];
        }
        Tiled { network: self.network.clone(), mesh: self.mesh, tilings, forms }
    }
}
