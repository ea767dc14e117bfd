//! CUDA C for [`Reduction`]: rows that are combined by neighboring threads, or columns that each
//! thread combines by itself, in two passes if results are few. Nothing depends on the order in
//! which threads run.

mod columns;
mod rows;

use soybean_plan::{Combine, DType, Instruction, Precision, Reduction, ScalarProgram};

use crate::{
    Call, Generated, Operation,
    formula::{self, Element},
    generate::CudaKernel,
    map::{Access, Input},
    space::{Axis, axes, index_type, index_type_below, joined, n_points, sum, write_places},
    text::{Parameter, Text, constant, input_apart, result_apart, workspace},
};

/// Enough threads to keep all multiprocessors of a large device busy.
const ENOUGH_THREADS: usize = 1 << 17;
/// Threads that combine fewer points are not worth their cost.
const FEWEST_POINTS: usize = 8;
/// The maximum number of parts of a reduction that a second pass combines.
const MOST_SPLITS: usize = 1024;
/// Loops over longer programs are not unrolled.
const SHORT_PROGRAM: usize = 16;

impl CudaKernel for Reduction {
    fn generate(&self, call: &Call<'_>, prefix: &str) -> Option<Generated> {
        let (kept, reduced) = nest(self);
        if n_points(&kept) == 0 {
            return Some(Generated::default());
        }
        let first = Pass {
            name: format!("{prefix}_reduce"),
            program: &self.map.program,
            precision: call.precision,
            combine: self.combine,
            dtype: if self.combines_integers() { DType::I32 } else { DType::F32 },
            inputs: call.inputs.iter().enumerate().map(|it| input_apart(it.0, *it.1)).collect(),
            types: call.inputs.to_vec(),
            result: result_apart(0, *call.results.first()?),
            kept,
            reduced,
            n_splits: 1,
        };
        let n_splits = first.best_splits();
        let mut text = Text::default();
        if n_splits == 1 {
            let operations = vec![first.write(&mut text)?];
            return Some(Generated { text: text.finish(), operations, workspace_bytes: 0 });
        }
        let same = match first.dtype {
            DType::I32 => Instruction::Integer(0),
            DType::F32 | DType::Bf16 => Instruction::Input(0),
        };
        let identity = ScalarProgram { instructions: vec![same].into(), results: vec![0].into() };
        let second = first.second(n_splits, &identity);
        let workspace_bytes = n_splits * n_points(&first.kept) * 4;
        let parts = workspace(format!("{}* __restrict__ out0", first.c_type()), 0);
        let first = Pass { result: parts, n_splits, ..first };
        let operations = vec![first.write(&mut text)?, second.write(&mut text)?];
        Some(Generated { text: text.finish(), operations, workspace_bytes })
    }
}

/// Returns the type in CUDA C that combines elements of this type.
pub(crate) const fn combine_type(combine: Combine, dtype: DType) -> &'static str {
    match (combine, dtype) {
        (Combine::Sum, DType::F32 | DType::Bf16) => "soybean_sum",
        (Combine::Max, DType::F32 | DType::Bf16) => "soybean_max",
        (Combine::Sum, DType::I32) => "soybean_sum_of_integers",
        (Combine::Max, DType::I32) => "soybean_max_of_integers",
    }
}

/// Returns the dims that are kept and those that are reduced, each in the memory order of the
/// largest input. Strides are those of the inputs and the result.
fn nest(it: &Reduction) -> (Vec<Axis>, Vec<Axis>) {
    let n_inputs = it.map.inputs.len();
    let mut operands = it.map.inputs.to_vec();
    operands.push(it.result);
    let axes = axes(&it.map.extents, &operands);
    let reach = |operand: &usize| -> usize {
        axes.iter().map(|it| it.extent.saturating_sub(1) * it.strides[*operand]).sum()
    };
    let largest = (0..n_inputs).max_by_key(reach);
    let ordered = |is_kept: bool| {
        let mut some: Vec<Axis> =
            axes.iter().filter(|it| (it.strides[n_inputs] != 0) == is_kept).cloned().collect();
        if let Some(largest) = largest {
            // Dims that the largest input broadcasts become the outermost. Its elements would best
            // be read again at once, but those of other inputs would not.
            some.sort_by_key(|it| {
                std::cmp::Reverse(match it.strides[largest] {
                    0 => usize::MAX,
                    stride => stride,
                })
            });
        }
        joined(some)
    };
    (ordered(true), ordered(false))
}

/// One function of a reduction.
struct Pass<'a> {
    name: String,
    program: &'a ScalarProgram,
    precision: Precision,
    combine: Combine,
    /// The type of the combined values.
    dtype: DType,
    inputs: Vec<Parameter>,
    types: Vec<DType>,
    result: Parameter,
    /// The dims; their strides are those of the inputs, then that of the result.
    kept: Vec<Axis>,
    reduced: Vec<Axis>,
    /// The number of parts of the reduced points; with more than one, the result is `[parts,
    /// kept]`.
    n_splits: usize,
}

