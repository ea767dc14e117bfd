//! Construction of the tiling problem of a network: equal kinds and accesses are found and stored
//! once.

use std::{collections::BTreeMap, sync::Arc};

use soybean_minsum::Interner;
use soybean_plan::Mesh;

use super::{Access, AccessEdge, HaloEdge, OperatorKind, TilingProblem, UNIT, Variable, bytes_of};
use crate::{
    kept_halos::Read,
    network::Network,
    operators::attend::Attend,
    partial_sums::{Idle, PartialSums},
    tiling::{
        cost_model::CostModel,
        dominance::NetworkVariable,
        multipliers::MemoryMultipliers,
        number,
        splittable::{Redundancy, SplittableFactors, SplittingSets},
        tiling_space::LegalSplits,
    },
    value::Value,
    weights::Weights,
};

/// The largest cost that a plan may have.
const MAX_COST: f64 = (1_u64 << 61) as f64;

impl<'a> TilingProblem<'a> {
    /// Returns the problem without these splits: for each variable, a mark for each dim of its
    /// tensor or factor of its operator.
    pub(in crate::tiling) fn without(
        network: &'a Network,
        mesh: Mesh,
        is_needless: &[Vec<bool>],
    ) -> Self {
        let mut maker = ProblemBuilder {
            problem: Self {
                network,
                mesh,
                variables: Vec::new(),
                edges: Vec::new(),
                accesses: Vec::new(),
                halo_edges: Vec::new(),
                tensor_kinds: Vec::new(),
                operator_kinds: Vec::new(),
                cost_model: Arc::new(CostModel::Bytes),
                unit: UNIT,
                evaluation_byte: 0.0,
                multipliers: MemoryMultipliers::default(),
                total_bytes: network.graph.values().map(|it| bytes_of(network, it)).sum(),
            },
            sets: SplittingSets::new(&mesh),
            may_repeat: network.may_repeat(),
            is_kept: network.kept_aside(),
            partial_sums: PartialSums::of(network, mesh.n_ranks()),
            accesses: BTreeMap::new(),
            halo_reads: BTreeMap::new(),
            edge_kinds: Interner::default(),
            tensor_kinds: BTreeMap::new(),
        };
        let weights = network.weights();
        let (mut measured, mut evaluated) = (0, 0);
        let (variables, tensors) = variables(network);
        for (variable, is_needless) in variables.into_iter().zip(is_needless) {
            maker.add_variable(variable, is_needless);
        }
        for (at, variable) in maker.problem.variables.clone().into_iter().enumerate() {
            let Variable::Operator { value, operator_kind } = variable else { continue };
            let mut used = maker.add_edges(value, at, operator_kind, &tensors, &weights);
            let weight = weights.of_value(value);
            for other in computed_by(network, value) {
                let operator_kind = maker.add_operator_kind(other, &is_needless[at]);
                used += maker.add_edge_to_result(other, at, operator_kind, &tensors, weight);
            }
            match weight {
                0 => evaluated += used,
                weight => measured += weight * used,
            }
        }
        // No conversion of a tensor moves as much as two copies of it to every rank.
        let most = |used: u64| used as f64 * 2.0 * mesh.n_ranks() as f64;
        maker.problem.evaluation_byte = 0.25 / most(evaluated).max(1.0);
        while most(measured) * maker.problem.unit as f64 > MAX_COST && maker.problem.unit > 1 {
            maker.problem.unit /= 2;
        }
        maker.problem
    }
}

/// A problem under construction.
struct ProblemBuilder<'a> {
    problem: TilingProblem<'a>,
    sets: SplittingSets,
    /// The marks of [`Network::may_repeat`].
    may_repeat: Vec<bool>,
    /// The marks of [`Network::kept_aside`].
    is_kept: Vec<bool>,
    partial_sums: PartialSums,
    accesses: BTreeMap<Access, usize>,
    /// The variable and the access of each read that may have a halo.
    halo_reads: BTreeMap<Read, [usize; 2]>,
    edge_kinds: Interner<Vec<usize>>,
    tensor_kinds: BTreeMap<(Vec<usize>, Vec<bool>, Idle), usize>,
}

