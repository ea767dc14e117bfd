//! One rank of a program: the calls of which a model's steps consist.

use std::time::Instant;

use soybean_plan::BufferId;

use crate::{
    Error, Profile, Work,
    backend::{Backend, Communicator},
};

/// One rank during a step. A call that fails is remembered, and all later calls do nothing: generated code asks once in a while whether
/// to go on.
pub struct Rank<'a> {
    backend: &'a mut dyn Backend,
    communicator: &'a mut dyn Communicator,
    profile: &'a mut Profile,
    moved_bytes: u64,
    failure: Option<Error>,
}

impl<'a> Rank<'a> {
    pub(crate) fn new(
        backend: &'a mut dyn Backend,
        communicator: &'a mut dyn Communicator,
        profile: &'a mut Profile,
    ) -> Self {
        Self { backend, communicator, profile, moved_bytes: 0, failure: None }
    }

    /// The bytes received from other ranks, or the first failure.
    pub(crate) fn finish(self) -> Result<u64, Error> {
        self.failure.map_or(Ok(self.moved_bytes), Err)
    }

    /// Whether a call has failed.
    #[must_use]
    pub const fn is_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Runs contraction `kernel`.
    pub fn contract(&mut self, kernel: usize, left: BufferId, right: BufferId, result: BufferId) {
        self.run(Work::Contraction, |it| it.backend.contract(kernel, left, right, result));
    }

    /// Runs map `kernel`.
    pub fn map(&mut self, kernel: usize, inputs: &[BufferId], results: &[BufferId]) {
        self.run(Work::Map, |it| it.backend.map(kernel, inputs, results));
    }

    /// Runs reduction `kernel`.
    pub fn reduce(&mut self, kernel: usize, inputs: &[BufferId], result: BufferId) {
        self.run(Work::Reduction, |it| it.backend.reduce(kernel, inputs, result));
    }

    /// Runs permutation `kernel`.
    pub fn permute(&mut self, kernel: usize, input: BufferId, result: BufferId) {
        self.run(Work::Permutation, |it| it.backend.permute(kernel, input, result));
    }

    /// Runs convolution `kernel`.
    pub fn convolve(&mut self, kernel: usize, left: BufferId, right: BufferId, result: BufferId) {
        self.run(Work::Convolution, |it| it.backend.convolve(kernel, left, right, result));
    }

    /// Runs pooling `kernel`.
    pub fn pool(&mut self, kernel: usize, inputs: &[BufferId], result: BufferId) {
        self.run(Work::Pooling, |it| it.backend.pool(kernel, inputs, result));
    }

    /// Takes part in collective `kernel`.
    pub fn communicate(&mut self, kernel: usize, input: BufferId, result: BufferId) {
        self.run(Work::Communication, |it| {
            it.moved_bytes += it.communicator.communicate(kernel, input, result)?;
            Ok(())
        });
    }

    fn run(&mut self, work: Work, call: impl FnOnce(&mut Self) -> Result<(), Error>) {
        if self.failure.is_some() {
            return;
        }
        let start = Instant::now();
        self.failure = call(self).err();
        self.profile.add(work, start.elapsed());
    }
}
