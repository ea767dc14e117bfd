//! Collectives among ranks of one process: every rank reads the others' arenas, between barriers.
#![expect(unsafe_code, reason = "ranks read each other's arenas")]

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use soybean_plan::{AxisSet, BufferId, Collective, DType};

use crate::{
    Error, ErrorKind,
    abort::Abort,
    arena::Arena,
    backend::Communicator,
    barrier::Barrier,
    cpu::{self, Combiner, Region},
    model::AnyModel,
    movement::{Movement, as_collective},
    overlap::Overlap,
};

/// All ranks of a process.
pub(crate) struct Cluster {
    model: AnyModel,
    arenas: Arc<[Arena]>,
    abort: Arc<Abort>,
    /// A barrier for each set of axes and each first rank of a group.
    barriers: BTreeMap<(AxisSet, usize), Arc<Barrier>>,
}

/// One rank of a cluster.
pub(crate) struct Member {
    model: AnyModel,
    arenas: Arc<[Arena]>,
    abort: Arc<Abort>,
    rank: usize,
    collectives: Vec<Option<Prepared>>,
}

struct Prepared {
    name: &'static str,
    barrier: Arc<Barrier>,
    /// The elements of this rank's tile before and after.
    n_source: usize,
    n_destination: usize,
    movement: Movement,
    combiner: Combiner,
}

impl Cluster {
    pub(crate) fn new(
        model: &AnyModel,
        arenas: &Arc<[Arena]>,
        abort: &Arc<Abort>,
        is_crowded: bool,
    ) -> Self {
        let mesh = &model.get().tables().mesh;
        let mut barriers = BTreeMap::new();
        for collective in model.get().kernels().iter().filter_map(as_collective) {
            for rank in 0..mesh.n_ranks() {
                let group = mesh.group(rank, collective.axes);
                barriers.entry((collective.axes, group[0])).or_insert_with(|| {
                    let barrier = Arc::new(Barrier::new(group.len(), is_crowded));
                    abort.watch(&barrier);
                    barrier
                });
            }
        }
        Self {
            model: model.clone(),
            arenas: Arc::clone(arenas),
            abort: Arc::clone(abort),
            barriers,
        }
    }

    /// The part of one rank.
    pub(crate) fn member(&self, rank: usize) -> Member {
        let mesh = &self.model.get().tables().mesh;
        let prepare = |collective: &Collective| {
            let first = mesh.group(rank, collective.axes)[0];
            Prepared {
                name: collective.kind.name(),
                barrier: Arc::clone(&self.barriers[&(collective.axes, first)]),
                n_source: collective.source().local_shape(mesh).n_elements(),
                n_destination: collective.destination().local_shape(mesh).n_elements(),
                movement: Movement::new(collective, mesh, rank),
                combiner: Combiner::new(collective.combine),
            }
        };
        Member {
            collectives: self
                .model
                .get()
                .kernels()
                .iter()
                .map(|it| as_collective(it).map(prepare))
                .collect(),
            model: self.model.clone(),
            arenas: Arc::clone(&self.arenas),
            abort: Arc::clone(&self.abort),
            rank,
        }
    }
}

impl Member {
    fn region(&self, rank: usize, buffer: BufferId) -> Result<Region, Error> {
        cpu::region(self.model.get().tables(), &self.arenas[rank], buffer)
    }

    /// Where an element of a buffer that [`Self::region`] has found stands on another rank.
    fn element(&self, rank: usize, buffer: BufferId, index: usize) -> *const u8 {
        let buffer = &self.model.get().tables().buffers[buffer];
        let start = self.arenas[rank].pointer(buffer).cast::<u8>().cast_const();
        start.wrapping_add(index * buffer.dtype.bytes())
    }

    fn check(&self, prepared: &Prepared, input: &Region, result: &Region) -> Result<(), Error> {
        let fault = |message: &str| Err(Error::new(ErrorKind::Program, message));
        let (expected, found) =
            ((prepared.n_source, prepared.n_destination), (input.n_elements, result.n_elements));
        if expected != found {
            let (expected, found) = (format!("{} and {}", expected.0, expected.1), found);
            return fault(&format!(
                "expected tiles of {expected} elements before and after, found {} and {}",
                found.0, found.1
            ));
        }
        if input.overlaps(result) {
            return fault("expected a result apart from the input");
        }
        if input.dtype != result.dtype {
            return fault("expected tiles of one type before and after");
        }
        let only_moves = matches!(prepared.movement, Movement::Copy(_));
        if !only_moves && input.dtype == DType::I32 {
            return fault("expected partial results in f32 or bf16, found i32");
        }
        Ok(())
    }

    /// Copies the elements that are shared with each peer; returns the bytes received.
    ///
    /// # Safety
    /// Nobody writes to the sources, and nobody else uses the result.
    unsafe fn copy(
        &self,
        parts: &[(usize, Overlap)],
        input: BufferId,
        result: &Region,
    ) -> Result<u64, Error> {
        let mut n_received = 0;
        for (peer, overlap) in parts {
            let source = self.region(*peer, input)?;
            overlap.for_each(|here, there, length| {
                let (from, to) = (source.place(there), result.place(here));
                let n_bytes = length * result.dtype.bytes();
                // SAFETY: overlaps stay within the tiles, whose sizes were checked; the caller vouches for the rest.
                unsafe { to.copy_from_nonoverlapping(from, n_bytes) };
                n_received += if *peer == self.rank { 0 } else { n_bytes };
            });
        }
        Ok(n_received as u64)
    }

