//! Trials: one kernel or collective as a program that repeats it.
#![expect(unsafe_code, reason = "trials vouch for their programs")]

use soybean_plan::{
    BUFFER_ALIGNMENT, Buffer, DType, Entry, Executable, ImageLayout, Init, Input, Kernel,
    KernelWork, Mesh, Parameter, Precision, Program, Shape, Step, Tables, Tile, Tiling,
};

/// A kernel or a collective, with the buffers that it reads and writes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Trial {
    pub(super) kernel: Kernel,
    /// The elements of each tensor that it reads, of which some are indices.
    pub(super) inputs: Vec<Operand>,
    /// The elements of each tensor that it writes.
    pub(super) results: Vec<usize>,
}

/// A tensor that a trial reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    /// So many random numbers.
    Numbers(usize),
    /// So many indices, all below a limit.
    Indices { n_elements: usize, limit: usize },
}

impl Operand {
    fn n_elements(self) -> usize {
        match self {
            Self::Numbers(n_elements) | Self::Indices { n_elements, .. } => n_elements,
        }
    }
}

/// The most copies of a trial's tensors.
const MAX_COPIES: u64 = 256;

impl Trial {
    /// Returns a trial of a kernel on numbers.
    pub(super) fn new(kernel: impl Into<Kernel>, inputs: &[usize], results: &[usize]) -> Self {
        let inputs = inputs.iter().copied().map(Operand::Numbers).collect();
        Self { kernel: kernel.into(), inputs, results: results.to_vec() }
    }

    /// Returns the type of the results.
    const fn written(&self) -> DType {
        if matches!(self.kernel, Kernel::Rank(_)) { DType::I32 } else { DType::F32 }
    }

    /// Returns the work of one repetition. A slice reads as much as it writes.
    pub(super) fn work(&self) -> KernelWork {
        let bytes = |n_elements: usize| (n_elements * DType::F32.bytes()) as u64;
        let written: u64 = self.results.iter().map(|it| bytes(*it)).sum();
        let read: u64 = match &self.kernel {
            Kernel::Communicate(_) => written,
            _ => self.inputs.iter().map(|it| bytes(it.n_elements())).sum(),
        };
        KernelWork::new(&self.kernel, read + written)
    }

    /// Returns the number of copies of the tensors that together have about `footprint` bytes.
    fn n_copies(&self, footprint: u64) -> usize {
        let copies = (footprint / self.work().bytes.max(1)).clamp(1, MAX_COPIES);
        usize::try_from(copies).unwrap_or(1)
    }

    /// Returns a program whose training step repeats the trial on copies of its tensors in turn,
    /// and its batch. The copies have about `footprint` bytes.
    pub(super) fn program(
        &self,
        mesh: Mesh,
        precision: Precision,
        footprint: u64,
        n_repetitions: usize,
    ) -> (Executable, Vec<Vec<i32>>) {
        let mut layout = Layout::new(mesh);
        let loss = layout.numbers(1, Init::Constant(0.0));
        let indices: Vec<Option<usize>> =
            self.inputs.iter().map(|it| layout.indices(*it)).collect();
        let mut copies = Vec::new();
        for _ in 0..self.n_copies(footprint).min(n_repetitions) {
            let operand = |(operand, indices): (&Operand, &Option<usize>)| {
                indices.unwrap_or_else(|| layout.numbers(operand.n_elements(), RANDOM))
            };
            let inputs = self.inputs.iter().zip(&indices).map(operand).collect();
            let results =
                self.results.iter().map(|it| layout.buffer(*it, self.written())).collect();
            copies.push(Step { kernel: 0, inputs, results });
        }
        let train = copies.iter().cycle().take(n_repetitions).cloned().collect();
        let kernels = vec![self.kernel.clone()].into();
        let batch = layout.batch();
        let tables = layout.tables(loss, precision);
        let (train, accumulate, evaluate) = (vec![train], Vec::new(), vec![Vec::new()]);
        let program = Program { tables, kernels, train, accumulate, evaluate };
        // SAFETY: trials are this crate's, with the elements that their kernels read and write, and
        // every tensor of a copy has a buffer of its own.
        (unsafe { Executable::new(program) }, batch)
    }
}

