//! Interpreter of steps, fused or not, in double precision.

use soybean_plan::{
    Binary, BufferId, Combine, Contraction, ConvolutionForm, Instruction, Kernel, KernelDescriptor,
    Map, ScalarProgram, Shape, Strides, Tables, Unary,
};

use super::super::{Function, Fused, FusedProduct, FusedStep, Location};

/// Memory of one rank. One word stands for two bytes, so that a `bf16` takes one word and an `f32`
/// two. Overwritten words become NaN.
pub(super) struct Interpreter<'a> {
    tables: &'a Tables,
    kernels: &'a [Kernel],
    words: Vec<f64>,
    slots: Vec<Vec<f64>>,
}

impl<'a> Interpreter<'a> {
    /// Creates the memory with values for inputs and parameters, and NaN elsewhere.
    pub(super) fn new(tables: &'a Tables, kernels: &'a [Kernel], slots: &[usize]) -> Self {
        let slots = slots.iter().map(|n_bytes| vec![f64::NAN; *n_bytes * 8]).collect();
        let mut interpreter =
            Self { tables, kernels, words: vec![f64::NAN; tables.arena_bytes / 2], slots };
        let inputs = tables.inputs.iter().map(|it| it.buffer);
        for buffer in inputs.chain(tables.parameters.iter().map(|it| it.buffer)) {
            let n_elements = tables.buffers[buffer].n_elements;
            let value = |at: usize| ((at * 7 + buffer * 3) as f64 * 0.618_034).fract() - 0.5;
            interpreter.write(buffer, &(0..n_elements).map(value).collect::<Vec<_>>());
        }
        interpreter
    }

    /// Returns the parameters and the loss.
    pub(super) fn lasting_values(&self) -> Vec<(String, Vec<f64>)> {
        let parameters = self.tables.parameters.iter().map(|it| (it.name.to_string(), it.buffer));
        let all = parameters.chain(self.tables.loss().map(|it| ("loss".to_owned(), it)));
        all.map(|(name, buffer)| (name, self.read(buffer))).collect()
    }

    pub(super) fn run(&mut self, step: &FusedStep) {
        match step {
            FusedStep::Plain(step) => {
                let inputs: Vec<Vec<f64>> = step.inputs.iter().map(|it| self.read(*it)).collect();
                let result = match &self.kernels[step.kernel] {
                    Kernel::Contract(it) => product(it, &inputs[0], &inputs[1]),
                    Kernel::Convolve(it) => it.evaluate(&[&inputs[0], &inputs[1]], &[]).remove(0),
                    Kernel::Map(it) => map(it, &inputs),
                    Kernel::Reduce(it) => {
                        assert_eq!(it.combine, Combine::Sum);
                        let n_results = self.tables.buffers[step.results[0]].n_elements;
                        let mut sums = vec![0.0; n_results];
                        let values = map(&it.map, &inputs);
                        for (value, at) in values.iter().zip(offsets(&it.map.extents, &it.result)) {
                            sums[at] += value;
                        }
                        sums
                    }
                    other => unreachable!("no {}", other.kind()),
                };
                self.write(step.results[0], &result);
            }
            FusedStep::Product(it) => self.run_product(it),
            FusedStep::Joined(_) => unreachable!("products are joined after this fusion"),
            FusedStep::Round { input, slot } => {
                let vector = self.read(*input);
                self.slots[*slot][..vector.len()].copy_from_slice(&vector);
            }
        }
    }

