//! The counts and the losses of steps that share an update.

use std::collections::BTreeMap;

use soybean_plan::{COUNT_SUM, DType, Register, ScalarProgram};

use super::{UpdateWriter, add_elementwise_of_scalars};
use crate::{
    denominator::Quotient,
    entry::SharedLoss,
    graph::Graph,
    operators::elementwise::{Elementwise, all_dims},
    scalar::{self, ScalarBuilder},
    signature::factor_id,
    value::Value,
};

impl UpdateWriter<'_> {
    /// Adds the sums of a loss's counts. Returns the product of its denominators, computed from the
    /// counts of all steps of the update.
    pub(super) fn total_count(&mut self, quotient: &Quotient) -> Value {
        let mut totals = BTreeMap::new();
        for (number, &count) in quotient.counts.iter().enumerate() {
            self.graph.set_origin(self.graph.node(count).origin);
            let dtype = self.graph.node(count).dtype;
            let term = as_type(self.graph, count, DType::F32);
            let total = self.summed(&format!("loss.{number}{COUNT_SUM}"), None, term);
            totals.insert(count, as_type(self.graph, total, dtype));
        }
        let of_denominator = |it: &Value| on_totals(self.graph, *it, &mut totals);
        let denominators: Vec<Value> = quotient.denominators.iter().map(of_denominator).collect();
        let total =
            add_elementwise_of_scalars(self.graph, &product(denominators.len()), &denominators);
        self.names.push(("loss_count".to_owned(), Some(total)));
        total
    }

    /// Adds the losses of the steps that share an update, whose only entry has this loss.
    pub(super) fn shared_loss(&mut self, loss: Value, quotient: Option<&Quotient>) -> SharedLoss {
        self.graph.set_origin(self.graph.node(loss).origin);
        let Some(Quotient { numerator, denominators, .. }) = quotient else {
            let mut it = ScalarBuilder::default();
            let (loss_of_batch, zero) = (it.input(0), it.constant(0.0));
            let has_batch = it.scalar(self.has_batch);
            let updating = it.select(has_batch, loss_of_batch, zero);
            let updating = add_elementwise_of_scalars(self.graph, &it.finish(updating), &[loss]);
            return SharedLoss { accumulating: loss, updating };
        };
        let n = denominators.len();
        let mut values = vec![loss, *numerator];
        values.extend(denominators);
        let mut it = ScalarBuilder::default();
        let accumulating = of_counted(&mut it, n);
        let program = it.finish(accumulating);
        let accumulating = add_elementwise_of_scalars(self.graph, &program, &values);
        values.extend(self.count);
        let program = updating(n, self.has_batch);
        let updating = add_elementwise_of_scalars(self.graph, &program, &values);
        SharedLoss { accumulating, updating }
    }
}

/// Writes the loss, input 0, or the numerator, input 1, if the product of the denominators is 0.
fn of_counted(it: &mut ScalarBuilder, n_denominators: usize) -> Register {
    let (loss, numerator, zero) = (it.input(0), it.input(1), it.constant(0.0));
    let count = multiplied(it, 2, n_denominators);
    let has_none = it.equal(count, zero);
    it.select(has_none, numerator, loss)
}

/// Returns the program of the loss of a step that updates: its last input is the total count.
fn updating(n_denominators: usize, has_batch: u8) -> ScalarProgram {
    let mut it = ScalarBuilder::default();
    let (numerator, zero) = (it.input(1), it.constant(0.0));
    let loss = of_counted(&mut it, n_denominators);
    let (total, has_batch) = (it.input(factor_id(2 + n_denominators)), it.scalar(has_batch));
    let [loss, numerator] = [loss, numerator].map(|x| it.select(has_batch, x, zero));
    // NaN or infinite where nothing was counted.
    let (has_none, quotient) = (it.equal(total, zero), it.div(numerator, total));
    let result = it.select(has_none, quotient, loss);
    it.finish(result)
}

fn multiplied(it: &mut ScalarBuilder, first: usize, n: usize) -> Register {
    let one = it.constant(1.0);
    (first..first + n).fold(one, |product, at| {
        let factor = it.input(factor_id(at));
        it.mul(product, factor)
    })
}

/// Returns the program that multiplies its inputs.
fn product(n: usize) -> ScalarProgram {
    let mut it = ScalarBuilder::default();
    let product = multiplied(&mut it, 0, n);
    it.finish(product)
}

/// Returns a tensor converted to a type; itself if it has that type.
fn as_type(graph: &mut Graph, value: Value, dtype: DType) -> Value {
    let (from, extents) = (graph.node(value).dtype, graph.shape(value));
    let program = match (from, dtype) {
        (DType::I32, DType::F32 | DType::Bf16) => scalar::float(),
        (DType::F32 | DType::Bf16, DType::I32) => scalar::identity(),
        (DType::I32, DType::I32) | (DType::F32 | DType::Bf16, DType::F32 | DType::Bf16) => {
            return value;
        }
    };
    let operands = vec![all_dims(&extents)];
    graph.add(Elementwise { extents, operands, program, dtype }.into(), &[value])
}

/// Returns what a denominator is if the counts that it is computed from are others.
fn on_totals(graph: &mut Graph, value: Value, totals: &mut BTreeMap<Value, Value>) -> Value {
    if let Some(known) = totals.get(&value) {
        return *known;
    }
    let Some(operator) = graph.operator(value).cloned() else { return value };
    let before = graph.operands(value);
    let operands: Vec<Value> = before.iter().map(|it| on_totals(graph, *it, totals)).collect();
    let new = match operands == before {
        true => value,
        false => graph.add(operator, &operands),
    };
    totals.insert(value, new);
    new
}
