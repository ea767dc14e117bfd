//! Memory for one batch on a GPU, filled while steps run.
#![expect(unsafe_code, reason = "the device reads pinned host memory")]

use std::{ops::Range, sync::Arc};

use soybean_plan::{BUFFER_ALIGNMENT, BufferId, Tables};

use super::{
    gpu::Gpu,
    memory::{DeviceMemory, PinnedWords, copy},
    stream::{Event, Priority, Stream},
};
use crate::{Error, ErrorKind, View, backend::Upload, host_io::HostIo};

/// The range of an input in a slot, and the buffer it is copied to.
#[derive(Clone, Copy, Debug)]
struct SlotInput {
    buffer: BufferId,
    first_word: usize,
    n_words: usize,
    /// Byte offset of the buffer in the arena.
    offset: usize,
}

/// One rank's part of a batch: pinned host memory and its copy on the device.
pub(crate) struct BatchSlot {
    inputs: Vec<SlotInput>,
    /// The inputs that the last batch has: those of its entry.
    filled: Range<usize>,
    host: PinnedWords,
    device: DeviceMemory,
    stream: Stream,
    /// The bytes of the batch that were copied to the device.
    pub(crate) fed_bytes: u64,
    /// Recorded when the copy to the device is complete.
    pub(crate) ready: Event,
}

impl BatchSlot {
    /// Allocates a slot for the inputs of a program.
    pub(crate) fn new(gpu: &Arc<Gpu>, tables: &Tables, rank: usize) -> Result<Self, Error> {
        let mut inputs = Vec::new();
        let mut n_words = 0;
        for input in tables.inputs.iter() {
            let buffer = tables.buffers[input.buffer];
            if buffer.dtype.bytes() != 4 {
                let message =
                    format!("input `{}`: expected f32 or i32, found {}", input.name, buffer.dtype);
                return Err(Error::new(ErrorKind::Program, message));
            }
            let (offset, n_here) = (buffer.offset, buffer.n_elements);
            inputs.push(SlotInput {
                buffer: input.buffer,
                first_word: n_words,
                n_words: n_here,
                offset,
            });
            // All begin at lines of the cache.
            n_words += n_here.next_multiple_of(BUFFER_ALIGNMENT / size_of::<u32>());
        }
        Ok(Self {
            filled: 0..inputs.len(),
            inputs,
            host: PinnedWords::zeroed(gpu, n_words)?,
            device: DeviceMemory::zeroed(gpu, 4 * n_words, &format!("a batch of rank {rank}"))?,
            stream: Stream::new(gpu, Priority::Normal)?,
            fed_bytes: 0,
            ready: Event::new(gpu)?,
        })
    }

    /// Returns the size in bytes of the copy on the device.
    pub(crate) const fn n_bytes(&self) -> usize {
        self.device.n_bytes()
    }

    /// Starts the copy of the rank's part of a batch for an entry. No step that reads the slot may
    /// be running.
    pub(crate) fn fill(
        &mut self,
        host_io: &HostIo,
        tables: &Tables,
        batch: (usize, &[View<'_>]),
    ) -> Result<(), Error> {
        // The previous copy must complete before the host overwrites its source.
        self.stream.synchronize()?;
        host_io.feed(tables, self, batch)?;
        self.fed_bytes = 0;
        self.filled = tables.entries[batch.0].inputs.clone();
        for SlotInput { first_word, n_words, .. } in
            self.inputs[self.filled.clone()].iter().copied()
        {
            let to = self.device.address(4 * first_word);
            let words = first_word..first_word + n_words;
            // SAFETY: both sides have these words; the host writes them again only after the copy,
            // and both live until then.
            unsafe { self.host.copy_to(to, words, &self.stream) }?;
            self.fed_bytes += 4 * n_words as u64;
        }
        self.ready.record(&self.stream)
    }

    /// Queues the copies from the slot to the buffers of the program.
    pub(crate) fn copy_to_arena(&self, arena: u64, stream: &Stream) -> Result<(), Error> {
        self.inputs[self.filled.clone()].iter().try_for_each(|input| {
            let to = arena + input.offset as u64;
            let from = self.device.address(4 * input.first_word);
            // SAFETY: the tables say that the buffer has as many words; both blocks live as long as
            // the rank.
            unsafe { copy(stream, to, from, 4 * input.n_words) }
        })
    }
}

impl Upload for BatchSlot {
    fn upload(&mut self, buffer: BufferId, fill: &mut dyn FnMut(&mut [u32])) -> Result<(), Error> {
        let found = self.inputs.iter().find(|it| it.buffer == buffer);
        let SlotInput { first_word, n_words, .. } = *found.ok_or_else(|| {
            Error::new(ErrorKind::Program, format!("expected an input's buffer, found {buffer}"))
        })?;
        // SAFETY: `fill` has waited for the last copy from these words.
        let words = unsafe { self.host.words_mut() };
        fill(&mut words[first_word..first_word + n_words]);
        Ok(())
    }
}

impl Drop for BatchSlot {
    fn drop(&mut self) {
        // The device may still read the host memory. After a fatal error it does not.
        let _failed = self.stream.synchronize();
    }
}
