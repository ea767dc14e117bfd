//! Programs that ranks may run on raw memory.
#![expect(unsafe_code, reason = "only the compiler, or unsafe code, vouches for a program")]

use std::ops::Deref;

use crate::Program;

/// A program of the compiler, which ranks run on raw memory.
///
/// Kernels trust their descriptors, and ranks read each other's memory between the same
/// collectives. So safe code gets one from the compiler alone, and cannot change it:
///
/// ```compile_fail,E0133
/// # use soybean_plan::{Executable, Program};
/// fn run(program: Program) -> Executable {
///     Executable::new(program)
/// }
/// ```
///
/// ```compile_fail,E0594
/// # use soybean_plan::Executable;
/// fn enlarge(program: &mut Executable) {
///     program.tables.arena_bytes *= 2;
/// }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Executable(Program);

impl Executable {
    /// Vouches for a program.
    ///
    /// # Safety
    /// - The extents and strides of a kernel fit each other, and can be multiplied.
    /// - Each step has the buffers that its kernel or collective needs, with enough elements.
    /// - Steps that may run at the same time, on any rank, write to no memory of each other.
    #[must_use]
    pub const unsafe fn new(program: Program) -> Self {
        Self(program)
    }

    /// Returns the program, which may then be changed.
    #[must_use]
    pub fn into_program(self) -> Program {
        self.0
    }
}

impl Deref for Executable {
    type Target = Program;
    fn deref(&self) -> &Program {
        &self.0
    }
}
