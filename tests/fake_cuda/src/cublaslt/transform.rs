//! `C = op(A)` for each matrix of a batch.

use super::descriptor::{MatrixLayout, TransformDescriptor};
use super::matrix::Matrix;
use super::{ApiResult, Status};
use crate::ffi::Handle;
use crate::memory::MemoryKind;
use crate::state::lock;
use crate::work::Task;

/// A copy of a batch of matrices.
#[derive(Clone, Debug)]
pub(super) struct Transform {
    descriptor: TransformDescriptor,
    /// Layouts and addresses of A and C.
    from: (MatrixLayout, u64),
    to: (MatrixLayout, u64),
}

impl Transform {
    /// Creates the copy, if the layouts fit.
    pub(super) fn new(
        descriptor: TransformDescriptor,
        from: (MatrixLayout, u64),
        to: (MatrixLayout, u64),
    ) -> ApiResult<Self> {
        let extents = match descriptor.is_transposed {
            true => (from.0.columns, from.0.rows),
            false => (from.0.rows, from.0.columns),
        };
        let is_kept = |it: &MatrixLayout| {
            i64::try_from(it.rows).is_ok_and(|rows| it.leading >= rows) && it.batch >= 1
        };
        let is_same = extents == (to.0.rows, to.0.columns) && from.0.batch == to.0.batch;
        if !is_same || from.0.dtype != to.0.dtype || ![from.0, to.0].iter().all(is_kept) {
            return Err(Status::INVALID_VALUE);
        }
        Ok(Self { descriptor, from, to })
    }

    /// Checks the addresses and submits the copy to a stream.
    pub(super) fn submit(self, stream: Handle) -> ApiResult {
        let mut state = lock();
        let stream = state.stream(stream).map_err(|_| Status::INVALID_VALUE)?;
        let device = state.streams[&stream].device;
        let memory = &state.machine.memory;
        let is_there = |(layout, address): (MatrixLayout, u64)| {
            memory.kind(address, 0) == Some(MemoryKind::Device(device))
                && address.is_multiple_of(layout.dtype.n_bytes())
        };
        if !is_there(self.from) || !is_there(self.to) {
            return Err(Status::INVALID_VALUE);
        }
        let task = Task::new(device, move |machine| {
            (0..i64::from(self.to.0.batch)).try_for_each(|number| {
                let matrix = Matrix::read(&machine.memory, &self.from.0, self.from.1, number)?;
                let matrix =
                    if self.descriptor.is_transposed { matrix.transposed() } else { matrix };
                matrix.write(&machine.memory, &self.to.0, self.to.1, number)
            })
        });
        state.submit_here(stream, task).map_err(|_| Status::EXECUTION_FAILED)
    }
}
