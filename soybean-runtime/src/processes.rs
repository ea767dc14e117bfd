//! Runs in several processes: `mpirun` starts the program several times, and each process runs a
//! block of the ranks of one model.
//!
//! Every process gives the same commands. After each command the reports of all ranks are
//! exchanged, so that trainers have the same state in all processes.

#[cfg(feature = "mpi")]
mod control;
#[cfg(feature = "mpi")]
mod control_message;
#[cfg(feature = "mpi")]
mod device_choice;
#[cfg(feature = "mpi")]
mod inbox;
#[cfg(feature = "mpi")]
mod mpi_communicator;
#[cfg(all(feature = "mpi", feature = "cuda"))]
mod mpi_peers;
#[cfg(feature = "mpi")]
mod mpi_transport;
#[cfg(feature = "mpi")]
mod progress;
#[cfg(feature = "mpi")]
mod ranks;
#[cfg(feature = "mpi")]
mod report_codec;
#[cfg(feature = "mpi")]
mod silence;
#[cfg(feature = "mpi")]
mod world;

use std::{env, fmt};

use crate::{Error, ErrorKind};
#[cfg(feature = "mpi")]
use control_message::ControlMessage;
#[cfg(feature = "mpi")]
pub(crate) use ranks::start_ranks;

/// Identity of a process within a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Number of the process, from 0.
    pub number: usize,
    /// Number of processes.
    pub count: usize,
}

/// Environment variables with the number of processes: those of Open MPI and of MPICH and its
/// derivatives.
const SIZE_VARIABLES: [&str; 2] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];

impl Process {
    /// A process that runs alone.
    pub const ONLY: Self = Self { number: 0, count: 1 };

    /// Joins the other processes if `mpirun` has started several. Further calls return the same
    /// value.
    ///
    /// A process that has joined waits for the others when it exits.
    ///
    /// # Errors
    /// If there are several processes and the program is built without the feature `mpi`, or if MPI
    /// does not support calls from several threads.
    pub fn start() -> Result<Self, Error> {
        match started(|name| env::var(name).ok()) {
            0 | 1 => Ok(Self::ONLY),
            count => join(count),
        }
    }

    /// Returns true if this process prints and writes files.
    #[must_use]
    pub const fn is_first(self) -> bool {
        self.number == 0
    }

    /// Tells the other processes that this one ends with an error, so that none waits for it.
    /// Returns true if this process should print the error. It should not if the error comes from
    /// another process, or a process of a lower number fails with the same error.
    #[must_use]
    pub fn fail(self, message: &str) -> bool {
        self.count == 1 || tell(message)
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} of {}", self.number, self.count)
    }
}

/// A write in progress. Until it is dropped, other processes do not abort this one, even after a
/// failure.
#[derive(Debug)]
pub(crate) struct WriteGuard(());

impl WriteGuard {
    pub(crate) fn begin() -> Self {
        #[cfg(feature = "mpi")]
        broadcast(&ControlMessage::Writing);
        Self(())
    }
}

impl Drop for WriteGuard {
    fn drop(&mut self) {
        #[cfg(feature = "mpi")]
        broadcast(&ControlMessage::Written);
    }
}

/// Sends a control message to the other processes, if there are any.
#[cfg(feature = "mpi")]
fn broadcast(message: &ControlMessage) {
    if let Some(world) = world::joined() {
        world.control.broadcast(message);
    }
}

/// Returns the number of processes from the environment, or 0 if it is unknown.
fn started(variable: impl Fn(&str) -> Option<String>) -> usize {
    let sizes = SIZE_VARIABLES.iter().filter_map(|it| variable(it)?.trim().parse().ok());
    sizes.max().unwrap_or(0)
}

#[cfg(feature = "mpi")]
fn join(count: usize) -> Result<Process, Error> {
    let process = world::join()?.process;
    if process.count == count {
        return Ok(process);
    }
    let found = process.count;
    Err(Error::new(
        ErrorKind::Process,
        format!(
            "expected {count} processes, as the environment says, found {found} in MPI: `mpirun` must belong to the MPI library that the program is built with"
        ),
    ))
}

#[cfg(not(feature = "mpi"))]
fn join(count: usize) -> Result<Process, Error> {
    Err(Error::new(
        ErrorKind::Process,
        format!(
            "expected a program built with `--features mpi`, as {count} processes were started together; found one without"
        ),
    ))
}

#[cfg(feature = "mpi")]
fn tell(message: &str) -> bool {
    world::joined().is_none_or(|world| world.control.should_report(message))
}

#[cfg(not(feature = "mpi"))]
const fn tell(_: &str) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_gives_the_number_of_processes() {
        let one = |expected: &'static str, value: &'static str| {
            started(move |name| (name == expected).then(|| value.to_owned()))
        };
        assert_eq!(one("OMPI_COMM_WORLD_SIZE", "8"), 8);
        assert_eq!(one("PMI_SIZE", " 2\n"), 2);
        assert_eq!(one("PMI_SIZE", "many"), 0);
        assert_eq!(started(|_| None), 0);
    }

    #[cfg(not(feature = "mpi"))]
    #[test]
    fn several_processes_need_the_feature() {
        let error = join(3).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Process);
        assert!(error.to_string().contains("--features mpi"), "{error}");
    }
}
