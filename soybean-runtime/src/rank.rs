//! One rank of a program, on which a model makes its calls.

use std::time::Instant;

use soybean_plan::{BufferId, Kernel};

use crate::{
    Error, ErrorKind, KernelCategory, NonFiniteTensor, Profile,
    backend::{Communicator, Kernels},
    inspection::Inspection,
    trace::{Span, microseconds},
};

/// One rank during a step.
///
/// After a call that failed, later calls do nothing. Generated code checks [`Self::is_failed`] now
/// and then.
pub struct Rank<'a> {
    kernels: &'a [Kernel],
    device: &'a mut dyn Kernels,
    communicator: &'a mut dyn Communicator,
    profile: &'a mut Profile,
    trace_from: Option<Instant>,
    spans: Vec<Span>,
    moved_bytes: u64,
    failure: Option<Error>,
    /// The calls so far, if the step is inspected.
    n_inspected: usize,
    inspection: Option<&'a mut Inspection>,
}

impl<'a> Rank<'a> {
    pub(crate) fn new(
        kernels: &'a [Kernel],
        device: &'a mut dyn Kernels,
        communicator: &'a mut dyn Communicator,
        profile: &'a mut Profile,
        trace_from: Option<Instant>,
    ) -> Self {
        Self {
            kernels,
            device,
            communicator,
            profile,
            trace_from,
            spans: Vec::new(),
            moved_bytes: 0,
            failure: None,
            n_inspected: 0,
            inspection: None,
        }
    }

    /// Looks at these buffers, and at the results of all calls, for numbers that are not finite.
    pub(crate) fn inspect(&mut self, buffers: &[BufferId], inspection: &'a mut Inspection) {
        self.inspection = Some(inspection);
        self.failure = self.look_at(buffers, None).err();
    }

    fn look_at(&mut self, buffers: &[BufferId], call: Option<usize>) -> Result<(), Error> {
        let Some(inspection) = &mut self.inspection else { return Ok(()) };
        for &buffer in buffers {
            if inspection.is_complete() {
                break;
            }
            if let Some(value) = self.device.non_finite(buffer)? {
                inspection.add(NonFiniteTensor { buffer, call, value });
            }
        }
        Ok(())
    }

    /// Returns the bytes received from other ranks and, if the step is traced, its spans; or the
    /// first error.
    pub(crate) fn finish(self) -> Result<(u64, Vec<Span>), Error> {
        self.failure.map_or(Ok((self.moved_bytes, self.spans)), Err)
    }

    /// Returns true if a call has failed.
    #[must_use]
    pub const fn is_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Runs the kernel or collective with this number in the model's list.
    pub fn run(&mut self, kernel: usize, inputs: &[BufferId], results: &[BufferId]) {
        if self.failure.is_some() {
            return;
        }
        let start = Instant::now();
        let work = match self.kernels.get(kernel) {
            Some(Kernel::Communicate(_)) => {
                match self.communicator.communicate(kernel, inputs, results) {
                    Ok(n_bytes) => self.moved_bytes += n_bytes,
                    Err(error) => self.failure = Some(error),
                }
                KernelCategory::Communication
            }
            Some(found) => {
                self.failure = self.device.run(kernel, inputs, results).err();
                found.category()
            }
            None => {
                let message =
                    format!("expected one of {} kernels, found {kernel}", self.kernels.len());
                self.failure = Some(Error::new(ErrorKind::Program, message));
                return;
            }
        };
        let end = Instant::now();
        self.profile.add(work, end - start);
        if self.inspection.is_some() && self.failure.is_none() {
            self.failure = self.look_at(results, Some(self.n_inspected)).err();
            self.n_inspected += 1;
        }
        if let Some(from) = self.trace_from {
            let (start, duration) = (microseconds(from, start), microseconds(start, end));
            self.spans.push(Span {
                name: work.name().into(),
                kernel: Some(kernel),
                buffer: results.first().copied(),
                work: Some(work),
                stream: "thread",
                start,
                duration,
                n_bytes: 0,
                n_operations: 0,
            });
        }
    }
}
