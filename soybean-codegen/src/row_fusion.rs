//! CUDA C for [`RowFusion`]: a block, or some lanes of a warp, computes a row in a few passes.
//!
//! A pass ends with the combination of values over the row, which later passes read. Short rows
//! stay in registers from the first pass to the last. Longer ones are read again in each pass, from
//! the cache of the device if it holds them.

mod layout;
mod online;
mod passes;

use soybean_plan::{DType, RowFusion, RowStageForm, ScalarProgram};

use self::{
    layout::{Layout, Residence},
    online::OnlineSum,
    passes::Passes,
};
use crate::{
    Call, Generated, formula,
    generate::CudaKernel,
    map::{Access, Input},
    reduction::combine_type,
    space::{index_type, index_type_below, is_dense, product, sum, write_places},
    text::{Function, Parameter, Text, Threads, input, input_apart, result},
};

/// Loops over longer programs are not unrolled.
const SHORT_PROGRAM: usize = 64;

impl CudaKernel for RowFusion {
    fn generate(&self, call: &Call<'_>, prefix: &str) -> Option<Generated> {
        if self.n_rows() == 0 {
            return Some(Generated::default());
        }
        let writer = Writer::new(self, call);
        let function = writer.function(prefix);
        let mut text = Text::default();
        text.function(&function, |text| writer.write(text));
        let n_blocks = self.n_rows().div_ceil(writer.layout.rows_of_block());
        let operations = vec![function.launch([u32::try_from(n_blocks).ok()?, 1, 1])];
        Some(Generated { text: text.finish(), operations, workspace_bytes: 0 })
    }
}

struct Writer<'a> {
    fusion: &'a RowFusion,
    layout: Layout,
    passes: Passes,
    index_type: &'static str,
    /// The instructions of all stages.
    all: ScalarProgram,
}

impl<'a> Writer<'a> {
    fn new(fusion: &'a RowFusion, call: &Call<'_>) -> Self {
        let layout = Layout::new(fusion, call);
        let online = match layout.residence {
            Residence::Registers { .. } => Vec::new(),
            Residence::Memory => OnlineSum::all(fusion),
        };
        let instructions = fusion.stages.iter().flat_map(|it| it.program.instructions.iter());
        let index_type = match index_type(&layout.axes()) {
            "unsigned" => index_type_below(fusion.extents.n_elements()),
            wide => wide,
        };
        Self {
            fusion,
            passes: Passes::new(fusion, online),
            layout,
            index_type,
            all: ScalarProgram {
                instructions: instructions.copied().collect(),
                results: Vec::new().into(),
            },
        }
    }

    fn function(&self, prefix: &str) -> Function {
        let axes = self.layout.axes();
        let inputs = self.layout.types.iter().enumerate().map(|(number, dtype)| {
            // Only dense inputs may share their buffer with a result.
            let may_share = is_dense(&axes, number);
            if may_share { input(number, *dtype) } else { input_apart(number, *dtype) }
        });
        let results = self.layout.results.iter().enumerate().map(|it| result(it.0, *it.1));
        let parameters: Vec<Parameter> =
            inputs.chain(results).chain(formula::scalars(&self.all)).collect();
        let threads =
            if self.layout.n_threads == 1 { Threads::Independent } else { Threads::Cooperating };
        let block = u32::try_from(self.layout.block()).expect("at most 1024");
        Function { name: format!("{prefix}_rows"), parameters, threads, block }
    }

