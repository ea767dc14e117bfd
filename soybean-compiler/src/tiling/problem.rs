//! The tiling problem of a network on a mesh.
//!
//! Every tensor has a variable for its tiling, and every operator one for its partitioning. An edge
//! connects an operator with a tensor that it reads or writes: their labels determine a conversion,
//! and so a cost. Another kind of edge connects two operators of which one may use the halo that
//! the other has fetched ([`halo_edge`]).
//!
//! Costs are integers: [`UNIT`] for each byte that an update (in inference, a prediction) moves
//! over all ranks, or for each tick of time. If steps share an update, conversions count once for
//! each step that has them. Fractions of a unit break ties, first by the bytes that only
//! evaluations move, then by memory. Which labels a search may choose is defined elsewhere:
//! [`super::instance`], [`super::candidates`].

pub(super) mod builder;
mod costs;
pub(super) mod halo_edge;

use std::sync::Arc;

use soybean_plan::{Mesh, Tiling, Topology};

use super::{
    cost_model::CostModel,
    dominance::needless_splits,
    guided::ExposedShares,
    multipliers::MemoryMultipliers,
    problem::{builder::computed_by, halo_edge::HaloEdge},
    splittable::{Redundancy, SplittableFactors, completed},
    tiled::TiledNetwork,
    tiling_space::LegalSplits,
};
use crate::{
    network::Network,
    operator::Operator,
    signature::{FactorId, Partitioning, Signature},
    value::Value,
};

/// The cost of one byte moved or of one tick, unless the costs of a plan might then overflow.
pub(super) const UNIT: i64 = 1 << 20;
/// The largest unit with memory multipliers, whose prices must not overflow either.
const UNIT_WITH_MULTIPLIERS: i64 = 1 << 8;

/// The work of a search that is to prove its optimum for up to 8 ranks, in table entries: about a
/// second in an unoptimized build.
pub(super) const WORK: u64 = 1 << 27;
/// The number of variables for which work is stated.
const N_VARIABLES: u64 = 1 << 12;

/// The variables of a network on a mesh, and the edges between them.
pub(super) struct TilingProblem<'a> {
    pub(super) network: &'a Network,
    pub(super) mesh: Mesh,
    pub(super) variables: Vec<Variable>,
    /// The accesses of tensors by operators.
    pub(super) edges: Vec<AccessEdge>,
    pub(super) accesses: Vec<Access>,
    /// The operators that may use each other's halos.
    pub(super) halo_edges: Vec<HaloEdge>,
    /// The distinct sets of legal splits of tensors.
    pub(super) tensor_kinds: Vec<LegalSplits>,
    pub(super) operator_kinds: Vec<OperatorKind>,
    /// The objective.
    pub(super) cost_model: Arc<CostModel>,
    /// The cost of one unit of the objective, without memory multipliers.
    unit: i64,
    /// The cost of a byte that only evaluations move, in units.
    evaluation_byte: f64,
    /// The size of all tensors together.
    pub(super) total_bytes: u64,
    /// The Lagrange multipliers of memory.
    pub(super) multipliers: MemoryMultipliers,
}

/// A variable of the search.
#[derive(Clone, Copy)]
pub(super) enum Variable {
    /// The tiling of this tensor, and of its next value if it is updated.
    Tensor { value: Value, tensor_kind: usize },
    /// The partitioning in which this tensor is computed.
    Operator { value: Value, operator_kind: usize },
}

impl Variable {
    /// Returns the number of its kind among those of tensors, or among those of operators.
    pub(super) fn kind(self) -> usize {
        match self {
            Self::Tensor { tensor_kind, .. } => tensor_kind,
            Self::Operator { operator_kind, .. } => operator_kind,
        }
    }
}

/// A label of a variable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Label {
    Tensor(Tiling),
    Operator(Partitioning),
}

/// A label for every variable.
pub(super) type Plan = Vec<Label>;

