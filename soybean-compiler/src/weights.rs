//! Weights: how often the computation that plans are measured by computes and reads each tensor.
//!
//! A plan is measured by as many training steps of each entry as the model declares, or in
//! inference by as many predictions. If several steps share an update, it consists of accumulating
//! steps and one training step, and what both have counts once for each of them.

use soybean_plan::Mode;

use crate::{entry::Entry, graph::Graph, network::Network, operator::Phase, value::Value};

/// How often the computation that plans are measured by computes and reads tensors: once in a
/// training step and once in each accumulating step before it, or once in a prediction.
#[derive(Clone, Debug)]
pub struct Weights {
    of_values: Vec<u64>,
    /// The phases with the number of their steps and the tensors that they compute.
    phases: Vec<(Phase, u64, Vec<bool>)>,
}

impl Network {
    /// Marks the tensors of the computation that plans are measured by: a training step, or in
    /// inference a prediction. The others are computed in evaluations only.
    #[must_use]
    pub fn measured(&self) -> Vec<bool> {
        self.weights().of_values.iter().map(|it| *it > 0).collect()
    }

    /// Returns how often the computation that plans are measured by computes and reads tensors.
    #[must_use]
    pub fn weights(&self) -> Weights {
        let n_values = self.graph.n_values();
        let marks = |phase| self.graph.ancestors_in(phase, &self.left_by(phase));
        let of = |phase, n| (phase, n, marks(phase));
        let of_entry = |(entry, phase): (&Entry, Phase)| of(phase, entry.n_calls);
        let entries = self.entries.iter();
        let phases: Vec<(Phase, u64, Vec<bool>)> = match (self.mode(), self.optimizer.accumulate) {
            (Mode::Inference, _) => entries.zip(self.evaluations()).map(of_entry).collect(),
            (Mode::Training, 0 | 1) => entries.zip(self.training()).map(of_entry).collect(),
            (Mode::Training, n) => vec![of(Phase::Train(0), 1), of(Phase::Accumulate, n - 1)],
        };
        let weight =
            |at: usize| phases.iter().map(|(_, n, is_made)| n * u64::from(is_made[at])).sum();
        Weights { of_values: (0..n_values).map(weight).collect(), phases }
    }

    /// Returns for each tensor the operations that compute it on one device in the computation that
    /// plans are measured by: in all steps of an update together.
    pub(crate) fn operations_of_values(&self) -> Vec<f64> {
        let weights = self.weights();
        let operations = |it: Value| self.graph.flops(it) as f64 * weights.of_value(it) as f64;
        self.graph.values().map(operations).collect()
    }
}

impl Weights {
    /// Returns how often a tensor is computed.
    #[must_use]
    pub fn of_value(&self, value: Value) -> u64 {
        self.of_values[value.index()]
    }

    /// Returns how often the operator of a tensor reads its operand at this position.
    #[must_use]
    pub fn of_read(&self, graph: &Graph, user: Value, position: usize) -> u64 {
        let of_phase = |(phase, n, is_made): &(Phase, u64, Vec<bool>)| {
            n * u64::from(is_made[user.index()] && graph.reads(user, position, *phase))
        };
        self.phases.iter().map(of_phase).sum()
    }
}

#[cfg(test)]
mod tests {
    use soybean_plan::{DType, Init};

    use super::*;
    use crate::{
        Argument, Builder, Optimizer, build_network, operators::phase_select::PhaseSelect,
    };

    /// A prediction reads what an evaluation reads: the kept statistics of a batch norm, not those
    /// of the batch.
    #[test]
    fn predictions_count_as_evaluations() {
        let mut it = Builder::new();
        let x = it.input("x", DType::F32, &[8, 4]);
        let kept = ["mean", "var"].map(|name| it.buffer(name, &[4], Init::Constant(1.0)));
        let own = ["weight", "bias"].map(|name| it.parameter(name, &[4], Init::Constant(1.0)));
        let tensors = [[x].as_slice(), &kept, &own].concat().into_iter().map(Argument::Tensor);
        let arguments: Vec<Argument> = tensors.chain([0.1, 1e-5].map(Argument::Float)).collect();
        let y = it.call("batch_norm", &arguments).unwrap();
        let loss = it.call("mean", &[y, Argument::All]).unwrap();
        let Argument::Tensor(loss) = loss else { unreachable!("a mean is a tensor") };
        let outputs = [("y".to_owned(), loss)];
        let trained = build_network(it, loss, &outputs, &Optimizer::default()).unwrap();
        let is_select = |graph: &Graph, it: &Value| graph.operator_as::<PhaseSelect>(*it).is_some();
        let n_reads = |network: &Network| -> [u64; 2] {
            let (graph, weights) = (&network.graph, network.weights());
            let selects: Vec<Value> = graph.values().filter(|it| is_select(graph, it)).collect();
            [0, 1].map(|at| selects.iter().map(|it| weights.of_read(graph, *it, at)).sum())
        };
        assert_eq!(n_reads(&trained), [2, 0]);
        let (updates, gradients) = (Vec::new(), Vec::new());
        let entries =
            trained.entries.iter().map(|it| Entry { updates: 0..0, loss: None, ..it.clone() });
        let entries = entries.collect();
        let predicted = Network { updates, gradients, entries, ..trained };
        assert_eq!(n_reads(&predicted), [0, 2]);
    }
}
