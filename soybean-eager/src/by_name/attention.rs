//! The arguments of attention.

use super::{Argument, Arguments, ScoreFunction, extent};
use crate::{AttentionMask, AttentionSegments, Seen, Segments};

impl Arguments<'_> {
    pub(super) fn mask(&self, position: usize) -> Seen {
        match self.list.get(position) {
            Some(Argument::Integer(number)) => extent(*number).seen(),
            _ => self.text(position).seen(),
        }
    }

    pub(super) fn segments(&self, position: usize) -> Segments {
        match self.list.get(position) {
            Some(Argument::All) => Segments::None,
            Some(Argument::Tensor(lengths)) => Segments::Lengths(*lengths),
            Some(Argument::Tensors(pair)) if pair.len() == 2 => [pair[0], pair[1]].segments(),
            other => self.refuse(position, "`..`, lengths or two segments", other),
        }
    }

    pub(super) fn function(&self, position: usize) -> ScoreFunction {
        match self.list.get(position) {
            Some(Argument::Function(function)) => *function,
            other => self.refuse(position, "a function of scores", other),
        }
    }
}
