//! What conversions and kernels cost, in whole units of the objective: bytes moved over all ranks, or ticks of time.
//!
//! A tick is a power of two of seconds, so short that a step of the worst plan has some 2^42 of them at most: sums of costs are exact in 63 bits with
//! [`UNIT`] for each tick, and times are rounded by a thousandth of a microsecond or less unless a step takes hours.

use soybean_plan::{CollectiveKind, DType, Shape, Topology, Work};

use super::{conversion::ConversionStep, tiling_space::LegalSplits};
use crate::{
    network::Network,
    operator::Operator,
    signature::{Dim, Form},
    value::Value,
};

/// By which prices plans are compared.
#[derive(Debug)]
pub(super) enum CostModel {
    /// The bytes that are moved.
    Bytes,
    /// The time of a step.
    Time(Box<TimeModel>),
}

/// The times of a network's steps on a machine.
#[derive(Debug)]
pub(super) struct TimeModel {
    topology: Topology,
    ticks_per_second: f64,
    /// Cost of a tick that only an evaluation takes.
    evaluation_tick: f64,
    /// For each tensor that the measured computation computes, the number of the kernel without its form: equal for equal operators on equal shapes.
    tasks: Vec<Option<usize>>,
}

/// What a conversion costs whatever the size of the tensor. There are many of them, so each is one word: the elements that are moved over all ranks for a tensor
/// of as many elements as there are ranks; or, in single precision, seconds and seconds for each byte of the tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConversionCost(u64);

impl ConversionCost {
    /// Nothing.
    pub(super) const NONE: Self = Self(0);
    /// What is no price.
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
    /// Times on this machine.
    pub(super) fn time(network: &Network, topology: &Topology) -> Self {
        let is_measured = network.measured();
        let (mut measured, mut evaluated) = (0.0, 0.0);
        for value in network.graph.values() {
            let operands = network.graph.operands(value);
            let moved =
                operands.iter().chain([&value]).map(|&it| most_seconds(network, topology, it));
            let sum = moved.sum::<f64>() + whole_seconds(network, topology, value);
            *(if is_measured[value.index()] { &mut measured } else { &mut evaluated }) += sum;
        }
        let mut ticks_per_second = 1.0;
        while measured * ticks_per_second < MOST_TICKS / 2.0 && ticks_per_second < MOST_TICKS {
            ticks_per_second *= 2.0;
        }
        while measured * ticks_per_second > MOST_TICKS {
            ticks_per_second /= 2.0;
        }
        let most_evaluated = f64::max(evaluated * ticks_per_second, 1.0);
        let evaluation_tick = 0.25 / most_evaluated;
        let (topology, tasks) = (topology.clone(), tasks(network, &is_measured));
        Self::Time(Box::new(TimeModel { topology, ticks_per_second, evaluation_tick, tasks }))
    }

    /// The level of an axis, as far as levels cost differently.
    pub(super) fn level(&self, axis: usize) -> usize {
        match self {
            Self::Bytes => 0,
            Self::Time(clock) => clock.topology.level(axis),
        }
    }

    /// The price of getting from one tiling to another.
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

    /// A price that is at most either of two, and no lower than need be.
    pub(super) fn least(&self, one: ConversionCost, other: ConversionCost) -> ConversionCost {
        match self {
            Self::Bytes => ConversionCost(one.0.min(other.0)),
            Self::Time(_) => {
                let ((seconds, rate), (other_seconds, other_rate)) = (one.time(), other.time());
                ConversionCost::of_time(seconds.min(other_seconds), rate.min(other_rate))
            }
        }
    }

    /// The whole units of a conversion of a tensor of so many bytes that the measured computation has.
    pub(super) fn measured(&self, price: ConversionCost, bytes: u64, n_ranks: u64) -> i64 {
        match self {
            Self::Bytes => (price.0 * bytes / n_ranks) as i64,
            Self::Time(clock) => clock.cost(clock.seconds(price, bytes)),
        }
    }

    /// The part of a unit of one that only an evaluation has, given that of a byte which only evaluations move; less than a quarter, whatever the sum.
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

    /// The number of what computes a tensor, the same for all tensors for which [`Self::kernel`] is; none where that is 0 in any form.
    pub(super) fn task(&self, value: Value) -> Option<usize> {
        match self {
            Self::Bytes => None,
            Self::Time(clock) => clock.tasks[value.index()],
        }
    }

    /// The whole units of computing a tensor in this form, without its conversions.
    pub(super) fn kernel(&self, network: &Network, value: Value, form: &Form) -> i64 {
        match self {
            Self::Bytes => 0,
            Self::Time(clock) if clock.tasks[value.index()].is_none() => 0,
            Self::Time(clock) => {
                let operator = super::problem::operator_of(network, value);
                clock.cost(kernel_seconds(network, &clock.topology, operator, value, Some(form)))
            }
        }
    }

