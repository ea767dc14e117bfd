//! NCCL communicators of all groups of ranks.
#![expect(unsafe_code, reason = "collectives work on raw memory")]

use std::{collections::BTreeMap, ops::Range, sync::Arc, time::Duration};

use soybean_plan::{AxisSet, Lane, Mesh};

use super::{
    collective::NcclCall,
    gpu::Gpu,
    nccl::{CommunicatorGroup, RankCall, UniqueId},
    peers::Peers,
    rank_context::RankContext,
};
use crate::{Error, ErrorKind};

/// For each set of axes, the groups along them with ranks in this process. The indices are those of
/// the ranks among the ranks of this process.
#[derive(Default)]
pub(crate) struct Communicators(BTreeMap<AxisSet, Vec<(Vec<usize>, CommunicatorGroup)>>);

impl Communicators {
    /// Connects all groups along these axes, together with the other processes. `gpus` are the GPUs
    /// of the ranks of this process, and `timeout` limits each call that waits for other processes.
    pub(crate) fn new(
        mesh: &Mesh,
        axes: impl Iterator<Item = AxisSet>,
        ranks: &Range<usize>,
        gpus: &[Arc<Gpu>],
        (peers, timeout): (&Arc<dyn Peers>, Option<Duration>),
    ) -> Result<Self, Error> {
        let groups = groups(mesh, axes);
        let ids = ids(&groups, ranks, peers.as_ref())?;
        let mut groups_by_axes: BTreeMap<_, Vec<_>> = BTreeMap::new();
        // All processes connect the groups in the same order, which rules out deadlocks.
        for ((axes, group), id) in groups.iter().zip(ids) {
            let members = group.iter().enumerate().filter(|(_, rank)| ranks.contains(rank));
            let members: Vec<_> = members.map(|(group_rank, rank)| (group_rank, *rank)).collect();
            if members.is_empty() {
                continue;
            }
            let local_index = |rank: usize| rank - ranks.start;
            let local = members
                .iter()
                .map(|(group_rank, rank)| (*group_rank, Arc::clone(&gpus[local_index(*rank)])));
            let group_communicators = CommunicatorGroup::new(
                &id,
                group.len(),
                &local.collect::<Vec<_>>(),
                (peers, timeout),
            )?;
            let contexts = members.iter().map(|(_, rank)| local_index(*rank)).collect();
            groups_by_axes.entry(*axes).or_default().push((contexts, group_communicators));
        }
        Ok(Self(groups_by_axes))
    }

    /// Queues a rank's part of the collectives of a bucket. The rank is given by its index in the
    /// process. `keeps_waiting` is called while NCCL works in the background.
    ///
    /// # Safety
    /// The memory of the context holds the operands of the collectives. Nothing else uses it until
    /// they complete.
    pub(crate) unsafe fn queue(
        &self,
        calls: &[NcclCall],
        (index, context): (usize, &RankContext),
        keeps_waiting: &dyn Fn() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let address = |(block, offset)| context.address(block, offset);
        let call =
            |&NcclCall { ref operation, n_elements, dtype, send, receive, .. }: &NcclCall| {
                let (operation, send, receive) =
                    (operation.clone(), address(send), address(receive));
                RankCall { operation, n_elements, dtype, send, receive }
            };
        let axes = calls.first().map(|it| it.axes).unwrap_or_default();
        let calls: Vec<RankCall> = calls.iter().map(call).collect();
        let stream = context.lane(Lane::Communication);
        for (local, group_communicators) in self.0.get(&axes).into_iter().flatten() {
            let Some(at) = local.iter().position(|it| *it == index) else { continue };
            // SAFETY: required of the caller.
            unsafe { group_communicators.queue(at, &calls, stream, keeps_waiting) }?;
        }
        Ok(())
    }

    /// Finalizes and destroys all communicators. No work may be pending.
    pub(crate) fn close(&self) {
        self.groups().for_each(CommunicatorGroup::close);
    }

    /// Aborts all communicators and their pending work, which may wait for failed peers.
    pub(crate) fn abort(&self) {
        self.groups().for_each(CommunicatorGroup::abort);
    }

    /// Returns the first asynchronous error that NCCL reports.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.groups().try_for_each(CommunicatorGroup::check)
    }

    fn groups(&self) -> impl Iterator<Item = &CommunicatorGroup> {
        self.0.values().flatten().map(|it| &it.1)
    }
}

/// Returns all groups along these axes, in the same order in all processes.
fn groups(mesh: &Mesh, axes: impl Iterator<Item = AxisSet>) -> Vec<(AxisSet, Vec<usize>)> {
    let mut all: Vec<AxisSet> = axes.collect();
    all.sort_unstable();
    all.dedup();
    let groups = |axes: AxisSet| {
        let groups = (0..mesh.n_ranks()).map(move |rank| (rank, mesh.group(rank, axes)));
        let first = groups.filter(|(rank, group)| group.first() == Some(rank));
        first.map(move |(_, group)| (axes, group))
    };
    all.into_iter().flat_map(groups).collect()
}

/// Returns the unique ids of all groups. The process of a group's first rank creates its id, and an
/// all-gather distributes the ids.
fn ids(
    groups: &[(AxisSet, Vec<usize>)],
    ranks: &Range<usize>,
    peers: &dyn Peers,
) -> Result<Vec<UniqueId>, Error> {
    if groups.is_empty() {
        return Ok(Vec::new());
    }
    let mut own = Vec::new();
    for (_, group) in groups {
        let is_here = group.first().is_some_and(|it| ranks.contains(it));
        own.extend(if is_here { UniqueId::new()?.to_bytes() } else { [0; UniqueId::N_BYTES] });
    }
    let all = peers.all_gather(&own)?;
    let of_group = |(number, (_, group)): (usize, &(AxisSet, Vec<usize>))| {
        let process = group.first().map_or(0, |it| it / ranks.len());
        let from_process = all.chunks_exact(own.len()).nth(process);
        let id = from_process.and_then(|it| it.as_chunks().0.get(number));
        id.map(|it| UniqueId::from_bytes(*it)).ok_or_else(|| {
            let message = format!(
                "the unique id of a group of ranks: expected one from process {process}, found none"
            );
            Error::new(ErrorKind::Process, message)
        })
    };
    groups.iter().enumerate().map(of_group).collect()
}
