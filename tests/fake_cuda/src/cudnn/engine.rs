//! Engines, which compute a graph, and what they report.

use super::{ApiResult, Status};
use crate::state::lock;

/// An engine for a graph.
#[derive(Clone, Copy, Debug)]
pub(super) struct Engine {
    /// Number among the engines of the graph.
    pub(super) index: i64,
    pub(super) workspace_bytes: usize,
    numerical_notes: &'static [u32],
    pub(super) behavior_notes: &'static [u32],
}

/// `cudnnBackendNumericalNote_t`.
pub(super) mod numerical_note {
    pub(crate) const TENSOR_CORE: u32 = 0;
    pub(crate) const FFT: u32 = 3;
    pub(crate) const NONDETERMINISTIC: u32 = 4;
    pub(crate) const WINOGRAD: u32 = 5;
}

/// `CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION`.
const RUNTIME_COMPILATION: u32 = 0;

/// Selects the engines of a heuristic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeuristicMode {
    /// The fastest engine first.
    A,
    /// Engines that compute everything.
    Fallback,
}

impl Engine {
    pub(super) const fn new(
        index: i64,
        workspace_bytes: usize,
        numerical_notes: &'static [u32],
    ) -> Self {
        Self { index, workspace_bytes, numerical_notes, behavior_notes: &[] }
    }

    /// Returns the engine as one whose kernel is compiled for the graph.
    pub(super) const fn compiled(self) -> Self {
        Self { behavior_notes: &[RUNTIME_COMPILATION], ..self }
    }

    /// Returns the numerical notes that the library tells, as [`Self::rounds`] does not.
    pub(super) fn reported_notes(&self) -> &'static [u32] {
        if self.rounds() && lock().settings.hides_rounding { &[] } else { self.numerical_notes }
    }

    /// Returns true if operands are rounded to what tensor cores multiply: tf32 or bf16.
    pub(super) fn rounds(&self) -> bool {
        self.numerical_notes.contains(&numerical_note::TENSOR_CORE)
    }
}

impl HeuristicMode {
    /// Returns the mode of this `cudnnBackendHeurMode_t`.
    pub(super) const fn new(number: i64) -> ApiResult<Self> {
        match number {
            3 => Ok(Self::A),
            2 => Ok(Self::Fallback),
            _ => Err(Status::NOT_SUPPORTED),
        }
    }
}
