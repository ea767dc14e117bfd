//! Dominated splits: those that another split makes needless, such as splits of image dims if the
//! batch can be split.
//!
//! Dims and factors that operators tie together form one *loop* of the network. Assume that
//!
//! - every tensor and every operator with loop H also has loop B, exactly once;
//! - whatever an operator reads or writes along H, it reads or writes along B as well;
//! - a result that has B but lacks the H of its operator is not stored as a partial sum;
//! - B can be split along all axes everywhere, and nothing reads a halo along it.
//!
//! Take any plan, and split B wherever it splits H. Operands that have B but lack H may arrive
//! split instead of replicated or reduced. Results that have B but lack H come out split instead of
//! partial, and are stored split or replicated. Equal tilings stay equal, and everything else is
//! unchanged, also where a tensor becomes a partial sum, so no conversion moves more. Halos along H
//! are no longer needed. Hence some optimal plan splits H nowhere.
//!
//! A loop that a user's pin splits is kept. Pinned tensors that split neither loop are unchanged.
//! The dims of tensors that every rank computes whole are kept, too. They are loops of their own,
//! because readers take any part of such a tensor.

use soybean_plan::{AxisSet, Mesh, may_split};

use super::problem::{
    builder::{computed_by, variables},
    operator_of,
};
use crate::{
    network::Network,
    operators::attend::Attend,
    partial_sums::{Idle, PartialSums},
    signature::{Dim, FactorId, Signature, factor_id},
    value::Value,
};

/// A variable of the search, without its kind.
#[derive(Clone, Copy, Debug)]
pub(super) enum NetworkVariable {
    /// The tiling of this tensor.
    Tensor(Value),
    /// The partitioning in which this tensor is computed.
    Operator(Value),
}

/// Marks the needless splits: for each variable, each dim of its tensor or factor of its operator.
pub(super) fn needless_splits(network: &Network, mesh: &Mesh) -> Vec<Vec<bool>> {
    let this = Loops::new(network, mesh);
    let n_loops = this.loops.iter().flatten().max().map_or(0, |it| it + 1);
    let mut variables_of: Vec<Vec<usize>> = vec![Vec::new(); n_loops];
    let mut can_split = vec![true; n_loops];
    let mut is_kept = vec![false; n_loops];
    for (variable, loops) in this.loops.iter().enumerate() {
        for (at, &number) in loops.iter().enumerate() {
            if variables_of[number].last() != Some(&variable) {
                variables_of[number].push(variable);
            }
            // Images that stay whole lose these splits afterwards.
            let stays_whole = network.keeps_images_whole && this.is_windowed(variable, at);
            can_split[number] &= !stays_whole
                && this.splits_along_all_axes(variable, at)
                && !this.has_halo(variable, at);
            is_kept[number] |= this.is_pinned_along(variable, at)
                || this.is_whole(variable)
                || this.leaves_terms(variable, at);
        }
    }
    let mut is_needless = vec![false; n_loops];
    for inner in 0..n_loops {
        let variables = &variables_of[inner];
        let Some(first) = variables.first() else { continue };
        let dominates = |&outer: &usize| {
            outer != inner
                && can_split[outer]
                && !is_needless[outer]
                && variables.iter().all(|&it| this.is_covered(it, inner, outer))
        };
        is_needless[inner] = !is_kept[inner] && this.loops[*first].iter().any(dominates);
    }
    let of_variable = |(variable, loops): (usize, &Vec<usize>)| {
        let is_whole = |at: usize| network.keeps_images_whole && this.is_windowed(variable, at);
        loops.iter().enumerate().map(|(at, &it)| is_needless[it] || is_whole(at)).collect()
    };
    this.loops.iter().enumerate().map(of_variable).collect()
}

/// Marks no split as needless.
#[cfg(test)]
pub(super) fn no_splits(network: &Network, mesh: &Mesh) -> Vec<Vec<bool>> {
    let this = Loops::new(network, mesh);
    this.loops.iter().map(|it| vec![false; it.len()]).collect()
}

/// The loops of a network: for each variable, the loop of each dim or factor.
struct Loops<'a> {
    network: &'a Network,
    mesh: &'a Mesh,
    variables: Vec<NetworkVariable>,
    /// The signatures of operators.
    signatures: Vec<Option<Signature>>,
    /// For each variable, what the kernel of its operator computes besides its result, with
    /// signatures.
    further: Vec<Vec<(Value, Signature)>>,
    /// A mark for each value that every rank computes whole.
    is_known_everywhere: Vec<bool>,
    /// How each value is stored along the axes that split none of its dims.
    idle: Vec<Idle>,
    loops: Vec<Vec<usize>>,
}

