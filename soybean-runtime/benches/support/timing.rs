//! Measures kernels. The result is the minimum of several times, because other programs use the
//! machine too.
#![expect(unsafe_code, reason = "benchmarks vouch for their programs")]

use std::{sync::Arc, time::Duration};

use soybean_plan::{
    BUFFER_ALIGNMENT, Buffer, DType, Entry, Executable, Kernel, Mesh, Program, Step, Tables,
};
use soybean_runtime::{Config, Device, KernelCategory, Trainer};

/// The limit for the number of measured steps.
const N_STEPS: u64 = 60;
/// The time after which no more steps begin.
const ENOUGH: Duration = Duration::from_millis(400);
/// The number of repetitions of the kernels in each step.
const N_ROUNDS: usize = 2;

/// Returns the minimum time of one call of a kernel. The last size is that of its result, the
/// others are those of its inputs.
pub(crate) fn seconds(n_ranks: usize, sizes: &[usize], kernel: impl Into<Kernel>) -> f64 {
    let result = sizes.len() - 1;
    let step = Step { kernel: 0, inputs: (0..result).collect(), results: vec![result] };
    seconds_of_steps(n_ranks, sizes, vec![kernel.into()], &[step])
}

/// Returns the minimum time of these steps together, on buffers of these sizes.
pub(crate) fn seconds_of_steps(
    n_ranks: usize,
    sizes: &[usize],
    kernels: Vec<Kernel>,
    steps: &[Step],
) -> f64 {
    let mut arena_bytes = 0;
    let buffer = |n_elements: &usize| {
        let offset = arena_bytes;
        arena_bytes += (n_elements * 4).next_multiple_of(BUFFER_ALIGNMENT);
        Buffer { offset, n_elements: *n_elements, dtype: DType::F32 }
    };
    let buffers: Vec<Buffer> = sizes.iter().map(buffer).collect();
    let tables = Tables {
        arena_bytes,
        buffers: buffers.into(),
        entries: vec![Entry::only(0, 0, 0, 0).trained(0, 0)].into(),
        ..Tables::new("bench", Mesh::new(n_ranks))
    };
    let train = [steps; N_ROUNDS].concat();
    let program = Program {
        tables,
        kernels: kernels.into(),
        train: vec![train],
        accumulate: Vec::new(),
        evaluate: vec![vec![]],
    };
    let config = Config { device: Device::Cpu, ..Config::default() };
    // SAFETY: callers give each kernel the sizes of its operands and of its result.
    let program = unsafe { Executable::new(program) };
    let mut trainer = Trainer::new_shared(Arc::new(program), config).unwrap();
    trainer.step(&[]).unwrap();
    trainer.reset_profile().unwrap();
    let (mut before, mut least) = (Duration::ZERO, Duration::MAX);
    while trainer.profile()[0].n_steps < N_STEPS && before < ENOUGH {
        trainer.step(&[]).unwrap();
        let profile = trainer.profile()[0];
        let spent: Duration = KernelCategory::ALL.iter().map(|work| profile.spent(*work)).sum();
        least = least.min(spent - before);
        before = spent;
    }
    least.as_secs_f64() / N_ROUNDS as f64
}
