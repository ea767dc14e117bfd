//! CUDA C for [`Map`]: each thread computes a few neighboring points, so that dense operands are
//! read and written 16 bytes at a time.

use std::ops::Range;

use soybean_plan::{DType, Map};

use crate::{
    Address, Call, Generated,
    formula::{self, Element},
    generate::CudaKernel,
    space::{Axis, axes, index_type, is_constant, is_dense, n_points, write_places},
    text::{Function, Text, Threads, first_non_finite, input, input_apart, result},
};

/// The threads of a block.
const BLOCK: usize = 256;

/// A result of a map whose elements must be finite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedResult {
    /// The number of the result.
    pub result: usize,
    /// The operand with the elements before, in the same order, if there is one: an element that is
    /// not finite is replaced by the one before it.
    pub before: Option<Address>,
    /// The elements between the tensors that lie side by side in the result. They need not be
    /// finite.
    pub gaps: Vec<Range<usize>>,
}

impl CudaKernel for Map {
    fn generate(&self, call: &Call<'_>, prefix: &str) -> Option<Generated> {
        generate_checked_map(self, call, &[], prefix)
    }
}

/// Returns the text of a map that notes for each of these results the first element that is not
/// finite, at [`Address::FirstNonFinite`].
#[must_use]
pub fn generate_checked_map(
    map: &Map,
    call: &Call<'_>,
    checked: &[CheckedResult],
    prefix: &str,
) -> Option<Generated> {
    let writer = Writer::new(map, call, checked);
    let n = n_points(&writer.axes);
    if n == 0 {
        return Some(Generated::default());
    }
    let width = writer.width();
    let function = writer.function(prefix);
    let mut text = Text::default();
    text.function(&function, |text| {
        let index_type = writer.index_type;
        let thread = format!("(({index_type})blockIdx.x * {BLOCK}u + threadIdx.x)");
        text.line(format!("const {index_type} first = {thread} * {width}u;"));
        text.line(format!("if (first >= {n}u) return;"));
        formula::write_scalars(text, &map.program);
        writer.write_gaps(text);
        if !n.is_multiple_of(width) {
            text.block(format!("if (first + {width}u > {n}u)"), |text| {
                let head = format!("for ({index_type} point = first; point < {n}u; ++point)");
                text.block(head, |text| writer.write(text, 1, "point"));
                text.line("return;");
            });
        }
        writer.write(text, width, "first");
    });
    let n_blocks = u32::try_from(n.div_ceil(width).div_ceil(BLOCK)).ok()?;
    Some(Generated {
        text: text.finish(),
        operations: vec![function.launch([n_blocks, 1, 1])],
        workspace_bytes: 0,
    })
}

struct Writer<'a> {
    map: &'a Map,
    call: &'a Call<'a>,
    checked: &'a [CheckedResult],
    axes: Vec<Axis>,
    index_type: &'static str,
}

/// The access of an operand by some neighboring points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// A contiguous range at the number of the first point.
    Dense,
    /// A contiguous range at the offset of the first point.
    Stretch,
    /// The same element for all points.
    Same,
    /// Elements at even distances from the offset of the first point.
    Even(usize),
    /// A separate offset for each point.
    Each,
}

impl Access {
    /// Returns the access of an operand by `width` points that begin at a multiple of `width`.
    pub(crate) fn of(axes: &[Axis], operand: usize, width: usize) -> Self {
        if is_dense(axes, operand) {
            return Self::Dense;
        }
        let Some((inner, outer)) = axes.split_last().filter(|_| !is_constant(axes, operand)) else {
            return Self::Same;
        };
        if !inner.extent.is_multiple_of(width) {
            return Self::Each;
        }
        let is_aligned = outer.iter().all(|it| it.strides[operand].is_multiple_of(width));
        match inner.strides[operand] {
            0 => Self::Same,
            1 if is_aligned => Self::Stretch,
            stride => Self::Even(stride),
        }
    }
}

