//! Processes: a program that `mpirun` starts several times trains one model together, each process with a block of the ranks.
//!
//! Every process makes the same calls in the same order; what the ranks report is handed exchange after each, so that a trainer looks the same in all of them.

#[cfg(feature = "mpi")]
mod control;
#[cfg(feature = "mpi")]
mod control_message;
#[cfg(feature = "mpi")]
mod device_choice;
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
mod world;

use std::{env, fmt};

use crate::{Error, ErrorKind};
#[cfg(feature = "mpi")]
use control_message::ControlMessage;
#[cfg(feature = "mpi")]
pub(crate) use ranks::start_ranks;

/// Which of the processes of a run this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number, from 0.
    pub number: usize,
    /// How many processes there are.
    pub count: usize,
}

/// The variables in which programs that start processes say how many they are: `mpirun` of Open MPI, and that of MPICH and peers.
const SIZE_VARIABLES: [&str; 2] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];

impl Process {
    /// A process without peers.
    pub const ONLY: Self = Self { number: 0, count: 1 };

    /// Joins the other processes, if `mpirun` has started several; else this is the only one. Further calls do nothing else than to say the same again.
    ///
    /// A process that has joined leaves when it exits, and waits for the peers then.
    ///
    /// # Errors
    /// If there are several, and the program is built without the feature `mpi`, or MPI cannot be used from several threads.
    pub fn start() -> Result<Self, Error> {
        match started(|name| env::var(name).ok()) {
            0 | 1 => Ok(Self::ONLY),
            count => join(count),
        }
    }

    /// Whether it is this one that prints and writes files.
    #[must_use]
    pub const fn is_first(self) -> bool {
        self.number == 0
    }

    /// Tells the other processes that this one ends with an error, so that none waits for it. Returns whether this one is to tell people: not so where the
    /// error is another's, or another of a lower number ends with the same.
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

/// Something that this process writes. Until it is dropped, the other processes do not end this one, even after a failure.
#[derive(Debug)]
pub(crate) struct Writing(());

impl Writing {
    pub(crate) fn begin() -> Self {
        #[cfg(feature = "mpi")]
        broadcast(&ControlMessage::Writing);
        Self(())
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        #[cfg(feature = "mpi")]
        broadcast(&ControlMessage::Written);
    }
}

/// Tells the other processes, if there are any.
#[cfg(feature = "mpi")]
fn broadcast(message: &ControlMessage) {
    if let Some(world) = world::joined() {
        world.control.broadcast(message);
    }
}

/// The number of processes that were started together; 0 if nobody says.
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
            "expected {count} processes, as their environment says, found {found} by MPI: `mpirun` must be that of the MPI library that the program is built with"
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
    fn the_environment_says_how_many_processes_there_are() {
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
