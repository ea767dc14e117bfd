//! Inputs that shared memory keeps from the pass that reads them to the later ones, where a row is
//! too long for registers. Each thread reads what it wrote itself, so no barriers are needed.

use soybean_plan::{DType, RowFusion};

use super::{
    Writer,
    layout::{Layout, Residence},
    passes::Passes,
};
use crate::{
    map::Access,
    text::{Text, c_type},
};

/// The most bytes of a block, besides 128 for sums. All devices with tensor cores for `bf16` have
/// 99 KB.
const MOST_BYTES: usize = 99 * 1024 - 128;

/// An input that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) input: usize,
    /// The pass that reads it from memory.
    pub(super) first_pass: usize,
    /// Its place in shared memory, in units of 16 bytes.
    place: usize,
    pub(super) n_bytes: usize,
}

impl Kept {
    /// Returns the inputs of a kernel that are kept.
    pub(super) fn all(fusion: &RowFusion, layout: &Layout, passes: &Passes) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        if let Residence::Registers { .. } = layout.residence {
            return all;
        }
        let mut end = 0;
        for input in layout.varying().filter(|it| can_be_kept(layout, *it)) {
            let reads =
                |pass: &usize| passes.work(fusion, *pass, layout.residence).loads.contains(&input);
            let mut reading = (0..passes.n).filter(reads);
            let n_bytes = fusion.row_length() * layout.types[input].bytes();
            let (Some(first_pass), Some(_)) = (reading.next(), reading.next()) else { continue };
            if end + n_bytes <= MOST_BYTES {
                all.push(Self { input, first_pass, place: end / 16, n_bytes });
                end += n_bytes;
            }
        }
        all
    }
}

/// Returns true if each row has elements of its own, which are read in words of 16 bytes.
fn can_be_kept(layout: &Layout, input: usize) -> bool {
    let access = Access::of(&layout.axes(), input, layout.width);
    layout.types[input] != DType::I32
        && matches!(access, Access::Dense | Access::Stretch)
        && (layout.width * layout.types[input].bytes()).is_multiple_of(16)
        && !layout.is_shared(input)
}

impl Writer<'_> {
    /// Writes a pointer for each input that shared memory keeps.
    pub(super) fn write_kept_arrays(&self, text: &mut Text) {
        if !self.kept.is_empty() {
            text.line("SOYBEAN_SHARED(uint4, kept);");
        }
        for Kept { input, place, .. } in &self.kept {
            let c_type = c_type(self.layout.types[*input]);
            text.line(format!("{c_type}* const kept{input} = ({c_type}*)(kept + {place});"));
        }
    }
}
