//! Updates: the next values of a parameter and its optimizer's states, computed and stored in
//! place.

use std::borrow::Cow;

use soybean_plan::{BufferId, DType, Map, NextValue, ScalarProgram, Shape, Strides, Tiling};

use super::Lowering;
use crate::{
    network::Network,
    operator::Phase,
    operators::{accumulate::Accumulate, elementwise::Elementwise},
    order::Update,
    scalar,
    tiling::number,
    value::Value,
};

/// A next value that was computed.
pub(super) struct Fresh {
    pub(super) buffer: BufferId,
    /// The buffer with the value before, if the kernel reads it in the same tiling.
    pub(super) before: Option<BufferId>,
    /// True if it is the value before where a guard is not finite, or there are no guards.
    pub(super) is_guarded: bool,
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
    /// Computes the next values of a parameter and its states, and stores them in place. Then sets
    /// the sum of its gradients to zero.
    pub(super) fn update(&mut self, update: &Update) {
        let Update { next: updates, cleared } = update;
        let Some(&(first, next)) = updates.first() else { return self.clear(*cleared) };
        let guards = self.tiled.network.guards(self.phase, first);
        let is_guarded = guards.is_empty();
        let mut cleared = *cleared;
        let fresh: Vec<Fresh> = match self.joined(updates) {
            _ if self.is_sparse(next) => self.run_sparse(updates, &guards),
            Some(joined) => {
                // One kernel reads the sum and sets it to zero, if it has the elements and nothing
                // else must be finite.
                let (signature, form) = self.tiled.signature(updates[0].1);
                let tiling = signature.result_tiling(form);
                let has_guards = is_guarded || guards == self.tiled.network.guards_of_clearing();
                let is_with = |it: &mut Value| self.tiled.tilings[it.index()] == tiling;
                let with = cleared.take_if(|it| has_guards && is_with(it));
                self.run_joined(updates, &joined, with, &guards)
            }
            None => {
                let fresh = |&(_, next): &(Value, Value)| {
                    let buffer = self.run(next);
                    Fresh { buffer, before: None, is_guarded }
                };
                updates.iter().map(fresh).collect()
            }
        };
        for (&(source, next), result) in updates.iter().zip(fresh) {
            let place = self.stored[&source];
            let written = match result.is_guarded {
                true => self.store(next, result.buffer, place),
                false => {
                    let converted = self.convert_result(next, result.buffer, None);
                    self.guarded_map(next, &scalar::identity(), Some(converted), place, &guards);
                    place
                }
            };
            if self.is_checked(source) {
                let before = if written == place { Some(place) } else { result.before };
                self.next_values.insert(NextValue { buffer: written, before, tensor: place });
            }
        }
        // The next value of a model's state may have readers. It is where the state was.
        for (source, next) in updates {
            self.stored.insert(*next, self.stored[source]);
        }
        self.clear(cleared);
    }

    /// Sets a sum to zero.
    fn clear(&mut self, cleared: Option<Value>) {
        let Some(sum) = cleared else { return };
        let guards = self.tiled.network.guards_of_clearing();
        self.guarded_map(sum, &scalar::constant(0.0), None, self.stored[&sum], &guards);
    }

    /// Brings a next value to its place. Returns the buffer that the last kernel before it wrote.
    fn store(&mut self, next: Value, result: BufferId, place: BufferId) -> BufferId {
        if result == place {
            return place;
        }
        let (signature, form) = self.tiled.signature(next);
        // The sum of terms may overflow where the terms do not, so a kernel writes it.
        let is_sum = !signature.result_tiling(form).partial_axes().is_empty();
        let converted = self.convert_result(next, result, Some(place).filter(|_| !is_sum));
        if converted == place {
            return result;
        }
        self.guarded_map(next, &scalar::identity(), Some(converted), place, &[]);
        place
    }

    /// Returns true if the next values of a kept tensor must be finite. Sums of gradients need not
    /// be where steps are skipped, because their total decides that. States of models of mode
    /// inference are not trained.
    fn is_checked(&self, source: Value) -> bool {
        let Network { graph, optimizer, gradient_sums, .. } = &self.tiled.network;
        let is_sum = gradient_sums.iter().any(|it| it.state == source);
        !matches!(self.phase, Phase::Evaluate(_))
            && graph.node(source).dtype != DType::I32
            && !(is_sum && optimizer.non_finite.skips())
    }

