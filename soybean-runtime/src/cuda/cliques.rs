//! The groups of ranks that communicate through NCCL.
#![expect(unsafe_code, reason = "collectives work on raw memory")]

use std::{collections::BTreeMap, sync::Arc};

use soybean_plan::{AxisSet, Lane, Mesh};

use super::{
    collective::{Joint, JointKind},
    gpu::Gpu,
    nccl::{Clique, Member},
    place::Place,
};
use crate::Error;

/// For each set of axes all groups along them.
#[derive(Default)]
pub(crate) struct Cliques(BTreeMap<AxisSet, Vec<(Vec<usize>, Clique)>>);

impl Cliques {
    /// Connects all groups along these axes; `gpus` are those of the ranks.
    pub(crate) fn new(
        mesh: &Mesh,
        axes: impl Iterator<Item = AxisSet>,
        gpus: &[Arc<Gpu>],
    ) -> Result<Self, Error> {
        let mut cliques = BTreeMap::new();
        for axes in axes {
            if cliques.contains_key(&axes) {
                continue;
            }
            let groups = (0..mesh.n_ranks()).map(|rank| mesh.group(rank, axes));
            let first = groups.enumerate().filter(|(rank, group)| group.first() == Some(rank));
            let connect = |(_, group): (usize, Vec<usize>)| {
                let members: Vec<_> = group.iter().map(|it| Arc::clone(&gpus[*it])).collect();
                Ok((group, Clique::new(&members)?))
            };
            cliques.insert(axes, first.map(connect).collect::<Result<_, Error>>()?);
        }
        Ok(Self(cliques))
    }

    /// Queues a collective for all groups.
    ///
    /// # Safety
    /// The places' memory holds what the collective reads and writes, and nobody else uses it until the collective is done.
    pub(crate) unsafe fn queue(&self, joint: &Joint, places: &[Place]) -> Result<(), Error> {
        let address = |place: &Place, (block, offset)| place.address(block, offset);
        for (group, clique) in self.0.get(&joint.axes).into_iter().flatten() {
            let member = |rank: &usize| Member {
                stream: places[*rank].lane(Lane::Communication),
                send: address(&places[*rank], joint.send),
                receive: address(&places[*rank], joint.receive),
            };
            let members: Vec<Member<'_>> = group.iter().map(member).collect();
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

    /// Ends what is queued, since it may wait for who will never come.
    pub(crate) fn abort(&mut self) {
        self.0.values().flatten().for_each(|(_, clique)| clique.give_up());
        self.0.clear();
    }

    /// Whether all groups still work, as far as NCCL knows.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.0.values().flatten().try_for_each(|(_, clique)| clique.check())
    }
}
