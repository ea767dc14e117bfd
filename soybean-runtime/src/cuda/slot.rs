//! A place for one batch on a GPU, filled while steps run.
#![expect(unsafe_code, reason = "the device reads the host's memory by itself")]

use std::sync::Arc;

use soybean_plan::{BufferId, Tables};

use super::{
    gpu::Gpu,
    memory::{DeviceMemory, PinnedWords, copy},
    stream::{Event, Priority, Stream},
};
use crate::{Error, ErrorKind, View, backend::Upload, ends::Ends};

/// Where an input stands in a slot, and where it goes.
#[derive(Clone, Copy, Debug)]
struct Piece {
    buffer: BufferId,
    first_word: usize,
    n_words: usize,
    /// Where its buffer begins in the arena, in bytes.
    offset: usize,
}

/// The rank's part of a batch: pinned on the host, and on the device.
pub(crate) struct Slot {
    pieces: Vec<Piece>,
    host: PinnedWords,
    device: DeviceMemory,
    stream: Stream,
    /// When the device has it.
    pub(crate) ready: Event,
}

impl Slot {
    /// A slot for the inputs of a program.
    pub(crate) fn new(gpu: &Arc<Gpu>, tables: &Tables, rank: usize) -> Result<Self, Error> {
        let mut pieces = Vec::new();
        let mut n_words = 0;
        for input in tables.inputs.iter() {
            let buffer = tables.buffers[input.buffer];
            if buffer.dtype.bytes() != 4 {
                let message =
                    format!("input `{}`: expected f32 or i32, found {}", input.name, buffer.dtype);
                return Err(Error::new(ErrorKind::Program, message));
            }
            let (offset, n_here) = (buffer.offset, buffer.n_elements);
            pieces.push(Piece {
                buffer: input.buffer,
                first_word: n_words,
                n_words: n_here,
                offset,
            });
            // Buffers begin at multiples of 64 bytes.
            n_words += n_here.next_multiple_of(16);
        }
        Ok(Self {
            pieces,
            host: PinnedWords::zeroed(gpu, n_words)?,
            device: DeviceMemory::zeroed(gpu, 4 * n_words, &format!("a batch of rank {rank}"))?,
            stream: Stream::new(gpu, Priority::Normal)?,
            ready: Event::new(gpu)?,
        })
    }

    /// Begins to copy the rank's part of a batch; no step that reads the slot is running.
    pub(crate) fn fill(
        &mut self,
        ends: &Ends,
        tables: &Tables,
        batch: &[View<'_>],
    ) -> Result<(), Error> {
        // The copy of the batch before must be done before the host writes again.
        self.stream.synchronize()?;
        ends.feed(tables, self, batch)?;
        let n_words = self.pieces.last().map_or(0, |it| it.first_word + it.n_words);
        // SAFETY: both sides have these words; the host writes them again only after the copy, and both live until then.
        unsafe { self.host.copy_to(self.device.address(0), n_words, &self.stream) }?;
        self.ready.record(&self.stream)
    }

    /// Puts the batch where the program expects it, when the stream comes to it.
    pub(crate) fn unload(&self, arena: u64, stream: &Stream) -> Result<(), Error> {
        self.pieces.iter().try_for_each(|piece| {
            let to = arena + piece.offset as u64;
            let from = self.device.address(4 * piece.first_word);
            // SAFETY: the tables say that the buffer has as many words; both blocks live as long as the rank.
            unsafe { copy(stream, to, from, 4 * piece.n_words) }
        })
    }
}

impl Upload for Slot {
    fn upload(&mut self, buffer: BufferId, fill: &mut dyn FnMut(&mut [u32])) -> Result<(), Error> {
        let found = self.pieces.iter().find(|it| it.buffer == buffer);
        let Piece { first_word, n_words, .. } = *found.ok_or_else(|| {
            Error::new(ErrorKind::Program, format!("expected an input's buffer, found {buffer}"))
        })?;
        // SAFETY: whoever fills the slot has waited for its last copy.
        let words = unsafe { self.host.words_mut() };
        fill(&mut words[first_word..first_word + n_words]);
        Ok(())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // The device may still be reading the host's words; after a fatal error it does no more.
        let _failed = self.stream.synchronize();
    }
}