/// The common properties of operators with equal signatures.
pub(super) struct OperatorKind {
    pub(super) signature: Signature,
    pub(super) splittable: SplittableFactors,
    /// The redundancy that ranks may have.
    pub(super) redundancy: Redundancy,
    is_needless: Vec<bool>,
}

impl OperatorKind {
    /// Returns whether some partitioning reads an operand with a halo.
    fn may_have_halo(&self, operand: Option<usize>) -> bool {
        let is_split = |it: FactorId| !self.is_needless[usize::from(it)];
        let dims = self.signature.dims(operand).iter();
        operand.is_some()
            && dims.filter(|it| it.has_halo()).any(|it| it.factor.is_some_and(is_split))
    }
}

/// An operator that reads or writes a tensor.
pub(super) struct AccessEdge {
    /// The tensor's variable.
    pub(super) tensor: usize,
    /// The operator's variable.
    pub(super) operator: usize,
    /// The numbers of the accesses. There are several if the operator reads the tensor twice, or if
    /// it reads a value and writes its next one, which share a variable.
    pub(super) accesses: Vec<usize>,
    /// The number of its kind. Edges of a kind have equal accesses.
    pub(super) kind: usize,
}

/// The key of an edge's table: what the table depends on. It is one number, because an unoptimized
/// build compares numbers much faster than tuples.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TableKey(u128);

impl TableKey {
    /// Returns the key for the lists of labels of the tensor and of the operator, by their numbers,
    /// and for the key of memory prices.
    pub(super) fn new(edge: &AccessEdge, lists: [usize; 2], multiplier: usize) -> Self {
        let [tilings, partitionings] = lists;
        Self(
            (edge.kind as u128) << 96
                | (tilings as u128) << 64
                | (partitionings as u128) << 32
                | multiplier as u128,
        )
    }
}

/// A kind of access, shared by all equal edges.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Access {
    pub(super) tensor_kind: usize,
    pub(super) bytes: u64,
    pub(super) operator_kind: usize,
    /// The position of the tensor among the operator's operands; `None` for the result.
    pub(super) operand: Option<usize>,
    /// How often the measured computation has the access; if never, only evaluations need it.
    pub(super) weight: u64,
    /// True if the operator makes a replica.
    pub(super) is_replica: bool,
    /// True if the tensor is kept from step to step, or only updates read it.
    pub(super) is_kept: bool,
    /// The access of an earlier operator whose halo this one may use. Its halo is then a cost of a
    /// [`HaloEdge`].
    pub(super) halo_source: Option<usize>,
}

impl<'a> TilingProblem<'a> {
    pub(super) fn new(network: &'a Network, mesh: Mesh) -> Self {
        let is_needless = needless_splits(network, &mesh);
        Self::without(network, mesh, &is_needless)
    }

    /// Returns the problem with times on this machine as costs.
    pub(super) fn timed(self, topology: &Topology) -> Self {
        self.timed_with(topology, ExposedShares::ALL)
    }

    /// Returns the problem with these shares of the times of collectives as costs.
    pub(super) fn timed_with(self, topology: &Topology, shares: ExposedShares) -> Self {
        let cost_model = CostModel::time(self.network, topology, shares);
        Self { cost_model: Arc::new(cost_model), ..self }
    }

    /// Returns the work for this network. The stated work is for networks of usual size; larger
    /// ones get a multiple of it.
    pub(super) fn work(&self, stated: u64) -> u64 {
        stated * (self.variables.len() as u64).div_ceil(N_VARIABLES).max(1)
    }

    /// Returns the tiling to which a user pins the tensor of a variable, if it fits the mesh.
    pub(super) fn pin(&self, variable: usize) -> Option<Tiling> {
        let Variable::Tensor { value, .. } = self.variables[variable] else { return None };
        self.network.pin(value, &self.mesh)
    }

