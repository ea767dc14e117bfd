//! Collectives: ranks of one process read each other's arenas, between barriers; what ranks of other processes have comes as messages.
#![expect(unsafe_code, reason = "ranks read each other's arenas")]

use std::{collections::BTreeMap, mem, ops::Range, sync::Arc};

use soybean_plan::{AxisSet, BufferId, Collective, DType};

use crate::{
    Error, ErrorKind,
    abort::Abort,
    across::{Across, Leg, Outside, Source, Traffic},
    arena::Arenas,
    backend::Communicator,
    barrier::Barrier,
    cpu::{self, Combiner, Region},
    mail::Mail,
    model::AnyModel,
    movement::{Movement, as_collective},
    overlap::Overlap,
};

/// All ranks of a process.
pub(crate) struct Cluster {
    model: AnyModel,
    arenas: Arenas,
    abort: Arc<Abort>,
    /// A barrier for each set of axes and each first rank of a group, among those of its ranks that are here.
    barriers: BTreeMap<(AxisSet, usize), Arc<Barrier>>,
}

/// One rank of a cluster.
pub(crate) struct Member {
    site: Site,
    collectives: Vec<Option<Prepared>>,
    outside: Option<Outside>,
}

/// Where one rank is, among the others of its process.
struct Site {
    model: AnyModel,
    arenas: Arenas,
    abort: Arc<Abort>,
    rank: usize,
}

struct Prepared {
    name: &'static str,
    dtype: DType,
    barrier: Arc<Barrier>,
    /// The elements of this rank's tile before and after.
    n_source: usize,
    n_destination: usize,
    movement: Movement,
    combiner: Combiner,
    /// Where what is combined comes from.
    sources: Vec<Source>,
    across: Option<Across>,
}

impl Cluster {
    pub(crate) fn new(
        model: &AnyModel,
        arenas: &Arenas,
        abort: &Arc<Abort>,
        is_crowded: bool,
    ) -> Self {
        let mesh = &model.get().tables().mesh;
        let mut barriers = BTreeMap::new();
        for collective in model.get().kernels().iter().filter_map(as_collective) {
            for rank in arenas.ranks() {
                let group = mesh.group(rank, collective.axes);
                let n_here = group.iter().filter(|it| arenas.ranks().contains(it)).count();
                barriers.entry((collective.axes, group[0])).or_insert_with(|| {
                    let barrier = Arc::new(Barrier::new(n_here, is_crowded));
                    abort.watch(&barrier);
                    barrier
                });
            }
        }
        Self { model: model.clone(), arenas: arenas.clone(), abort: Arc::clone(abort), barriers }
    }

    /// The part of one rank, with its mail where there are other processes.
    pub(crate) fn member(&self, rank: usize, mail: Option<Box<dyn Mail>>) -> Result<Member, Error> {
        let kernels = self.model.get().kernels().iter();
        let collectives: Vec<Option<Prepared>> =
            kernels.map(|it| as_collective(it).map(|it| self.prepare(rank, it))).collect();
        let across = collectives.iter().flatten().filter_map(|it| it.across.as_ref());
        let n_bytes = across.map(|it| it.n_bytes).max();
        let outside = match (n_bytes, mail) {
            (None, _) => None,
            (Some(n_bytes), Some(mail)) => Some(Outside::new(mail, n_bytes)?),
            (Some(_), None) => {
                let message = "expected a way to ranks of other processes, found none";
                return Err(Error::new(ErrorKind::Program, message));
            }
        };
        let (model, arenas) = (self.model.clone(), self.arenas.clone());
        let site = Site { model, arenas, abort: Arc::clone(&self.abort), rank };
        Ok(Member { site, collectives, outside })
    }

