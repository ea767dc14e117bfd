//! Transfers: the conversions that move the most bytes, and their purposes.

use std::collections::BTreeMap;

use soybean_plan::{CollectiveKind, Halo, Tiling};

use super::{Pass, Report, rows::pattern};
use crate::{operator::Operator, tiling::Conversion, value::Value};

/// Conversions that are alike: of repeated layers, at one place of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The bytes that they move in all steps of an update, or in inference a prediction, over all
    /// ranks.
    pub bytes: u64,
    /// The number of equal conversions.
    pub n_conversions: usize,
    /// The converted tensor; the first of them.
    pub tensor: Value,
    /// Its name, with `*` for the numbers of layers where there are several names.
    pub name: String,
    /// Its tiling before.
    pub from: Tiling,
    /// Its tiling after.
    pub to: Tiling,
    /// The elements around its part that a rank has after.
    pub halo: Halo,
    /// The collectives by which it is done: `reduce-scatter, all-gather`.
    pub collectives: String,
    /// The operator that reads or computes the tensor: the user's, if it is known.
    pub operator: String,
    /// The file and line of the user's operator; empty if that is not known.
    pub place: String,
    /// The operator's layer, with `*` for its numbers where there are several layers.
    pub layer: String,
    /// The part of the step to which the operator belongs.
    pub pass: Pass,
}

/// Returns all conversions of the steps of an update, or in inference of a prediction, that move
/// anything, largest first.
pub(super) fn transfers(report: &Report) -> Vec<Transfer> {
    let network = &report.found.tiled.network;
    let context = Context::new(report);
    let weights = network.weights();
    let mut transfers: Vec<Transfer> = Vec::new();
    for value in network.graph.values().filter(|it| weights.of_value(*it) > 0) {
        if report.found.tiled.forms[value.index()].is_none() {
            continue;
        }
        let conversions = report.found.tiled.weighted_conversions(value, &weights);
        for conversion in conversions.iter().filter(|it| it.bytes > 0) {
            add(&mut transfers, context.transfer(value, conversion));
        }
    }
    transfers.sort_by_key(|it| std::cmp::Reverse(it.bytes));
    transfers
}

fn add(transfers: &mut Vec<Transfer>, new: Transfer) {
    let (name, layer) = (pattern(&new.name), pattern(&new.layer));
    let is_alike = |it: &&mut Transfer| {
        (it.from, it.to, it.halo, it.pass) == (new.from, new.to, new.halo, new.pass)
            && (&it.operator, &it.place) == (&new.operator, &new.place)
            && pattern(&it.name) == name
            && pattern(&it.layer) == layer
    };
    match transfers.iter_mut().find(is_alike) {
        Some(known) => {
            known.bytes += new.bytes;
            known.n_conversions += 1;
            if known.name != new.name {
                known.name = name;
            }
            if known.layer != new.layer {
                known.layer = layer;
            }
        }
        None => transfers.push(new),
    }
}

/// The data that all transfers of a report need.
pub(super) struct Context<'a> {
    report: &'a Report,
    names: BTreeMap<Value, String>,
    layers: Vec<String>,
    passes: Vec<Pass>,
}

impl<'a> Context<'a> {
    pub(super) fn new(report: &'a Report) -> Self {
        Self { report, names: report.names(), layers: report.layers(), passes: report.passes() }
    }

    /// Returns the name of a tensor. A tensor without a name gets that of its operator:
    /// `dense.0.matmul`, or `dense.0.matmul gradient`.
    pub(super) fn name(&self, value: Value) -> String {
        let name = self.names[&value].clone();
        let network = &self.report.found.tiled.network;
        let operator = network.site(value).map_or("", |site| site.operator.as_str());
        if name != value.to_string() || operator.is_empty() {
            return name;
        }
        let layer = &self.layers[value.index()];
        let dot = if layer.is_empty() { "" } else { "." };
        let is_forward = self.passes[value.index()] == Pass::Forward;
        let gradient = if is_forward { "" } else { " gradient" };
        format!("{layer}{dot}{operator}{gradient}")
    }

    fn transfer(&self, value: Value, conversion: &Conversion) -> Transfer {
        let tiled = &self.report.found.tiled;
        let graph = &tiled.network.graph;
        let Conversion { from, to, halo, bytes, .. } = *conversion;
        let route = tiled.collectives(conversion);
        let mut collectives: Vec<&str> = route.iter().map(|it| it.kind.name()).collect();
        collectives.retain(|it| *it != CollectiveKind::Slice.name());
        let site = tiled.network.site(value).cloned().unwrap_or_default();
        Transfer {
            bytes,
            n_conversions: 1,
            tensor: conversion.value,
            name: self.name(conversion.value),
            from,
            to,
            halo,
            collectives: collectives.join(", "),
            operator: match site.operator.is_empty() {
                true => graph.operator(value).map(Operator::kind).unwrap_or_default(),
                false => site.operator,
            },
            place: site.place,
            layer: self.layers[value.index()].clone(),
            pass: self.passes[value.index()],
        }
    }
}