    /// Returns whether exchanging two axes changes neither costs nor any pin.
    pub(super) fn are_symmetric(&self, one: usize, other: usize) -> bool {
        let is_pinned_equally =
            |variable| self.pin(variable).is_none_or(|it| it.on(one) == it.on(other));
        self.mesh.size(one) == self.mesh.size(other)
            && self.cost_model.level(one) == self.cost_model.level(other)
            && (0..self.variables.len()).all(is_pinned_equally)
    }

    /// Returns the cost of one unit of the objective.
    pub(super) fn unit(&self) -> i64 {
        if self.multipliers.are_zero() { self.unit } else { self.unit.min(UNIT_WITH_MULTIPLIERS) }
    }

    /// Returns the cost of a fraction of a unit.
    #[expect(clippy::cast_possible_truncation, reason = "a unit is at most 2^20")]
    pub(super) fn part_of_unit(&self, part: f64) -> i64 {
        (part * self.unit() as f64) as i64
    }

    /// Returns the whole units of a cost, without the fractions that break ties.
    pub(super) fn whole(&self, cost: i64) -> u64 {
        u64::try_from(cost / self.unit()).expect("costs are not negative")
    }

    /// Returns the tiling that an operator's partitioning needs or gives at an access.
    pub(super) fn accessed_tiling(&self, access: &Access, partitioning: &Partitioning) -> Tiling {
        let signature = &self.operator_kinds[access.operator_kind].signature;
        match access.operand {
            Some(operand) => signature.operand_tiling(operand, partitioning),
            None => signature.result_tiling(partitioning),
        }
    }

    /// Returns the plan without avoidable redundant work.
    pub(super) fn completed(&self, mut plan: Plan) -> Plan {
        for (of_variable, label) in self.variables.iter().zip(&mut plan) {
            if let (Variable::Operator { operator_kind, .. }, Label::Operator(partitioning)) =
                (of_variable, label)
                && self.operator_kinds[*operator_kind].redundancy == Redundancy::Unavoidable
            {
                *partitioning =
                    completed(&self.operator_kinds[*operator_kind].splittable, partitioning);
            }
        }
        plan
    }

    /// Returns the tiled network of a plan.
    pub(super) fn tiled(&self, plan: &[Label]) -> TiledNetwork {
        let n_values = self.network.graph.n_values();
        let mut tilings = vec![Tiling::replicated(self.mesh.n_axes()); n_values];
        let mut forms = vec![None; n_values];
        for (of_variable, label) in self.variables.iter().zip(plan) {
            match *of_variable {
                Variable::Tensor { value, .. } => tilings[value.index()] = label.tiling(),
                Variable::Operator { value, .. } => {
                    for it in [vec![value], computed_by(self.network, value)].concat() {
                        forms[it.index()] = Some(label.partitioning().clone());
                    }
                }
            }
        }
        for (source, next) in self.network.replacements() {
            tilings[next.index()] = tilings[source.index()];
        }
        TiledNetwork { network: self.network.clone(), mesh: self.mesh, tilings, forms }
    }
}

impl Label {
    /// Returns the tiling of a tensor's label.
    pub(super) fn tiling(&self) -> Tiling {
        match self {
            Self::Tensor(tiling) => *tiling,
            Self::Operator(_) => unreachable!("only tensors have tilings"),
        }
    }

    /// Returns the partitioning of an operator's label.
    pub(super) fn partitioning(&self) -> &Partitioning {
        match self {
            Self::Operator(partitioning) => partitioning,
            Self::Tensor(_) => unreachable!("only operators have partitionings"),
        }
    }
}

pub(super) fn bytes_of(network: &Network, value: Value) -> u64 {
    let node = network.graph.node(value);
    (node.shape.n_elements() * node.dtype.bytes()) as u64
}

/// Returns the operator that computes a value.
pub(super) fn operator_of(network: &Network, value: Value) -> &Operator {
    network.graph.operator(value).expect("an operator computes the tensor")
}