    fn prepare(&self, rank: usize, collective: &Collective) -> Prepared {
        let mesh = &self.model.get().tables().mesh;
        let group = mesh.group(rank, collective.axes);
        let movement = Movement::new(collective, mesh, rank);
        let across = Across::new(collective, &movement, mesh, rank, &self.arenas.ranks());
        let sources = match &across {
            Some(across) => across.sources.clone(),
            None => group.iter().map(|it| Source::Arena(*it)).collect(),
        };
        Prepared {
            name: collective.kind.name(),
            dtype: collective.dtype,
            barrier: Arc::clone(&self.barriers[&(collective.axes, group[0])]),
            n_source: collective.source().local_shape(mesh).n_elements(),
            n_destination: collective.destination().local_shape(mesh).n_elements(),
            movement,
            combiner: Combiner::new(collective.combine),
            sources,
            across,
        }
    }
}

impl Prepared {
    fn check(&self, input: &Region, result: &Region) -> Result<(), Error> {
        let fault = |message: &str| Err(Error::new(ErrorKind::Program, message));
        let (expected, found) =
            ((self.n_source, self.n_destination), (input.n_elements, result.n_elements));
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
        if (input.dtype, result.dtype) != (self.dtype, self.dtype) {
            return fault("expected tiles of the collective's type before and after");
        }
        let only_moves = matches!(self.movement, Movement::Copy(_));
        if !only_moves && input.dtype == DType::I32 {
            return fault("expected partial results in f32 or bf16, found i32");
        }
        Ok(())
    }
}

impl Site {
    fn region(&self, rank: usize, buffer: BufferId) -> Result<Region, Error> {
        cpu::region(self.model.get().tables(), &self.arenas[rank], buffer)
    }

    /// Where an element of a buffer that [`Self::region`] has found stands on another rank.
    fn element(&self, rank: usize, buffer: BufferId, index: usize) -> *const u8 {
        let buffer = &self.model.get().tables().buffers[buffer];
        let start = self.arenas[rank].pointer(buffer).cast::<u8>().cast_const();
        start.wrapping_add(index * buffer.dtype.bytes())
    }

    fn is_here(&self, rank: usize) -> bool {
        self.arenas.ranks().contains(&rank)
    }

    /// Copies the elements that are shared with each peer of this process; returns the bytes received from those and from others.
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
            if !self.is_here(*peer) {
                n_received += overlap.n_elements() * result.dtype.bytes();
                continue;
            }
            let source = self.region(*peer, input)?;
            overlap.for_each(|here, there, length| {
                let (from, to) = (source.place(there), result.address(here));
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
    /// As [`Self::copy`], and what came from other processes is in the stage.
    unsafe fn scatter(
        &self,
        prepared: &Prepared,
        overlap: &Overlap,
        input: BufferId,
        result: &Region,
        stage: *const u8,
    ) -> u64 {
        let mut n_combined = 0;
        overlap.for_each(|here, there, length| {
            let n_before = n_combined * result.dtype.bytes();
            let sources = prepared.sources.iter().map(|it| match it {
                Source::Arena(rank) => self.element(*rank, input, there),
                Source::Staged(start) => stage.wrapping_add(start + n_before),
            });
            let to = result.address(here);
            // SAFETY: overlaps stay within the tiles, whose sizes were checked; the caller vouches for the rest.
            unsafe { prepared.combiner.combine(result.dtype, sources, to, length) };
            n_combined += length;
        });
        (n_combined * (prepared.sources.len() - 1) * result.dtype.bytes()) as u64
    }

    /// Combines this rank's share of the elements; returns the bytes received.
    ///
    /// # Safety
    /// As [`Self::scatter`].
    unsafe fn combine_share(
        &self,
        prepared: &Prepared,
        share: Range<usize>,
        input: BufferId,
        result: &Region,
        stage: *const u8,
    ) -> u64 {
        let sources = prepared.sources.iter().map(|it| match it {
            Source::Arena(rank) => self.element(*rank, input, share.start),
            Source::Staged(start) => stage.wrapping_add(*start),
        });
        let to = result.address(share.start);
        // SAFETY: shares stay within the tiles, whose sizes were checked; the caller vouches for the rest.
        unsafe { prepared.combiner.combine(result.dtype, sources, to, share.len()) };
        (share.len() * (prepared.sources.len() - 1) * result.dtype.bytes()) as u64
    }

    /// Copies the shares that the others of this process have combined; returns the bytes received from those and from others.
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
            let n_bytes = share.len() * result.1.dtype.bytes();
            n_received += n_bytes;
            if !self.is_here(*peer) {
                continue;
            }
            let from = self.region(*peer, result.0)?.place(share.start);
            let to = result.1.place(share.start);
            // SAFETY: shares stay within the tiles, whose sizes were checked; the caller vouches for the rest.
            unsafe { to.copy_from_nonoverlapping(from, n_bytes) };
        }
        Ok(n_received as u64)
    }
}

