//! Cases as a program with one step for each of them.

use soybean_plan::{
    BUFFER_ALIGNMENT, Buffer, DType, Entry, Input, Instruction, Kernel, Map, Mesh, Output,
    Precision, Program, Rows, RunScalar, ScalarProgram, Shape, Step, Strides, Tables, Tile, Tiling,
};

use crate::{case::Case, reference::BASE};

/// The types of the buffers that kernels read and write.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum BufferTypes {
    /// Those of the cases.
    #[default]
    Own,
    /// `f32` in place of `bf16`.
    Wide,
}

/// Returns a program whose training step runs all cases, which have one precision. Its inputs and
/// outputs are those of the cases, in their order, with `f32` numbers in place of `bf16`.
pub(crate) fn program(cases: &[Case], precision: Precision, types: BufferTypes) -> Program {
    let mut builder = Builder { types, ..Builder::default() };
    let zero = ScalarProgram {
        instructions: vec![Instruction::Constant(0.0)].into(),
        results: vec![0].into(),
    };
    let loss = builder.buffer(DType::F32, 1);
    builder.run(map(1, 0, zero), Vec::new(), vec![loss]);
    builder.outputs.push(output("loss".to_owned(), &[], DType::F32, loss));
    for (number, case) in cases.iter().enumerate() {
        builder.add(number, case);
    }
    builder.finish(precision, loss)
}

#[derive(Default)]
struct Builder {
    types: BufferTypes,
    buffers: Vec<Buffer>,
    arena_bytes: usize,
    inputs: Vec<Input>,
    outputs: Vec<Output>,
    kernels: Vec<Kernel>,
    steps: Vec<Step>,
}

impl Builder {
    fn buffer(&mut self, dtype: DType, n_elements: usize) -> usize {
        self.buffers.push(Buffer { offset: self.arena_bytes, n_elements, dtype });
        self.arena_bytes += (n_elements * dtype.bytes()).next_multiple_of(BUFFER_ALIGNMENT);
        self.buffers.len() - 1
    }

    fn run(&mut self, kernel: impl Into<Kernel>, inputs: Vec<usize>, results: Vec<usize>) {
        self.steps.push(Step { kernel: self.kernels.len(), inputs, results });
        self.kernels.push(kernel.into());
    }

    /// Copies a buffer into a new one of another type of numbers.
    fn copied(&mut self, from: usize, dtype: DType) -> usize {
        let n_elements = self.buffers[from].n_elements;
        let to = self.buffer(dtype, n_elements);
        let same = match dtype {
            DType::I32 => Instruction::Integer(0),
            DType::F32 | DType::Bf16 => Instruction::Input(0),
        };
        let program = ScalarProgram { instructions: vec![same].into(), results: vec![0].into() };
        self.run(map(n_elements, 1, program), vec![from], vec![to]);
        to
    }

    /// Adds a case: its inputs are copied, because a result may take the place of one.
    fn add(&mut self, number: usize, case: &Case) {
        let own = |dtype| if self.types == BufferTypes::Own { dtype } else { wide(dtype) };
        let types: Vec<DType> = case.inputs.iter().map(|it| own(it.dtype)).collect();
        let of_results: Vec<DType> = case.results.iter().map(|it| own(it.0)).collect();
        let mut inputs = Vec::new();
        for (data, dtype) in case.inputs.iter().zip(types) {
            let (fed_type, n_elements) = (wide(data.dtype), data.numbers.len());
            let fed = self.buffer(fed_type, n_elements);
            let name = format!("in{number}.{}", inputs.len());
            self.inputs.push(input(name, fed_type, n_elements, fed));
            inputs.push(self.copied(fed, dtype));
        }
        let mut results = Vec::new();
        for (at, dtype) in of_results.into_iter().enumerate() {
            results.push(match case.reused_by(at) {
                Some(input) => inputs[input],
                None => self.buffer(dtype, case.results[at].1),
            });
        }
        self.run(case.kernel.clone(), inputs, results.clone());
        for (at, (&result, &(dtype, n_elements))) in results.iter().zip(&case.results).enumerate() {
            let shown = self.copied(result, wide(dtype));
            let name = format!("out{number}.{at}");
            self.outputs.push(output(name, &[n_elements], wide(dtype), shown));
        }
    }

    fn finish(self, precision: Precision, loss: usize) -> Program {
        let entry = Entry::only(self.inputs.len(), self.outputs.len(), 0, 0).trained(loss, 0);
        let tables = Tables {
            precision,
            arena_bytes: self.arena_bytes,
            entries: vec![entry].into(),
            inputs: self.inputs.into(),
            scalars: vec![RunScalar::LearningRate, RunScalar::OneMinusPower { base: BASE }].into(),
            outputs: self.outputs.into(),
            buffers: self.buffers.into(),
            ..Tables::new("cases", Mesh::new(1))
        };
        Program {
            tables,
            kernels: self.kernels.into(),
            train: vec![self.steps],
            accumulate: vec![],
            evaluate: vec![vec![]],
        }
    }
}

/// Returns a map over vectors of this length.
fn map(n_elements: usize, n_inputs: usize, program: ScalarProgram) -> Map {
    let extents = Shape::new(&[n_elements]);
    let inputs: Vec<Strides> = vec![extents.dense_strides(); n_inputs];
    Map { extents, inputs: inputs.into(), program }
}

fn wide(dtype: DType) -> DType {
    if dtype == DType::Bf16 { DType::F32 } else { dtype }
}

fn tile(shape: &[usize]) -> Tile {
    Tile::new(Shape::new(shape), Tiling::replicated(0))
}

fn input(name: String, dtype: DType, n_elements: usize, buffer: usize) -> Input {
    Input {
        name: name.into(),
        dtype,
        tile: tile(&[n_elements]),
        buffer,
        n_classes: None,
        ignored_label: None,
        is_queried: true,
    }
}

fn output(name: String, shape: &[usize], dtype: DType, buffer: usize) -> Output {
    Output { name: name.into(), dtype, tile: tile(shape), buffer, rows: Rows::Mixed }
}
