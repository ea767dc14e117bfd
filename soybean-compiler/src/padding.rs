//! Padded extents: dims that the ranks do not divide are stored longer than the user's.
//!
//! Operators tie dims together: a factor of a signature is an index that several dims share. All
//! dims tied to each other form a *class*, which is padded as a whole. Padding comes after all
//! elements, so a dim that is a part of another one, as in a reshape, pads it too.
//!
//! Padding has no meaning, and may hold NaN. Where an operator adds up over a padded dim, its
//! operands must be zero in the padding; where it takes a maximum, minus infinity. Maps and
//! reductions select these numbers themselves; other results are followed by a map that does.
//! Inputs, parameters and states are zero in their padding: whoever writes them keeps them so.
//! Source: GSPMD (Xu et al. 2021) pads and masks in the same way.

mod choose;
mod classes;

use std::collections::BTreeMap;

use soybean_plan::{Combine, DType, Shape};

use crate::{
    graph::{Graph, Node},
    network::Network,
    operator::Operator,
    operators::{combination::Combination, elementwise::Elementwise, iota::Iota, reduce::Reduce},
    rewrite::rewrite,
    scalar::{self, masked, result_in_padding},
    signature::{FactorId, Signature, factor_id},
    value::Value,
};

pub(crate) use choose::{Chosen, PaddingFacts, choose_padding};
use classes::{DimClasses, Unit};

/// The padded extents of classes: of each unit, the extent in its place.
type PaddedUnits = BTreeMap<Unit, usize>;

/// Pads the dims of these units.
///
/// Kernels write the poison, if there is one, wherever padding may hold anything.
fn pad(
    network: &Network,
    classes: &DimClasses,
    units: &PaddedUnits,
    poison: Option<f64>,
) -> Network {
    let needed = needed_zeros(network, classes, units);
    let mut pass =
        Pass { network, classes, units, needed, iotas: BTreeMap::new(), zeros: Vec::new() };
    rewrite(network, |rewriter, value| {
        let old = rewriter.old;
        let Some(operator) = old.operator(value) else {
            let node = Node { shape: pass.padded_shape(value), ..old.node(value).clone() };
            let new = rewriter.graph.add_copy(&node);
            pass.set_zeros(new, pass.padded_dims(value));
            return Some(new);
        };
        if operator.is::<Iota>() {
            return None;
        }
        let signature = operator.signature(&old.operand_shapes(value));
        let factors = pass.padded_factors(value, &signature);
        let mut operands = Vec::new();
        for (at, operand) in old.operands(value).into_iter().enumerate() {
            operands.push(rewriter.replacement(operand).unwrap_or_else(|| {
                let factor = signature.operands[at][0].factor.expect("indices follow a factor");
                pass.iota(&mut rewriter.graph, factors[usize::from(factor)], false)
            }));
        }
        let new = pass.computed(&mut rewriter.graph, value, operator, &signature, operands);
        Some(match poison {
            Some(poison) => pass.poisoned(&mut rewriter.graph, value, new, poison),
            None => new,
        })
    })
}

/// Marks the dims of each tensor that must be zero in their padding: where a reader adds up over
/// them, and where the tensor is kept for the next step.
fn needed_zeros(network: &Network, classes: &DimClasses, units: &PaddedUnits) -> Vec<Vec<bool>> {
    let graph = &network.graph;
    let is_padded = |class: usize| units.contains_key(&classes.units[class]);
    let mut needed: Vec<Vec<bool>> =
        graph.values().map(|it| vec![false; graph.shape(it).len()]).collect();
    for value in graph.values() {
        let Some(operator) = graph.operator(value) else { continue };
        let is_map = operator.is::<Elementwise>() || operator.is::<Combination>();
        if is_map || operator.is::<Reduce>() || operator.is::<Iota>() {
            continue;
        }
        let signature = operator.signature(&graph.operand_shapes(value));
        for (position, operand) in graph.operands(value).into_iter().enumerate() {
            for (dim, of_dim) in signature.operands[position].iter().enumerate() {
                let Some(factor) = of_dim.factor else { continue };
                let class = classes.of_factors[value.index()][usize::from(factor)];
                let adds_up = signature.is_reduced(factor) && operator.adds_up(position);
                needed[operand.index()][dim] |= adds_up && is_padded(class);
            }
        }
    }
    for &(_, next) in &network.updates {
        for (dim, class) in classes.of_dims[next.index()].iter().enumerate() {
            needed[next.index()][dim] |= is_padded(*class);
        }
    }
    needed
}

struct Pass<'a> {
    network: &'a Network,
    classes: &'a DimClasses,
    units: &'a PaddedUnits,
    /// The marks of [`needed_zeros`].
    needed: Vec<Vec<bool>>,
    iotas: BTreeMap<(usize, bool), Value>,
    /// For each tensor of the new graph, a mark for each padded dim that is zero in its padding.
    zeros: Vec<Vec<bool>>,
}

