//! Denominators of losses: the numbers of a batch, such as a count of labels, that a loss is
//! divided by.
//!
//! Steps that share an update add up such counts beside the gradients of the numerator, and the
//! update divides the one by the other. So it is that of one batch with the rows of all steps.
//! The loss is followed to its divisions through operators that are linear in what is trained.

mod counts;
mod division;
mod obstacle;

use std::collections::BTreeMap;

use soybean_plan::DType;

use crate::{
    batch::{self, Relation},
    builder::Site,
    diagnostic::ModelDiagnostic,
    graph::{Graph, Source},
    network::Network,
    operator::Phase,
    operators::map_of,
    scalar,
    value::Value,
};
use division::{Dependence, dependences, divisor, without_divisor};
use obstacle::{Obstacle, ObstacleKind};

/// The operator by which a model says that its loss is a sum divided by a count.
const PER: &str = "per";

/// A loss as a numerator over numbers of the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quotient {
    /// The loss times its denominators.
    pub numerator: Value,
    /// The denominators, whose product divides the numerator.
    pub denominators: Vec<Value>,
    /// The numbers that the denominators are computed from, which steps add up.
    pub counts: Vec<Value>,
}

impl Quotient {
    /// Returns the quotient on another graph, given the replacement of each tensor.
    pub(crate) fn remapped(&self, of: &BTreeMap<Value, Value>) -> Self {
        let all = |values: &[Value]| values.iter().map(|it| of[it]).collect();
        let (denominators, counts) = (all(&self.denominators), all(&self.counts));
        Self { numerator: of[&self.numerator], denominators, counts }
    }
}

/// Returns the denominators of a loss; `None` if nothing that depends on the batch divides it.
/// `is_trained` marks the tensors that depend on what is trained.
///
/// # Errors
/// Returns a fault if steps cannot add up the numerators and the counts of the loss.
pub(crate) fn divisors(
    network: &Network,
    loss: Value,
    is_trained: &[bool],
) -> Result<Option<Divisors>, ModelDiagnostic> {
    let fault = |obstacle: Obstacle| obstacle.fault(network.site(obstacle.at));
    Search::new(network, is_trained).divisors(loss).map_err(fault)
}

/// The denominators of a loss, and the counts that they are computed from.
pub(crate) struct Divisors {
    loss: Value,
    denominators: Vec<Value>,
    counts: Vec<Value>,
    followed: BTreeMap<Value, Followed>,
}

impl Divisors {
    /// Returns the number that weighs the losses of batches in their mean; `None` if several
    /// numbers divide the loss.
    pub(crate) fn weight(&self, graph: &Graph) -> Option<Value> {
        let [denominator] = self.denominators[..] else { return None };
        // The denominator of a batch without labels may be 1, where their number is 0.
        let count = self.counts.first().filter(|_| self.counts.len() == 1);
        let is_number = |it: &&Value| graph.node(**it).dtype != DType::I32;
        Some(count.filter(is_number).copied().unwrap_or(denominator))
    }

    /// Returns the loss as a quotient, whose numerator is added to the graph.
    pub(crate) fn quotient(self, graph: &mut Graph) -> Quotient {
        let Self { loss, denominators, counts, followed } = self;
        let numerator = without_denominators(graph, &followed, loss, &mut BTreeMap::new());
        Quotient { numerator, denominators, counts }
    }
}

/// The denominators of a term, by their numbers in [`Search::denominators`], in increasing order.
type Product = Vec<usize>;

/// How a tensor depends on denominators.
#[derive(Clone, Default)]
struct Followed {
    /// The denominators of its terms: those of each product divide some of them.
    products: Vec<Product>,
    /// The position of the operand that divides it.
    divisor: Option<usize>,
    /// The positions of the operands whose denominators are its own.
    operands: Vec<usize>,
}

impl Followed {
    /// Returns what is known of a tensor that is not followed further.
    fn end() -> Self {
        Self { products: vec![Vec::new()], ..Self::default() }
    }

    fn has_denominators(&self) -> bool {
        self.products.iter().any(|it| !it.is_empty())
    }
}

struct Search<'a> {
    graph: &'a Graph,
    sites: &'a [Site],
    is_trained: &'a [bool],
    /// Marks what differs from step to step although nothing is trained.
    varies: Vec<bool>,
    /// The relation of each tensor to the rows of a batch, if all inputs have the same rows.
    rows: Option<Vec<Relation>>,
    /// The denominators so far; equal ones are one.
    denominators: Vec<Value>,
    followed: BTreeMap<Value, Followed>,
}