impl<'a> Writer<'a> {
    fn new(map: &'a Map, call: &'a Call<'a>, checked: &'a [CheckedResult]) -> Self {
        let mut operands = map.inputs.to_vec();
        // Results count as the last operand, so dims are joined only if results allow it.
        operands.push(map.extents.dense_strides());
        let axes = axes(&map.extents, &operands);
        Self { map, call, checked, index_type: index_type(&axes), axes }
    }

    fn function(&self, prefix: &str) -> Function {
        let inputs = self.call.inputs.iter().enumerate().map(|(number, dtype)| {
            // Only dense inputs may share their buffer with a result.
            if is_dense(&self.axes, number) {
                input(number, *dtype)
            } else {
                input_apart(number, *dtype)
            }
        });
        let results = self.call.results.iter().enumerate().map(|it| result(it.0, *it.1));
        let first_non_finite = (0..self.checked.len()).map(first_non_finite);
        let scalars = formula::scalars(&self.map.program);
        Function {
            name: format!("{prefix}_map"),
            parameters: inputs.chain(results).chain(first_non_finite).chain(scalars).collect(),
            threads: Threads::Independent,
            block: 256,
        }
    }

    /// Returns the number of points of a thread: as many as fill 16 bytes of what is read or
    /// written once.
    fn width(&self) -> usize {
        let access = |operand: usize, width| Access::of(&self.axes, operand, width);
        let inputs = || self.call.inputs.iter().enumerate();
        let dense = inputs().filter(|it| access(it.0, 8) == Access::Dense).map(|it| it.1);
        let is_short = dense.chain(self.call.results).all(|it| *it == DType::Bf16);
        // Rows that are shared come from a cache, in several loads if they are wide.
        let keeps_rows = inputs().all(|(operand, dtype)| {
            *dtype == DType::Bf16
                || access(operand, 8) == Access::Stretch
                || access(operand, 4) != Access::Stretch
        });
        let wide = if is_short && keeps_rows { 8 } else { 4 };
        if n_points(&self.axes) < wide { 1 } else { wide }
    }

    /// Writes the work of `width` points from one on, all loads before the stores.
    fn write(&self, text: &mut Text, width: usize, index: &str) {
        let n_inputs = self.map.inputs.len();
        let access: Vec<Access> =
            (0..n_inputs).map(|it| Access::of(&self.axes, it, width)).collect();
        let needs_place = |it: &Access| !matches!(it, Access::Dense | Access::Each);
        let places = if access.iter().any(needs_place) {
            write_places(text, self.index_type, ("c", index), &self.axes)
        } else {
            vec![String::new(); n_inputs]
        };
        for (number, (access, place)) in access.iter().zip(&places).enumerate() {
            let place = if *access == Access::Dense { index } else { place };
            self.input(number).write_load(text, place, *access, width);
        }
        if access.contains(&Access::Each) {
            let head = format!("for (unsigned lane = 0; lane < {width}u; ++lane)");
            text.line("#pragma unroll");
            text.block(head, |text| {
                let point = format!("({index} + lane)");
                let places = write_places(text, self.index_type, ("e", &point), &self.axes);
                let each = access.iter().enumerate().filter(|it| *it.1 == Access::Each);
                for (number, _) in each {
                    let place = &places[number];
                    let element = self.input(number).element(place);
                    text.line(format!("x{number}[lane] = {element};"));
                }
            });
        }
        self.write_values(text, (width, index), &access);
        for number in 0..self.call.results.len() {
            let values = if width == 1 { format!("y{number}[0]") } else { format!("y{number}") };
            text.line(format!("soybean_store(out{number} + {index}, {values});"));
        }
    }

    fn input(&self, number: usize) -> Input {
        Input { number, is_integer: self.map.program.reads_integers(number) }
    }

