//! The tasks that a step queues for each rank, found without a GPU.
//!
//! Fusion asks cuBLASLt what it supports; here NVIDIA's documentation answers. A convolution counts
//! as one launch if cuDNN adds its bias, and as those of the generated kernel otherwise. Ranks read
//! the memory of their peers.

use soybean_codegen as codegen;
use soybean_plan::{BufferId, DType, Kernel, Mode, Precision};

use super::{
    collective::{CollectiveOperation, CommunicationBackend},
    convolution::takes_epilogue,
    device_program::DeviceProgram,
    device_set::{TrainingStep, scalars_for_host},
    epilogue::Epilogue,
    fused_program::FusedProgram,
    matmul::n_documented_calls,
    phase::{Action, PhaseBuilder, Task},
    source::KernelCall,
};
use crate::{Error, ErrorKind, Model};

/// A task that a step queues for each rank.
#[derive(Clone, Debug)]
pub struct QueuedTask {
    /// The kind of work.
    pub name: &'static str,
    /// The kernel; `None` for copies between the host and a device.
    pub kernel: Option<Kernel>,
    /// The types of the buffers that the kernel reads.
    pub inputs: Vec<DType>,
    /// The types of the buffers that the kernel writes.
    pub results: Vec<DType>,
    /// The buffer of the tensor that the task computes.
    pub buffer: Option<BufferId>,
    /// The number of kernels, fills and calls of libraries; 1 for the copies of the host.
    pub n_launches: usize,
    /// The bytes that each rank reads and writes, each operand and each result once.
    pub n_bytes: u64,
}

/// Returns the tasks of a training step of the entry of this number, after fusion; of a prediction,
/// if the model is not trained. Needs no GPU and no library.
///
/// # Errors
/// If the tables of the model are inconsistent, or a kernel has no text for GPUs.
pub fn queued_tasks(model: &dyn Model, entry: usize) -> Result<Vec<QueuedTask>, Error> {
    let device_program = DeviceProgram::new(model)?;
    let precision = model.tables().precision;
    let can = |kernel: &Kernel, types, epilogue| is_documented(kernel, types, precision, epilogue);
    let fused = FusedProgram::new(device_program, usize::MAX, &can);
    let device_program = &fused.device_program;
    let tables = &device_program.program.tables;
    let backend = CommunicationBackend::PeerAccess;
    let mut builder = PhaseBuilder::new(tables, &fused.kernels, backend);
    let phase = match tables.mode() {
        Mode::Training => {
            let scalars = scalars_for_host(tables, entry, TrainingStep::Updating);
            builder.phase(&fused.train[entry], &scalars)?
        }
        Mode::Inference => builder.phase(&fused.evaluate[entry], &[])?,
    };
    let in_plan = |task: QueuedTask| {
        let buffer = task.buffer.map(|it| device_program.buffer_in_plan(it));
        QueuedTask { buffer, ..task }
    };
    phase.tasks.iter().map(|it| queued_task(&builder, it).map(in_plan)).collect()
}

/// Returns whether the documentation of cuBLASLt or cuDNN allows this epilogue.
fn is_documented(
    kernel: &Kernel,
    types: [DType; 3],
    precision: Precision,
    epilogue: Epilogue,
) -> bool {
    match kernel {
        Kernel::Contract(it) => n_documented_calls(it, types, precision, epilogue).is_some(),
        Kernel::Convolve(it) => takes_epilogue(it, types, epilogue),
        _ => false,
    }
}

fn queued_task(builder: &PhaseBuilder<'_>, task: &Task) -> Result<QueuedTask, Error> {
    let kernel = task.label.kernel.map(|it| builder.kernels[it].clone());
    let plain = |n_launches: usize| {
        let (name, buffer, kernel) = (task.label.name, task.label.buffer, kernel.clone());
        let n_bytes = task.n_bytes as u64;
        let (inputs, results) = (Vec::new(), Vec::new());
        QueuedTask { name, kernel, inputs, results, buffer, n_launches, n_bytes }
    };
    match &task.action {
        Action::Feed | Action::Report(_) => Ok(plain(1)),
        Action::Communicate(operations) => {
            let count = |it: &CollectiveOperation| match it {
                CollectiveOperation::Transfer(_) => 1,
                CollectiveOperation::Nccl(calls) => calls.len(),
            };
            Ok(plain(operations.iter().map(count).sum()))
        }
        Action::Kernel(run) => {
            let call = &builder.calls[run.call];
            let KernelCall { inputs, results, .. } = call.clone();
            let n_launches = n_launches(builder, call)?;
            Ok(QueuedTask { inputs, results, ..plain(n_launches) })
        }
    }
}

fn n_launches(builder: &PhaseBuilder<'_>, call: &KernelCall) -> Result<usize, Error> {
    let KernelCall { kernel, inputs, results, epilogue, .. } = call;
    let (kernel, precision) = (&builder.kernels[*kernel], builder.precision());
    if let (Kernel::Contract(contraction), &[left, right, ..], &[result, ..]) =
        (kernel, &inputs[..], &results[..])
        && let Some(n_calls) =
            n_documented_calls(contraction, [left, right, result], precision, *epilogue)
    {
        return Ok(n_calls);
    }
    if matches!(kernel, Kernel::Convolve(_)) && !epilogue.is_plain() {
        return Ok(1);
    }
    let what = codegen::Call { kernel, inputs, results, precision };
    let made = (*epilogue == Epilogue::default()).then(|| codegen::generate(&what, "k"));
    made.flatten().map(|it| it.operations.len()).ok_or_else(|| {
        let message = format!("expected a kernel that GPUs can run, found {kernel}");
        Error::new(ErrorKind::Program, message)
    })
}
