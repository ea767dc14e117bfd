//! One rank's memory and streams on its GPU.

use std::sync::Arc;

use soybean_plan::{BufferId, DType, Lane, Tables, bf16};

use super::{
    gpu::Gpu,
    memory::DeviceMemory,
    slot::Slot,
    stream::{Event, Priority, Stream},
    transfer::Block,
};
use crate::{
    Error, ErrorKind,
    backend::{Download, Upload},
    model::AnyModel,
};

/// The sizes of a rank's memory, in bytes, besides the program's arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// What products keep for their gradients.
    pub(crate) kept: usize,
    /// What kernels use while they run.
    pub(crate) workspace: usize,
    /// What collectives use while they run.
    pub(crate) staging: usize,
    /// The patterns of transfers, in words of 8 bytes.
    pub(crate) n_pattern_words: usize,
}

/// A rank on its GPU.
pub(crate) struct Place {
    pub(crate) rank: usize,
    pub(crate) gpu: Arc<Gpu>,
    /// The number of its GPU among those in use.
    pub(crate) kit: usize,
    model: AnyModel,
    lanes: [Stream; 2],
    /// When each lane has reached the end of a step.
    pub(crate) ends: [Event; 2],
    /// Two, so that the next batch arrives while a step runs on this one's.
    pub(crate) slots: [Slot; 2],
    pub(crate) patterns: DeviceMemory,
    pub(crate) scalars: DeviceMemory,
    workspace: DeviceMemory,
    staging: DeviceMemory,
    arena: DeviceMemory,
}

impl Place {
    /// Takes the memory of a rank.
    pub(crate) fn new(
        rank: usize,
        (kit, gpu): (usize, &Arc<Gpu>),
        model: &AnyModel,
        sizes: Sizes,
    ) -> Result<Self, Error> {
        let tables = model.get().tables();
        let memory = |n_bytes: usize, what: &str| {
            DeviceMemory::zeroed(gpu, n_bytes, &format!("{what} of rank {rank}"))
        };
        let kept_from = kept_from(tables);
        Ok(Self {
            rank,
            gpu: Arc::clone(gpu),
            kit,
            model: model.clone(),
            lanes: [Stream::new(gpu, Priority::Normal)?, Stream::new(gpu, Priority::High)?],
            ends: [Event::new(gpu)?, Event::new(gpu)?],
            slots: [Slot::new(gpu, tables, rank)?, Slot::new(gpu, tables, rank)?],
            patterns: memory(8 * sizes.n_pattern_words, "the collectives' patterns")?,
            scalars: memory(4 * tables.scalars.len(), "the scalars")?,
            workspace: memory(sizes.workspace, "the workspace")?,
            staging: memory(sizes.staging, "the collectives' memory")?,
            arena: memory(kept_from + sizes.kept, "the tensors")?,
        })
    }

    /// The stream of a lane.
    pub(crate) fn lane(&self, lane: Lane) -> &Stream {
        &self.lanes[lane as usize]
    }

    /// Where a byte of one of its blocks lies.
    pub(crate) fn address(&self, block: Block, offset: usize) -> u64 {
        match block {
            Block::Arena => self.arena.address(offset),
            Block::Staging => self.staging.address(offset),
        }
    }

    /// Where kernels have room.
    pub(crate) fn workspace(&self) -> u64 {
        self.workspace.address(0)
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

/// Where what products keep begins: after the program's arena.
pub(crate) fn kept_from(tables: &Tables) -> usize {
    tables.arena_bytes.next_multiple_of(256)
}

impl Upload for Place {
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

impl Download for Place {
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
