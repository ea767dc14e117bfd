//! Conversion between whole tensors on the host and a rank's parts of them: batches, initial
//! values, the state and outputs.

use rayon::prelude::{IndexedParallelIterator, ParallelIterator, ParallelSlice, ParallelSliceMut};
use soybean_plan::{BufferId, ImageLayout, Init, Mesh, Placement, RunScalar, Tables, Tile};

use crate::{
    Error, View,
    backend::{Download, Upload},
    initial_values::RandomStream,
    ranks::StepContext,
    state,
    tile_overlap::TileOverlap,
};

/// The mapping between whole tensors and a rank's parts.
pub(crate) struct HostIo {
    rank: usize,
    inputs: Vec<TileOverlap>,
    /// Parameters and buffers, then the optimizer's tensors.
    state: Vec<TileOverlap>,
    scalars: Vec<f32>,
}

impl HostIo {
    /// Computes the mapping of a rank.
    pub(crate) fn new(tables: &Tables, rank: usize) -> Self {
        let overlap = |(tile, layout): (Tile, ImageLayout)| {
            TileOverlap::with_whole(&tables.mesh, &tile, layout, rank)
        };
        let inputs = tables.inputs.iter().map(|it| (it.tile, ImageLayout::ChannelsFirst));
        Self {
            rank,
            inputs: inputs.map(overlap).collect(),
            state: state::tensors(tables).map(|it| overlap((it.tile, it.layout))).collect(),
            scalars: vec![0.0; tables.scalars.len()],
        }
    }

    /// Writes the initial values of parameters and constants. Memory is zero before, which is right
    /// for the optimizer's tensors.
    pub(crate) fn fill(
        &self,
        tables: &Tables,
        memory: &mut dyn Upload,
        seed: u64,
    ) -> Result<(), Error> {
        for (number, parameter) in tables.parameters.iter().enumerate() {
            if parameter.init == Init::Constant(0.0) {
                continue;
            }
            let stream = RandomStream::new(seed, number);
            let word = |index| stream.value(parameter.init, index).to_bits();
            fill(memory, parameter.buffer, &self.state[number], word)?;
        }
        for constant in tables.constants.iter() {
            let layout = ImageLayout::ChannelsFirst;
            let overlap = TileOverlap::with_whole(&tables.mesh, &constant.tile, layout, self.rank);
            // Extents are below 2^31.
            #[expect(clippy::cast_possible_truncation, reason = "an index along a dim")]
            fill(memory, constant.buffer, &overlap, |index| index as u32)?;
        }
        Ok(())
    }

    /// Writes the rank's parts of a batch for an entry to the device. Returns the bytes written,
    /// with padding.
    pub(crate) fn feed(
        &self,
        tables: &Tables,
        memory: &mut dyn Upload,
        (entry, batch): (usize, &[View<'_>]),
    ) -> Result<u64, Error> {
        let overlaps = &self.inputs[tables.entries[entry].inputs.clone()];
        let places = tables.inputs_of(entry).iter().zip(batch).zip(overlaps);
        places
            .into_iter()
            .map(|((input, view), overlap)| feed(memory, input.buffer, overlap, *view))
            .sum()
    }

    /// Writes the rank's parts of tensors of the state to the device, from number `first` on. The
    /// ranks that hold partial sums get their own terms, if there are as many. Otherwise one gets
    /// the whole sum and the others get zeros.
    pub(crate) fn load(
        &self,
        tables: &Tables,
        memory: &mut dyn Upload,
        first: usize,
        whole: &[View<'_>],
    ) -> Result<(), Error> {
        let places = state::tensors(tables).zip(&self.state).skip(first).zip(whole);
        places.into_iter().try_for_each(|((tensor, overlap), view)| {
            let (mesh, tile) = (&tables.mesh, &tensor.tile);
            let (n_elements, term) = (tile.shape.n_elements(), term(mesh, tile, self.rank));
            let view = match *view {
                View::F32(terms) if n_terms(mesh, tile) > 1 && terms.len() > n_elements => {
                    View::F32(&terms[term * n_elements..][..n_elements])
                }
                _ if term > 0 => return memory.upload(tensor.buffer, &mut |words| words.fill(0)),
                whole => whole,
            };
            feed(memory, tensor.buffer, overlap, view).map(drop)
        })
    }

    /// Computes the run-time scalars of a step.
    pub(crate) fn scalars(&mut self, tables: &Tables, seed: u64, context: StepContext) -> &[f32] {
        let StepContext { counters, n_updates, learning_rate, n_shared, has_batch } = context;
        for (value, &scalar) in self.scalars.iter_mut().zip(tables.scalars.iter()) {
            *value = match scalar {
                RunScalar::LearningRate => learning_rate,
                RunScalar::Noise => RunScalar::noise(seed, counters.n_steps + 1),
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "scalars have single precision"
                )]
                RunScalar::OneMinusPower { base } => {
                    (1.0 - base.powf((n_updates + 1) as f64)) as f32
                }
                RunScalar::UpdateNumber => (n_updates + 1) as f32,
                RunScalar::LossScale => counters.loss_scale,
                RunScalar::HasBatch => f32::from(u8::from(has_batch)),
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "scalars have single precision"
                )]
                RunScalar::InverseSteps => (1.0 / n_shared as f64) as f32,
            };
        }
        &self.scalars
    }

    /// Reads the rank's parts of tensors from the device into `parts`, whose memory is reused. A
    /// part is empty if another rank reports the same elements. Integers keep their bits.
    pub(crate) fn parts(
        &self,
        tables: &Tables,
        memory: &mut dyn Download,
        tensors: &[(Tile, BufferId)],
        parts: &mut Vec<Vec<f32>>,
    ) -> Result<(), Error> {
        parts.resize_with(tensors.len(), Vec::new);
        for ((tile, buffer), part) in tensors.iter().zip(parts) {
            part.clear();
            if !is_owner(&tables.mesh, tile, self.rank) {
                continue;
            }
            memory.download(*buffer, &mut |words| {
                part.extend(words.iter().map(|it| f32::from_bits(*it)));
            })?;
        }
        Ok(())
    }
}

