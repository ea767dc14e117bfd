//! Channels last: images in the order that tensor cores read, `[n, h, w, c]`, between convolutions
//! that compute in `bf16` or `tf32`.
//!
//! A layout is an order of dims. Convolutions and poolings have a form for each ([`ImageLayout`]);
//! maps, reductions and most changes of shape are index notation, so another order costs them
//! nothing ([`ChannelsLast`]). Maps read their operands in either layout. Where another operator
//! reads a tensor in the other layout, a `permute` copies it. The pass chooses the layouts with the
//! fewest elements to copy, which is a minimum cut (`channels_last/layouts.rs`). So the copies that
//! remain are at the ends of a network: its input, and what a dense layer reads. Filters are kept
//! with their channels last, and so is what the optimizer keeps for them. The host reads and writes
//! them in the user's order ([`Parameter`](soybean_plan::Parameter)).
//!
//! In `bf16`, inputs are rounded before convolutions read them. The rounding map reads them in the
//! user's order, so it is their only copy.
//!
//! The pass comes before padding and rounding: the copies are split as any operator is, and are
//! made in `bf16`. Networks in `f32` stay as they are.

mod layouts;

use std::collections::BTreeMap;

use soybean_plan::{DType, ImageLayout, Precision, Shape};

use self::layouts::Layouts;
use crate::{
    graph::{Graph, Node, Source},
    network::Network,
    operator::{ChannelsLast, Operator},
    operators::{convolve::Convolve, elementwise::Elementwise, permute::Permute, reshape::Reshape},
    pin::Pin,
    rewrite::{Rewriter, rewrite},
    value::Value,
};

/// Puts the channels of images last where that saves time on tensor cores.
#[must_use]
pub fn channels_last(network: Network, precision: Precision) -> Network {
    let graph = &network.graph;
    let has_convolutions = graph.values().any(|it| graph.operator_as::<Convolve>(it).is_some());
    if precision == Precision::F32 || !has_convolutions {
        return network;
    }
    let layouts = Layouts::of(&network);
    let mut pass = Pass { layouts, precision, made: BTreeMap::new() };
    rewrite(&network, |rewriter, value| {
        let layout = pass.add(rewriter, value);
        let layout = pass.layouts.left(value).unwrap_or(layout);
        Some(pass.in_layout(rewriter, value, layout))
    })
}

/// Returns the permutation of the model that computes a tensor and can take up others, because the
/// result has no pin.
fn free_permutation(graph: &Graph, value: Value) -> Option<&Permute> {
    graph.operator_as::<Permute>(value).filter(|_| graph.node(value).pinned.is_none())
}

/// Returns a tensor that is kept with its channels last.
fn stored_last(node: &Node) -> Node {
    Node {
        shape: ChannelsLast::shape(&node.shape),
        unpadded: ChannelsLast::shape(&node.unpadded),
        layout: ImageLayout::ChannelsLast,
        pinned: pin_of_last(node),
        ..node.clone()
    }
}

/// Returns the pin of a tensor for its form with the channels last.
fn pin_of_last(node: &Node) -> Option<Pin> {
    let n_dims = node.shape.len();
    node.pinned.map(|it| it.with_dims(|dim| ChannelsLast::place(dim, n_dims)))
}

struct Pass {
    layouts: Layouts,
    precision: Precision,
    /// The tensors of the new graph, by tensor of the old one and layout.
    made: BTreeMap<(Value, ImageLayout), Value>,
}

impl Pass {
    /// Adds a tensor of the old graph in the layout in which it is computed, and returns that.
    fn add(&mut self, rewriter: &mut Rewriter<'_>, value: Value) -> ImageLayout {
        let (old, node) = (rewriter.old, rewriter.old.node(value));
        let Source::Operator(operator) = &node.source else {
            let layout = self.layouts.of_result(value);
            let copy = match layout {
                ImageLayout::ChannelsFirst => rewriter.copy(value),
                ImageLayout::ChannelsLast => rewriter.graph.add_copy(&stored_last(node)),
            };
            self.made.insert((value, layout), copy);
            return layout;
        };
        if let Some(permute) = free_permutation(old, value) {
            let layout = self.layouts.of_result(value);
            let new = self.permuted(rewriter, value, permute, layout);
            self.made.insert((value, layout), new);
            return layout;
        }
        let (operator, operands, layout) = match operator.downcast_ref::<Elementwise>() {
            Some(map) => self.map(rewriter, value, map),
            None => self.form(rewriter, value, operator),
        };
        rewriter.graph.set_origin(node.origin);
        let new = rewriter.graph.add(operator, &operands);
        let new_node = rewriter.graph.node_mut(new);
        new_node.dtype = node.dtype;
        new_node.pinned = match layout {
            ImageLayout::ChannelsFirst => node.pinned,
            ImageLayout::ChannelsLast => pin_of_last(node),
        };
        self.made.insert((value, layout), new);
        layout
    }

