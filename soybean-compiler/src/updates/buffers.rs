//! The steps in which buffers keep their values.

use soybean_plan::ScalarProgram;

use super::UpdateWriter;
use crate::{
    operators::elementwise::{add_elementwise, all_dims},
    scalar::ScalarBuilder,
    value::Value,
};

impl UpdateWriter<'_> {
    /// Keeps the values of buffers in steps that are skipped.
    pub(super) fn guard_buffers(&mut self, is_finite: Value) {
        let mut it = ScalarBuilder::default();
        let (condition, next, buffer) = (it.input(0), it.input(1), it.input(2));
        let chosen = it.select(condition, next, buffer);
        self.map_buffers(&it.finish(chosen), Some(is_finite));
    }

    /// Keeps the values of buffers in updates without a batch.
    pub(super) fn keep_buffers_without_batch(&mut self) {
        let mut it = ScalarBuilder::default();
        let (next, buffer, has_batch) = (it.input(0), it.input(1), it.scalar(self.has_batch));
        let chosen = it.select(has_batch, next, buffer);
        self.map_buffers(&it.finish(chosen), None);
    }

    /// Replaces the next values of buffers by a program of a number, if there is one, the next
    /// value and the value before.
    fn map_buffers(&mut self, program: &ScalarProgram, number: Option<Value>) {
        for (buffer, next) in &mut self.updates[self.first..] {
            let shape = self.graph.shape(*buffer);
            self.graph.set_origin(self.graph.node(*next).origin);
            let numbers = number.map(|it| (it, Vec::new())).into_iter();
            let tensors = [*next, *buffer].map(|it| (it, all_dims(&shape)));
            let (values, operands): (Vec<Value>, Vec<_>) = numbers.chain(tensors).unzip();
            *next = add_elementwise(self.graph, shape, &operands, program, &values);
        }
    }
}
