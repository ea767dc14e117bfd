//! Selection of the communication backend, and peer access between GPUs.

use std::sync::Arc;

use soybean_plan::readable_bytes;

use super::{collective::CommunicationBackend, gpu::Gpu, libraries::installation, peers::Peers};
use crate::{Error, ErrorKind};

/// Selects the communication backend. NCCL is used if it is available and each rank has its own
/// GPU. Otherwise ranks read each other's memory, which works within one process only. `gpus` are
/// the GPUs of the `n_local` ranks of this process.
pub(super) fn choose_backend(
    gpus: &[Arc<Gpu>],
    n_local: usize,
    peers: &dyn Peers,
) -> Result<CommunicationBackend, Error> {
    if peers.exist() {
        return installation().nccl().map(|_| CommunicationBackend::Nccl);
    }
    if n_local > 1 && gpus.len() == n_local && installation().nccl().is_ok() {
        return Ok(CommunicationBackend::Nccl);
    }
    enable_peer_access(gpus)?;
    Ok(CommunicationBackend::PeerAccess)
}

/// Returns true if steps can be captured. NCCL's documentation warns that graphs with its
/// operations may deadlock if a process launches them on several GPUs.
pub(super) fn supports_graphs(backend: CommunicationBackend, n_local: usize) -> bool {
    match backend {
        CommunicationBackend::PeerAccess => true,
        CommunicationBackend::Nccl => n_local == 1,
    }
}

/// Enables peer access between all pairs of GPUs.
fn enable_peer_access(gpus: &[Arc<Gpu>]) -> Result<(), Error> {
    for gpu in gpus {
        for peer in gpus.iter().filter(|it| it.ordinal != gpu.ordinal) {
            if !gpu.enable_peer(peer)? {
                let message = format!(
                    "expected {gpu:?} to have access to the memory of {peer:?}, found none"
                );
                return Err(Error::new(ErrorKind::Device, message));
            }
        }
    }
    Ok(())
}

/// Describes the devices in one line.
pub(super) fn device_line(
    gpu: &Gpu,
    (n_ranks, n_gpus): (usize, usize),
    backend: CommunicationBackend,
) -> String {
    let what = format!("{} with {}", gpu.name, readable_bytes(gpu.memory_bytes as u64));
    let through = match backend {
        CommunicationBackend::Nccl => "through NCCL",
        CommunicationBackend::PeerAccess if n_gpus == 1 => "by copies on the device",
        CommunicationBackend::PeerAccess => "by copies between the devices",
    };
    match (n_ranks, n_gpus) {
        (1, _) => format!("1 GPU, {what}"),
        (n_ranks, 1) => format!("{n_ranks} ranks share 1 GPU, {what}; they communicate {through}"),
        (n_ranks, n_gpus) if n_ranks == n_gpus => {
            format!("{n_gpus} GPUs, {what} each, which communicate {through}")
        }
        (n_ranks, n_gpus) => {
            format!("{n_ranks} ranks share {n_gpus} GPUs, {what} each; they communicate {through}")
        }
    }
}