impl<'a> Loops<'a> {
    fn new(network: &'a Network, mesh: &'a Mesh) -> Self {
        let (variables, tensors) = variables(network);
        let signature = |variable: &NetworkVariable| match *variable {
            NetworkVariable::Tensor(_) => None,
            NetworkVariable::Operator(value) => {
                Some(operator_of(network, value).signature(&network.graph.operand_shapes(value)))
            }
        };
        let signatures: Vec<Option<Signature>> = variables.iter().map(signature).collect();
        let of_value =
            |it: Value| (it, operator_of(network, it).signature(&network.graph.operand_shapes(it)));
        let further = variables.iter().map(|variable| match *variable {
            NetworkVariable::Tensor(_) => Vec::new(),
            NetworkVariable::Operator(value) => {
                computed_by(network, value).into_iter().map(of_value).collect()
            }
        });
        let further: Vec<Vec<(Value, Signature)>> = further.collect();
        let all = variables.iter().zip(&signatures);
        let operators = all.filter_map(|(variable, signature)| match *variable {
            NetworkVariable::Operator(value) => Some((value, signature.as_ref()?)),
            NetworkVariable::Tensor(_) => None,
        });
        let PartialSums { idle, terms } = PartialSums::of(network, mesh.n_ranks());
        let mut is_known_everywhere = vec![false; network.graph.n_values()];
        for (value, signature) in operators {
            let at = value.index();
            is_known_everywhere[at] = is_known(signature, &terms[at]);
        }
        let loops = Vec::new();
        let mut this = Self {
            network,
            mesh,
            variables,
            signatures,
            further,
            is_known_everywhere,
            idle,
            loops,
        };
        this.loops = this.united(&tensors);
        this
    }

    fn n_loops_of(&self, variable: usize) -> usize {
        match (self.variables[variable], &self.signatures[variable]) {
            (NetworkVariable::Operator(_), Some(signature)) => signature.factors.len(),
            (NetworkVariable::Tensor(value) | NetworkVariable::Operator(value), _) => {
                self.network.graph.shape(value).len()
            }
        }
    }

    /// Unites the dims of tensors with the factors of the operators that access them (union-find).
    fn united(&self, tensors: &[usize]) -> Vec<Vec<usize>> {
        let mut starts = Vec::with_capacity(self.variables.len());
        let mut parents: Vec<usize> = Vec::new();
        for variable in 0..self.variables.len() {
            let start = parents.len();
            starts.push(start);
            parents.extend(start..start + self.n_loops_of(variable));
        }
        let graph = &self.network.graph;
        for (operator, signature) in self.signatures.iter().enumerate() {
            let (NetworkVariable::Operator(user), Some(signature)) =
                (self.variables[operator], signature)
            else {
                continue;
            };
            let operands = graph.operands(user).into_iter().zip(&signature.operands);
            let further = self.further[operator].iter().map(|(value, of)| (*value, &of.result));
            for (value, dims) in operands.chain([(user, &signature.result)]).chain(further) {
                if self.is_known_everywhere[value.index()] {
                    continue;
                }
                for (dim, of_dim) in dims.iter().enumerate() {
                    let Some(factor) = of_dim.factor else { continue };
                    let one = root(&mut parents, starts[tensors[value.index()]] + dim);
                    let other = root(&mut parents, starts[operator] + factor as usize);
                    parents[one.max(other)] = one.min(other);
                }
            }
        }
        (0..self.variables.len())
            .map(|variable| {
                let start = starts[variable];
                let all = start..start + self.n_loops_of(variable);
                all.map(|it| root(&mut parents, it)).collect()
            })
            .collect()
    }

    /// Returns whether a user pins the tensor of a variable to a tiling that splits this dim.
    fn is_pinned_along(&self, variable: usize, dim: usize) -> bool {
        let NetworkVariable::Tensor(value) = self.variables[variable] else { return false };
        self.network.pin(value, self.mesh).is_some_and(|it| !it.axes_of(dim).is_empty())
    }