/// The values of the numbers that trials read: positive, so that logarithms and roots are finite.
const RANDOM: Init = Init::Uniform { low: 0.5, high: 1.5 };

/// The tables of a trial under construction.
struct Layout {
    mesh: Mesh,
    arena_bytes: usize,
    buffers: Vec<Buffer>,
    parameters: Vec<Parameter>,
    inputs: Vec<Input>,
    limits: Vec<usize>,
}

impl Layout {
    fn new(mesh: Mesh) -> Self {
        let (buffers, parameters) = (Vec::new(), Vec::new());
        let (inputs, limits) = (Vec::new(), Vec::new());
        Self { mesh, arena_bytes: 0, buffers, parameters, inputs, limits }
    }

    fn buffer(&mut self, n_elements: usize, dtype: DType) -> usize {
        self.buffers.push(Buffer { offset: self.arena_bytes, n_elements, dtype });
        self.arena_bytes += (n_elements * dtype.bytes()).next_multiple_of(BUFFER_ALIGNMENT);
        self.buffers.len() - 1
    }

    /// Adds a tensor that every rank holds as a whole.
    fn numbers(&mut self, n_elements: usize, init: Init) -> usize {
        let buffer = self.buffer(n_elements, DType::F32);
        let name = format!("numbers.{buffer}").into();
        let tile = self.tile(n_elements);
        let layout = ImageLayout::ChannelsFirst;
        self.parameters.push(Parameter {
            name,
            tile,
            layout,
            buffer,
            init,
            is_trained: false,
            use_hash: 0,
        });
        buffer
    }

    /// Adds a tensor of indices, which is part of the batch.
    fn indices(&mut self, operand: Operand) -> Option<usize> {
        let Operand::Indices { n_elements, limit } = operand else { return None };
        let buffer = self.buffer(n_elements, DType::I32);
        self.inputs.push(Input {
            name: format!("indices.{buffer}").into(),
            dtype: DType::I32,
            tile: self.tile(n_elements),
            buffer,
            n_classes: None,
            ignored_label: None,
            is_queried: false,
        });
        self.limits.push(limit);
        Some(buffer)
    }

    fn tile(&self, n_elements: usize) -> Tile {
        Tile::new(Shape::new(&[n_elements]), Tiling::replicated(self.mesh.n_axes()))
    }

    /// Returns the indices: each is below its limit, and neighbors are apart.
    fn batch(&self) -> Vec<Vec<i32>> {
        const STEP: usize = 7919;
        let index = |at: usize, limit: usize| match at < limit {
            true => i32::try_from(at).unwrap_or(0),
            false => i32::try_from(at * STEP % limit).unwrap_or(0),
        };
        let inputs = self.inputs.iter().zip(&self.limits);
        inputs
            .map(|(it, &limit)| (0..it.tile.shape[0]).map(|at| index(at, limit)).collect())
            .collect()
    }

    fn tables(self, loss: usize, precision: Precision) -> Tables {
        Tables {
            precision,
            arena_bytes: self.arena_bytes,
            buffers: self.buffers.into(),
            entries: vec![
                Entry::only(self.inputs.len(), 0, self.parameters.len(), 0).trained(loss, 0),
            ]
            .into(),
            inputs: self.inputs.into(),
            parameters: self.parameters.into(),
            ..Tables::new("calibration", self.mesh)
        }
    }
}

#[cfg(all(test, feature = "cuda"))]
mod tests {
    use soybean_plan::{Mesh, Precision};

    use crate::calibration::suite::suite;

    #[test]
    fn gpus_can_run_every_trial() {
        for precision in Precision::ALL {
            for trial in suite() {
                let (program, _) = trial.program(Mesh::new(8), precision, 1 << 28, 4);
                let tasks = soybean_runtime::queued_tasks(&program, 0).unwrap();
                let n_kernels = tasks.iter().filter(|it| it.kernel.is_some()).count();
                assert_eq!(n_kernels, 4, "{:?} in {precision}", trial.work());
            }
        }
    }
}
