//! CUDA C for [`Embedding`]: rows by their numbers, and sums of gradients in the order of the
//! indices without a race.

use soybean_plan::{DType, Embedding, EmbeddingForm};

use crate::{
    Address, Call, Generated, Operation,
    generate::CudaKernel,
    space::index_type_below,
    text::{Function, Parameter, Text, Threads, input_apart, result_apart, workspace},
};

/// The threads of a block.
const BLOCK: usize = 256;

impl CudaKernel for Embedding {
    fn generate(&self, call: &Call<'_>, prefix: &str) -> Option<Generated> {
        let (types, result) = (*call.inputs.first_chunk()?, *call.results.first()?);
        let writer = Writer { it: self, prefix, types };
        let mut text = Text::default();
        let mut operations = Vec::new();
        let n_bytes = self.rows * self.width * result.bytes();
        if self.form == EmbeddingForm::ScatterAdd && n_bytes > 0 {
            operations.push(Operation::Fill { target: Address::Result(0), n_bytes, value: 0 });
        }
        let n_values = match self.form {
            EmbeddingForm::Gather => self.n_indices * self.width,
            EmbeddingForm::ScatterAdd => self.n_indices * self.width * self.rows,
        };
        if n_values == 0 {
            return Some(Generated { operations, ..Generated::default() });
        }
        operations.extend(writer.write_places(&mut text));
        match self.form {
            EmbeddingForm::Gather => operations.extend(writer.write_gather(&mut text, result)),
            EmbeddingForm::ScatterAdd => {
                operations.extend(writer.write_firsts(&mut text));
                let parameters = vec![result_apart(0, result)];
                let sums = writer.write_sums(&mut text, parameters, |text| {
                    let to = format!("out0 + ({})", writer.place());
                    text.line(store(writer.width(), &to, "sums"));
                });
                operations.extend(sums);
            }
        }
        let workspace_bytes = writer.workspace_bytes();
        Some(Generated { text: text.finish(), operations, workspace_bytes })
    }
}

/// The functions of an embedding of these types of inputs.
pub(crate) struct Writer<'a> {
    pub(crate) it: &'a Embedding,
    pub(crate) prefix: &'a str,
    pub(crate) types: [DType; 3],
}