impl Member {
    fn take_part(
        &mut self,
        kernel: usize,
        input: BufferId,
        result: BufferId,
    ) -> Result<u64, Error> {
        let Self { site, collectives, outside } = self;
        let Some(prepared) = collectives.get(kernel).and_then(Option::as_ref) else {
            let message = "expected the number of a collective".to_owned();
            return Err(Error::new(ErrorKind::Program, message));
        };
        let (source, to) = (site.region(site.rank, input)?, site.region(site.rank, result)?);
        prepared.check(&source, &to)?;
        let wait = || prepared.barrier.wait(&site.abort);
        if let Movement::Copy(parts) = &prepared.movement
            && parts.iter().all(|it| it.0 == site.rank)
        {
            // SAFETY: only this rank uses its arena outside of collectives.
            return unsafe { site.copy(parts, input, &to) };
        }
        let outside = outside.as_mut().zip(prepared.across.as_ref());
        let mut traffic = Traffic::new(outside, &site.abort);
        // SAFETY: this rank writes to its result only, and nobody reads there before the shares are combined.
        unsafe { traffic.begin(Leg::Inputs, &source, &to) }?;
        // What a rank reads was written before the first barrier, and is not written again before the last.
        wait()?;
        let n_bytes = match &prepared.movement {
            Movement::Copy(parts) => {
                // SAFETY: all ranks of the group are between the same barriers, and write to their results only.
                let n_bytes = unsafe { site.copy(parts, input, &to) }?;
                // SAFETY: as above.
                unsafe { traffic.finish(Leg::Inputs, &to) }?;
                n_bytes
            }
            Movement::Scatter { overlap, .. } => {
                // SAFETY: as above.
                unsafe { traffic.finish(Leg::Inputs, &to) }?;
                // SAFETY: as above.
                unsafe { site.scatter(prepared, overlap, input, &to, traffic.stage()) }
            }
            Movement::Reduce { group, shares } => {
                let own = group.iter().position(|it| *it == site.rank);
                let own = shares[own.expect("a rank is in its group")].clone();
                // SAFETY: as above.
                unsafe { traffic.finish(Leg::Inputs, &to) }?;
                // SAFETY: as above.
                let combined =
                    unsafe { site.combine_share(prepared, own, input, &to, traffic.stage()) };
                // SAFETY: this rank's share is combined, and others' shares of the result are written by nobody else.
                unsafe { traffic.begin(Leg::Shares, &to, &to) }?;
                wait()?;
                // SAFETY: after the barrier all shares are combined, and each rank writes only the others' in its own result.
                let gathered = unsafe { site.gather_shares(group, shares, (result, &to)) }?;
                // SAFETY: as above.
                unsafe { traffic.finish(Leg::Shares, &to) }?;
                combined + gathered
            }
        };
        wait()?;
        Ok(n_bytes)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Messages that are still under way after a failure use this memory for as long as the process lives.
        if self.outside.as_ref().is_some_and(|it| !it.is_idle()) {
            mem::forget(self.site.arenas.clone());
            mem::forget(self.outside.take());
        }
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
            let is_here = prepared.is_none_or(|it| it.across.is_none());
            let place = if is_here { "in shared memory" } else { "between processes" };
            Error::new(error.kind(), format!("{name} {kernel} {place}: {error}"))
        })
    }
}

#[cfg(test)]
mod tests;
