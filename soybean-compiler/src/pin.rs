//! Pins: how a user wants tensors to be stored, whatever the search would rather do.
//!
//! A pin's own form is checked where it is made; its fit to a mesh is checked by the compiler.

use std::{fmt, str::FromStr};

use soybean_plan::{MAX_AXES, Mesh, Placement, Shape, Tile, Tiling};

/// The tiling in which a tensor must be stored: a placement for each axis of the mesh, or one
/// placement for all axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin(Tiling);

impl Pin {
    /// Returns the tiling on a mesh; `None` if the number of placements differs from the number of
    /// axes.
    #[must_use]
    pub fn on(&self, mesh: &Mesh) -> Option<Tiling> {
        match self.0.placements() {
            [all] => Some(Tiling::new(&vec![*all; mesh.n_axes()])),
            placements => (placements.len() == mesh.n_axes()).then_some(self.0),
        }
    }

    /// Returns the pin of the same tensor with another dim at each place, which `place` gives.
    pub(crate) fn with_dims(self, place: impl Fn(usize) -> usize) -> Self {
        Self(self.0.with_dims(place))
    }

    /// Returns the pin that satisfies both, if there is one. One placement for all axes equals a
    /// list of that placement.
    #[must_use]
    pub(crate) fn joined(self, other: Self) -> Option<Self> {
        let is_same = |one: &Self, all: &Self| match one.0.placements() {
            [one] => all.0.placements().iter().all(|it| it == one),
            _ => one == all,
        };
        match (is_same(&self, &other), is_same(&other, &self)) {
            (true, _) => Some(other),
            (false, true) => Some(self),
            (false, false) => None,
        }
    }

    /// Returns why no mesh allows it for a tensor of this shape, if so.
    pub(crate) fn fault_for(self, shape: &Shape) -> Option<String> {
        let missing = self.0.placements().iter().find_map(|it| match it {
            Placement::Split(dim) => (usize::from(*dim) >= shape.len()).then_some(*dim),
            Placement::Replicated | Placement::Partial => None,
        })?;
        Some(format!("dim {missing} is out of range for a tensor of {} dims", shape.len()))
    }

    /// Returns why this mesh does not allow it for a tensor of this shape, if so.
    pub(crate) fn fault_on(self, mesh: &Mesh, shape: &Shape) -> Option<(String, String)> {
        let (n_axes, n_found) = (mesh.n_axes(), self.0.placements().len());
        let Some(tiling) = self.on(mesh) else {
            let axes = if n_axes == 1 { "axis" } else { "axes" };
            let message = format!(
                "`tiled`: {} GPUs are a mesh of {n_axes} {axes}, {mesh}, found {n_found} entries",
                mesh.n_ranks()
            );
            let help = "write an entry for each axis, or a single one for all axes".to_owned();
            return Some((message, help));
        };
        let is_legal =
            |dim: &usize| soybean_plan::may_split(shape[*dim], mesh, tiling.axes_of(*dim));
        let dim = (0..shape.len()).find(|it| !is_legal(it))?;
        let n_parts = mesh.group_size(tiling.axes_of(dim));
        let message = format!(
            "`tiled`: {tiling} splits dim {dim} of {shape} over {n_parts} GPUs, which its extent {} does not allow",
            shape[dim]
        );
        let help = format!(
            "replicate the tensor along an axis (`r`), or make dim {dim} a multiple of {n_parts}"
        );
        Some((message, help))
    }
}

impl From<Tiling> for Pin {
    /// Returns the pin to a tiling of a stored tensor.
    fn from(tiling: Tiling) -> Self {
        Self(tiling)
    }
}

impl FromStr for Pin {
    type Err = String;

    /// Returns the pin of a text as plans print tilings: `[P0 r]`, with or without brackets.
    fn from_str(text: &str) -> Result<Self, String> {
        let trimmed = text.trim();
        let inner = trimmed.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        let entries = inner.unwrap_or(trimmed).split_whitespace();
        let placements = entries.map(placement).collect::<Result<Vec<_>, _>>()?;
        match placements.len() {
            0 => Err("there must be at least 1 entry, found 0".to_owned()),
            1..=MAX_AXES => Ok(Self(Tiling::new(&placements))),
            n_found => Err(format!("a mesh has at most {MAX_AXES} axes, found {n_found} entries")),
        }
    }
}

fn placement(entry: &str) -> Result<Placement, String> {
    match entry {
        "r" => Ok(Placement::Replicated),
        "red" => Err("`red` is how partial results lie, which cannot be pinned".to_owned()),
        _ => {
            let dim = entry.strip_prefix('P').and_then(|it| it.parse().ok());
            let unknown = || format!("unknown entry `{entry}`; entries are `r`, `P0`, `P1`, ..");
            dim.map(Placement::Split).ok_or_else(unknown)
        }
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Returns whether a tensor of this shape can be stored in a tiling.
pub(crate) fn is_legal(mesh: &Mesh, shape: &Shape, tiling: Tiling) -> bool {
    let is_of_shape = Pin(tiling).fault_for(shape).is_none();
    let is_of_mesh = tiling.placements().len() == mesh.n_axes();
    let is_stored = tiling.partial_axes().is_empty();
    is_of_shape && is_of_mesh && is_stored && Tile::new(*shape, tiling).is_legal(mesh)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_entry_stands_for_all_axes() {
        let pin = |text: &str| text.parse::<Pin>().unwrap();
        let on =
            |text: &str, n_ranks: usize| pin(text).on(&Mesh::new(n_ranks)).map(|it| it.to_string());
        assert_eq!(on("P1", 8).as_deref(), Some("[P1 P1 P1]"));
        assert_eq!(on(" [r] ", 1).as_deref(), Some("[]"));
        assert_eq!(on("P0 r", 6).as_deref(), Some("[P0 r]"));
        assert_eq!(on("P0 r", 8), None);
        let joined = |one: &str, other: &str| pin(one).joined(pin(other)).map(|it| it.to_string());
        assert_eq!(joined("P0", "P0 P0").as_deref(), Some("[P0 P0]"));
        assert_eq!(joined("r r", "r").as_deref(), Some("[r r]"));
        assert_eq!(joined("P0", "P0 r"), None);
        assert_eq!(joined("P0 r", "r P0"), None);
    }
}
