//! Updates: the next values of a parameter and its optimizer's states, computed and stored in
//! place.

use std::borrow::Cow;

use soybean_plan::{BufferId, Map, Permutation, ScalarProgram, Shape, Strides, Tiling};

use super::Lowering;
use crate::{operators::elementwise::Elementwise, scalar, tiling::number, value::Value};

/// A next value that was computed.
struct Fresh {
    buffer: BufferId,
    /// True if it is the value before where a guard is not finite, or there are no guards.
    is_guarded: bool,
}

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
        let is_guarded = self.tiled.network.guards().is_empty();
        let fresh: Vec<Fresh> = match self.joined(updates) {
            Some(joined) => self.run_joined(updates, &joined),
            None => {
                let fresh =
                    |&(_, next): &(Value, Value)| Fresh { buffer: self.run(next), is_guarded };
                updates.iter().map(fresh).collect()
            }
        };
        for (&(source, next), result) in updates.iter().zip(fresh) {
            let place = self.stored[&source];
            if result.buffer == place {
                continue;
            }
            if result.is_guarded {
                let converted = self.convert_result(next, result.buffer, Some(place));
                if converted != place {
                    self.copy(next, converted, place);
                }
            } else {
                let converted = self.convert_result(next, result.buffer, None);
                self.guarded_copy(next, converted, place);
            }
        }
    }

    /// Returns the buffers of the numbers that must be finite for an update, whole on every rank.
    fn guards(&mut self) -> Vec<BufferId> {
        let guards = self.tiled.network.guards();
        let whole = Tiling::replicated(self.tiled.mesh.n_axes());
        guards.into_iter().map(|it| self.in_tiling(it, whole)).collect()
    }

    /// Copies a next value to its place if the guards are finite.
    fn guarded_copy(&mut self, value: Value, input: BufferId, result: BufferId) {
        let extents = self.stored_tile(value).local_shape(&self.tiled.mesh);
        let mut operands = vec![(input, extents.dense_strides())];
        let program = self.guarded(&scalar::identity(), &mut operands, extents, &[Some(result)]);
        self.step_of_map(extents, program, operands, vec![result]);
    }

    /// Returns a program that leaves the elements of the buffers `before` where a guard is not
    /// finite. Adds the operands that it reads.
    fn guarded(
        &mut self,
        program: &ScalarProgram,
        operands: &mut Vec<(BufferId, Strides)>,
        extents: Shape,
        before: &[Option<BufferId>],
    ) -> ScalarProgram {
        let mut place = |buffer, strides| {
            let at = number(operands, (buffer, strides));
            u8::try_from(at).expect("updates read few tensors")
        };
        let guards = self.guards().into_iter();
        let numbers: Vec<u8> = guards.map(|it| place(it, Strides::default())).collect();
        let before = before.iter().map(|it| it.map(|it| place(it, extents.dense_strides())));
        scalar::guarded(program, &numbers, &before.collect::<Vec<_>>())
    }

    fn step_of_map(
        &mut self,
        extents: Shape,
        program: ScalarProgram,
        operands: Vec<(BufferId, Strides)>,
        results: Vec<BufferId>,
    ) {
        let (inputs, strides): (Vec<BufferId>, Vec<Strides>) = operands.into_iter().unzip();
        let map = Map { extents, inputs: Cow::Owned(strides), program };
        self.step(map.into(), inputs, results);
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

    /// Runs the joined maps. Results that come out in their stored tiling are written in place. The
    /// guards are applied where the value before is at hand.
    fn run_joined(&mut self, updates: &[(Value, Value)], joined: &Joined) -> Vec<Fresh> {
        let mut operands: Vec<(BufferId, Strides)> = Vec::new();
        for it in &joined.operands {
            operands.push((self.in_tiling(it.value, it.tiling), it.strides));
        }
        let (signature, form) = self.tiled.signature(updates[0].1);
        let tiling = signature.result_tiling(form);
        let extents = self.tile(updates[0].1, tiling).local_shape(&self.tiled.mesh);
        let (mut results, mut before) = (Vec::new(), Vec::new());
        for &(source, next) in updates {
            let is_in_place = self.tiled.tilings[source.index()] == tiling;
            let is_source = |it: &JoinedOperand| {
                (it.value, it.tiling, it.strides) == (source, tiling, extents.dense_strides())
            };
            let read = joined.operands.iter().position(is_source).map(|it| operands[it].0);
            before.push(if is_in_place { Some(self.stored[&source]) } else { read });
            results.push(match is_in_place {
                true => self.stored[&source],
                false => self.buffer(next, tiling, false),
            });
        }
        let mut program = scalar::join(&joined.programs, operands.len());
        let has_guards = !self.tiled.network.guards().is_empty();
        if has_guards {
            program = self.guarded(&program, &mut operands, extents, &before);
        }
        self.step_of_map(extents, program, operands, results.clone());
        let fresh = results.into_iter().zip(before);
        let is_guarded = |before: Option<BufferId>| !has_guards || before.is_some();
        fresh.map(|(buffer, it)| Fresh { buffer, is_guarded: is_guarded(it) }).collect()
    }
}