/// Returns true if this rank reports its part of the tensor. Of several ranks with the same
/// elements, one does. Ranks that hold partial sums all do.
pub(crate) fn is_owner(mesh: &Mesh, tile: &Tile, rank: usize) -> bool {
    let coordinates = mesh.coordinates(rank);
    let is_replicated = |axis| tile.tiling.on(axis) == Placement::Replicated;
    (0..mesh.n_axes()).all(|axis| coordinates[axis] == 0 || !is_replicated(axis))
}

/// Returns the number of partial sums that a tensor consists of; 1 if it is none.
pub(crate) fn n_terms(mesh: &Mesh, tile: &Tile) -> usize {
    mesh.group_size(tile.tiling.partial_axes())
}

/// Returns which of the partial sums of a tensor a rank holds.
pub(crate) fn term(mesh: &Mesh, tile: &Tile, rank: usize) -> usize {
    let coordinates = mesh.coordinates(rank);
    let axes = tile.tiling.partial_axes();
    axes.iter().fold(0, |term, axis| term * mesh.size(axis) + coordinates[axis])
}

/// Sets a rank's part of a tensor to zero if it has padding, which the compiler takes to be zero.
fn clear_padding(overlap: &TileOverlap, words: &mut [u32]) {
    if overlap.n_elements() < words.len() {
        words.fill(0);
    }
}

fn fill(
    memory: &mut dyn Upload,
    buffer: BufferId,
    overlap: &TileOverlap,
    word: impl Fn(usize) -> u32,
) -> Result<(), Error> {
    memory.upload(buffer, &mut |words| {
        clear_padding(overlap, words);
        overlap.for_each(|here, there, length| {
            for (step, it) in words[here..here + length].iter_mut().enumerate() {
                *it = word(there + step);
            }
        });
    })
}

/// The number of elements that a thread copies at a time. Long copies use several threads, because
/// one is slower than the bus to a GPU.
const CHUNK_ELEMENTS: usize = 1 << 18;

/// Writes a rank's part of a tensor to the device. Returns the bytes written, with padding.
fn feed(
    memory: &mut dyn Upload,
    buffer: BufferId,
    overlap: &TileOverlap,
    view: View<'_>,
) -> Result<u64, Error> {
    let mut n_bytes = 0;
    memory.upload(buffer, &mut |words| {
        n_bytes += size_of_val(words) as u64;
        clear_padding(overlap, words);
        overlap.for_each(|here, there, length| {
            let (to, from) = (&mut words[here..here + length], there..there + length);
            match view {
                View::F32(whole) => copy(to, &whole[from], |it| it.to_bits()),
                View::I32(whole) => copy(to, &whole[from], i32::cast_unsigned),
            }
        });
    })?;
    Ok(n_bytes)
}

fn copy<T: Copy + Sync>(to: &mut [u32], from: &[T], word: impl Fn(T) -> u32 + Sync) {
    let copy = |to: &mut [u32], from: &[T]| {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = word(*from));
    };
    if to.len() < 2 * CHUNK_ELEMENTS {
        return copy(to, from);
    }
    to.par_chunks_mut(CHUNK_ELEMENTS)
        .zip(from.par_chunks(CHUNK_ELEMENTS))
        .for_each(|(to, from)| copy(to, from));
}
