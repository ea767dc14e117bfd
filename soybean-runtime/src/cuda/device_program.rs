//! The program of a model as GPUs run it: attention without permutations of heads, whose gradients
//! read saved logarithms, parameters with rounded copies, and joined updates.
//!
//! They may take some memory behind the arena. Only saved logarithms change the bits of results.

mod joined_updates;
mod rounded_parameters;

use std::{borrow::Cow, collections::BTreeMap, ops::Range};

use soybean_codegen::{fold_permutations, save_logarithms};
use soybean_plan::{BufferId, Mode, Program};

use self::{joined_updates::join_updates, rounded_parameters::keep_rounded};
use super::{epilogue::Rounded, recorder::record};
use crate::{
    Error, Model,
    backend::{Download, Upload},
    check::check_tables,
};

/// The program of a model as GPUs run it.
#[derive(Clone)]
pub(crate) struct DeviceProgram {
    pub(crate) program: Program,
    /// The copies of parameters.
    pub(crate) copies: Rounded,
    /// The tensors that have another place than in the plan, with the buffers that they had.
    moved: BTreeMap<BufferId, BufferId>,
}

impl DeviceProgram {
    /// Returns a model's own steps, once its tables have been checked.
    pub(crate) fn plain(model: &dyn Model) -> Result<Self, Error> {
        check_tables(model.tables())?;
        let tables = model.tables().clone();
        let n_entries = tables.entries.len();
        let n_trained = if tables.mode() == Mode::Training { n_entries } else { 0 };
        let train = (0..n_trained).map(|it| record(model, |model, rank| model.train(it, rank)));
        let train = train.collect::<Result<_, _>>()?;
        let accumulate = match tables.accumulate_loss {
            Some(_) => record(model, |model, rank| model.accumulate(rank))?,
            None => Vec::new(),
        };
        let evaluate =
            (0..n_entries).map(|it| record(model, |model, rank| model.evaluate(it, rank)));
        let evaluate = evaluate.collect::<Result<_, _>>()?;
        let kernels = Cow::Owned(model.kernels().to_vec());
        let program = Program { tables, kernels, train, accumulate, evaluate };
        Ok(Self { program, copies: Rounded::new(), moved: BTreeMap::new() })
    }

    /// Returns a model's steps without permutations of heads, with saved logarithms, copies and
    /// joined updates.
    pub(crate) fn new(model: &dyn Model) -> Result<Self, Error> {
        let Self { mut program, .. } = Self::plain(model)?;
        let moved = attend_in_place(&mut program);
        let copies = keep_rounded(&mut program);
        join_updates(&mut program);
        Ok(Self { program, copies, moved })
    }

    /// Returns these steps, or a model's own if the arena would be larger than this.
    pub(crate) fn fitting(model: &dyn Model, max_arena_bytes: usize) -> Result<Self, Error> {
        let changed = Self::new(model)?;
        let fits = changed.program.tables.arena_bytes <= max_arena_bytes;
        if fits { Ok(changed) } else { Self::plain(model) }
    }

    /// Returns the buffer that the tensor in a buffer has in the plan.
    pub(crate) fn buffer_in_plan(&self, buffer: BufferId) -> BufferId {
        self.moved.get(&buffer).copied().unwrap_or(buffer)
    }

    /// Rounds the parameters of these numbers into their copies.
    pub(crate) fn refresh(
        &self,
        memory: &mut (impl Download + Upload),
        parameters: Range<usize>,
    ) -> Result<(), Error> {
        let of_program = self.program.tables.parameters.iter().map(|it| it.buffer).enumerate();
        for (_, parameter) in of_program.filter(|it| parameters.contains(&it.0)) {
            let Some(&copy) = self.copies.get(&parameter) else { continue };
            let mut words = Vec::new();
            memory.download(parameter, &mut |it| words.extend_from_slice(it))?;
            memory.upload(copy, &mut |it| it.copy_from_slice(&words))?;
        }
        Ok(())
    }
}

/// Lets attention read and write what permutations of heads would copy, and its gradients read what
/// it has saved. Returns the tensors that have a new place, with the buffers that they had.
fn attend_in_place(program: &mut Program) -> BTreeMap<BufferId, BufferId> {
    let mut moved = BTreeMap::new();
    let mut kernels = program.kernels.to_vec();
    let phases = program.train.iter_mut().chain([&mut program.accumulate]);
    for steps in phases.chain(&mut program.evaluate) {
        let folded = fold_permutations(steps, &mut kernels, &mut program.tables, &mut moved);
        *steps = save_logarithms(&folded, &mut kernels, &mut program.tables);
    }
    program.kernels = Cow::Owned(kernels);
    moved
}

#[cfg(test)]
mod tests;
