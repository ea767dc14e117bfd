//! Memory and streams of one rank on its GPU.

use std::sync::Arc;

use soybean_plan::{BUFFER_ALIGNMENT, BufferId, DType, Lane, Tables, bf16};

use super::{
    batch_slot::BatchSlot,
    gpu::Gpu,
    memory::{DeviceMemory, PinnedWords},
    stream::{Event, Priority, Stream},
    transfer::MemoryBlock,
};
use crate::{
    Error, ErrorKind, MemoryBesidePlan,
    backend::{Download, Upload},
    model::AnyModel,
};

/// Sizes of a rank's memory besides the arena, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RankMemorySizes {
    /// Auxiliary buffers of epilogues.
    pub(crate) aux: usize,
    /// Workspace of kernels.
    pub(crate) workspace: usize,
    /// Staging memory of collectives.
    pub(crate) staging: usize,
    /// Patterns of transfers, in words of 8 bytes.
    pub(crate) n_pattern_words: usize,
}

/// A rank on its GPU.
pub(crate) struct RankContext {
    pub(crate) rank: usize,
    pub(crate) gpu: Arc<Gpu>,
    /// Index of the GPU among those in use.
    pub(crate) gpu_index: usize,
    model: AnyModel,
    lanes: [Stream; 2],
    /// End of a step in each lane.
    pub(crate) ends: [Event; 2],
    /// Two slots: the next batch arrives while a step reads the current one.
    pub(crate) slots: [BatchSlot; 2],
    pub(crate) patterns: DeviceMemory,
    pub(crate) scalars: DeviceMemory,
    /// A word for each next value: 0 if all its elements were finite so far.
    pub(crate) first_non_finite: DeviceMemory,
    /// The words at the end of a step.
    pub(crate) host_first_non_finite: PinnedWords,
    workspace: DeviceMemory,
    staging: DeviceMemory,
    arena: DeviceMemory,
}

impl RankContext {
    /// Allocates the memory and streams of a rank.
    pub(crate) fn new(
        rank: usize,
        (gpu_index, gpu): (usize, &Arc<Gpu>),
        model: &AnyModel,
        sizes: RankMemorySizes,
    ) -> Result<Self, Error> {
        let tables = model.get().tables();
        let memory = |n_bytes: usize, what: &str| {
            DeviceMemory::zeroed(gpu, n_bytes, &format!("{what} of rank {rank}"))
        };
        let (aux_offset, n_next_values) = (aux_offset(tables), tables.next_values.len());
        Ok(Self {
            rank,
            gpu: Arc::clone(gpu),
            gpu_index,
            model: model.clone(),
            lanes: [Stream::new(gpu, Priority::Normal)?, Stream::new(gpu, Priority::High)?],
            ends: [Event::new(gpu)?, Event::new(gpu)?],
            slots: [BatchSlot::new(gpu, tables, rank)?, BatchSlot::new(gpu, tables, rank)?],
            patterns: memory(8 * sizes.n_pattern_words, "the collectives' patterns")?,
            scalars: memory(4 * tables.scalars.len(), "the scalars")?,
            first_non_finite: memory(4 * n_next_values, "the checks")?,
            host_first_non_finite: PinnedWords::zeroed(gpu, n_next_values)?,
            workspace: memory(sizes.workspace, "the workspace")?,
            staging: memory(sizes.staging, "the collectives' memory")?,
            arena: memory(aux_offset + sizes.aux, "the tensors")?,
        })
    }

    /// Returns the stream of a lane.
    pub(crate) fn lane(&self, lane: Lane) -> &Stream {
        &self.lanes[lane as usize]
    }

    /// Waits on the host until the steps of this rank complete.
    pub(crate) fn synchronize(&self) -> Result<(), Error> {
        self.lanes.iter().try_for_each(Stream::synchronize)
    }

    /// Returns the device address of a byte offset in one of the allocations.
    pub(crate) fn address(&self, block: MemoryBlock, offset: usize) -> u64 {
        match block {
            MemoryBlock::Arena => self.arena.address(offset),
            MemoryBlock::Staging => self.staging.address(offset),
        }
    }

    /// Returns the address of the workspace.
    pub(crate) fn workspace(&self) -> u64 {
        self.workspace.address(0)
    }

    /// Returns the memory besides the tensors of a plan, whose arena has this many bytes.
    pub(crate) fn memory_beside_plan(&self, arena_bytes: usize) -> MemoryBesidePlan {
        let batches = self.slots.iter().map(BatchSlot::n_bytes).sum::<usize>();
        let others = [&self.patterns, &self.scalars, &self.first_non_finite, &self.staging];
        let others = others.map(DeviceMemory::n_bytes);
        MemoryBesidePlan {
            tensors: self.arena.n_bytes().saturating_sub(arena_bytes) as u64,
            workspace: self.workspace.n_bytes() as u64,
            transfers: (batches + others.iter().sum::<usize>()) as u64,
        }
    }

    fn buffer(&self, buffer: BufferId) -> Result<soybean_plan::Buffer, Error> {
        let tables = self.model.get().tables();
        tables.buffers.get(buffer).copied().ok_or_else(|| {
            let n_buffers = tables.buffers.len();
            let message = format!("expected one of {n_buffers} buffers, found number {buffer}");
            Error::new(ErrorKind::Program, message)
        })
    }
}

/// Returns the offset of the auxiliary buffers, which follow the arena.
pub(crate) fn aux_offset(tables: &Tables) -> usize {
    tables.arena_bytes.next_multiple_of(BUFFER_ALIGNMENT)
}

impl Upload for RankContext {
    fn upload(&mut self, buffer: BufferId, fill: &mut dyn FnMut(&mut [u32])) -> Result<(), Error> {
        let buffer = self.buffer(buffer)?;
        let mut words = vec![0; buffer.n_elements];
        fill(&mut words);
        match buffer.dtype {
            DType::F32 | DType::I32 => self.arena.write(buffer.offset, &words),
            DType::Bf16 => {
                let halves: Vec<u16> =
                    words.iter().map(|it| bf16::from_f32(f32::from_bits(*it))).collect();
                self.arena.write(buffer.offset, &halves)
            }
        }
    }
}

impl Download for RankContext {
    fn download(&mut self, buffer: BufferId, read: &mut dyn FnMut(&[u32])) -> Result<(), Error> {
        let buffer = self.buffer(buffer)?;
        let mut words = vec![0_u32; buffer.n_elements];
        match buffer.dtype {
            DType::F32 | DType::I32 => self.arena.read(buffer.offset, &mut words)?,
            DType::Bf16 => {
                let mut halves = vec![0_u16; buffer.n_elements];
                self.arena.read(buffer.offset, &mut halves)?;
                words
                    .iter_mut()
                    .zip(&halves)
                    .for_each(|(word, half)| *word = bf16::to_f32(*half).to_bits());
            }
        }
        read(&words);
        Ok(())
    }
}