impl Pass<'_> {
    /// Returns a pass that combines the parts of another pass.
    fn second<'a>(&self, n_splits: usize, identity: &'a ScalarProgram) -> Pass<'a> {
        let n_kept = n_points(&self.kept);
        let mut stride = n_kept;
        let number = self.types.len();
        let of_part = |axis: &Axis| {
            stride /= axis.extent;
            Axis { extent: axis.extent, strides: vec![stride, axis.strides[number]] }
        };
        Pass {
            name: format!("{}_parts", self.name),
            program: identity,
            precision: self.precision,
            combine: self.combine,
            dtype: self.dtype,
            inputs: vec![workspace(format!("const {}* __restrict__ in0", self.c_type()), 0)],
            types: vec![self.dtype],
            result: self.result.clone(),
            kept: self.kept.iter().map(of_part).collect(),
            reduced: vec![Axis { extent: n_splits, strides: vec![n_kept, 0] }],
            n_splits: 1,
        }
    }

    fn write(&self, text: &mut Text) -> Option<Operation> {
        if self.is_by_columns() { self.write_columns(text) } else { self.write_rows(text) }
    }

    fn best_splits(&self) -> usize {
        let (n_threads, most) =
            if self.is_by_columns() { self.columns_threads() } else { self.rows_threads() };
        (ENOUGH_THREADS / n_threads.max(1)).min(most).clamp(1, MOST_SPLITS)
    }

    /// Returns true if neighboring kept points, not neighboring reduced ones, are next to each
    /// other in the inputs.
    fn is_by_columns(&self) -> bool {
        let n_near = |axes: &[Axis]| {
            let strides = axes.last().map_or(&[][..], |it| &it.strides[..self.types.len()]);
            strides.iter().filter(|it| **it == 1).count()
        };
        let (near_kept, near_reduced) = (n_near(&self.kept), n_near(&self.reduced));
        match (self.kept.is_empty(), self.reduced.is_empty()) {
            (true, _) => false,
            (false, true) => true,
            (false, false) => near_kept > near_reduced,
        }
    }

    /// Returns both groups of dims; the last one is the one along which a thread reads vectors.
    fn all_axes(&self) -> Vec<Axis> {
        let (kept, reduced) = (self.kept.iter(), self.reduced.iter());
        if self.is_by_columns() {
            reduced.chain(kept).cloned().collect()
        } else {
            kept.chain(reduced).cloned().collect()
        }
    }

    /// Returns the length of vectors: as many elements as fill 16 bytes of the wider contiguous
    /// elements.
    fn width(&self) -> usize {
        let axes = self.all_axes();
        let extent = axes.last().map_or(1, |it| it.extent);
        let fits = |width: usize| {
            let near = |it: &(usize, &DType)| {
                matches!(Access::of(&axes, it.0, width), Access::Dense | Access::Stretch)
            };
            let mut near = self.types.iter().enumerate().filter(near).peekable();
            extent.is_multiple_of(width)
                && near.peek().is_some()
                && (width == 4 || near.all(|it| *it.1 == DType::Bf16))
        };
        [8, 4].into_iter().find(|it| fits(*it)).unwrap_or(1)
    }

    fn index_type(&self) -> &'static str {
        match index_type(&self.all_axes()) {
            "unsigned" => index_type_below(self.n_splits * n_points(&self.kept)),
            wide => wide,
        }
    }

    fn parameters(&self) -> Vec<Parameter> {
        let inputs = self.inputs.iter().cloned().chain([self.result.clone()]);
        inputs.chain(formula::scalars(self.program)).collect()
    }

    const fn combine_type(&self) -> &'static str {
        combine_type(self.combine, self.dtype)
    }

    /// Returns the C type of the combined values.
    const fn c_type(&self) -> &'static str {
        match self.dtype {
            DType::F32 | DType::Bf16 => "float",
            DType::I32 => "int",
        }
    }

    /// Writes the loop over reduced points: numbers from `begin` on, below `end`, at distances of
    /// `step`, each of `points` points. The offsets of the kept points are defined.
    fn write_loop(&self, text: &mut Text, loop_: &Loop<'_>) {
        let Loop { step, points_of_number, width, kept_places } = *loop_;
        let combine = self.combine_type();
        text.line(format!("{} sums[{width}];", self.c_type()));
        text.line(format!("for (int e = 0; e < {width}; ++e) sums[e] = {combine}::none();"));
        if self.program.instructions.len() <= SHORT_PROGRAM {
            text.line("#pragma unroll 4");
        }
        let index_type = self.index_type();
        let head = format!("for ({index_type} number = begin; number < end; number += {step}u)");
        text.block(head, |text| {
            let axes = self.all_axes();
            let n_inputs = self.types.len();
            let number = match points_of_number {
                1 => "number".to_owned(),
                more => format!("(number * {more}u)"),
            };
            let mut places = vec!["0u".to_owned(); n_inputs];
            if !self.reduced.is_empty() {
                places = write_places(text, index_type, ("d", &number), &self.reduced);
            }
            for input in 0..n_inputs {
                let place = sum([kept_places[input].clone(), places[input].clone()]);
                let is_integer = self.program.reads_integers(input);
                let access = Access::of(&axes, input, width);
                Input { number: input, is_integer }.write_load(text, &place, access, width);
            }
            text.line("#pragma unroll");
            text.block(format!("for (int e = 0; e < {width}; ++e)"), |text| {
                let program = self.program;
                let values = formula::write(text, program, self.precision, |input| Element {
                    text: format!("x{input}[e]"),
                    varies: Access::of(&axes, input, width) != Access::Same,
                });
                let value = values.first().cloned().unwrap_or_else(|| constant(0.0));
                text.line(format!("sums[e] = {combine}::combine(sums[e], {value});"));
            });
        });
    }

    /// Writes the start and the end of a block's share of `n_numbers` numbers, for the thread with
    /// the number `thread`.
    fn write_share(&self, text: &mut Text, n_numbers: usize, thread: &str) {
        let index_type = self.index_type();
        if self.n_splits == 1 {
            text.line(format!("const {index_type} begin = {thread}, end = {n_numbers}u;"));
            return;
        }
        let length = n_numbers.div_ceil(self.n_splits);
        text.line(format!("const {index_type} part = blockIdx.y * ({index_type}){length}u;"));
        let end = format!("part + {length}u < {n_numbers}u ? part + {length}u : {n_numbers}u");
        text.line(format!("const {index_type} begin = part + {thread}, end = {end};"));
    }

    /// Returns the offset of a kept point in the result.
    fn result_place(&self, kept: &str, kept_places: &[String]) -> String {
        if self.n_splits == 1 {
            return kept_places[self.types.len()].clone();
        }
        let index_type = self.index_type();
        format!("(blockIdx.y * ({index_type}){}u + {kept})", n_points(&self.kept))
    }

    /// Writes the offsets of kept points, and returns them for each input and the result.
    fn kept_places(&self, text: &mut Text) -> Vec<String> {
        if self.kept.is_empty() {
            return vec!["0u".to_owned(); self.types.len() + 1];
        }
        write_places(text, self.index_type(), ("k", "kept"), &self.kept)
    }
}