    /// The seconds of so many whole units.
    pub(super) fn seconds(&self, units: u64) -> Option<f64> {
        match self {
            Self::Bytes => None,
            Self::Time(clock) => Some(units as f64 / clock.ticks_per_second),
        }
    }
}

/// The most ticks of the worst plan.
const MOST_TICKS: f64 = (1_u64 << 42) as f64;

impl TimeModel {
    /// Slices take no time here: those of one tensor are shared by all that read it. Nor does it take time to divide a number among ranks.
    #[expect(clippy::cast_possible_truncation, reason = "seven digits are more than is known")]
    fn conversion(&self, splits: &LegalSplits, changes: &[ConversionStep]) -> ConversionCost {
        let n_ranks = self.topology.mesh().n_ranks() as f64;
        let (mut seconds, mut per_byte) = (0.0, 0.0);
        for change in changes.iter().filter(|it| it.kind != CollectiveKind::Slice) {
            let pace = self.topology.pace(change.kind, change.axes);
            seconds += pace.latency_seconds;
            per_byte += splits.moved(change) as f64 / n_ranks * pace.seconds_per_byte;
        }
        ConversionCost::of_time(seconds as f32, per_byte as f32)
    }

    fn seconds(&self, price: ConversionCost, bytes: u64) -> f64 {
        let (seconds, per_byte) = price.time();
        f64::from(seconds) + f64::from(per_byte) * bytes as f64
    }

    #[expect(clippy::cast_possible_truncation, reason = "no plan has more than 2^42 ticks")]
    fn cost(&self, seconds: f64) -> i64 {
        (seconds * self.ticks_per_second).round() as i64
    }
}

/// A time that no conversion of a tensor exceeds: four changes, each of which sends the whole of it twice over the slowest level.
fn most_seconds(network: &Network, topology: &Topology, value: Value) -> f64 {
    let latency = topology.cluster().levels.iter().map(|it| it.latency_seconds).fold(0.0, f64::max);
    let slowest = (0..topology.n_levels())
        .map(|it| topology.bytes_per_second(it))
        .fold(f64::INFINITY, f64::min);
    let node = network.graph.node(value);
    let bytes = node.shape.n_elements() * node.dtype.bytes();
    8.0 * (latency + bytes as f64 / slowest)
}

/// For each tensor that the measured computation computes, a number that equal operators on operands of equal shapes and types share.
fn tasks(network: &Network, is_measured: &[bool]) -> Vec<Option<usize>> {
    let graph = &network.graph;
    let mut known = Vec::new();
    let task = |value: Value| {
        let operator = graph.operator(value).filter(|_| is_measured[value.index()])?;
        let tensors = graph.operands(value).into_iter().chain([value]);
        let types: Vec<DType> = tensors.map(|it| graph.node(it).dtype).collect();
        Some(super::number(&mut known, (operator, graph.operand_shapes(value), types)))
    };
    graph.values().map(task).collect()
}

/// The time of computing a whole tensor on one GPU.
fn whole_seconds(network: &Network, topology: &Topology, value: Value) -> f64 {
    let Some(operator) = network.graph.operator(value) else { return 0.0 };
    kernel_seconds(network, topology, operator, value, None)
}

/// The time of the kernel that computes a tensor, whole or in a form.
fn kernel_seconds(
    network: &Network,
    topology: &Topology,
    operator: &Operator,
    value: Value,
    form: Option<&Form>,
) -> f64 {
    let graph = &network.graph;
    let signature = operator.signature(&graph.operand_shapes(value));
    let local = |dims: &[Dim]| local_shape(topology, dims, form);
    let operands: Vec<Shape> = signature.operands.iter().map(|dims| local(dims)).collect();
    let result = local(&signature.result);
    let Some(kernel) = operator.kernel(&operands, &result) else { return 0.0 };
    let bytes_of =
        |value: Value, shape: &Shape| (shape.n_elements() * graph.node(value).dtype.bytes()) as u64;
    let read: u64 = graph
        .operands(value)
        .into_iter()
        .zip(&operands)
        .map(|(it, shape)| bytes_of(it, shape))
        .sum();
    let work = Work {
        kind: kernel.work_kind(),
        operations: kernel.n_operations(),
        bytes: read + bytes_of(value, &result),
    };
    topology.cluster().device.seconds(work, network.precision)
}

/// The shape of a rank's part of a tensor with these dims.
fn local_shape(topology: &Topology, dims: &[Dim], form: Option<&Form>) -> Shape {
    let n_parts = |dim: &Dim| match (form, dim.factor) {
        (Some(form), Some(factor)) => topology.mesh().group_size(form.axes_of(factor)),
        _ => 1,
    };
    dims.iter().map(|dim| dim.extent.div_ceil(n_parts(dim))).collect()
}
