//! The norm of all gradients.

use soybean_plan::{Combine, Unary};

use super::{Trained, UpdateWriter, add_elementwise_of_scalars};
use crate::{
    graph::Graph,
    operators::{reduce::Reduce, total::Total},
    optimizer::Layout,
    scalar,
    value::Value,
};

/// The largest number of terms that one kernel sums.
const MAX_TERMS: usize = 32;

impl UpdateWriter<'_> {
    /// Adds the 2-norm of all gradients together.
    pub(super) fn norm(&mut self, trained: &[Trained<'_>]) -> Value {
        let sums = trained.iter().map(|it| self.square_sum(it)).collect();
        self.graph.set_origin(None);
        let norm = match add_total(self.graph, sums) {
            Some(sum) => {
                self.names.push((format!("{}gradient_square_sum", self.entry), Some(sum)));
                add_elementwise_of_scalars(self.graph, &scalar::unary(Unary::Sqrt), &[sum])
            }
            // Nothing is trained.
            None => add_elementwise_of_scalars(self.graph, &scalar::constant(0.0), &[]),
        };
        self.names.push((format!("{}gradient_norm", self.entry), Some(norm)));
        norm
    }

    /// Adds the sum of the squares of one gradient.
    fn square_sum(&mut self, trained: &Trained<'_>) -> Value {
        let node = self.graph.node(trained.parameter);
        let (name, shape, origin) = (node.name.clone(), node.shape, node.origin);
        self.graph.set_origin(origin);
        let square = trained.update.square();
        let squares = self.map(trained, self.shared(), Layout::Elements, &square);
        let sum = match shape.is_empty() {
            true => squares,
            false => {
                self.graph.add(Reduce::new(shape, Combine::Sum, Vec::new()).into(), &[squares])
            }
        };
        self.names.push((format!("{}{name}.grad.square_sum", self.entry), Some(sum)));
        sum
    }
}

/// Adds the sum of scalars, or returns none if there are none.
fn add_total(graph: &mut Graph, numbers: Vec<Value>) -> Option<Value> {
    let mut numbers = numbers;
    while numbers.len() > 1 {
        let total = |terms: &[Value]| match terms {
            [one] => *one,
            several => graph.add(Total { n_terms: several.len() }.into(), several),
        };
        numbers = numbers.chunks(MAX_TERMS).map(total).collect();
    }
    numbers.pop()
}
