//! The effort of a search: the work that it may do before it gives the best plan found, with its
//! proved bound. Work is counted in table entries, so results do not depend on the machine.

use std::{cell::Cell, str::FromStr};

use super::by_name;

/// Gaps above 1/50 of the bound are wide.
pub(crate) const WIDE_GAP: i64 = 50;

/// Returns whether the gap between a cost and its lower bound is wide.
pub(super) fn is_wide(cost: i64, lower_bound: i64) -> bool {
    cost - lower_bound > lower_bound / WIDE_GAP
}

/// The effort of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SearchEffort {
    /// A sixteenth of the work of a standard search, to compare paddings. Users do not choose it.
    Rough,
    /// As much work as takes seconds in an unoptimized build: 20 s for the largest networks, and up
    /// to three times as long where dims may be padded. Where the plan could still be improved by
    /// more than 2 %, it takes about twice as long.
    #[default]
    Standard,
    /// As much work as proofs of deep networks need: up to minutes in an unoptimized build.
    Thorough,
}

impl SearchEffort {
    /// The efforts that users choose, with their names.
    pub const NAMES: [(&'static str, Self); 2] =
        [("standard", Self::Standard), ("thorough", Self::Thorough)];

    /// Returns the name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rough => "rough",
            Self::Standard => "standard",
            Self::Thorough => "thorough",
        }
    }

    /// Returns whether a search may have more work where its gap is wide.
    pub(crate) const fn may_grow(self) -> bool {
        match self {
            Self::Rough => false,
            Self::Standard | Self::Thorough => true,
        }
    }
}

impl FromStr for SearchEffort {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        by_name("effort", "efforts", &Self::NAMES, name)
    }
}

/// The work that is left to a search.
pub(super) struct WorkBudget {
    left: Cell<u64>,
    pub(super) effort: SearchEffort,
}

impl WorkBudget {
    /// The work of a standard search, in table entries.
    pub(super) const STANDARD: u64 = 1 << 28;

    pub(super) fn new(effort: SearchEffort) -> Self {
        let left = match effort {
            SearchEffort::Rough => Self::STANDARD / 16,
            SearchEffort::Standard => Self::STANDARD,
            SearchEffort::Thorough => u64::MAX,
        };
        Self { left: Cell::new(left), effort }
    }

    /// Adds work.
    pub(super) fn add(&self, work: u64) {
        self.left.set(self.left().saturating_add(work));
    }

    /// Returns a budget of its own, of 1/`part` of what is left here.
    pub(super) fn part(&self, part: u64) -> Self {
        Self { left: Cell::new(self.left() / part), effort: self.effort }
    }

    /// Returns the wanted work, but at most 1/`part` of what is left.
    pub(super) fn granted(&self, wanted: u64, part: u64) -> u64 {
        wanted.min(self.left() / part)
    }

    /// Takes work that was done from what is left.
    pub(super) fn spend(&self, work: u64) {
        self.left.set(self.left.get().saturating_sub(work));
    }

    /// Returns the work of dual decomposition, which only thorough searches use.
    pub(super) fn of_decomposition(&self, wanted: u64) -> u64 {
        match self.effort {
            SearchEffort::Rough | SearchEffort::Standard => 0,
            SearchEffort::Thorough => wanted,
        }
    }

    /// Returns the work that is left.
    pub(super) fn left(&self) -> u64 {
        self.left.get()
    }

    /// Returns true if no work is left.
    pub(super) fn is_used_up(&self) -> bool {
        self.left() == 0
    }
}