impl<'a> Search<'a> {
    fn new(network: &'a Network, is_trained: &'a [bool]) -> Self {
        let graph = &network.graph;
        let mut varies: Vec<bool> = Vec::with_capacity(graph.n_values());
        for value in graph.values() {
            let map = graph.operator(value).and_then(map_of);
            let is_random = map.is_some_and(|it| scalar::reads_scalars(&it.program));
            let is_input = matches!(graph.node(value).source, Source::Input { .. });
            let operands = graph.operands(value);
            varies.push(is_input || is_random || operands.iter().any(|it| varies[it.index()]));
        }
        let mut extents = network.inputs.iter().filter_map(|it| graph.shape(*it).first().copied());
        let n_rows = extents.next().filter(|first| extents.all(|it| it == *first));
        let rows = n_rows.map(|it| batch::relations(graph, Some(it), Phase::Train(0)));
        let (denominators, followed) = (Vec::new(), BTreeMap::new());
        Self { graph, sites: &network.sites, is_trained, varies, rows, denominators, followed }
    }

    /// Returns the denominators of the loss, and the counts that they are computed from.
    fn divisors(mut self, loss: Value) -> Result<Option<Divisors>, Obstacle> {
        let found = self.follow(loss)?;
        if !found.has_denominators() {
            return Ok(None);
        }
        let [product] = &found.products[..] else {
            return Err(Obstacle { at: loss, kind: ObstacleKind::Several });
        };
        let denominators: Vec<Value> = product.iter().map(|it| self.denominators[*it]).collect();
        let mut counts = Vec::new();
        for &denominator in &denominators {
            self.find_counts(denominator, &mut counts)?;
        }
        Ok(Some(Divisors { loss, denominators, counts, followed: self.followed }))
    }

    fn is_trained(&self, value: Value) -> bool {
        self.is_trained[value.index()]
    }

    fn varies(&self, value: Value) -> bool {
        self.varies[value.index()]
    }

    /// Returns whether the user's operator of a tensor says that its divisor is a count.
    fn is_declared(&self, value: Value) -> bool {
        let site = self.graph.node(value).origin.and_then(|it| self.sites.get(it));
        site.is_some_and(|it| it.operator == PER)
    }

    /// Follows a tensor to its denominators.
    fn follow(&mut self, value: Value) -> Result<Followed, Obstacle> {
        if let Some(known) = self.followed.get(&value) {
            return Ok(known.clone());
        }
        let found = match self.graph.operator(value) {
            Some(_) if self.varies(value) || self.is_trained(value) => {
                self.follow_operator(value)?
            }
            Some(_) | None => Followed::end(),
        };
        self.followed.insert(value, found.clone());
        Ok(found)
    }

    fn follow_operator(&mut self, value: Value) -> Result<Followed, Obstacle> {
        let operands = self.graph.operands(value);
        let divisor = self.divisor(value)?;
        let is_trained = self.is_trained(value);
        let matters = |this: &Self, at: usize| match is_trained {
            true => this.is_trained(operands[at]),
            false => this.varies(operands[at]),
        };
        let mut found = Followed { divisor, ..Followed::default() };
        if !self.is_declared(value) {
            let dependences = dependences(self.graph, value);
            let followed: Vec<usize> = (0..operands.len())
                .filter(|at| Some(*at) != divisor && matters(self, *at))
                .collect();
            if followed.iter().any(|at| dependences[*at] == Dependence::Other) {
                self.check_ends(value, &operands)?;
                return Ok(Followed::end());
            }
            for at in followed {
                let Dependence::Linear { factors } = &dependences[at] else { continue };
                let of_operand = self.follow(operands[at])?;
                let mut products = of_operand.products;
                found.operands.push(at);
                for &factor in factors.iter().filter(|it| Some(**it) != divisor) {
                    if !self.varies(operands[factor]) || dependences[factor] == Dependence::Other {
                        continue;
                    }
                    let of_factor = self.follow(operands[factor])?;
                    let is_product_of_sums = self.is_trained(operands[factor])
                        && self.graph.shape(value).n_elements() == 1;
                    if is_product_of_sums
                        && (of_factor.has_denominators()
                            || products.iter().any(|it| !it.is_empty()))
                    {
                        return Err(Obstacle { at: value, kind: ObstacleKind::NotLinear });
                    }
                    found.operands.push(factor);
                    products = multiplied(&products, &of_factor.products);
                }
                found.products.extend(products);
            }
        }
        if found.products.is_empty() {
            found.products.push(Vec::new());
        }
        if let Some(at) = divisor {
            let own = self.number(operands[at]);
            found.products = multiplied(&found.products, &[vec![own]]);
        }
        found.products.sort_unstable();
        found.products.dedup();
        found
            .operands
            .retain(|at| self.followed.get(&operands[*at]).is_some_and(Followed::has_denominators));
        found.operands.sort_unstable();
        found.operands.dedup();
        Ok(found)
    }