/// The iteration of a thread over the reduced points.
#[derive(Clone, Copy)]
struct Loop<'a> {
    step: usize,
    points_of_number: usize,
    width: usize,
    kept_places: &'a [String],
}

#[cfg(test)]
mod tests {
    use soybean_plan::{Kernel, Map, Precision, Shape, Strides};

    use super::*;

    /// Returns the functions of a sum over a dense matrix, with their blocks.
    fn functions(extents: [usize; 2], result: [usize; 2]) -> Vec<(String, [u32; 3])> {
        let shape = Shape::new(&extents);
        let program = ScalarProgram::identity();
        let map = Map { extents: shape, inputs: vec![shape.dense_strides()].into(), program };
        let result = Strides::new(&result);
        let kernel = Kernel::from(Reduction { map, combine: Combine::Sum, result });
        let types = &[DType::F32];
        let call =
            Call { kernel: &kernel, inputs: types, results: types, precision: Precision::F32 };
        let made = crate::generate(&call, "k").expect("all reductions have a text");
        let launch = |it: Operation| match it {
            Operation::Launch(launch) => (launch.function, launch.grid),
            Operation::Fill { .. } => panic!("nothing is filled"),
        };
        made.operations.into_iter().map(launch).collect()
    }

    #[test]
    fn few_results_are_combined_in_two_passes() {
        let pass = |name: &str, grid| (name.to_owned(), grid);
        assert_eq!(functions([8192, 1024], [1, 0]), [pass("k_reduce", [1024, 1, 1])]);
        let of_columns = [pass("k_reduce", [8, 64, 1]), pass("k_reduce_parts", [8, 1, 1])];
        assert_eq!(functions([8192, 1024], [0, 1]), of_columns);
        let of_all = [pass("k_reduce", [1, 512, 1]), pass("k_reduce_parts", [1, 1, 1])];
        assert_eq!(functions([8192, 1024], [0, 0]), of_all);
        assert_eq!(functions([4, 6], [0, 0]), [pass("k_reduce", [1, 1, 1])]);
    }
}