    fn run_product(&mut self, step: &FusedProduct) {
        // A device may write parts of the result before it has read all operands.
        for buffer in FusedStep::Product(step.clone()).results() {
            let n_elements = self.tables.buffers[buffer].n_elements;
            self.write(buffer, &vec![f64::NAN; n_elements]);
        }
        let [left, right] = step.inputs.map(|it| self.read(it));
        let (mut result, columns) = match &self.kernels[step.kernel] {
            Kernel::Contract(it) => (product(it, &left, &right), it.columns),
            Kernel::Convolve(it) => {
                let is_data = it.form == ConvolutionForm::Data;
                let columns = it.groups * if is_data { it.channels } else { it.filters };
                (it.evaluate(&[&left, &right], &[]).remove(0), columns)
            }
            other => unreachable!("no {}", other.kind()),
        };
        if let (Some(bias), false) = (step.bias, step.is_gradient()) {
            let bias = self.read_location(bias);
            result.iter_mut().enumerate().for_each(|(at, it)| *it += bias[at % columns]);
        }
        let aux = step.aux.map(|it| self.read(it)).unwrap_or_default();
        let given = result.clone();
        for (at, it) in result.iter_mut().enumerate() {
            *it = match step.epilogue.function {
                Function::Identity | Function::LeftSums | Function::RightSums => *it,
                Function::Relu => it.max(0.0),
                Function::Gelu | Function::GeluAux => gelu(*it),
                Function::ReluGradient if aux[at] > 0.0 => *it,
                Function::ReluGradient => 0.0,
                // The central difference, whose error is of second order.
                Function::GeluGradient => {
                    *it * (gelu(aux[at] + 1e-5) - gelu(aux[at] - 1e-5)) / 2e-5
                }
            };
        }
        if let (Some(aux), false) = (step.aux, step.is_gradient()) {
            self.write(aux, &given);
        }
        if let (Some(bias), true, Kernel::Contract(contraction)) =
            (step.bias, step.is_gradient(), &self.kernels[step.kernel])
        {
            let Contraction { rows, depth, left: of_left, right: of_right, .. } = contraction;
            let terms = |line: usize| -> Vec<f64> {
                let along = |values: &[f64], start: usize, stride: usize| {
                    (0..*depth).map(|at| values[start + at * stride]).collect()
                };
                match step.epilogue.function {
                    Function::LeftSums => along(&left, line * of_left.row, of_left.column),
                    Function::RightSums => along(&right, line * of_right.column, of_right.row),
                    _ => result.iter().skip(line).step_by(columns).copied().collect(),
                }
            };
            let n_lines = match step.epilogue.function {
                Function::LeftSums => *rows,
                _ => columns,
            };
            let sums: Vec<f64> = (0..n_lines).map(|it| terms(it).iter().sum()).collect();
            self.replace(bias, &sums);
        }
        self.write(step.result, &result);
    }

    fn read_location(&self, location: Location) -> Vec<f64> {
        match location {
            Location::Slot(slot) => self.slots[slot].clone(),
            Location::Buffer(buffer) => self.read(buffer),
        }
    }

    fn replace(&mut self, location: Location, values: &[f64]) {
        match location {
            Location::Slot(slot) => self.slots[slot][..values.len()].copy_from_slice(values),
            Location::Buffer(buffer) => self.write(buffer, values),
        }
    }

    fn read(&self, buffer: BufferId) -> Vec<f64> {
        let it = &self.tables.buffers[buffer];
        let (start, width) = (it.offset / 2, it.dtype.bytes() / 2);
        (0..it.n_elements).map(|at| self.words[start + at * width]).collect()
    }

    fn write(&mut self, buffer: BufferId, values: &[f64]) {
        let it = &self.tables.buffers[buffer];
        assert_eq!(values.len(), it.n_elements, "b{buffer}");
        let (start, width) = (it.offset / 2, it.dtype.bytes() / 2);
        for (at, value) in values.iter().enumerate() {
            let place = start + at * width;
            self.words[place..place + width].fill(f64::NAN);
            self.words[place] = *value;
        }
    }
}

fn product(contraction: &Contraction, left: &[f64], right: &[f64]) -> Vec<f64> {
    let Contraction { rows, columns, depth, left: of_left, right: of_right, .. } = contraction;
    let mut result = Vec::with_capacity(rows * columns);
    for i in 0..*rows {
        for j in 0..*columns {
            let term = |k: usize| {
                left[i * of_left.row + k * of_left.column]
                    * right[k * of_right.row + j * of_right.column]
            };
            result.push((0..*depth).map(term).sum());
        }
    }
    result
}

