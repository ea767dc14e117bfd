//! Sparse updates of embedding tables and their optimizer's states, in place.

use soybean_plan::{BufferId, EmbeddingUpdate, Shape, Tiling};

use super::{Lowering, update::Fresh};
use crate::{
    operators::{elementwise::Elementwise, embed_update::EmbedUpdate},
    scalar,
    tiling::number,
    value::Value,
};

impl Lowering<'_> {
    /// Returns whether a next value differs from the value before in some rows only.
    pub(super) fn is_sparse(&self, next: Value) -> bool {
        self.tiled.network.graph.operator_as::<EmbedUpdate>(next).is_some()
    }

    /// Computes the next values of a table and its states: by one kernel if they have the same
    /// partitioning and all conversions of their operands are free, because the search counts a
    /// conversion for each.
    pub(super) fn run_sparse(
        &mut self,
        updates: &[(Value, Value)],
        guards: &[Value],
    ) -> Vec<Fresh> {
        let (_, form) = self.tiled.signature(updates[0].1);
        let is_alike = |&(_, next): &(Value, Value)| {
            self.reads_for_free(next) && self.tiled.partitioning(next) == form
        };
        if updates.len() == 1 || updates.iter().all(is_alike) {
            return self.run_rows(updates, updates, guards);
        }
        // Each reads the values before of all.
        updates.iter().flat_map(|it| self.run_rows(&[*it], &[], guards)).collect()
    }

    /// Computes these next values by one kernel. Those among `in_place` that come out in their
    /// stored tiling are written where they are stored, the others into copies.
    fn run_rows(
        &mut self,
        updates: &[(Value, Value)],
        in_place: &[(Value, Value)],
        guards: &[Value],
    ) -> Vec<Fresh> {
        let (tiled, graph) = (self.tiled, &self.tiled.network.graph);
        let (signature, form) = tiled.signature(updates[0].1);
        let tiling = signature.result_tiling(form);
        let extents = self.tile(updates[0].1, tiling).local_shape(&tiled.mesh);
        let own = &graph.operands(updates[0].1)[..EmbeddingUpdate::N_OWN_INPUTS];
        let mut inputs: Vec<BufferId> = Vec::new();
        for (at, value) in own.iter().enumerate() {
            inputs.push(self.in_tiling(*value, signature.operand_tiling(at, form)));
        }
        let indices = self.tile(own[0], signature.operand_tiling(0, form));
        let indices = indices.local_shape(&tiled.mesh);
        let mut tables: Vec<BufferId> = Vec::new();
        for update in updates {
            let is_in_place =
                in_place.contains(update) && self.tiled.tilings[update.0.index()] == tiling;
            tables.push(match is_in_place {
                true => self.stored[&update.0],
                false => self.copy_of_table(*update, tiling, extents),
            });
        }
        let results = tables.clone();
        let mut programs = Vec::new();
        for &(_, next) in updates {
            let operands = graph.operands(next).split_off(own.len());
            let mut of = vec![0];
            for value in operands {
                let buffer = match updates.iter().position(|it| it.0 == value) {
                    Some(at) => tables[at],
                    None => self.in_tiling(value, tiling),
                };
                of.push(of_map(number(&mut tables, buffer)));
            }
            let operator = graph.operator_as::<EmbedUpdate>(next).expect("a sparse update");
            programs.push(scalar::renumber(&operator.program, &of));
        }
        let mut program = scalar::join(&programs, 1 + tables.len());
        let mut is_number = vec![false; 1 + tables.len()];
        if !guards.is_empty() {
            let mut numbers = Vec::new();
            for buffer in self.buffers_of_guards(guards) {
                numbers.push(of_map(tables.len()));
                tables.push(buffer);
                is_number.push(true);
            }
            let before: Vec<Option<u8>> = (0..results.len()).map(|it| Some(of_map(it))).collect();
            program = scalar::guarded(&program, &numbers, &before);
        }
        let operator = graph.operator_as::<EmbedUpdate>(updates[0].1).expect("a sparse update");
        let kernel = operator.local(&indices, extents, program, &is_number);
        inputs.extend(tables);
        self.step(kernel.into(), inputs, results.clone());
        let fresh = |buffer| Fresh { buffer, before: Some(buffer), is_guarded: true };
        results.into_iter().map(fresh).collect()
    }

    /// Returns a copy of a table or state in this tiling.
    fn copy_of_table(
        &mut self,
        (source, next): (Value, Value),
        tiling: Tiling,
        extents: Shape,
    ) -> BufferId {
        let input = self.in_tiling(source, tiling);
        let copy = self.buffer(next, tiling, false);
        let kernel = Elementwise::same(extents, 1, scalar::identity()).local(&[extents], extents);
        self.step(kernel.into(), vec![input], vec![copy]);
        copy
    }
}

/// Returns the number of the input of the map that is this table; the first input is the gradient.
fn of_map(table: usize) -> u8 {
    u8::try_from(table + 1).expect("updates read few tensors")
}
