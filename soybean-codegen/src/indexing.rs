//! CUDA C for [`Indexing`]: each thread computes one element of the result, and sums in the order
//! of the indices.

use soybean_plan::{DType, Indexing, IndexingForm};

use crate::{
    Address, Call, Generated, Operation,
    generate::CudaKernel,
    space::index_type_below,
    text::{Function, Text, Threads, input_apart, result_apart, workspace},
};

/// The threads of a block.
const BLOCK: usize = 256;

impl CudaKernel for Indexing {
    fn generate(&self, call: &Call<'_>, prefix: &str) -> Option<Generated> {
        let writer = Writer {
            it: self,
            prefix,
            inputs: *call.inputs.first_chunk()?,
            result: *call.results.first()?,
        };
        let mut text = Text::default();
        if writer.n_results() == 0 {
            return Some(Generated::default());
        }
        let operations = match self.form {
            IndexingForm::Gather => writer.write_gather(&mut text)?,
            IndexingForm::ScatterAdd if self.n_indices == 0 => {
                let n_bytes = writer.n_results() * writer.result.bytes();
                vec![Operation::Fill { target: Address::Result(0), n_bytes, value: 0 }]
            }
            IndexingForm::ScatterAdd => vec![writer.write_sums(&mut text)?],
        };
        let workspace_bytes = if writer.has_places() { self.extent * 4 } else { 0 };
        Some(Generated { text: text.finish(), operations, workspace_bytes })
    }
}

struct Writer<'a> {
    it: &'a Indexing,
    prefix: &'a str,
    inputs: [DType; 3],
    result: DType,
}

impl Writer<'_> {
    /// Returns true if elements are found by a table, because other ranks hold some of them.
    fn has_places(&self) -> bool {
        self.it.form == IndexingForm::Gather && self.it.rows < self.it.extent
    }

    /// Returns the elements of a line of the result.
    fn length(&self) -> usize {
        match self.it.form {
            IndexingForm::Gather => self.it.n_indices,
            IndexingForm::ScatterAdd => self.it.rows,
        }
    }

    fn n_results(&self) -> usize {
        self.it.outer * self.length() * self.it.inner
    }

    /// Returns a type of integers that count the elements of every operand.
    fn index_type(&self) -> &'static str {
        let Indexing { outer, n_indices, rows, inner, .. } = *self.it;
        index_type_below(outer * inner * n_indices.max(rows))
    }

    fn function(&self, name: &str, inputs: &[usize]) -> Function {
        let inputs = inputs.iter().map(|it| input_apart(*it, self.inputs[*it]));
        let parameters = inputs.chain([result_apart(0, self.result)]).collect();
        let name = format!("{}_{name}", self.prefix);
        Function { name, parameters, threads: Threads::Independent, block: 256 }
    }

    /// Writes a function that stores, for each element of a whole line, its row on this rank.
    fn write_places(&self, text: &mut Text) -> Option<Operation> {
        let Indexing { rows, extent, .. } = *self.it;
        let function = Function {
            name: format!("{}_places", self.prefix),
            parameters: vec![
                input_apart(2, self.inputs[2]),
                workspace("int* __restrict__ places", 0),
            ],
            threads: Threads::Independent,
            block: 256,
        };
        text.function(&function, |text| {
            text.line(format!("const unsigned row = blockIdx.x * {BLOCK}u + threadIdx.x;"));
            text.line(format!("if (row >= {rows}u) return;"));
            text.line("const unsigned number = (unsigned)in2[row];");
            text.line(format!("if (number < {extent}u) places[number] = (int)row;"));
        });
        launch(&function, rows)
    }

    fn write_gather(&self, text: &mut Text) -> Option<Vec<Operation>> {
        let Indexing { n_indices, rows, extent, inner, .. } = *self.it;
        let (n, index_type) = (self.n_results(), self.index_type());
        let mut operations = Vec::new();
        let mut function = self.function("gather_elements", &[0, 1]);
        let mut row = "index";
        if self.has_places() {
            let target = Address::Workspace(0);
            operations.push(Operation::Fill { target, n_bytes: extent * 4, value: 0xff });
            operations.extend(self.write_places(text));
            function.parameters.push(workspace("const int* __restrict__ places", 0));
            row = "places[index]";
        }
        text.function(&function, |text| {
            text.line(format!(
                "const {index_type} at = ({index_type})blockIdx.x * {BLOCK}u + threadIdx.x;"
            ));
            text.line(format!("if (at >= {n}u) return;"));
            text.line("const int index = in0[at];");
            text.line(format!("const int row = (unsigned)index < {extent}u ? {row} : -1;"));
            let plane = format!("at / {}u", n_indices * inner);
            text.line(format!(
                "const {index_type} from = ({plane} * {rows}u + row) * {inner}u + at % {inner}u;"
            ));
            text.line("soybean_store(out0 + at, row < 0 ? 0.0f : soybean_value(in1[from]));");
        });
        operations.push(launch(&function, n)?);
        Some(operations)
    }

    fn write_sums(&self, text: &mut Text) -> Option<Operation> {
        let Indexing { n_indices, rows, inner, .. } = *self.it;
        let (n, index_type) = (self.n_results(), self.index_type());
        let function = self.function("scatter_elements", &[0, 1, 2]);
        text.function(&function, |text| {
            text.line(format!(
                "const {index_type} to = ({index_type})blockIdx.x * {BLOCK}u + threadIdx.x;"
            ));
            text.line(format!("if (to >= {n}u) return;"));
            text.line(format!("const int number = in2[to / {inner}u % {rows}u];"));
            let plane = format!("to / {}u", rows * inner);
            text.line(format!(
                "const {index_type} first = {plane} * {}u + to % {inner}u;",
                n_indices * inner
            ));
            text.line("float sum = 0.0f;");
            text.block(format!("for (unsigned i = 0; i < {n_indices}u; ++i)"), |text| {
                text.line(format!("const {index_type} at = first + ({index_type})i * {inner}u;"));
                text.line("if (in0[at] == number) sum += soybean_value(in1[at]);");
            });
            text.line("soybean_store(out0 + to, sum);");
        });
        launch(&function, n)
    }
}

/// Returns the launch of a function with a thread for each of `n` elements; `None` without any.
fn launch(function: &Function, n: usize) -> Option<Operation> {
    let n_blocks = u32::try_from(n.div_ceil(BLOCK)).ok()?;
    (n_blocks > 0).then(|| function.launch([n_blocks, 1, 1]))
}
