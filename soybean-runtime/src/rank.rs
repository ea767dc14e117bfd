//! One rank of a program, on which a model makes its calls.

use std::time::Instant;

use soybean_plan::{BufferId, Kernel};

use crate::{
    Error, ErrorKind, KernelCategory, Profile,
    backend::{Communicator, Kernels},
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
        }
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
                self.failure = self.communicate(kernel, inputs, results).err();
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
        if let Some(from) = self.trace_from {
            let (start, duration) = (microseconds(from, start), microseconds(start, end));
            let name = format!("{} {kernel}", work.name());
            self.spans.push(Span { name, work: Some(work), stream: "thread", start, duration });
        }
    }

    fn communicate(
        &mut self,
        kernel: usize,
        inputs: &[BufferId],
        results: &[BufferId],
    ) -> Result<(), Error> {
        let (&[input], &[result]) = (inputs, results) else {
            let message = format!("collective {kernel}: expected one input and one result");
            return Err(Error::new(ErrorKind::Program, message));
        };
        self.moved_bytes += self.communicator.communicate(kernel, input, result)?;
        Ok(())
    }
}
