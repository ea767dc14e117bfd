//! How the GPUs of a model reach each other.

use std::sync::Arc;

use super::{collective::Transport, gpu::Gpu, libraries::find, others::Others};
use crate::{Error, ErrorKind};

/// How ranks communicate: through NCCL, where it is there and each has a GPU of its own; else they read each other's memory, which those of several processes cannot. `gpus` are those of
/// `n_here` ranks of this process.
pub(super) fn transport(
    gpus: &[Arc<Gpu>],
    n_here: usize,
    others: &dyn Others,
) -> Result<Transport, Error> {
    if others.are_there() {
        return find().nccl().map(|_| Transport::Nccl);
    }
    if n_here > 1 && gpus.len() == n_here && find().nccl().is_ok() {
        return Ok(Transport::Nccl);
    }
    connect(gpus)?;
    Ok(Transport::Direct)
}

/// Lets every GPU reach the memory of every other.
fn connect(gpus: &[Arc<Gpu>]) -> Result<(), Error> {
    for gpu in gpus {
        for peer in gpus.iter().filter(|it| it.ordinal != gpu.ordinal) {
            if !gpu.enable_peer(peer)? {
                let message = format!(
                    "expected that {gpu:?} can reach the memory of {peer:?}, found that it cannot"
                );
                return Err(Error::new(ErrorKind::Device, message));
            }
        }
    }
    Ok(())
}

/// What runs where, in one line: `n_ranks` of all processes on `n_gpus`, of which one is given.
pub(super) fn line(gpu: &Gpu, (n_ranks, n_gpus): (usize, usize), transport: Transport) -> String {
    let gibibytes = gpu.memory_bytes as f64 / (1_u64 << 30) as f64;
    let what = format!("{} with {gibibytes:.0} GiB", gpu.name);
    let through = match transport {
        Transport::Nccl => "through NCCL",
        Transport::Direct if n_gpus == 1 => "by copies on the device",
        Transport::Direct => "by copies between the devices",
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