impl Pass<'_> {
    /// Returns an extent of a class after padding.
    fn padded(&self, class: usize, extent: usize) -> usize {
        let unit = self.classes.units[class];
        self.units.get(&unit).map_or(extent, |padded| extent / unit.extent * padded)
    }

    /// Returns the extents of the factors of a tensor's operator.
    fn padded_factors(&self, value: Value, signature: &Signature) -> Vec<usize> {
        let classes = &self.classes.of_factors[value.index()];
        let factors = signature.factors.iter().zip(classes);
        factors.map(|(&extent, &class)| self.padded(class, extent)).collect()
    }

    fn padded_shape(&self, value: Value) -> Shape {
        let shape = self.network.graph.shape(value);
        let classes = &self.classes.of_dims[value.index()];
        shape.iter().zip(classes).map(|(&extent, &class)| self.padded(class, extent)).collect()
    }

    /// Marks the padded dims of a tensor of the old graph.
    fn padded_dims(&self, value: Value) -> Vec<bool> {
        let classes = self.classes.of_dims[value.index()].iter();
        classes.map(|it| self.units.contains_key(&self.classes.units[*it])).collect()
    }

    fn set_zeros(&mut self, new: Value, zeros: Vec<bool>) {
        if self.zeros.len() <= new.index() {
            self.zeros.resize(new.index() + 1, Vec::new());
        }
        self.zeros[new.index()] = zeros;
    }

    fn zeros_of(&self, new: Value, dim: usize) -> bool {
        self.zeros.get(new.index()).and_then(|it| it.get(dim)).copied().unwrap_or(false)
    }

    /// Returns the indices of a dim. Indices that tell padding are a tensor of their own.
    fn iota(&mut self, graph: &mut Graph, extent: usize, is_for_padding: bool) -> Value {
        *self.iotas.entry((extent, is_for_padding)).or_insert_with(|| {
            let origin = graph.origin();
            graph.set_origin(None);
            let iota = graph.add(Iota { extent, is_for_padding }.into(), &[]);
            graph.set_origin(origin);
            iota
        })
    }

    /// Adds a tensor that an operator computes, and masks its padding where that is needed.
    fn computed(
        &mut self,
        graph: &mut Graph,
        value: Value,
        operator: &Operator,
        signature: &Signature,
        mut operands: Vec<Value>,
    ) -> Value {
        let node = self.network.graph.node(value);
        let factors = self.padded_factors(value, signature);
        let resized = operator.resized(&factors, self.padded_shape(value));
        let operator = resized.unwrap_or_else(|| operator.clone());
        let is_needed = self.needed[value.index()].clone();
        let masks = |zeros: &[bool]| -> Vec<usize> {
            (0..zeros.len()).filter(|&it| is_needed[it] && !zeros[it]).collect()
        };
        let combination = operator.downcast_ref::<Combination>();
        let map = operator.downcast_ref::<Elementwise>().or(combination.map(|it| &it.map));
        if let Some(map) = map {
            let mut map = map.clone();
            let mut zeros = self.zeros_of_map(value, &map, &operands, 0.0);
            let masked = masks(&zeros);
            self.mask(graph, &mut map, &mut operands, signature, &masked, 0.0);
            masked.iter().for_each(|&it| zeros[it] = true);
            // A mask selects zero, so the map is still linear in the terms.
            let operator = match combination {
                Some(Combination { n_terms, .. }) => Combination { map, n_terms: *n_terms }.into(),
                None => map.into(),
            };
            let new = graph.add_like(node, operator, &operands);
            self.set_zeros(new, zeros);
            return new;
        }
        let (operator, zeros) = match operator.downcast_ref::<Reduce>() {
            Some(reduce) => {
                let (reduce, zeros) =
                    self.reduced(graph, value, reduce.clone(), &mut operands, signature);
                (reduce.into(), zeros)
            }
            None => {
                let zeros = self.kept_zeros(value, &operator, &operands, signature);
                (operator, zeros)
            }
        };
        let masked = masks(&zeros);
        let inner = Node { pinned: None, ..node.clone() };
        let new =
            graph.add_like(if masked.is_empty() { node } else { &inner }, operator, &operands);
        self.set_zeros(new, zeros.clone());
        if masked.is_empty() {
            return new;
        }
        let new = self.filled(graph, node, new, &[(&masked, 0.0)]);
        let zeros = (0..zeros.len()).map(|it| zeros[it] || masked.contains(&it)).collect();
        self.set_zeros(new, zeros);
        new
    }

    /// Adds a map that writes numbers into the padding of dims. Where the padding of several dims
    /// meets, the last number counts.
    fn filled(
        &mut self,
        graph: &mut Graph,
        node: &Node,
        value: Value,
        fills: &[(&[usize], f64)],
    ) -> Value {
        let map = |shape| Elementwise {
            dtype: node.dtype,
            ..Elementwise::same(shape, 1, scalar::identity())
        };
        let signature = Operator::from(map(node.shape)).signature(&[node.shape]);
        let (mut map, mut operands) = (map(graph.shape(value)), vec![value]);
        for (dims, fill) in fills {
            self.mask(graph, &mut map, &mut operands, &signature, dims, *fill);
        }
        graph.add_like(node, map.into(), &operands)
    }

    /// Writes a poison into the padding of a tensor where it need not be zero.
    fn poisoned(&mut self, graph: &mut Graph, value: Value, new: Value, poison: f64) -> Value {
        let node = self.network.graph.node(value);
        let zeros = self.zeros[new.index()].clone();
        let is_padded = self.padded_dims(value);
        let of_kind = |is_zero: bool| -> Vec<usize> {
            (0..zeros.len()).filter(|&it| is_padded[it] && zeros[it] == is_zero).collect()
        };
        let (unknown, zero) = (of_kind(false), of_kind(true));
        if unknown.is_empty() || node.dtype != DType::F32 {
            return new;
        }
        let poisoned = self.filled(graph, node, new, &[(&unknown, poison), (&zero, 0.0)]);
        self.set_zeros(poisoned, zeros);
        poisoned
    }

    /// Makes a map select `fill` in the padding of these dims of its index space. `signature` has
    /// the extents without padding.
    fn mask(
        &mut self,
        graph: &mut Graph,
        map: &mut Elementwise,
        operands: &mut Vec<Value>,
        signature: &Signature,
        dims: &[usize],
        fill: f64,
    ) {
        let mut indices = Vec::new();
        for &dim in dims {
            let iota = self.iota(graph, map.extents[dim], true);
            let (input, ids) = (factor_id(operands.len()), vec![factor_id(dim)]);
            operands.push(iota);
            map.operands.push(ids);
            indices.push((input, signature.factors[dim]));
        }
        if !indices.is_empty() {
            map.program = masked(&map.program, &indices, fill);
        }
    }

    /// Marks the padded dims of a map's index space in whose padding its result is `wanted`.
    fn zeros_of_map(
        &self,
        value: Value,
        map: &Elementwise,
        operands: &[Value],
        wanted: f64,
    ) -> Vec<bool> {
        let classes = &self.classes.of_factors[value.index()];
        let is_wanted = |dim: usize| {
            let is_padded = self.units.contains_key(&self.classes.units[classes[dim]]);
            let is_zero = |(ids, operand): (&Vec<FactorId>, &Value)| {
                let at = ids.iter().position(|it| usize::from(*it) == dim);
                at.is_some_and(|at| self.zeros_of(*operand, at))
            };
            let is_zero: Vec<bool> = map.operands.iter().zip(operands).map(is_zero).collect();
            is_padded && result_in_padding(&map.program, &is_zero) == Some(wanted)
        };
        (0..map.extents.len()).map(is_wanted).collect()
    }

    /// Returns a reduction that padding does not change, and marks the dims in whose padding its
    /// result is zero.
    fn reduced(
        &mut self,
        graph: &mut Graph,
        value: Value,
        mut reduce: Reduce,
        operands: &mut Vec<Value>,
        signature: &Signature,
    ) -> (Reduce, Vec<bool>) {
        let neutral = match reduce.combine {
            Combine::Sum => 0.0,
            Combine::Max => f64::NEG_INFINITY,
        };
        let is_neutral = self.zeros_of_map(value, &reduce.map, operands, neutral);
        let classes = &self.classes.of_factors[value.index()];
        let is_reduced = |it: &usize| !reduce.kept.contains(&factor_id(*it));
        let is_padded = |it: &usize| self.units.contains_key(&self.classes.units[classes[*it]]);
        let masked: Vec<usize> = (0..is_neutral.len())
            .filter(|it| is_reduced(it) && is_padded(it) && !is_neutral[*it])
            .collect();
        let zeros = match reduce.combine {
            Combine::Sum => reduce.kept.iter().map(|it| is_neutral[usize::from(*it)]).collect(),
            Combine::Max => vec![false; reduce.kept.len()],
        };
        self.mask(graph, &mut reduce.map, operands, signature, &masked, neutral);
        (reduce, zeros)
    }

    /// Marks the dims of any other operator's result in whose padding it is zero.
    fn kept_zeros(
        &self,
        value: Value,
        operator: &Operator,
        operands: &[Value],
        signature: &Signature,
    ) -> Vec<bool> {
        let is_padded = self.padded_dims(value);
        let is_zero = |dim: usize| {
            let Some(factor) = signature.result[dim].factor else { return false };
            let is_zero = |(position, operand): (usize, &Value)| {
                let dims = &signature.operands[position];
                let at = dims.iter().position(|it| it.factor == Some(factor));
                at.is_some_and(|at| self.zeros_of(*operand, at))
            };
            is_padded[dim] && operator.keeps_zeros() && operands.iter().enumerate().all(is_zero)
        };
        (0..signature.result.len()).map(is_zero).collect()
    }
}