    fn write(&self, text: &mut Text) {
        let (n_threads, index_type) = (self.layout.n_threads, self.index_type);
        formula::write_scalars(text, &self.all);
        text.line(format!("const unsigned lane = threadIdx.x % {n_threads}u;"));
        let (n_rows, of_block) = (self.fusion.n_rows(), self.layout.rows_of_block());
        let number = match of_block {
            1 => "blockIdx.x".to_owned(),
            _ => format!("({index_type})blockIdx.x * {of_block}u + threadIdx.x / {n_threads}u"),
        };
        text.line(format!("const {index_type} number = {number};"));
        // Threads without a row compute too, because all must take part in exchanges.
        text.line(format!(
            "const {index_type} row = number < {n_rows}u ? number : {}u;",
            n_rows - 1
        ));
        if n_threads > 32 {
            text.line("__shared__ float scratch[32];");
        }
        let places = write_places(text, index_type, ("k", "row"), &self.layout.rows);
        self.write_row_inputs(text, &places);
        if let Residence::Registers { n_chunks } = self.layout.residence {
            let points = self.fusion.stages.iter().enumerate();
            let points = points.filter(|it| it.1.form == RowStageForm::Point);
            let width = self.layout.width;
            for input in self.layout.varying() {
                let c_type = self.c_type(input);
                text.line(format!("{c_type} x{input}[{n_chunks}][{width}];"));
            }
            for (stage, _) in points {
                text.line(format!("float x{}[{n_chunks}][{width}];", self.value(stage)));
            }
        }
        for pass in 0..self.passes.n {
            self.write_row_stages(text, pass);
            self.write_pass(text, pass, &places);
            self.write_combinations(text, pass);
        }
        self.write_row_stages(text, self.passes.n);
        self.write_row_results(text);
    }

    /// Returns the number of a stage's value among those that programs read.
    fn value(&self, stage: usize) -> usize {
        self.fusion.inputs.len() + stage
    }

    fn input(&self, number: usize) -> Input {
        let is_integer = self.fusion.stages.iter().any(|it| it.program.reads_integers(number));
        Input { number, is_integer }
    }

