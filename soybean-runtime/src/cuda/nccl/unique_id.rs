//! Unique ids, by which the ranks of a group find each other.
#![expect(unsafe_code, reason = "NCCL is a C library")]

use super::binding::RawUniqueId;
use crate::{Error, ErrorKind, cuda::libraries::installation};

/// An `ncclUniqueId`, created by one process for all ranks of a group.
#[derive(Clone, Copy)]
pub(crate) struct UniqueId(RawUniqueId);

impl UniqueId {
    /// Length in bytes.
    pub(crate) const N_BYTES: usize = RawUniqueId::N_BYTES;

    /// Creates a new id.
    ///
    /// # Errors
    /// If NCCL is missing, or finds no network interface for other processes.
    pub(crate) fn new() -> Result<Self, Error> {
        let nccl = installation().nccl()?;
        let mut id = RawUniqueId([0; Self::N_BYTES]);
        // SAFETY: the result is a local variable.
        match unsafe { (nccl.unique_id)(&mut id) } {
            0 => Ok(Self(id)),
            result => {
                let message = format!("creating a unique id: NCCL: {}", nccl.error_text(result));
                Err(Error::new(ErrorKind::Device, message))
            }
        }
    }

    /// Returns the bytes of the id, for other processes.
    pub(crate) const fn to_bytes(self) -> [u8; Self::N_BYTES] {
        self.0.0
    }

    /// Creates the id from its bytes.
    pub(crate) const fn from_bytes(bytes: [u8; Self::N_BYTES]) -> Self {
        Self(RawUniqueId(bytes))
    }

    /// Returns NCCL's struct.
    pub(super) const fn raw(&self) -> RawUniqueId {
        self.0
    }
}
