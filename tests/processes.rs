//! A model in several processes, started by `mpirun`: the same bits as in one process, and a clean end whatever goes wrong.

#![cfg_attr(feature = "mpi", expect(clippy::unwrap_used, reason = "tests"))]

#[path = "support/example.rs"]
mod example;
#[cfg(feature = "mpi")]
#[path = "processes/runs.rs"]
mod runs;

#[cfg(not(feature = "mpi"))]
#[test]
fn a_program_without_the_feature_says_that_it_needs_it() {
    let mut plan = example::example("digits");
    let (code, output, errors) = example::run(plan.arg("plan").env("OMPI_COMM_WORLD_SIZE", "2"));
    assert_eq!((code, output.as_str()), (Some(1), ""), "{errors}");
    let expected = "error: expected a program built with `--features mpi`, as 2 processes were started together; found one without\n";
    assert_eq!(errors, expected);
}

#[cfg(all(feature = "mpi", feature = "cuda"))]
#[path = "processes/gpus.rs"]
mod gpus;

#[cfg(all(feature = "mpi", feature = "cuda"))]
#[path = "support/virtual_gpus.rs"]
#[expect(dead_code, clippy::print_stdout, reason = "shared with other tests")]
mod virtual_gpus;

#[cfg(feature = "mpi")]
#[path = "processes/with_mpi.rs"]
mod with_mpi;