fn map(map: &Map, inputs: &[Vec<f64>]) -> Vec<f64> {
    let all: Vec<Vec<usize>> = map.inputs.iter().map(|it| offsets(&map.extents, it)).collect();
    let point = |at: usize| {
        let values: Vec<f64> = all.iter().zip(inputs).map(|(it, input)| input[it[at]]).collect();
        value(&map.program, &values)
    };
    (0..map.extents.n_elements()).map(point).collect()
}

/// Returns the offsets of the elements of an index space.
fn offsets(extents: &Shape, strides: &Strides) -> Vec<usize> {
    let mut all = vec![0];
    for (dim, extent) in extents.iter().enumerate() {
        let stride = strides.0[dim];
        all = all.iter().flat_map(|it| (0..*extent).map(move |at| it + at * stride)).collect();
    }
    all
}

fn value(program: &ScalarProgram, inputs: &[f64]) -> f64 {
    let mut registers: Vec<f64> = Vec::new();
    for instruction in &*program.instructions {
        let at = |it: u16| registers[usize::from(it)];
        registers.push(match *instruction {
            Instruction::Input(it) => inputs[usize::from(it)],
            Instruction::Constant(it) => it,
            Instruction::Unary(Unary::Relu, x) => at(x).max(0.0),
            Instruction::Unary(Unary::Tanh, x) => at(x).tanh(),
            Instruction::Binary(Binary::Add, x, y) => at(x) + at(y),
            Instruction::Binary(Binary::Subtract, x, y) => at(x) - at(y),
            Instruction::Binary(Binary::Multiply, x, y) => at(x) * at(y),
            Instruction::Binary(Binary::Greater, x, y) => f64::from(u8::from(at(x) > at(y))),
            Instruction::Select(condition, x, y) => {
                if at(condition) == 0.0 {
                    at(y)
                } else {
                    at(x)
                }
            }
            other => unreachable!("no {other:?}"),
        });
    }
    registers[usize::from(program.results[0])]
}

fn gelu(x: f64) -> f64 {
    x / 2.0 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh())
}

/// Formats the steps as lines.
pub(super) fn text(fused: &Fused, kernels: &[Kernel]) -> Vec<String> {
    let names = |buffers: Vec<BufferId>| -> String {
        buffers.iter().map(|it| format!("b{it}")).collect::<Vec<_>>().join(", ")
    };
    let line = |step: &FusedStep| match step {
        FusedStep::Plain(step) => {
            let kind = kernels[step.kernel].kind();
            format!("{} = {kind} ({})", names(step.results.clone()), names(step.inputs.clone()))
        }
        FusedStep::Joined(_) => unreachable!("products are joined after this fusion"),
        FusedStep::Round { input, slot } => format!("slot {slot} = round b{input}"),
        FusedStep::Product(it) => {
            let function = match it.epilogue.function {
                Function::Identity => "identity",
                Function::Relu => "relu",
                Function::Gelu => "gelu",
                Function::GeluAux => "gelu-aux",
                Function::ReluGradient => "relu-gradient",
                Function::GeluGradient => "gelu-gradient",
                Function::LeftSums => "left-sums",
                Function::RightSums => "right-sums",
            };
            let bias = match it.bias {
                Some(Location::Buffer(buffer)) if !it.is_gradient() => format!(" + b{buffer}"),
                Some(Location::Slot(slot)) => format!(" + slot {slot}"),
                Some(Location::Buffer(_)) | None => String::new(),
            };
            let aux = it.aux.map(|buffer| format!(", buffer {buffer}")).unwrap_or_default();
            let (results, inputs) = (names(step.results()), names(it.inputs.to_vec()));
            let kind = match &kernels[it.kernel] {
                Kernel::Contract(_) => "matmul",
                other => other.kind(),
            };
            format!("{results} = {kind} ({inputs}) {function}{bias}{aux}")
        }
    };
    fused.steps.iter().map(line).collect()
}