impl Writer<'_> {
    /// Returns true if rows are found by a table, because other ranks hold some of them.
    const fn has_places(&self) -> bool {
        self.it.rows < self.it.vocabulary
    }

    /// Returns the offset in the workspace of the first position of each row.
    const fn firsts_offset(&self) -> usize {
        if self.has_places() { (self.it.vocabulary * 4).next_multiple_of(256) } else { 0 }
    }

    pub(crate) const fn workspace_bytes(&self) -> usize {
        match self.it.form {
            EmbeddingForm::Gather => self.firsts_offset(),
            EmbeddingForm::ScatterAdd => self.firsts_offset() + self.it.rows * 4,
        }
    }

    /// Returns the number of elements of a row for each thread.
    pub(crate) const fn width(&self) -> usize {
        if self.it.width.is_multiple_of(4) { 4 } else { 1 }
    }

    fn places(&self) -> Option<Parameter> {
        self.has_places().then(|| workspace("const int* __restrict__ places", 0))
    }

    /// Writes the row of an index, -1 if another rank holds it.
    fn row(&self, index: &str) -> String {
        if self.has_places() {
            format!("((unsigned){index} < {}u ? places[{index}] : -1)", self.it.vocabulary)
        } else {
            format!("((unsigned){index} < {}u ? {index} : -1)", self.it.rows)
        }
    }

    fn function(&self, name: &str, parameters: Vec<Parameter>, threads: Threads) -> Function {
        Function { name: format!("{}_{name}", self.prefix), parameters, threads, block: 256 }
    }

    /// Writes a function that stores, for each row of the whole table, its number on this rank, if
    /// other ranks hold some rows.
    pub(crate) fn write_places(&self, text: &mut Text) -> Vec<Operation> {
        let Embedding { rows, vocabulary, .. } = *self.it;
        if !self.has_places() {
            return Vec::new();
        }
        let (target, n_bytes) = (Address::Workspace(0), vocabulary * 4);
        let fill = Operation::Fill { target, n_bytes, value: 0xff };
        let parameters =
            vec![input_apart(2, self.types[2]), workspace("int* __restrict__ places", 0)];
        let function = self.function("places", parameters, Threads::Independent);
        text.function(&function, |text| {
            text.line(format!("const unsigned row = blockIdx.x * {BLOCK}u + threadIdx.x;"));
            text.line(format!("if (row >= {rows}u) return;"));
            text.line("const unsigned number = (unsigned)in2[row];");
            text.line(format!("if (number < {vocabulary}u) places[number] = (int)row;"));
        });
        [fill].into_iter().chain(launch(&function, rows.div_ceil(BLOCK), 1)).collect()
    }

    fn write_gather(&self, text: &mut Text, result: DType) -> Option<Operation> {
        let (n, width) = (self.it.n_indices * self.it.width / self.width(), self.width());
        let row_length = self.it.width / width;
        let mut parameters = vec![
            input_apart(0, self.types[0]),
            input_apart(1, self.types[1]),
            result_apart(0, result),
        ];
        parameters.extend(self.places());
        let function = self.function("gather", parameters, Threads::Independent);
        let index_type = index_type_below(4 * n.max(self.it.rows * self.it.width));
        text.function(&function, |text| {
            text.line(format!("const {index_type} unit = ({index_type})blockIdx.x * {BLOCK}u + threadIdx.x;"));
            text.line(format!("if (unit >= {n}u) return;"));
            text.line(format!("const {index_type} position = unit / {row_length}u, column = unit % {row_length}u * {width}u;"));
            text.line("const int index = in0[position];");
            text.line(format!("const int row = {};", self.row("index")));
            text.line(format!("float values[{width}] = {{}};"));
            let from = format!("in1 + (({index_type})row * {}u + column)", self.it.width);
            text.line(format!("if (row >= 0) {};", load(width, &from)));
            text.line(store(width, &format!("out0 + unit * {width}u"), "values"));
        });
        launch(&function, n.div_ceil(BLOCK), 1)
    }

    /// Writes a function that stores, for each row, the first position that has its index, counted
    /// from the end so that 0 means none. The maximum of integers does not depend on the order of
    /// threads.
    pub(crate) fn write_firsts(&self, text: &mut Text) -> Vec<Operation> {
        let Embedding { n_indices: n, rows, .. } = *self.it;
        let target = Address::Workspace(self.firsts_offset());
        let fill = Operation::Fill { target, n_bytes: rows * 4, value: 0 };
        let mut parameters = vec![
            input_apart(0, self.types[0]),
            workspace("unsigned* __restrict__ firsts", self.firsts_offset()),
        ];
        parameters.extend(self.places());
        let function = self.function("firsts", parameters, Threads::Independent);
        text.function(&function, |text| {
            text.line(format!("const unsigned position = blockIdx.x * {BLOCK}u + threadIdx.x;"));
            text.line(format!("if (position >= {n}u) return;"));
            text.line("const int index = in0[position];");
            text.line(format!("const int row = {};", self.row("index")));
            text.line(format!("if (row >= 0) atomicMax(firsts + row, {n}u - position);"));
        });
        [fill].into_iter().chain(launch(&function, n.div_ceil(BLOCK), 1)).collect()
    }

    /// Writes code with which a block lists the `positions` of its index from `start` on, one for
    /// each thread, in their order.
    fn write_positions(&self, text: &mut Text) {
        text.line("const unsigned own = start + threadIdx.x;");
        text.line(format!(
            "const bool is_found = own < {}u && in0[own] == index;",
            self.it.n_indices
        ));
        text.line("const unsigned lanes = __ballot_sync(SOYBEAN_ALL_LANES, is_found);");
        text.line("if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = lanes;");
        text.line("__syncthreads();");
        text.line(
            "unsigned n_found = 0, n_before = __popc(lanes & ((1u << threadIdx.x % 32) - 1));",
        );
        text.block(format!("for (unsigned warp = 0; warp < {}; ++warp)", BLOCK / 32), |text| {
            text.line("if (warp == threadIdx.x / 32) n_before += n_found;");
            text.line("n_found += __popc(found[warp]);");
        });
        text.line("if (is_found) positions[n_before] = own;");
        text.line("__syncthreads();");
    }

    /// Returns the type of the numbers of elements.
    pub(crate) fn index_type(&self) -> &'static str {
        let Embedding { n_indices, rows, width, .. } = *self.it;
        index_type_below(4 * width * n_indices.max(rows))
    }

    /// Returns the number of a thread's first element in the table.
    pub(crate) fn place(&self) -> String {
        format!("({})row * {}u + column", self.index_type(), self.it.width)
    }

    /// Writes a function that sums the gradients of each row in the block of its first position.
    /// The code that `finish` writes reads the `sums` of the columns of a row from [`Self::place`]
    /// on.
    pub(crate) fn write_sums(
        &self,
        text: &mut Text,
        further: Vec<Parameter>,
        finish: impl FnOnce(&mut Text),
    ) -> Option<Operation> {
        let width = self.width();
        let mut parameters = vec![input_apart(0, self.types[0]), input_apart(1, self.types[1])];
        parameters.extend(further);
        let offset = self.firsts_offset();
        parameters.push(workspace("const unsigned* __restrict__ firsts", offset));
        parameters.extend(self.places());
        let function = self.function("scatter", parameters, Threads::Cooperating);
        text.function(&function, |text| {
            self.write_sums_body(text);
            finish(text);
        });
        launch(&function, self.it.n_indices, self.it.width.div_ceil(BLOCK * width))
    }

    fn write_sums_body(&self, text: &mut Text) {
        let Embedding { n_indices: n, width: row_length, .. } = *self.it;
        let (width, index_type) = (self.width(), self.index_type());
        text.line("const int index = in0[blockIdx.x];");
        text.line(format!("const int row = {};", self.row("index")));
        text.line(format!("if (row < 0 || firsts[row] != {n}u - blockIdx.x) return;"));
        text.line(format!(
            "const unsigned column = (blockIdx.y * {BLOCK}u + threadIdx.x) * {width}u;"
        ));
        text.line(format!("__shared__ unsigned found[{}], positions[{BLOCK}];", BLOCK / 32));
        text.line(format!("float sums[{width}] = {{}};"));
        text.block(
            format!("for (unsigned start = blockIdx.x; start < {n}u; start += {BLOCK}u)"),
            |text| {
                self.write_positions(text);
                // Several rows are loaded at once and added in their order.
                text.line("#pragma unroll 4");
                text.block("for (unsigned i = 0; i < n_found; ++i)", |text| {
                    text.line(format!("float values[{width}] = {{}};"));
                    let place = format!("({index_type})positions[i] * {row_length}u + column");
                    let load = load(width, &format!("in1 + ({place})"));
                    text.line(format!("if (column < {row_length}u) {load};"));
                    text.line(format!("for (int e = 0; e < {width}; ++e) sums[e] += values[e];"));
                });
            },
        );
        text.line(format!("if (column >= {row_length}u) return;"));
    }
}

/// Returns the expression that reads `values`.
fn load(width: usize, from: &str) -> String {
    if width == 1 {
        format!("values[0] = soybean_value(*({from}))")
    } else {
        format!("soybean_load({from}, values)")
    }
}

pub(crate) fn store(width: usize, to: &str, values: &str) -> String {
    let first = if width == 1 { "[0]" } else { "" };
    format!("soybean_store({to}, {values}{first});")
}

fn launch(function: &Function, n_blocks: usize, n_rows: usize) -> Option<Operation> {
    let grid = [u32::try_from(n_blocks).ok()?, u32::try_from(n_rows).ok()?, 1];
    (!grid.contains(&0)).then(|| function.launch(grid))
}