    /// Returns the form of an operator, its operands in the new graph and the layout of its result.
    fn form(
        &mut self,
        rewriter: &mut Rewriter<'_>,
        value: Value,
        operator: &Operator,
    ) -> (Operator, Vec<Value>, ImageLayout) {
        let old = rewriter.old;
        let form =
            self.layouts.is_last(value).then(|| operator.channels_last(&old.operand_shapes(value)));
        let ChannelsLast { operator, operands: moved, result } =
            form.flatten().unwrap_or_else(|| {
                let n_operands = old.operands(value).len();
                ChannelsLast {
                    operator: operator.clone(),
                    operands: vec![false; n_operands],
                    result: false,
                }
            });
        let layout = |is_moved: bool| match is_moved {
            true => ImageLayout::ChannelsLast,
            false => ImageLayout::ChannelsFirst,
        };
        let operands = old.operands(value).into_iter().zip(moved);
        let operands =
            operands.map(|(it, moved)| self.in_layout(rewriter, it, layout(moved))).collect();
        (operator, operands, layout(result))
    }

    /// As [`form`](Self::form) for a map, which reads its operands in the layouts that they have.
    fn map(
        &mut self,
        rewriter: &mut Rewriter<'_>,
        value: Value,
        map: &Elementwise,
    ) -> (Operator, Vec<Value>, ImageLayout) {
        let (old, layout) = (rewriter.old, self.layouts.of_result(value));
        let operands = old.operands(value).into_iter().zip(map.read_channels_last());
        let (operands, layouts): (Vec<Value>, Vec<ImageLayout>) = operands
            .map(|(operand, has_channels)| {
                let layout = if has_channels { layout } else { ImageLayout::ChannelsFirst };
                let shape = old.shape(operand);
                let is_copied =
                    moves_elements(&shape, &ImageLayout::ChannelsLast.order(shape.len()));
                match self.made.get(&(operand, other(layout))) {
                    Some(&found) if is_copied && !self.made.contains_key(&(operand, layout)) => {
                        (found, other(layout))
                    }
                    _ => (self.in_layout(rewriter, operand, layout), layout),
                }
            })
            .unzip();
        (map.in_layout(layout, &layouts).into(), operands, layout)
    }

    /// Returns the tensor of the new graph in a layout. A copy is made if there is none.
    fn in_layout(
        &mut self,
        rewriter: &mut Rewriter<'_>,
        value: Value,
        layout: ImageLayout,
    ) -> Value {
        let shape = rewriter.old.shape(value);
        if let Some(&found) = self.made.get(&(value, layout)) {
            return found;
        }
        let from = self.made[&(value, other(layout))];
        if shape.len() < 3 {
            return from;
        }
        rewriter.graph.set_origin(rewriter.old.node(value).origin);
        let to_last = ImageLayout::ChannelsLast.order(shape.len());
        let dims = match layout {
            ImageLayout::ChannelsLast => to_last,
            ImageLayout::ChannelsFirst => inverse(&to_last),
        };
        let node = rewriter.old.node(value);
        let is_source = !matches!(node.source, Source::Operator(_));
        let is_rounded = self.precision == Precision::Bf16 && node.dtype == DType::F32 && is_source;
        let graph = &mut rewriter.graph;
        let copy = match is_rounded && moves_elements(&shape, &dims) {
            true => graph.add(Elementwise::permutation(&shape, &dims).into(), &[from]),
            false => permute(graph, from, dims),
        };
        self.made.insert((value, layout), copy);
        copy
    }

    /// Returns a permutation of the model, in a layout, of its operand as that is stored.
    fn permuted(
        &self,
        rewriter: &mut Rewriter<'_>,
        value: Value,
        Permute { order: dims }: &Permute,
        layout: ImageLayout,
    ) -> Value {
        let operand = rewriter.old.operands(value)[0];
        let n_dims = dims.len();
        let dims: Vec<usize> = layout.order(n_dims).into_iter().map(|dim| dims[dim]).collect();
        let places = dims.iter().map(|&dim| ChannelsLast::place(dim, n_dims)).collect();
        let forms = [(ImageLayout::ChannelsFirst, dims), (ImageLayout::ChannelsLast, places)];
        let made = forms
            .into_iter()
            .filter_map(|(layout, dims)| Some((self.made.get(&(operand, layout)).copied()?, dims)));
        let (from, dims) = made
            .min_by_key(|(_, dims)| !dims.is_sorted())
            .expect("operands come before their readers");
        permute(&mut rewriter.graph, from, dims)
    }
}

/// Adds a permutation, unless it changes nothing. If only dims of one element move, the memory
/// stays as it is.
fn permute(graph: &mut Graph, value: Value, order: Vec<usize>) -> Value {
    if order.is_sorted() {
        return value;
    }
    let shape = graph.shape(value);
    let operator: Operator = match moves_elements(&shape, &order) {
        true => Permute { order }.into(),
        false => Reshape { shape: order.iter().map(|&dim| shape[dim]).collect() }.into(),
    };
    graph.add(operator, &[value])
}

/// Returns whether dims of more than one element are in another order.
fn moves_elements(shape: &Shape, order: &[usize]) -> bool {
    !order.iter().filter(|dim| shape[**dim] > 1).is_sorted()
}

fn other(layout: ImageLayout) -> ImageLayout {
    match layout {
        ImageLayout::ChannelsFirst => ImageLayout::ChannelsLast,
        ImageLayout::ChannelsLast => ImageLayout::ChannelsFirst,
    }
}

/// Returns the order that undoes another.
fn inverse(order: &[usize]) -> Vec<usize> {
    let mut inverse = vec![0; order.len()];
    order.iter().enumerate().for_each(|(to, &from)| inverse[from] = to);
    inverse
}
