//! Cost models: the costs of conversions and kernels, in units of the objective. A unit is a byte
//! moved over all ranks, or a tick of time.
//!
//! A tick is a power of two of seconds. It is so short that an update of the worst plan has up to
//! 2^42 ticks. Sums of costs are then exact in 63 bits with [`UNIT`] per tick. Times are rounded by
//! at most a thousandth of a microsecond unless a step takes hours.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use soybean_plan::{AxisSet, CollectiveKind, DType, KernelWork, Shape, Tile, Topology};

use super::{
    conversion::ConversionStep, guided::ExposedShares, problem::Access, tiling_space::LegalSplits,
};
use crate::{
    network::Network,
    operator::Operator,
    operators::{attend::Attend, combines_terms},
    signature::{Dim, Partitioning, Signature},
    value::Value,
};

/// The measure by which plans are compared.
#[derive(Debug)]
pub(super) enum CostModel {
    /// The bytes moved.
    Bytes,
    /// The time of a step.
    Time(Box<TimeModel>),
}

/// The times of a network's steps on a machine.
#[derive(Debug)]
pub(super) struct TimeModel {
    topology: Topology,
    ticks_per_second: f64,
    /// The cost of a tick that only an evaluation takes, in ticks.
    evaluation_tick: f64,
    /// For each tensor that the measured computation computes, the number of its task: equal for
    /// equal operators on equal shapes, run equally often.
    tasks: Vec<Option<usize>>,
    /// For each tensor, how often the measured computation computes it.
    weights: Vec<u64>,
    /// The shares of the times of collectives that count.
    shares: ExposedShares,
}

/// The cost of a conversion without the size of the tensor, packed into one word because there are
/// many of them. For bytes: the elements moved over all ranks, for a tensor of as many elements as
/// there are ranks. For time: seconds, and seconds per byte of the tensor, both in single
/// precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConversionCost(u64);

impl ConversionCost {
    /// No cost.
    pub(super) const NONE: Self = Self(0);
    /// A marker of a cost that has not been computed.
    pub(super) const UNKNOWN: Self = Self(u64::MAX);

    const fn of_time(seconds: f32, seconds_per_byte: f32) -> Self {
        Self((seconds.to_bits() as u64) << 32 | seconds_per_byte.to_bits() as u64)
    }

    #[expect(clippy::cast_possible_truncation, reason = "halves of a word")]
    fn time(self) -> (f32, f32) {
        (f32::from_bits((self.0 >> 32) as u32), f32::from_bits(self.0 as u32))
    }
}

impl CostModel {
    /// Returns the times on this machine.
    pub(super) fn time(network: &Network, topology: &Topology, shares: ExposedShares) -> Self {
        let weights = network.weights();
        let weights: Vec<u64> = network.graph.values().map(|it| weights.of_value(it)).collect();
        let (mut measured, mut evaluated) = (0.0, 0.0);
        for value in network.graph.values() {
            let operands = network.graph.operands(value);
            let moved = operands.iter().chain([&value]).map(|&it| {
                let node = network.graph.node(it);
                most_seconds(topology, node.shape.n_elements() * node.dtype.bytes())
            });
            let sum = moved.sum::<f64>() + whole_seconds(network, topology, value);
            match weights[value.index()] {
                0 => evaluated += sum,
                weight => measured += weight as f64 * sum,
            }
        }
        let mut ticks_per_second = 1.0;
        while measured * ticks_per_second < MAX_TICKS / 2.0 && ticks_per_second < MAX_TICKS {
            ticks_per_second *= 2.0;
        }
        while measured * ticks_per_second > MAX_TICKS {
            ticks_per_second /= 2.0;
        }
        let most_evaluated = f64::max(evaluated * ticks_per_second, 1.0);
        let evaluation_tick = 0.25 / most_evaluated;
        let (topology, tasks) = (topology.clone(), tasks(network, &weights));
        let model =
            TimeModel { topology, ticks_per_second, evaluation_tick, tasks, weights, shares };
        Self::Time(Box::new(model))
    }