    /// Combines from all ranks of the group the elements that this rank keeps; returns the bytes received.
    ///
    /// # Safety
    /// As [`Self::copy`].
    unsafe fn scatter(
        &self,
        group: &[usize],
        overlap: &Overlap,
        combiner: Combiner,
        input: BufferId,
        result: &Region,
    ) -> u64 {
        let mut n_received = 0;
        overlap.for_each(|here, there, length| {
            let sources = group.iter().map(|peer| self.element(*peer, input, there));
            let to = result.place(here);
            // SAFETY: overlaps stay within the tiles, whose sizes were checked; the caller vouches for the rest.
            unsafe { combiner.combine(result.dtype, sources, to, length) };
            n_received += length * (group.len() - 1);
        });
        (n_received * result.dtype.bytes()) as u64
    }

    /// Combines this rank's share of the elements; returns the bytes received.
    ///
    /// # Safety
    /// As [`Self::copy`].
    unsafe fn combine_share(
        &self,
        group: &[usize],
        share: Range<usize>,
        combiner: Combiner,
        input: BufferId,
        result: &Region,
    ) -> u64 {
        let sources = group.iter().map(|peer| self.element(*peer, input, share.start));
        let to = result.place(share.start);
        // SAFETY: shares stay within the tiles, whose sizes were checked; the caller vouches for the rest.
        unsafe { combiner.combine(result.dtype, sources, to, share.len()) };
        (share.len() * (group.len() - 1) * result.dtype.bytes()) as u64
    }

    /// Copies the shares that the others have combined; returns the bytes received.
    ///
    /// # Safety
    /// Nobody writes to the others' shares, and nobody else uses those shares of the result here.
    unsafe fn gather_shares(
        &self,
        group: &[usize],
        shares: &[Range<usize>],
        result: (BufferId, &Region),
    ) -> Result<u64, Error> {
        let mut n_received = 0;
        for (peer, share) in group.iter().zip(shares).filter(|it| *it.0 != self.rank) {
            let from = self.region(*peer, result.0)?.place(share.start);
            let to = result.1.place(share.start);
            let n_bytes = share.len() * result.1.dtype.bytes();
            // SAFETY: shares stay within the tiles, whose sizes were checked; the caller vouches for the rest.
            unsafe { to.copy_from_nonoverlapping(from, n_bytes) };
            n_received += n_bytes;
        }
        Ok(n_received as u64)
    }

    fn take_part(&self, kernel: usize, input: BufferId, result: BufferId) -> Result<u64, Error> {
        let Some(prepared) = self.collectives.get(kernel).and_then(Option::as_ref) else {
            let message = "expected the number of a collective".to_owned();
            return Err(Error::new(ErrorKind::Program, message));
        };
        let (source, to) = (self.region(self.rank, input)?, self.region(self.rank, result)?);
        self.check(prepared, &source, &to)?;
        let wait = || prepared.barrier.wait(&self.abort);
        if let Movement::Copy(parts) = &prepared.movement
            && parts.iter().all(|it| it.0 == self.rank)
        {
            // SAFETY: only this rank uses its arena outside of collectives.
            return unsafe { self.copy(parts, input, &to) };
        }
        // What a rank reads was written before the first barrier, and is not written again before the last.
        wait()?;
        let n_bytes = match &prepared.movement {
            // SAFETY: all ranks of the group are between the same barriers, and write to their results only.
            Movement::Copy(parts) => unsafe { self.copy(parts, input, &to) }?,
            Movement::Scatter { group, overlap } => {
                // SAFETY: as above.
                unsafe { self.scatter(group, overlap, prepared.combiner, input, &to) }
            }
            Movement::Reduce { group, shares } => {
                let own = group.iter().position(|it| *it == self.rank);
                let own = shares[own.expect("a rank is in its group")].clone();
                // SAFETY: as above.
                let combined =
                    unsafe { self.combine_share(group, own, prepared.combiner, input, &to) };
                wait()?;
                // SAFETY: after the barrier all shares are combined, and each rank writes only the others' in its own result.
                combined + unsafe { self.gather_shares(group, shares, (result, &to)) }?
            }
        };
        wait()?;
        Ok(n_bytes)
    }
}

impl Communicator for Member {
    fn communicate(
        &mut self,
        kernel: usize,
        input: BufferId,
        result: BufferId,
    ) -> Result<u64, Error> {
        self.take_part(kernel, input, result).map_err(|error| {
            let prepared = self.collectives.get(kernel).and_then(Option::as_ref);
            let name = prepared.map_or("collective", |it| it.name);
            Error::new(error.kind(), format!("{name} {kernel} in shared memory: {error}"))
        })
    }
}

#[cfg(test)]
mod tests;
