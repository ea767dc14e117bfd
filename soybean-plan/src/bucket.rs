//! Buckets: collectives that run as one step.

use std::{borrow::Cow, fmt};

use crate::{AxisSet, Collective, CollectiveKind, Mesh};

/// Collectives of one kind along the same axes that run as one step; often there is only one.
///
/// The collectives are independent: none reads what another one writes. Ranks synchronize once for
/// all of them, so a bucket has the latency of one collective and the bytes of all. Each collective
/// combines partial results in the order in which it would do so alone. In a
/// [`Step`](crate::Step), input `i` and result `i` belong to collective `i`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The collectives, at least one.
    pub collectives: Cow<'static, [Collective]>,
}

impl Bucket {
    /// Returns the kind of all collectives.
    #[must_use]
    pub fn kind(&self) -> CollectiveKind {
        self.collectives[0].kind
    }

    /// Returns the axes along which all collectives change placements.
    #[must_use]
    pub fn axes(&self) -> AxisSet {
        self.collectives[0].axes
    }

    /// Returns true if the collectives have one kind and the same axes, and there is at least one.
    #[must_use]
    pub fn is_uniform(&self) -> bool {
        let Some((first, others)) = self.collectives.split_first() else { return false };
        others.iter().all(|it| (it.kind, it.axes) == (first.kind, first.axes))
    }

    /// Returns the number of bytes moved between ranks, over all ranks.
    #[must_use]
    pub fn bytes(&self, mesh: &Mesh) -> u64 {
        self.collectives.iter().map(|it| it.bytes(mesh)).sum()
    }

    /// Returns the bytes moved along each axis of the mesh, over all ranks; see
    /// [`Collective::bytes_per_axis`].
    #[must_use]
    pub fn bytes_per_axis(&self, mesh: &Mesh) -> Vec<u64> {
        let mut bytes = vec![0; mesh.n_axes()];
        for collective in self.collectives.iter() {
            let moved = collective.bytes_per_axis(mesh);
            bytes.iter_mut().zip(moved).for_each(|(sum, it)| *sum += it);
        }
        bytes
    }
}

impl From<Collective> for Bucket {
    fn from(collective: Collective) -> Self {
        Self { collectives: Cow::Owned(vec![collective]) }
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind().name())?;
        for (at, equal) in self.collectives.chunk_by(|one, next| one == next).enumerate() {
            let Collective { shape, from, to, halo, .. } = equal[0];
            let comma = if at == 0 { "" } else { "," };
            let n_equal = if equal.len() == 1 { "" } else { &format!("{} x ", equal.len()) };
            write!(f, "{comma} {n_equal}{shape} {from} -> {to}")?;
            if !halo.is_none() {
                write!(f, " with {halo}")?;
            }
        }
        Ok(())
    }
}