impl ProblemBuilder<'_> {
    fn add_variable(&mut self, variable: NetworkVariable, is_needless: &[bool]) {
        let of_variable = match variable {
            NetworkVariable::Tensor(value) => {
                Variable::Tensor { value, tensor_kind: self.add_tensor_kind(value, is_needless) }
            }
            NetworkVariable::Operator(value) => Variable::Operator {
                value,
                operator_kind: self.add_operator_kind(value, is_needless),
            },
        };
        self.problem.variables.push(of_variable);
    }

    fn add_tensor_kind(&mut self, value: Value, is_needless: &[bool]) -> usize {
        let shape = self.problem.network.graph.shape(value);
        let idle = self.partial_sums.idle[value.index()];
        let key = (shape.to_vec(), is_needless.to_vec(), idle);
        if let Some(&tensor_kind) = self.tensor_kinds.get(&key) {
            return tensor_kind;
        }
        let splits = LegalSplits::new(&mut self.sets, &self.problem.mesh, &shape);
        let splits = splits.without(is_needless).idle(idle);
        let number = number(&mut self.problem.tensor_kinds, splits);
        self.tensor_kinds.insert(key, number);
        number
    }

    fn add_operator_kind(&mut self, value: Value, is_needless: &[bool]) -> usize {
        let graph = &self.problem.network.graph;
        let operator = graph.operator(value).expect("an operator computes the tensor");
        let signature = operator.signature(&graph.operand_shapes(value));
        let redundancy = match self.may_repeat[value.index()] {
            true => Redundancy::Free,
            false => Redundancy::Unavoidable,
        };
        let terms = &self.partial_sums.terms[value.index()];
        // Operators that work on no terms are of one kind, whether they are linear or not.
        let signature = if terms.is_empty() { signature.linear_in(Vec::new()) } else { signature };
        let is_same = |it: &OperatorKind| {
            it.signature == signature
                && it.redundancy == redundancy
                && it.is_needless == is_needless
                && it.splittable.terms() == terms
        };
        let operator_kinds = &mut self.problem.operator_kinds;
        operator_kinds.iter().position(is_same).unwrap_or_else(|| {
            let splittable = SplittableFactors::new(&signature, &mut self.sets)
                .without(is_needless)
                .with_terms(terms);
            let is_needless = is_needless.to_vec();
            operator_kinds.push(OperatorKind { signature, splittable, redundancy, is_needless });
            operator_kinds.len() - 1
        })
    }

    /// Adds the edges of an operator to its operands and its result. Returns their total size in
    /// bytes.
    fn add_edges(
        &mut self,
        user: Value,
        operator: usize,
        operator_kind: usize,
        tensors: &[usize],
        weights: &Weights,
    ) -> u64 {
        let network = self.problem.network;
        let is_replica = network.graph.is_replica(user);
        let operands = network.graph.operands(user).into_iter().enumerate();
        let mut accesses: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut of_halos: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut total = 0;
        for (value, operand) in operands.map(|(at, it)| (it, Some(at))).chain([(user, None)]) {
            let (tensor, bytes) = (tensors[value.index()], bytes_of(network, value));
            let weight = match operand {
                Some(at) => weights.of_read(&network.graph, user, at),
                None => weights.of_value(user),
            };
            let Variable::Tensor { tensor_kind, .. } = self.problem.variables[tensor] else {
                unreachable!("the variable of a tensor")
            };
            let has_halo = self.problem.operator_kinds[operator_kind].may_have_halo(operand);
            let read = operand.map(|at| (user, at)).filter(|_| has_halo);
            let source = read.and_then(|it| self.halo_source(it));
            let access = self.add_access(Access {
                tensor_kind,
                bytes,
                operator_kind,
                operand,
                weight,
                is_replica,
                is_kept: self.is_kept[value.index()],
                halo_source: source.map(|[_, access]| access),
            });
            if let Some([earlier, _]) = source {
                of_halos.entry(earlier).or_default().push(access);
            }
            self.halo_reads.extend(read.map(|it| (it, [operator, access])));
            // A halo moves at most one more copy of the tensor to every rank.
            total += if has_halo { 2 * bytes } else { bytes };
            accesses.entry(tensor).or_default().push(access);
        }
        let halo_edge = |(earlier, accesses)| HaloEdge { earlier, later: operator, accesses };
        self.problem.halo_edges.extend(of_halos.into_iter().map(halo_edge));
        for (tensor, accesses) in accesses {
            let kind = self.edge_kinds.number(accesses.clone());
            self.problem.edges.push(AccessEdge { tensor, operator, accesses, kind });
        }
        total
    }

    /// Adds the edge from an operator to what its kernel computes besides its own result. Returns
    /// the size in bytes.
    fn add_edge_to_result(
        &mut self,
        value: Value,
        operator: usize,
        operator_kind: usize,
        tensors: &[usize],
        weight: u64,
    ) -> u64 {
        let (tensor, bytes) = (tensors[value.index()], bytes_of(self.problem.network, value));
        let Variable::Tensor { tensor_kind, .. } = self.problem.variables[tensor] else {
            unreachable!("the variable of a tensor")
        };
        let is_kept = self.is_kept[value.index()];
        let (operand, is_replica) = (None, false);
        let halo_source = None;
        let access = Access {
            tensor_kind,
            bytes,
            operator_kind,
            operand,
            weight,
            is_replica,
            is_kept,
            halo_source,
        };
        let accesses = vec![self.add_access(access)];
        let kind = self.edge_kinds.number(accesses.clone());
        self.problem.edges.push(AccessEdge { tensor, operator, accesses, kind });
        bytes
    }

    /// Returns the variable and the access of the earlier read whose halo a read may use.
    fn halo_source(&self, read: Read) -> Option<[usize; 2]> {
        self.halo_reads.get(self.problem.network.kept_halos.get(&read)?).copied()
    }

    fn add_access(&mut self, access: Access) -> usize {
        let accesses = &mut self.problem.accesses;
        *self.accesses.entry(access).or_insert_with(|| {
            accesses.push(access);
            accesses.len() - 1
        })
    }
}

