//! CUDA C for [`RowFusion`]: a block, or some lanes of a warp, computes a row in a few passes.
//!
//! A pass ends with the combination of values over the row, which later passes read. Short rows
//! stay in registers from the first pass to the last. Longer ones stay in shared memory if it holds
//! them, and otherwise are read again in each pass.

mod kept;
mod layout;
mod online;
mod passes;

use soybean_plan::{DType, Precision, RowFusion, RowStageForm, ScalarProgram};

use self::{
    kept::Kept,
    layout::{Layout, Residence},
    online::OnlineSum,
    passes::Passes,
};
use crate::{
    Call, Generated,
    formula::{self, Element},
    generate::CudaKernel,
    map::{Access, Input},
    reduction::combine_type,
    space::{index_type, index_type_below, is_dense, product, sum, write_places},
    text::{Function, Parameter, Text, Threads, input, input_apart, result},
};

impl CudaKernel for RowFusion {
    fn generate(&self, call: &Call<'_>, prefix: &str) -> Option<Generated> {
        if self.n_rows() == 0 {
            return Some(Generated::default());
        }
        let writer = Writer::new(self, call);
        let function = writer.function(prefix);
        let mut text = Text::default();
        text.function_within(&function, &writer.layout.bounds(), |text| writer.write(text));
        let n_blocks = self.n_rows().div_ceil(writer.layout.rows_of_block());
        let shared_bytes: usize = writer.kept.iter().map(|it| it.n_bytes).sum();
        let grid = [u32::try_from(n_blocks).ok()?, 1, 1];
        let operations = vec![function.launch_with(grid, u32::try_from(shared_bytes).ok()?)];
        Some(Generated { text: text.finish(), operations, workspace_bytes: 0 })
    }
}

/// Chunks of neighboring elements that a thread works on at once.
struct Chunks<'a> {
    n: usize,
    /// The number of the first chunk in its row. The others are at distances of the threads.
    first: &'a str,
    /// The number of chunks of a row, if not all of these may be part of it.
    guard: Option<usize>,
}

struct Writer<'a> {
    fusion: &'a RowFusion,
    layout: Layout,
    passes: Passes,
    kept: Vec<Kept>,
    index_type: &'static str,
    precision: Precision,
    /// The instructions of all stages.
    all: ScalarProgram,
}