    /// Returns the level of an axis, if costs depend on it.
    pub(super) fn level(&self, axis: usize) -> usize {
        match self {
            Self::Bytes => 0,
            Self::Time(clock) => clock.topology.level(axis),
        }
    }

    /// Returns the cost of these steps of a conversion.
    pub(super) fn conversion(
        &self,
        splits: &LegalSplits,
        changes: &[ConversionStep],
    ) -> ConversionCost {
        match self {
            Self::Bytes => ConversionCost(changes.iter().map(|it| splits.moved(it)).sum()),
            Self::Time(clock) => clock.conversion(splits, changes),
        }
    }

    /// Returns the greatest cost that is at most either of two.
    pub(super) fn least(&self, one: ConversionCost, other: ConversionCost) -> ConversionCost {
        match self {
            Self::Bytes => ConversionCost(one.0.min(other.0)),
            Self::Time(_) => {
                let ((seconds, rate), (other_seconds, other_rate)) = (one.time(), other.time());
                ConversionCost::of_time(seconds.min(other_seconds), rate.min(other_rate))
            }
        }
    }

    /// Returns the units of a conversion at an access in the measured computation, as often as it
    /// has the access.
    pub(super) fn measured(&self, price: ConversionCost, access: &Access, n_ranks: u64) -> i64 {
        let once = match self {
            Self::Bytes => (price.0 * access.bytes / n_ranks) as i64,
            Self::Time(clock) => {
                let share = clock.shares.of(access.is_kept);
                clock.cost(share * clock.seconds(price, access.bytes))
            }
        };
        once * access.weight.cast_signed()
    }

    /// Returns the fraction of a unit for a conversion that only an evaluation has; `byte` is the
    /// fraction for a byte. The sum over all conversions is less than a quarter.
    pub(super) fn evaluated(
        &self,
        price: ConversionCost,
        bytes: u64,
        n_ranks: u64,
        byte: f64,
    ) -> f64 {
        match self {
            Self::Bytes => (price.0 * bytes / n_ranks) as f64 * byte,
            Self::Time(clock) => {
                clock.seconds(price, bytes) * clock.ticks_per_second * clock.evaluation_tick
            }
        }
    }

    /// Returns the units of an exchange of halos of this many bytes over all ranks, in the measured
    /// computation, as often as it has the access.
    pub(super) fn measured_halo(&self, axes: AxisSet, bytes: u64, access: &Access) -> i64 {
        let once = match self {
            Self::Bytes => bytes as i64,
            Self::Time(clock) => {
                clock.cost(clock.shares.of(access.is_kept) * clock.halo_seconds(axes, bytes))
            }
        };
        once * access.weight.cast_signed()
    }

    /// Returns the fraction of a unit for an exchange of halos that only an evaluation has; see
    /// [`Self::evaluated`].
    pub(super) fn evaluated_halo(&self, axes: AxisSet, bytes: u64, byte: f64) -> f64 {
        match self {
            Self::Bytes => bytes as f64 * byte,
            Self::Time(clock) => {
                clock.halo_seconds(axes, bytes) * clock.ticks_per_second * clock.evaluation_tick
            }
        }
    }

    /// Returns the number of the task that computes a tensor. Equal tasks have equal
    /// [`Self::kernel`] costs; `None` means that they are 0.
    pub(super) fn task(&self, value: Value) -> Option<usize> {
        match self {
            Self::Bytes => None,
            Self::Time(clock) => clock.tasks[value.index()],
        }
    }

    /// Returns the units of computing a tensor in this partitioning, as often as it is computed,
    /// without its conversions.
    pub(super) fn kernel(
        &self,
        network: &Network,
        value: Value,
        partitioning: &Partitioning,
    ) -> i64 {
        match self {
            Self::Bytes => 0,
            Self::Time(clock) if clock.tasks[value.index()].is_none() => 0,
            Self::Time(clock) => {
                let operator = super::problem::operator_of(network, value);
                let (topology, form) = (&clock.topology, Some(partitioning));
                let once = kernel_seconds(network, topology, operator, value, form);
                clock.cost(once) * clock.weights[value.index()].cast_signed()
            }
        }
    }