    /// Returns the buffers of the numbers that must be finite for an update, whole on every rank.
    pub(super) fn buffers_of_guards(&mut self, guards: &[Value]) -> Vec<BufferId> {
        let whole = Tiling::replicated(self.tiled.mesh.n_axes());
        guards.iter().map(|it| self.in_tiling(*it, whole)).collect()
    }

    /// Writes a program of at most one tensor to the place of a stored tensor if the guards are
    /// finite.
    fn guarded_map(
        &mut self,
        value: Value,
        program: &ScalarProgram,
        input: Option<BufferId>,
        result: BufferId,
        guards: &[Value],
    ) {
        let extents = self.stored_tile(value).local_shape(&self.tiled.mesh);
        let mut operands: Vec<_> =
            input.into_iter().map(|it| (it, extents.dense_strides())).collect();
        let program = match guards {
            [] => program.clone(),
            _ => self.guarded(program, &mut operands, extents, &[Some(result)], guards),
        };
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
        guards: &[Value],
    ) -> ScalarProgram {
        let mut place = |buffer, strides| {
            let at = number(operands, (buffer, strides));
            u8::try_from(at).expect("updates read few tensors")
        };
        let guards = self.buffers_of_guards(guards).into_iter();
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

    /// Returns the operator of a next value as a map, if it is one.
    fn map_of(&self, next: Value) -> Option<Elementwise> {
        let graph = &self.tiled.network.graph;
        let sum = graph.operator_as::<Accumulate>(next);
        sum.map(|it| it.as_map(graph.shape(next)))
            .or_else(|| graph.operator_as::<Elementwise>(next).cloned())
    }

    /// Returns whether all conversions of the operands of a next value are free.
    pub(super) fn reads_for_free(&self, next: Value) -> bool {
        let n_operands = self.tiled.network.graph.operands(next).len();
        self.tiled.conversions(next)[..n_operands].iter().all(|it| it.bytes == 0)
    }

    /// Joins the maps of an update into one kernel, if they have the same shape and partitioning.
    /// Several maps are joined only if all conversions of their operands are free, because the
    /// search counts a conversion for each map.
    fn joined(&self, updates: &[(Value, Value)]) -> Option<Joined> {
        let tiled = self.tiled;
        let mut joined = Joined::default();
        for &(_, next) in updates {
            let map = self.map_of(next)?;
            let (signature, form) = tiled.signature(next);
            let operands = tiled.network.graph.operands(next);
            let is_free = self.reads_for_free(next);
            // States of other shapes, such as factored ones, have maps of their own.
            let graph = &tiled.network.graph;
            let is_alike = graph.shape(next) == graph.shape(updates[0].1)
                && form == tiled.partitioning(updates[0].1);
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
    /// guards are applied where the value before is at hand. The sum `cleared`, which has the
    /// tiling of the results, becomes zero.
    fn run_joined(
        &mut self,
        updates: &[(Value, Value)],
        joined: &Joined,
        cleared: Option<Value>,
        guards: &[Value],
    ) -> Vec<Fresh> {
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
        let mut programs = joined.programs.clone();
        let has_guards = !guards.is_empty();
        let (mut written, mut guards) = (results.clone(), guards.to_vec());
        let mut kept: Vec<_> = before.iter().map(|it| it.filter(|_| has_guards)).collect();
        if let Some(sum) = cleared {
            programs.push(scalar::constant(0.0));
            written.push(self.stored[&sum]);
            kept.push(Some(self.stored[&sum]));
            // They are the same wherever the other results have any.
            guards = self.tiled.network.guards_of_clearing();
        }
        let mut program = scalar::join(&programs, operands.len());
        if !guards.is_empty() {
            program = self.guarded(&program, &mut operands, extents, &kept, &guards);
        }
        self.step_of_map(extents, program, operands, written);
        let fresh = results.into_iter().zip(before);
        let is_guarded = |before: Option<BufferId>| !has_guards || before.is_some();
        let fresh =
            fresh.map(|(buffer, before)| Fresh { buffer, before, is_guarded: is_guarded(before) });
        fresh.collect()
    }
}
