//! Buckets as one rank prepares them before the first step.

use std::sync::Arc;

use soybean_plan::{Bucket, Collective, CollectiveKind, DType, Mesh};

use crate::{
    Error, ErrorKind,
    barrier::Barrier,
    cpu::{Combiner, Region},
    movement::{Movement, element_outside, outside},
    remote_exchange::{PartialSource, RemoteExchange},
    tile_overlap::TileOverlap,
};

/// A bucket, as one rank runs it.
pub(super) struct PreparedBucket {
    pub(super) kind: CollectiveKind,
    pub(super) barrier: Arc<Barrier>,
    pub(super) collectives: Vec<PreparedCollective>,
}

/// A collective of a bucket.
pub(super) struct PreparedCollective {
    dtype: DType,
    /// Elements of this rank's tile before and after the collective.
    n_source: usize,
    n_destination: usize,
    pub(super) movement: Movement,
    /// Elements of the result outside the tensor, and their bits.
    pub(super) outside: Vec<TileOverlap>,
    pub(super) element_outside: u32,
    pub(super) combiner: Combiner,
    /// Sources of the operands that are combined.
    pub(super) sources: Vec<PartialSource>,
    pub(super) remote: Option<RemoteExchange>,
}

impl PreparedBucket {
    /// Prepares a bucket for a rank, whose process has the ranks `local`.
    pub(super) fn new(
        bucket: &Bucket,
        mesh: &Mesh,
        (rank, local): (usize, &std::ops::Range<usize>),
        barrier: Arc<Barrier>,
    ) -> Self {
        let mut staging_end = 0;
        let prepare = |collective: &Collective| {
            let movement = Movement::new(collective, mesh, rank);
            let remote = RemoteExchange::new(collective, &movement, mesh, rank, local, staging_end);
            staging_end = remote.as_ref().map_or(staging_end, |it| it.staging_end);
            let group = mesh.group(rank, collective.axes);
            let sources = match &remote {
                Some(remote) => remote.sources.clone(),
                None => group.iter().map(|it| PartialSource::Arena(*it)).collect(),
            };
            PreparedCollective {
                dtype: collective.dtype,
                n_source: collective.source().local_shape(mesh).n_elements(),
                n_destination: collective.result_shape(mesh).n_elements(),
                movement,
                outside: outside(collective, mesh, rank),
                element_outside: element_outside(collective),
                combiner: Combiner::new(collective.combine),
                sources,
                remote,
            }
        };
        let collectives = bucket.collectives.iter().map(prepare).collect();
        Self { kind: bucket.kind(), barrier, collectives }
    }

    /// Returns the size of its staging memory; none if all ranks of the group are in this process.
    pub(super) fn staging_bytes(&self) -> Option<usize> {
        self.collectives.iter().filter_map(|it| it.remote.as_ref()).map(|it| it.staging_end).max()
    }

    /// Returns true if a rank reads nothing from others.
    pub(super) fn is_of_one(&self, rank: usize) -> bool {
        let is_of_one = |movement: &Movement| match movement {
            Movement::Copy(parts) => parts.iter().all(|it| it.0 == rank),
            Movement::Scatter { .. } | Movement::Reduce { .. } => false,
        };
        self.collectives.iter().all(|it| is_of_one(&it.movement))
    }

    /// Returns true if ranks copy shares from each other after they have combined them.
    pub(super) fn has_shares(&self) -> bool {
        self.collectives.iter().any(|it| matches!(it.movement, Movement::Reduce { .. }))
    }
}

impl PreparedCollective {
    /// Checks the buffers of a collective.
    pub(super) fn check(&self, input: &Region, result: &Region) -> Result<(), Error> {
        let error = |message: &str| Err(Error::new(ErrorKind::Program, message));
        if (self.n_source, self.n_destination) != (input.n_elements, result.n_elements) {
            return error(&format!(
                "expected tiles of {} and {} elements before and after, found {} and {}",
                self.n_source, self.n_destination, input.n_elements, result.n_elements
            ));
        }
        if input.overlaps(result) {
            return error("expected a result that does not overlap the input");
        }
        if (input.dtype, result.dtype) != (self.dtype, self.dtype) {
            return error("expected tiles of the collective's element type before and after");
        }
        Ok(())
    }
}
