//! The launch of a plan on a stream.

use std::collections::BTreeMap;

use super::{ApiResult, Status};
use crate::ffi::Handle;
use crate::memory::{Memory, MemoryKind};
use crate::state::lock;
use crate::status::DeviceError;
use crate::work::Task;

/// Alignment in bytes of tensors, which cuDNN's copies need.
const ALIGNMENT: u64 = 16;

/// The stream and the memory for the run of a plan.
pub(super) struct Launch {
    pub(super) stream: Handle,
    /// Addresses of tensors by identity.
    pub(super) pointers: BTreeMap<i64, u64>,
    /// Address and size of the workspace.
    pub(super) workspace: (u64, usize),
}

impl Launch {
    pub(super) fn pointer(&self, id: i64) -> ApiResult<u64> {
        self.pointers.get(&id).copied().ok_or(Status::BAD_PARAM)
    }

    /// Checks the addresses of tensors, and submits `run` after as many pieces of work as delay it.
    /// Counts it under a name.
    pub(super) fn submit(
        &self,
        name: &'static str,
        tensors: &[u64],
        n_delays: usize,
        run: impl Fn(&Memory) -> Result<(), DeviceError> + Send + Sync + 'static,
    ) -> ApiResult {
        let mut state = lock();
        let stream = state.stream(self.stream).map_err(|_| Status::BAD_PARAM)?;
        let device = state.streams[&stream].device;
        let is_there = |address: u64, n_bytes: usize| {
            state.machine.memory.kind(address, n_bytes) == Some(MemoryKind::Device(device))
        };
        let are_there = tensors.iter().all(|it| is_there(*it, 0) && it.is_multiple_of(ALIGNMENT));
        let (workspace, workspace_bytes) = self.workspace;
        if !are_there || (workspace_bytes > 0 && !is_there(workspace, workspace_bytes)) {
            return Err(Status::BAD_PARAM);
        }
        for _ in 0..n_delays {
            let nothing = Task::new(device, |_| Ok(()));
            state.submit_here(stream, nothing).map_err(|_| Status::EXECUTION_FAILED)?;
        }
        let task = Task::new(device, move |machine| {
            // Poisons the workspace, whose content must not be needed.
            machine.memory.write(workspace, &vec![0xff_u8; workspace_bytes])?;
            run(&machine.memory)
        });
        state.submit_here(stream, task).map_err(|_| Status::EXECUTION_FAILED)?;
        state.count(name);
        Ok(())
    }
}