impl<'a> Writer<'a> {
    fn new(fusion: &'a RowFusion, call: &Call<'_>) -> Self {
        let layout = Layout::new(fusion, call);
        let online = match layout.residence {
            Residence::Registers { .. } => Vec::new(),
            Residence::Memory { .. } => OnlineSum::all(fusion),
        };
        let instructions = fusion.stages.iter().flat_map(|it| it.program.instructions.iter());
        let index_type = match index_type(&layout.axes()) {
            "unsigned" => index_type_below(fusion.extents.n_elements()),
            wide => wide,
        };
        let passes = Passes::new(fusion, online);
        Self {
            fusion,
            kept: Kept::all(fusion, &layout, &passes),
            passes,
            layout,
            index_type,
            precision: call.precision,
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
        self.write_kept_arrays(text);
        let places = write_places(text, index_type, ("k", "row"), &self.layout.rows);
        self.write_row_inputs(text, &places);
        if let Residence::Registers { n_chunks } = self.layout.residence {
            let points = 0..self.fusion.stages.len();
            self.write_arrays(text, self.layout.varying(), n_chunks);
            self.write_arrays(text, points.filter_map(|it| self.point(it)), n_chunks);
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
                    let results = formula::write(text, &stage.program, self.precision, |it| {
                        Element { text: format!("x{it}"), varies: false }
                    });
                    text.line(format!("x{value} = {};", results[0]));
                });
            }
        }
    }

    /// Returns the number of a stage's value, if it has one at each point.
    fn point(&self, stage: usize) -> Option<usize> {
        let is_point = self.fusion.stages[stage].form == RowStageForm::Point;
        is_point.then(|| self.value(stage))
    }

    /// Writes arrays for the elements that a thread has of inputs and stages.
    fn write_arrays(&self, text: &mut Text, numbers: impl Iterator<Item = usize>, n_chunks: usize) {
        for number in numbers {
            let is_input = number < self.fusion.inputs.len();
            let c_type = if is_input { self.c_type(number) } else { "float" };
            text.line(format!("{c_type} x{number}[{n_chunks}][{}];", self.layout.width));
        }
    }

    /// Writes a pass over the points of a row.
    fn write_pass(&self, text: &mut Text, pass: usize, places: &[String]) {
        for stage in self.passes.combined(self.fusion, pass) {
            let (value, combine) = (self.value(stage), self.combine(stage));
            let n_sums = self.n_sums(stage);
            text.line(format!("float sums{value}[{n_sums}];"));
            let each = format!("for (int e = 0; e < {n_sums}; ++e)");
            text.line(format!("{each} sums{value}[e] = {combine}::none();"));
        }
        let (n_threads, n_numbers) = (self.layout.n_threads, self.layout.n_numbers());
        match self.layout.residence {
            Residence::Registers { n_chunks } => {
                let guard = (n_chunks * n_threads != n_numbers).then_some(n_numbers);
                self.write_points(
                    text,
                    pass,
                    places,
                    &Chunks { n: n_chunks, first: "lane", guard },
                );
            }
            Residence::Memory { n_chunks } => {
                // All chunks of a round are loaded before they are used. The rest comes one by one.
                let (last, step) = ((n_chunks - 1) * n_threads, n_chunks * n_threads);
                let chunks = |n| Chunks { n, first: "first", guard: None };
                let rounds = format!("for (; first + {last}u < {n_numbers}u; first += {step}u)");
                let rest = format!("for (; first < {n_numbers}u; first += {n_threads}u)");
                text.block("", |text| {
                    text.line("unsigned first = lane;");
                    text.block(rounds, |text| {
                        self.write_points(text, pass, places, &chunks(n_chunks));
                    });
                    text.block(rest, |text| self.write_points(text, pass, places, &chunks(1)));
                });
            }
        }
    }

    /// Writes what a pass does with some chunks: loads, values, then stores.
    fn write_points(
        &self,
        text: &mut Text,
        pass: usize,
        row_places: &[String],
        chunks: &Chunks<'_>,
    ) {
        let Self { fusion, layout, .. } = self;
        let work = self.passes.work(fusion, pass, layout.residence);
        let loads: Vec<usize> = work.loads.into_iter().filter(|it| layout.varies(*it)).collect();
        if let Residence::Memory { .. } = layout.residence {
            let points = work.points.iter().map(|it| self.value(*it));
            self.write_arrays(text, loads.iter().copied().chain(points), chunks.n);
        }
        // Loads that all rows share are likely to hit a cache, so that they need not be early.
        let (late, early): (Vec<usize>, Vec<usize>) =
            loads.iter().partition(|it| layout.is_shared(**it));
        let write_loads = |text: &mut Text, numbers: &[usize]| {
            self.write_loads(text, pass, numbers, row_places);
        };
        self.write_each_chunk(text, chunks, |text| write_loads(text, &early));
        let online = self.passes.online.iter().filter(|it| work.combined.contains(&it.max));
        let maxima: Vec<OnlineSum> = online.copied().collect();
        for online in &maxima {
            self.write_running_maximum(text, online, chunks.n);
        }
        self.write_each_chunk(text, chunks, |text| {
            write_loads(text, &late);
            text.line("#pragma unroll");
            text.block(format!("for (int e = 0; e < {}; ++e)", layout.width), |text| {
                for &stage in &work.points {
                    text.block("", |text| {
                        let value = self.write_value(text, stage);
                        text.line(format!("x{}[i][e] = {value};", self.value(stage)));
                    });
                }
                for &stage in &work.combined {
                    text.block("", |text| self.write_accumulation(text, stage));
                }
            });
        });
        for online in &maxima {
            self.write_running_sum(text, online, chunks.n);
        }
        if pass + 1 == self.passes.n && fusion.stored().any(|it| self.point(it).is_some()) {
            self.write_each_chunk(text, chunks, |text| self.write_point_results(text));
        }
    }

    /// Writes a loop over chunks, in which `column` is the first column of chunk `i`.
    fn write_each_chunk(
        &self,
        text: &mut Text,
        chunks: &Chunks<'_>,
        write: impl FnOnce(&mut Text),
    ) {
        let Layout { n_threads, width, .. } = self.layout;
        let Chunks { n, first, guard } = *chunks;
        text.line("#pragma unroll");
        text.block(format!("for (int i = 0; i < {n}; ++i)"), |text| {
            text.line(format!(
                "const unsigned number_in_row = (unsigned)i * {n_threads}u + {first};"
            ));
            text.line(format!(
                "const {0} column = ({0})number_in_row * {width}u;",
                self.index_type
            ));
            match guard {
                Some(end) => text.block(format!("if (number_in_row < {end}u)"), write),
                None => write(text),
            }
        });
    }

    /// Writes the formula of a stage at a point and returns its value.
    fn write_value(&self, text: &mut Text, stage: usize) -> String {
        let program = &self.fusion.stages[stage].program;
        let results = formula::write(text, program, self.precision, |number| {
            let is_point = match number.checked_sub(self.fusion.inputs.len()) {
                Some(stage) => self.fusion.stages[stage].form == RowStageForm::Point,
                None => self.layout.varies(number),
            };
            let at = if is_point { "[i][e]" } else { "" };
            Element { text: format!("x{number}{at}"), varies: is_point }
        });
        results[0].clone()
    }

    /// Writes the loads of some inputs for a chunk.
    fn write_loads(&self, text: &mut Text, pass: usize, numbers: &[usize], row_places: &[String]) {
        if numbers.is_empty() {
            return;
        }
        let places = write_places(text, self.index_type, ("c", "column"), &self.layout.columns);
        for &number in numbers {
            let kept = self.kept.iter().find(|it| it.input == number);
            let array = format!("x{number}[i]");
            if kept.is_some_and(|it| it.first_pass < pass) {
                text.line(format!("soybean_load(kept{number} + column, {array});"));
                continue;
            }
            let place = sum([row_places[number].clone(), places[number].clone()]);
            self.write_load(text, number, &place);
            if kept.is_some() {
                text.line(format!("soybean_store(kept{number} + column, {array});"));
            }
        }
    }

    fn write_load(&self, text: &mut Text, number: usize, place: &str) {
        let (width, array) = (self.layout.width, format!("x{number}[i]"));
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
                let array = format!("x{}[i]", self.value(stage));
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
