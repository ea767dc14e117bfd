//! The groups of ranks that communicate through NCCL.
#![expect(unsafe_code, reason = "collectives work on raw memory")]

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use soybean_plan::{AxisSet, Lane, Mesh};

use super::{
    collective::{Joint, JointKind},
    gpu::Gpu,
    nccl::{Clique, Id, Member},
    others::Others,
    place::Place,
};
use crate::{Error, ErrorKind};

/// For each set of axes all groups along them that have ranks in this process, with the numbers of these among its ranks.
#[derive(Default)]
pub(crate) struct Cliques(BTreeMap<AxisSet, Vec<(Vec<usize>, Clique)>>);

impl Cliques {
    /// Connects all groups along these axes, together with the other processes; `gpus` are those of the ranks of this one.
    pub(crate) fn new(
        mesh: &Mesh,
        axes: impl Iterator<Item = AxisSet>,
        ranks: &Range<usize>,
        gpus: &[Arc<Gpu>],
        others: &Arc<dyn Others>,
    ) -> Result<Self, Error> {
        let groups = groups(mesh, axes);
        let ids = ids(&groups, ranks, others.as_ref())?;
        let mut cliques: BTreeMap<_, Vec<_>> = BTreeMap::new();
        // All processes go through the groups in one order, so that none waits for one that waits for it.
        for ((axes, group), id) in groups.iter().zip(ids) {
            let members = group.iter().enumerate().filter(|(_, rank)| ranks.contains(rank));
            let members: Vec<_> = members.map(|(member, rank)| (member, *rank)).collect();
            if members.is_empty() {
                continue;
            }
            let place = |rank: usize| rank - ranks.start;
            let here =
                members.iter().map(|(member, rank)| (*member, Arc::clone(&gpus[place(*rank)])));
            let clique = Clique::new(&id, group.len(), &here.collect::<Vec<_>>(), others)?;
            let places = members.iter().map(|(_, rank)| place(*rank)).collect();
            cliques.entry(*axes).or_default().push((places, clique));
        }
        Ok(Self(cliques))
    }

    /// Queues a collective for all groups, on the ranks of this process.
    ///
    /// # Safety
    /// The places' memory holds what the collective reads and writes, and nobody else uses it until the collective is done.
    pub(crate) unsafe fn queue(&self, joint: &Joint, places: &[Place]) -> Result<(), Error> {
        let address = |place: &Place, (block, offset)| place.address(block, offset);
        for (here, clique) in self.0.get(&joint.axes).into_iter().flatten() {
            let member = |place: &usize| Member {
                stream: places[*place].lane(Lane::Communication),
                send: address(&places[*place], joint.send),
                receive: address(&places[*place], joint.receive),
            };
            let members: Vec<Member<'_>> = here.iter().map(member).collect();
            let (n_elements, dtype) = (joint.n_elements, joint.dtype);
            match joint.kind {
                // SAFETY: required of the caller, here and below.
                JointKind::AllReduce(combine) => unsafe {
                    clique.all_reduce(&members, n_elements, dtype, combine)
                },
                // SAFETY: see above.
                JointKind::ReduceScatter(combine) => unsafe {
                    clique.reduce_scatter(&members, n_elements, dtype, combine)
                },
                // SAFETY: see above.
                JointKind::AllGather => unsafe { clique.all_gather(&members, n_elements, dtype) },
                // SAFETY: see above.
                JointKind::AllToAll => unsafe { clique.all_to_all(&members, n_elements, dtype) },
            }?;
        }
        Ok(())
    }

    /// Ends all groups, in which nothing is queued.
    pub(crate) fn leave(&mut self) {
        self.0.values_mut().flatten().for_each(|(_, clique)| clique.leave());
        self.0.clear();
    }

    /// Ends all groups, and what is queued, since it may wait for who will never come.
    pub(crate) fn abort(&mut self) {
        self.0.clear();
    }

    /// Whether all groups still work, as far as NCCL knows.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.0.values().flatten().try_for_each(|(_, clique)| clique.check())
    }
}

/// All groups along these axes, in the same order in all processes.
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

/// The ids of all groups. The process of a group's first rank makes it, and hands it to the others.
fn ids(
    groups: &[(AxisSet, Vec<usize>)],
    ranks: &Range<usize>,
    others: &dyn Others,
) -> Result<Vec<Id>, Error> {
    if groups.is_empty() {
        return Ok(Vec::new());
    }
    let mut own = Vec::new();
    for (_, group) in groups {
        let is_here = group.first().is_some_and(|it| ranks.contains(it));
        own.extend(if is_here { Id::new()?.to_bytes() } else { [0; Id::N_BYTES] });
    }
    let all = others.hand_round(&own)?;
    let of_group = |(number, (_, group)): (usize, &(AxisSet, Vec<usize>))| {
        let process = group.first().map_or(0, |it| it / ranks.len());
        let from_process = all.chunks_exact(own.len()).nth(process);
        let id = from_process.and_then(|it| it.as_chunks().0.get(number));
        id.map(|it| Id::from_bytes(*it)).ok_or_else(|| {
            let message = format!(
                "an id of each group of ranks: expected one of process {process}, found none"
            );
            Error::new(ErrorKind::Process, message)
        })
    };
    groups.iter().enumerate().map(of_group).collect()
}
