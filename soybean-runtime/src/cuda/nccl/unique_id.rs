//! What the members of a clique, in whatever process, find each other by.
#![expect(unsafe_code, reason = "NCCL is a C library")]

use super::binding::RawUniqueId;
use crate::{Error, ErrorKind, cuda::libraries::installation};

/// What all members of a clique know it by; made in one process, for all.
#[derive(Clone, Copy)]
pub(crate) struct UniqueId(RawUniqueId);

impl UniqueId {
    /// The length as bytes.
    pub(crate) const N_BYTES: usize = RawUniqueId::N_BYTES;

    /// An id that no other clique has.
    ///
    /// # Errors
    /// If NCCL is missing, or finds no way by which processes could reach this one.
    pub(crate) fn new() -> Result<Self, Error> {
        let nccl = installation().nccl()?;
        let mut id = RawUniqueId([0; Self::N_BYTES]);
        // SAFETY: the result is a place of this function.
        match unsafe { (nccl.unique_id)(&mut id) } {
            0 => Ok(Self(id)),
            outcome => {
                let message =
                    format!("an id for ranks that communicate: NCCL: {}", nccl.explain(outcome));
                Err(Error::new(ErrorKind::Device, message))
            }
        }
    }

    /// The id, for other processes.
    pub(crate) const fn to_bytes(self) -> [u8; Self::N_BYTES] {
        self.0.0
    }

    /// The id with these bytes.
    pub(crate) const fn from_bytes(bytes: [u8; Self::N_BYTES]) -> Self {
        Self(RawUniqueId(bytes))
    }

    /// The id as NCCL has it.
    pub(super) const fn raw(&self) -> RawUniqueId {
        self.0
    }
}