    /// Converts units to seconds.
    pub(super) fn seconds(&self, units: u64) -> Option<f64> {
        match self {
            Self::Bytes => None,
            Self::Time(clock) => Some(units as f64 / clock.ticks_per_second),
        }
    }
}

/// The most ticks of a plan.
const MAX_TICKS: f64 = (1_u64 << 42) as f64;

impl TimeModel {
    /// Slices take no time here, because those of one tensor are shared by all its readers.
    /// Dividing a tensor among ranks that add it to their terms takes no time either, and neither
    /// does cutting off and adding borders that ranks keep.
    #[expect(clippy::cast_possible_truncation, reason = "seven digits are more than is known")]
    fn conversion(&self, splits: &LegalSplits, changes: &[ConversionStep]) -> ConversionCost {
        let n_ranks = self.topology.mesh().n_ranks() as f64;
        let (mut seconds, mut per_byte) = (0.0, 0.0);
        for change in changes.iter().filter(|it| it.kind != CollectiveKind::Slice) {
            let cost = self.topology.collective_cost(change.kind, change.axes);
            seconds += cost.latency_seconds;
            per_byte += splits.moved(change) as f64 / n_ranks * cost.seconds_per_byte;
        }
        ConversionCost::of_time(seconds as f32, per_byte as f32)
    }

    fn seconds(&self, price: ConversionCost, bytes: u64) -> f64 {
        let (seconds, per_byte) = price.time();
        f64::from(seconds) + f64::from(per_byte) * bytes as f64
    }

    fn halo_seconds(&self, axes: AxisSet, bytes: u64) -> f64 {
        let cost = self.topology.collective_cost(CollectiveKind::HaloExchange, axes);
        cost.latency_seconds + bytes as f64 * cost.seconds_per_byte
    }

    #[expect(clippy::cast_possible_truncation, reason = "no plan has more than 2^42 ticks")]
    fn cost(&self, seconds: f64) -> i64 {
        (seconds * self.ticks_per_second).round() as i64
    }
}

/// Returns a time that no conversion of a tensor of this size exceeds: three steps, which send the
/// whole tensor four times over the slowest level, and an exchange of halos, for which each rank
/// receives at most the whole tensor. Measured collectives may be slower than their level.
fn most_seconds(topology: &Topology, bytes: usize) -> f64 {
    let measured = &topology.cluster().measurements.collectives;
    let latencies = topology.cluster().levels.iter().map(|it| it.latency_seconds);
    let latency = latencies.chain(measured.iter().map(|it| it.latency_seconds)).fold(0.0, f64::max);
    let speeds = (0..topology.n_levels()).map(|it| topology.bytes_per_second(it));
    let slowest =
        speeds.chain(measured.iter().map(|it| it.bytes_per_second)).fold(f64::INFINITY, f64::min);
    8.0 * (latency + bytes as f64 / slowest)
}

/// Returns the task of each tensor that the measured computation computes. Equal operators on
/// operands of equal shapes and types, computed equally often, have the same task. The next values
/// of optimizer states have none, because the kernel of their parameter computes them, too, and
/// neither have the gradients of keys and values, which the kernel of that of queries computes.
/// Additions and combinations have none, because most of them move back into their readers.
fn tasks(network: &Network, weights: &[u64]) -> Vec<Option<usize>> {
    let graph = &network.graph;
    let mut known = Vec::new();
    let groups = network.update_groups();
    let of_states: BTreeSet<Value> =
        groups.iter().flat_map(|group| group[1..].iter().map(|&(_, next)| next)).collect();
    let task = |value: Value| {
        let operator = graph.operator(value);
        let is_combination = operator.is_some_and(combines_terms);
        let is_joined = Attend::gradients(graph, value).is_some_and(|it| it[0] != value);
        let is_made_elsewhere = of_states.contains(&value) || is_combination || is_joined;
        let is_computed = weights[value.index()] > 0 && !is_made_elsewhere;
        let operator = operator.filter(|_| is_computed)?;
        let tensors = graph.operands(value).into_iter().chain([value]);
        let types: Vec<DType> = tensors.map(|it| graph.node(it).dtype).collect();
        let weight = weights[value.index()];
        Some(super::number(&mut known, (operator, graph.operand_shapes(value), types, weight)))
    };
    graph.values().map(task).collect()
}

