//! The phases of a program after fusion.

use std::mem::take;

use soybean_codegen::fuse_rows;
use soybean_plan::{Kernel, Step};

use super::{
    device_program::DeviceProgram,
    epilogue::{CanFuse, Fused, fuse},
    joined_products::join_products,
};

/// A program whose steps are fused along rows, whose products are fused with their epilogues, and
/// whose equal products are joined.
pub(crate) struct FusedProgram {
    /// The program, whose buffers have the places that joined products need.
    pub(crate) device_program: DeviceProgram,
    /// The kernels of the program, followed by those that fusion adds.
    pub(crate) kernels: Vec<Kernel>,
    /// One training step for each entry of a model that is trained.
    pub(crate) train: Vec<Fused>,
    /// Empty if no steps share an update.
    pub(crate) accumulate: Fused,
    /// One evaluation for each entry.
    pub(crate) evaluate: Vec<Fused>,
}

impl FusedProgram {
    /// Fuses all phases. Places for joined products may extend the arena up to this size.
    pub(crate) fn new(
        mut device_program: DeviceProgram,
        max_arena_bytes: usize,
        can: CanFuse<'_>,
    ) -> Self {
        let DeviceProgram { program, copies, .. } = &mut device_program;
        let mut kernels = program.kernels.to_vec();
        let tables = &program.tables;
        let mut fused = |steps: &[Step]| {
            let steps = fuse_rows(steps, &mut kernels, tables);
            fuse(&steps, &kernels, tables, copies, can)
        };
        let mut train: Vec<Fused> = program.train.iter().map(|it| fused(it)).collect();
        let mut accumulate = fused(&program.accumulate);
        let mut evaluate: Vec<Fused> = program.evaluate.iter().map(|it| fused(it)).collect();
        let mut phases: Vec<&mut Fused> =
            train.iter_mut().chain([&mut accumulate]).chain(&mut evaluate).collect();
        let steps = phases.iter_mut().map(|it| take(&mut it.steps)).collect();
        let tables = &mut program.tables;
        let joined = join_products(steps, &mut kernels, tables, max_arena_bytes, can);
        for (phase, steps) in phases.into_iter().zip(joined) {
            phase.steps = steps;
        }
        Self { device_program, kernels, train, accumulate, evaluate }
    }
}