    fn write_values(&self, text: &mut Text, (width, index): (usize, &str), access: &[Access]) {
        let is_integer = self.map.program.integer_results();
        for (number, is_integer) in is_integer.into_iter().enumerate() {
            let c_type = if is_integer { "int" } else { "float" };
            text.line(format!("{c_type} y{number}[{width}];"));
        }
        text.line("#pragma unroll");
        text.block(format!("for (int lane = 0; lane < {width}; ++lane)"), |text| {
            let input = |number: usize| Element {
                text: format!("x{number}[lane]"),
                varies: access[number] != Access::Same,
            };
            let results = formula::write(text, &self.map.program, self.call.precision, input);
            for number in 0..results.len() {
                write_result(text, self.checked, &results, number, index);
            }
        });
    }

    /// Writes the gaps of checked results.
    fn write_gaps(&self, text: &mut Text) {
        for (at, checked) in self.checked.iter().enumerate().filter(|it| !it.1.gaps.is_empty()) {
            let bounds = checked.gaps.iter().flat_map(|it| [it.start, it.end]);
            let bounds: Vec<String> = bounds.map(|it| format!("{it}u")).collect();
            text.line(format!("static const unsigned gaps{at}[] = {{{}}};", bounds.join(", ")));
        }
    }
}

/// Writes a lane of a result. If it must be finite and is not, it is noted, and the element before
/// takes its place. Another result of the same value, such as a rounded copy, is the same number.
pub(crate) fn write_result(
    text: &mut Text,
    all_checked: &[CheckedResult],
    results: &[String],
    number: usize,
    index: &str,
) {
    let check = |number: usize| all_checked.iter().position(|it| it.result == number);
    let value = &results[number];
    let is_same = |it: &usize| check(*it).is_some() && results[*it] == *value;
    let at = check(number);
    if let Some(same) = (0..number).find(is_same).filter(|_| at.is_none()) {
        return text.line(format!("y{number}[lane] = y{same}[lane];"));
    }
    text.line(format!("y{number}[lane] = {value};"));
    let Some(at) = at else { return };
    let CheckedResult { before, gaps, .. } = &all_checked[at];
    text.block(format!("if (!soybean_is_finite({value}))"), |text| {
        let gaps = if gaps.is_empty() { String::new() } else { format!(", gaps{at}") };
        text.line(format!("soybean_note(first_non_finite{at}, {index} + lane{gaps});"));
        let before = match before {
            Some(Address::Input(number)) => format!("in{number}"),
            Some(Address::Result(number)) => format!("out{number}"),
            _ => return,
        };
        text.line(format!("y{number}[lane] = soybean_value({before}[{index} + lane]);"));
    });
}

/// An input of a scalar program, whose elements are numbers or integers.
pub(crate) struct Input {
    pub(crate) number: usize,
    pub(crate) is_integer: bool,
}

impl Input {
    /// Returns the element at this offset.
    pub(crate) fn element(&self, place: &str) -> String {
        let number = self.number;
        match self.is_integer {
            true => format!("in{number}[{place}]"),
            false => format!("soybean_value(in{number}[{place}])"),
        }
    }

    /// Writes an array `x0` with the elements of input 0 for `width` points; without its elements
    /// if each point has a separate offset.
    pub(crate) fn write_load(&self, text: &mut Text, place: &str, access: Access, width: usize) {
        let number = self.number;
        let c_type = if self.is_integer { "int" } else { "float" };
        text.line(format!("{c_type} x{number}[{width}];"));
        let first = self.element(place);
        match access {
            Access::Each => {}
            _ if width == 1 => text.line(format!("x{number}[0] = {first};")),
            Access::Dense | Access::Stretch => {
                text.line(format!("soybean_load(in{number} + {place}, x{number});"));
            }
            Access::Same => {
                text.line(format!("x{number}[0] = {first};"));
                let lanes = format!("for (int lane = 1; lane < {width}; ++lane)");
                text.line(format!("{lanes} x{number}[lane] = x{number}[0];"));
            }
            Access::Even(stride) => {
                let element = self.element(&format!("{place} + lane * {stride}u"));
                let lanes = format!("for (unsigned lane = 0; lane < {width}u; ++lane)");
                text.line("#pragma unroll");
                text.line(format!("{lanes} x{number}[lane] = {element};"));
            }
        }
    }
}

#[cfg(test)]
mod tests;