/// Returns the time of computing a whole tensor on one GPU.
fn whole_seconds(network: &Network, topology: &Topology, value: Value) -> f64 {
    let Some(operator) = network.graph.operator(value) else { return 0.0 };
    kernel_seconds(network, topology, operator, value, None)
}

/// Returns the time of the kernel that computes a tensor, whole or in a partitioning. The gradient
/// of attention's queries stands for all three gradients.
fn kernel_seconds(
    network: &Network,
    topology: &Topology,
    operator: &Operator,
    value: Value,
    partitioning: Option<&Partitioning>,
) -> f64 {
    let graph = &network.graph;
    let signature = operator.signature(&graph.operand_shapes(value));
    let part = |signature: &Signature, operand| part(topology, signature, operand, partitioning);
    let operands: Vec<Shape> =
        (0..signature.operands.len()).map(|it| part(&signature, Some(it))).collect();
    let joined = Attend::gradients(graph, value).map_or(vec![value], Vec::from);
    let results: Vec<Shape> = joined
        .iter()
        .filter_map(|it| Some(graph.operator(*it)?.signature(&graph.operand_shapes(*it))))
        .map(|signature| part(&signature, None))
        .collect();
    let own = local_shape(topology, &signature.result, partitioning);
    let of_all: Option<Operator> = operator
        .downcast_ref::<Attend>()
        .filter(|_| joined.len() > 1)
        .map(|attend| attend.joined().into());
    let operator = of_all.as_ref().unwrap_or(operator);
    let Some(kernel) = operator.kernel(&operands, &own) else { return 0.0 };
    let kernel = match partitioning {
        Some(partitioning) => {
            let tile = |at: usize| {
                let whole = signature.operands[at].iter().map(|it| it.extent).collect();
                Tile::new(whole, signature.operand_tiling(at, partitioning))
            };
            let tiles: Vec<Tile> = (0..operands.len()).map(tile).collect();
            operator.on_busiest_rank(kernel, &tiles, &topology.mesh())
        }
        None => kernel,
    };
    let bytes_of =
        |value: Value, shape: &Shape| (shape.n_elements() * graph.node(value).dtype.bytes()) as u64;
    let read: u64 = graph
        .operands(value)
        .into_iter()
        .zip(&operands)
        .map(|(it, shape)| bytes_of(it, shape))
        .sum();
    let written: u64 = joined.iter().zip(&results).map(|(it, shape)| bytes_of(*it, shape)).sum();
    let work = KernelWork::new(&kernel, read + written);
    topology.cluster().kernel_seconds(work, network.precision)
}

/// Returns the shape of a rank's part of an operand, or of the result for `None`, with its halo.
fn part(
    topology: &Topology,
    signature: &Signature,
    operand: Option<usize>,
    partitioning: Option<&Partitioning>,
) -> Shape {
    let dims = signature.dims(operand);
    let Some(form) = partitioning else { return local_shape(topology, dims, None) };
    let tiling = match operand {
        Some(operand) => signature.operand_tiling(operand, form),
        None => signature.result_tiling(form),
    };
    let halo = signature.halo(operand, &tiling);
    if halo.is_none() {
        return local_shape(topology, dims, partitioning);
    }
    let whole = dims.iter().map(|it| it.extent).collect();
    halo.local_shape(&Tile::new(whole, tiling), &topology.mesh())
}

/// Returns the shape of a rank's part of a tensor with these dims.
fn local_shape(topology: &Topology, dims: &[Dim], partitioning: Option<&Partitioning>) -> Shape {
    let n_parts = |dim: &Dim| match (partitioning, dim.factor) {
        (Some(partitioning), Some(factor)) => {
            topology.mesh().group_size(partitioning.axes_of(factor))
        }
        _ => 1,
    };
    dims.iter().map(|dim| dim.extent.div_ceil(n_parts(dim))).collect()
}