    /// Checks that a scalar that is not linear in trained ones is no function of a quotient.
    fn check_ends(&mut self, value: Value, operands: &[Value]) -> Result<(), Obstacle> {
        for &operand in operands {
            let is_scalar = self.graph.shape(operand).n_elements() == 1;
            if is_scalar && self.is_trained(operand) && self.follow(operand)?.has_denominators() {
                return Err(Obstacle { at: value, kind: ObstacleKind::NotLinear });
            }
        }
        Ok(())
    }

    /// Returns the position of the operand that divides a tensor, if it is a number of the batch.
    fn divisor(&self, value: Value) -> Result<Option<usize>, Obstacle> {
        let Some(at) = divisor(self.graph, value) else { return Ok(None) };
        let divisor = self.graph.operands(value)[at];
        if self.is_trained(divisor) || !self.varies(divisor) {
            return Ok(None);
        }
        if self.graph.shape(divisor).n_elements() == 1 {
            return Ok(Some(at));
        }
        // A row that is divided by its own number is the same in any batch.
        match self.rows.as_ref().map(|it| &it[divisor.index()]) {
            Some(Relation::Mixed) => Err(Obstacle { at: value, kind: ObstacleKind::NoCount }),
            Some(Relation::Own { .. } | Relation::Fixed { .. }) | None => Ok(None),
        }
    }

    /// Returns the number of a denominator. Equal ones have the same.
    fn number(&mut self, denominator: Value) -> usize {
        let known = self.denominators.iter().position(|it| self.are_equal(*it, denominator));
        known.unwrap_or_else(|| {
            self.denominators.push(denominator);
            self.denominators.len() - 1
        })
    }

    /// Returns whether two tensors are computed in the same way.
    fn are_equal(&self, one: Value, other: Value) -> bool {
        let (Some(operator), Some(same)) = (self.graph.operator(one), self.graph.operator(other))
        else {
            return one == other;
        };
        let operands = || self.graph.operands(one).into_iter().zip(self.graph.operands(other));
        one == other
            || operator == same
                && self.graph.operands(one).len() == self.graph.operands(other).len()
                && operands().all(|(one, other)| self.are_equal(one, other))
    }
}

/// Returns the products of each product of some with each of others.
fn multiplied(some: &[Product], others: &[Product]) -> Vec<Product> {
    let product = |one: &Product, other: &Product| {
        let mut product = [one.as_slice(), other].concat();
        product.sort_unstable();
        product
    };
    some.iter().flat_map(|one| others.iter().map(move |other| product(one, other))).collect()
}

/// Adds a tensor times its denominators: the same operators on 1 in place of what divides.
fn without_denominators(
    graph: &mut Graph,
    followed: &BTreeMap<Value, Followed>,
    value: Value,
    copied: &mut BTreeMap<Value, Value>,
) -> Value {
    let Some(found) = followed.get(&value).filter(|it| it.has_denominators()) else { return value };
    if let Some(known) = copied.get(&value) {
        return *known;
    }
    let mut operands = graph.operands(value);
    for &at in &found.operands {
        operands[at] = without_denominators(graph, followed, operands[at], copied);
    }
    let node = graph.node(value).clone();
    graph.set_origin(node.origin);
    let operator = graph.operator(value).cloned().expect("followed tensors have operators");
    let copy = match found.divisor {
        Some(at) => without_divisor(graph, &operator, &operands, at),
        None => graph.add(operator, &operands),
    };
    copied.insert(value, copy);
    copy
}
