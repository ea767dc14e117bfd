//! Updates: the next values of a parameter and its optimizer's states, computed and stored in
//! place.

use std::borrow::Cow;

use soybean_plan::{BufferId, Map, Permutation, ScalarProgram, Strides, Tiling};

use super::Lowering;
use crate::{operators::elementwise::Elementwise, scalar, tiling::number, value::Value};

/// The maps of an update as one, over the operands of all of them.
#[derive(Default)]
struct Joined {
    operands: Vec<JoinedOperand>,
    programs: Vec<ScalarProgram>,
}

/// An operand of joined maps.
#[derive(Clone, Copy, PartialEq)]
struct JoinedOperand {
    value: Value,
    /// The tiling in which it is read.
    tiling: Tiling,
    /// Its strides over the index space.
    strides: Strides,
}

impl Joined {
    /// Returns the number of an operand, which is added if it is new.
    fn place(&mut self, operand: JoinedOperand) -> u8 {
        let at = number(&mut self.operands, operand);
        u8::try_from(at).expect("updates read few tensors")
    }
}

impl Lowering<'_> {
    /// Computes the next values of a parameter and its states, and stores them in place.
    pub(super) fn update(&mut self, updates: &[(Value, Value)]) {
        let fresh: Vec<BufferId> = match self.joined(updates) {
            Some(joined) => self.run_joined(updates, &joined),
            None => updates.iter().map(|&(_, next)| self.run(next)).collect(),
        };
        for (&(source, next), result) in updates.iter().zip(fresh) {
            let place = self.stored[&source];
            if result == place {
                continue;
            }
            let converted = self.convert_result(next, result, Some(place));
            if converted != place {
                self.copy(next, converted, place);
            }
        }
    }

    fn copy(&mut self, value: Value, input: BufferId, result: BufferId) {
        let extents = self.stored_tile(value).local_shape(&self.tiled.mesh);
        let permutation = Permutation { extents, input: extents.dense_strides() };
        self.step(permutation.into(), vec![input], vec![result]);
    }

    /// Joins the maps of an update into one kernel, if they have the same shape and partitioning.
    /// Several maps are joined only if all conversions of their operands are free, because the
    /// search counts a conversion for each map.
    fn joined(&self, updates: &[(Value, Value)]) -> Option<Joined> {
        let tiled = self.tiled;
        let mut joined = Joined::default();
        for &(_, next) in updates {
            let map = tiled.network.graph.operator_as::<Elementwise>(next)?;
            let (signature, form) = tiled.signature(next);
            let operands = tiled.network.graph.operands(next);
            let is_free = tiled.conversions(next)[..operands.len()].iter().all(|it| it.bytes == 0);
            // States of other shapes, such as factored ones, have maps of their own.
            let graph = &tiled.network.graph;
            let is_alike = graph.shape(next) == graph.shape(updates[0].1)
                && *form == *tiled.signature(updates[0].1).1;
            if !is_alike || !(is_free || updates.len() == 1) {
                return None;
            }
            let tilings: Vec<Tiling> =
                (0..operands.len()).map(|at| signature.operand_tiling(at, form)).collect();
            let local = |(&operand, &tiling): (&Value, &Tiling)| {
                self.tile(operand, tiling).local_shape(&tiled.mesh)
            };
            let shapes: Vec<_> = operands.iter().zip(&tilings).map(local).collect();
            let extents = self.tile(next, signature.result_tiling(form)).local_shape(&tiled.mesh);
            let all_strides = map.local(&shapes, extents).inputs;
            let operands = operands.into_iter().zip(tilings).zip(all_strides.iter());
            let of: Vec<u8> = operands
                .map(|((value, tiling), &strides)| {
                    joined.place(JoinedOperand { value, tiling, strides })
                })
                .collect();
            joined.programs.push(scalar::renumber(&map.program, &of));
        }
        Some(joined)
    }

    /// Runs the joined maps. Results that come out in their stored tiling are written in place.
    fn run_joined(&mut self, updates: &[(Value, Value)], joined: &Joined) -> Vec<BufferId> {
        let inputs: Vec<BufferId> =
            joined.operands.iter().map(|it| self.in_tiling(it.value, it.tiling)).collect();
        let (signature, form) = self.tiled.signature(updates[0].1);
        let tiling = signature.result_tiling(form);
        let tile = self.tile(updates[0].1, tiling);
        let map = Map {
            extents: tile.local_shape(&self.tiled.mesh),
            inputs: Cow::Owned(joined.operands.iter().map(|it| it.strides).collect()),
            program: scalar::join(&joined.programs, inputs.len()),
        };
        let mut results = Vec::new();
        for &(source, next) in updates {
            let is_in_place = self.tiled.tilings[source.index()] == tiling;
            results.push(if is_in_place {
                self.stored[&source]
            } else {
                self.buffer(next, tiling, false)
            });
        }
        self.step(map.into(), inputs, results.clone());
        results
    }
}