    fn c_type(&self, input: usize) -> &'static str {
        if self.input(input).is_integer { "int" } else { "float" }
    }

    /// Writes a constant for each input that has one element for each row.
    fn write_row_inputs(&self, text: &mut Text, places: &[String]) {
        for (number, place) in places.iter().enumerate() {
            if !self.layout.varies(number) {
                let (c_type, element) = (self.c_type(number), self.input(number).element(place));
                text.line(format!("const {c_type} x{number} = {element};"));
            }
        }
    }

    /// Writes the stages for whole rows whose operands are known before a pass.
    fn write_row_stages(&self, text: &mut Text, pass: usize) {
        for (number, stage) in self.fusion.stages.iter().enumerate() {
            if stage.form == RowStageForm::Row && self.passes.of_stage[number] == pass {
                let value = self.value(number);
                text.line(format!("float x{value};"));
                text.block("", |text| {
                    let results = formula::write(text, &stage.program, |it| format!("x{it}"));
                    text.line(format!("x{value} = {};", results[0]));
                });
            }
        }
    }

    /// Writes the loop of a pass over the points of a row.
    fn write_pass(&self, text: &mut Text, pass: usize, places: &[String]) {
        let (width, n_threads) = (self.layout.width, self.layout.n_threads);
        let index_type = self.index_type;
        for stage in self.passes.combined(self.fusion, pass) {
            let (value, combine) = (self.value(stage), self.combine(stage));
            let each = format!("for (int e = 0; e < {width}; ++e)");
            text.line(format!("float sums{value}[{width}];"));
            text.line(format!("{each} sums{value}[e] = {combine}::none();"));
        }
        let (length, n_numbers) = (self.fusion.row_length(), self.layout.n_numbers());
        match self.layout.residence {
            Residence::Registers { n_chunks } => {
                text.line("#pragma unroll");
                text.block(format!("for (int i = 0; i < {n_chunks}; ++i)"), |text| {
                    let number = format!("((unsigned)i * {n_threads}u + lane)");
                    text.line(format!("const {index_type} column = {number} * {width}u;"));
                    if n_chunks * n_threads == n_numbers {
                        self.write_points(text, pass, places);
                    } else {
                        text.block(format!("if (column < {length}u)"), |text| {
                            self.write_points(text, pass, places);
                        });
                    }
                });
            }
            Residence::Memory => {
                if self.all.instructions.len() <= SHORT_PROGRAM {
                    text.line("#pragma unroll 4");
                }
                let head = format!("for (unsigned i = lane; i < {n_numbers}u; i += {n_threads}u)");
                text.block(head, |text| {
                    text.line(format!("const {index_type} column = i * {width}u;"));
                    self.write_points(text, pass, places);
                });
            }
        }
    }

    /// Writes what a pass does with the points from a column on: loads, values, then stores.
    fn write_points(&self, text: &mut Text, pass: usize, row_places: &[String]) {
        let Self { fusion, layout, .. } = self;
        let work = self.passes.work(fusion, pass, &layout.residence);
        let columns = &layout.columns;
        let places = write_places(text, self.index_type, ("c", "column"), columns);
        for &number in work.loads.iter().filter(|it| layout.varies(**it)) {
            if layout.residence == Residence::Memory {
                text.line(format!("{} x{number}[{}];", self.c_type(number), layout.width));
            }
            let place = sum([row_places[number].clone(), places[number].clone()]);
            self.write_load(text, number, &place);
        }
        if layout.residence == Residence::Memory {
            for &stage in &work.points {
                text.line(format!("float x{}[{}];", self.value(stage), layout.width));
            }
        }
        text.line("#pragma unroll");
        text.block(format!("for (int e = 0; e < {}; ++e)", layout.width), |text| {
            for &stage in &work.points {
                text.block("", |text| {
                    let value = self.write_value(text, stage);
                    text.line(format!("{}[e] = {value};", self.array(self.value(stage))));
                });
            }
            for &stage in &work.combined {
                text.block("", |text| self.write_accumulation(text, stage));
            }
        });
        if pass + 1 == self.passes.n {
            self.write_point_results(text);
        }
    }

    /// Writes the formula of a stage at a point and returns its value.
    fn write_value(&self, text: &mut Text, stage: usize) -> String {
        let results = formula::write(text, &self.fusion.stages[stage].program, |number| {
            let is_point = match number.checked_sub(self.fusion.inputs.len()) {
                Some(stage) => self.fusion.stages[stage].form == RowStageForm::Point,
                None => self.layout.varies(number),
            };
            if is_point { format!("{}[e]", self.array(number)) } else { format!("x{number}") }
        });
        results[0].clone()
    }

    /// Returns the array of the elements that a thread has of an input or a stage.
    fn array(&self, number: usize) -> String {
        match self.layout.residence {
            Residence::Registers { .. } => format!("x{number}[i]"),
            Residence::Memory => format!("x{number}"),
        }
    }

    fn write_load(&self, text: &mut Text, number: usize, place: &str) {
        let (width, array) = (self.layout.width, self.array(number));
        let input = self.input(number);
        match Access::of(&self.layout.axes(), number, width) {
            Access::Dense | Access::Stretch if width > 1 => {
                text.line(format!("soybean_load(in{number} + {place}, {array});"));
            }
            access => {
                let stride = if let Access::Even(stride) = access { stride } else { 0 };
                let element = input.element(&sum([place.to_owned(), product("e", stride)]));
                text.line("#pragma unroll");
                let each = format!("for (unsigned e = 0; e < {width}u; ++e)");
                text.line(format!("{each} {array}[e] = {element};"));
            }
        }
    }

    /// Writes the stores of the results at points.
    fn write_point_results(&self, text: &mut Text) {
        let (length, width) = (self.fusion.row_length(), self.layout.width);
        let guard = if self.layout.rows_of_block() > 1 {
            format!("if (number < {}u) ", self.fusion.n_rows())
        } else {
            String::new()
        };
        for (result, stage) in self.fusion.stored().enumerate() {
            if self.fusion.stages[stage].form == RowStageForm::Point {
                let array = self.array(self.value(stage));
                let values = if width == 1 { format!("{array}[0]") } else { array };
                let place = format!("(row * {length}u + column)");
                text.line(format!("{guard}soybean_store(out{result} + {place}, {values});"));
            }
        }
    }

    /// Writes the stores of the results for rows.
    fn write_row_results(&self, text: &mut Text) {
        let n_rows = self.fusion.n_rows();
        for (result, stage) in self.fusion.stored().enumerate() {
            if self.fusion.stages[stage].form != RowStageForm::Point {
                let value = self.value(stage);
                text.line(format!(
                    "if (lane == 0 && number < {n_rows}u) soybean_store(out{result} + row, x{value});"
                ));
            }
        }
    }

    fn combine(&self, stage: usize) -> &'static str {
        let combine = self.fusion.stages[stage].form.combine();
        combine_type(combine.expect("only some stages combine"), DType::F32)
    }
}