    /// Returns whether every rank computes the whole tensor of a variable.
    fn is_whole(&self, variable: usize) -> bool {
        match self.variables[variable] {
            NetworkVariable::Tensor(value) => self.is_known_everywhere[value.index()],
            NetworkVariable::Operator(_) => false,
        }
    }

    /// Returns whether splitting this factor leaves a result that may be stored as a partial sum
    /// while other dims of it are split.
    fn leaves_terms(&self, variable: usize, factor: usize) -> bool {
        let (NetworkVariable::Operator(value), Some(signature)) =
            (self.variables[variable], &self.signatures[variable])
        else {
            return false;
        };
        let leaves = |value: Value, signature: &Signature| {
            self.idle[value.index()] == Idle::Either && signature.is_reduced(factor_id(factor))
        };
        leaves(value, signature) || self.further[variable].iter().any(|it| leaves(it.0, &it.1))
    }

    fn splits_along_all_axes(&self, variable: usize, at: usize) -> bool {
        let axes: AxisSet = (0..self.mesh.n_axes()).collect();
        match (self.variables[variable], &self.signatures[variable]) {
            (NetworkVariable::Operator(_), Some(signature)) => {
                signature.may_split(factor_id(at), self.mesh, axes)
            }
            (NetworkVariable::Tensor(value) | NetworkVariable::Operator(value), _) => {
                may_split(self.network.graph.shape(value)[at], self.mesh, axes)
            }
        }
    }

    /// Returns whether an operator reads a halo along this factor.
    fn has_halo(&self, variable: usize, at: usize) -> bool {
        self.some_dim_is(variable, at, Dim::has_halo)
    }

    /// Returns whether an operator moves windows over images along this factor.
    fn is_windowed(&self, variable: usize, at: usize) -> bool {
        let is_attention = |value| self.network.graph.operator_as::<Attend>(value).is_some();
        !matches!(self.variables[variable], NetworkVariable::Operator(it) if is_attention(it))
            && self.some_dim_is(variable, at, |dim| dim.halo.is_some())
    }

    /// Returns whether the condition holds of a dim that carries this factor of an operator.
    fn some_dim_is(&self, variable: usize, at: usize, condition: impl Fn(&Dim) -> bool) -> bool {
        match (self.variables[variable], &self.signatures[variable]) {
            (NetworkVariable::Operator(_), Some(signature)) => {
                signature.dims_of(factor_id(at)).any(condition)
            }
            (NetworkVariable::Tensor(_) | NetworkVariable::Operator(_), _) => false,
        }
    }

    /// Returns whether a variable with the inner loop has the outer loop once. An operator must
    /// also have the outer loop wherever it has the inner one.
    fn is_covered(&self, variable: usize, inner: usize, outer: usize) -> bool {
        let loops = &self.loops[variable];
        let mut positions = (0..loops.len()).filter(|&it| loops[it] == outer);
        let (Some(position), None) = (positions.next(), positions.next()) else { return false };
        let (NetworkVariable::Operator(value), Some(signature)) =
            (self.variables[variable], &self.signatures[variable])
        else {
            return true;
        };
        let graph = &self.network.graph;
        let operands = graph.operands(value).into_iter().enumerate();
        let is_known = |value: Value| self.is_known_everywhere[value.index()];
        let varying = operands.filter(|(_, it)| !is_known(*it)).map(|(at, _)| Some(at));
        let further = self.further[variable].iter().map(|it| &it.1.result[..]);
        let all = varying.chain([None]).map(|operand| signature.dims(operand)).chain(further);
        all.into_iter().all(|dims| {
            let has = |wanted: &dyn Fn(usize) -> bool| {
                dims.iter().filter_map(|it| it.factor).any(|it| wanted(it as usize))
            };
            !has(&|it| loops[it] == inner) || has(&|it| it == position)
        })
    }
}

/// Returns whether every rank computes the whole result of an operator. One that may work on terms
/// gives no such result.
pub(super) fn is_known(signature: &Signature, terms: &[FactorId]) -> bool {
    signature.is_known_everywhere() && terms.is_empty()
}

/// Returns the representative of a set, and halves the path to it.
fn root(parents: &mut [usize], of: usize) -> usize {
    let mut at = of;
    while parents[at] != at {
        parents[at] = parents[parents[at]];
        at = parents[at];
    }
    at
}

#[cfg(test)]
mod tests;
