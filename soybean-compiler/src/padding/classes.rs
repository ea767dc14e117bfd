//! Classes of dims that operators tie together.

use std::collections::BTreeSet;

use crate::{
    graph::Source,
    network::Network,
    operators::{iota::Iota, reshape::greatest_common_divisor},
    value::Value,
};

/// The unit of a class. Classes with equal units are padded alike.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Unit {
    /// The greatest common divisor of the extents of the class; 1 if it cannot be padded.
    pub(super) extent: usize,
    /// True if inputs have dims of the class and parameters do not, as those of a batch.
    pub(super) is_of_batch: bool,
}

/// The classes of dims that operators tie together.
pub(super) struct DimClasses {
    /// The class of each dim of each tensor.
    pub(super) of_dims: Vec<Vec<usize>>,
    /// The class of each factor of the operator that computes a tensor.
    pub(super) of_factors: Vec<Vec<usize>>,
    /// The unit of each class.
    pub(super) units: Vec<Unit>,
}

impl DimClasses {
    /// Returns the classes of a network. A class cannot be padded if an operator needs a dim of it
    /// whole, such as a dim along which tensors are joined.
    pub(super) fn of(network: &Network) -> Self {
        let graph = &network.graph;
        let mut sets = DisjointSets::default();
        let (mut of_dims, mut of_factors) = (Vec::new(), Vec::new());
        for value in graph.values() {
            let role = match graph.node(value).source {
                Source::Input { .. } => Role::Input,
                Source::Parameter(_) => Role::Parameter,
                Source::Buffer(_) | Source::State | Source::Operator(_) => Role::Other,
            };
            let dims: Vec<usize> =
                graph.shape(value).iter().map(|&it| sets.add(it, role)).collect();
            of_dims.push(dims);
            of_factors.push(Vec::new());
            let Some(operator) = graph.operator(value) else { continue };
            if operator.is::<Iota>() {
                // It is made anew for each reader.
                continue;
            }
            let signature = operator.signature(&graph.operand_shapes(value));
            let factors: Vec<usize> =
                signature.factors.iter().map(|&it| sets.add(it, Role::Other)).collect();
            let operands = graph.operands(value);
            let tensors = operands.iter().zip(&signature.operands);
            for (tensor, dims) in tensors.chain([(&value, &signature.result)]) {
                if graph.operator_as::<Iota>(*tensor).is_some() {
                    continue;
                }
                for (&dim, of_dim) in of_dims[tensor.index()].iter().zip(dims) {
                    match of_dim.factor {
                        Some(factor) => sets.unite(dim, factors[usize::from(factor)]),
                        None => sets.fix(dim),
                    }
                    let is_reduced = of_dim.factor.is_some_and(|it| signature.is_reduced(it));
                    let needs_whole = is_reduced && !operator.pads_reduced_dims();
                    // Windows must not see padding.
                    if needs_whole || of_dim.halo.is_some() || signature.has_parts(of_dim) {
                        sets.fix(dim);
                    }
                }
            }
            of_factors[value.index()] = factors;
        }
        for (source, next) in network.replacements() {
            for (one, other) in of_dims[source.index()].iter().zip(&of_dims[next.index()]) {
                sets.unite(*one, *other);
            }
        }
        let units = sets.units();
        let mut class = |ids: Vec<usize>| ids.into_iter().map(|it| sets.root(it)).collect();
        let of_dims = of_dims.into_iter().map(&mut class).collect();
        let of_factors = of_factors.into_iter().map(&mut class).collect();
        Self { of_dims, of_factors, units }
    }

    /// Returns the distinct units above 1 of the factors of a tensor's operator.
    pub(super) fn units_of(&self, value: Value) -> BTreeSet<Unit> {
        let factors = self.of_factors[value.index()].iter();
        factors.map(|it| self.units[*it]).filter(|it| it.extent > 1).collect()
    }

    /// Returns the distinct units of the classes that can be padded, in increasing order.
    pub(super) fn paddable(&self) -> Vec<Unit> {
        let of_dims = self.of_dims.iter().flatten().map(|&it| self.units[it]);
        let units: BTreeSet<Unit> = of_dims.filter(|it| it.extent > 1).collect();
        units.into_iter().collect()
    }
}

/// The source of a tensor, as far as classes tell them apart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Input,
    Parameter,
    Other,
}

/// Sets of dims that become one as they are tied together.
#[derive(Default)]
struct DisjointSets {
    parents: Vec<usize>,
    extents: Vec<usize>,
    roles: Vec<Role>,
    is_fixed: Vec<bool>,
}

impl DisjointSets {
    fn add(&mut self, extent: usize, role: Role) -> usize {
        self.parents.push(self.parents.len());
        self.extents.push(extent);
        self.roles.push(role);
        self.is_fixed.push(false);
        self.parents.len() - 1
    }

    fn root(&mut self, at: usize) -> usize {
        let mut at = at;
        while self.parents[at] != at {
            self.parents[at] = self.parents[self.parents[at]];
            at = self.parents[at];
        }
        at
    }

    fn unite(&mut self, one: usize, other: usize) {
        let (one, other) = (self.root(one), self.root(other));
        self.parents[other] = one;
    }

    fn fix(&mut self, at: usize) {
        self.is_fixed[at] = true;
    }

    /// Returns the unit of each root.
    fn units(&mut self) -> Vec<Unit> {
        let n = self.parents.len();
        let (mut extents, mut is_fixed) = (vec![0; n], vec![false; n]);
        let mut has_roles = vec![[false; 2]; n];
        for at in 0..n {
            let root = self.root(at);
            extents[root] = greatest_common_divisor(extents[root], self.extents[at]);
            is_fixed[root] |= self.is_fixed[at];
            has_roles[root][0] |= self.roles[at] == Role::Input;
            has_roles[root][1] |= self.roles[at] == Role::Parameter;
        }
        let unit = |at: usize| Unit {
            extent: if is_fixed[at] { 1 } else { extents[at] },
            is_of_batch: has_roles[at] == [true, false],
        };
        (0..n).map(unit).collect()
    }
}
