//! Tests of models in several processes, started by `mpirun`: the same bits as in one process, and
//! a clean end after failures.

#![cfg_attr(feature = "mpi", expect(clippy::unwrap_used, reason = "tests"))]

#[cfg(feature = "mpi")]
mod agreement;
#[cfg(feature = "mpi")]
mod runs;
#[cfg(feature = "mpi")]
mod silence;

#[cfg(not(feature = "mpi"))]
#[test]
fn a_program_without_the_feature_names_it() {
    let mut plan = soybean_test_support::example!("digits");
    let (code, output, errors) =
        soybean_test_support::run(plan.arg("plan").env("OMPI_COMM_WORLD_SIZE", "2"));
    assert_eq!((code, output.as_str()), (Some(1), ""), "{errors}");
    let expected = "error: expected a program built with `--features mpi`, as 2 processes were started together; found one without\n";
    assert_eq!(errors, expected);
}

#[cfg(all(feature = "mpi", feature = "cuda"))]
mod gpus;

#[cfg(feature = "mpi")]
mod with_mpi;