/// Returns the tensors that the kernel of an operator computes besides its result.
pub(in crate::tiling) fn computed_by(network: &Network, value: Value) -> Vec<Value> {
    let gradients = Attend::gradients(&network.graph, value).filter(|it| it[0] == value);
    gradients.map_or(Vec::new(), |it| it[1..].to_vec())
}

/// Returns the variables of a network, and the variable of each tensor. A value and its next value
/// share a variable, and so do operators that one kernel computes.
pub(in crate::tiling) fn variables(network: &Network) -> (Vec<NetworkVariable>, Vec<usize>) {
    let source_of: BTreeMap<Value, Value> =
        network.replacements().map(|(source, next)| (next, source)).collect();
    let mut variables = Vec::new();
    let mut tensors = Vec::with_capacity(network.graph.n_values());
    let mut variable_of = BTreeMap::new();
    for value in network.graph.values() {
        let is_computed_elsewhere = Attend::computed_with(&network.graph, value).is_some();
        if network.graph.operator(value).is_some() && !is_computed_elsewhere {
            variables.push(NetworkVariable::Operator(value));
        }
        // A next value that does not read its source may come before it.
        let source = source_of.get(&value).copied().unwrap_or(value);
        tensors.push(*variable_of.entry(source).or_insert_with(|| {
            variables.push(NetworkVariable::Tensor(source));
            variables.len() - 1
        }));
    }
    (variables, tensors)
}
