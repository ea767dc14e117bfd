//! CUDA C for [`Padding`]: each thread writes a few neighboring elements of the result, which are
//! either all in the input or all fill values.

use soybean_plan::Padding;

use crate::{
    Call, Generated,
    generate::CudaKernel,
    space::index_type_below,
    text::{Function, Text, Threads, input_apart, result_apart},
    units::Unit,
};

/// The threads of a block.
const BLOCK: usize = 256;

/// The window along a dim.
#[derive(Clone, Copy)]
struct Dim {
    input: usize,
    result: usize,
    low: i64,
}

impl CudaKernel for Padding {
    fn generate(&self, call: &Call<'_>, prefix: &str) -> Option<Generated> {
        let dtype = *call.results.first()?;
        let mut dims = dims(self);
        let inner = dims.last_mut()?;
        let low = usize::try_from(inner.low.unsigned_abs()).ok()?;
        let unit = Unit::of(dtype, &[inner.input, inner.result, low]);
        inner.input /= unit.length;
        inner.result /= unit.length;
        inner.low /= i64::try_from(unit.length).ok()?;
        let n: usize = dims.iter().map(|it| it.result).product();
        if n == 0 {
            return Some(Generated::default());
        }
        let function = Function {
            name: format!("{prefix}_pad"),
            parameters: vec![input_apart(0, dtype), result_apart(0, dtype)],
            threads: Threads::Independent,
            block: 256,
        };
        let mut text = Text::default();
        let filling = unit.filled(dtype, self.fill);
        text.function(&function, |text| write(text, &dims, n, (unit.c_type, &filling)));
        let n_blocks = u32::try_from(n.div_ceil(BLOCK)).ok()?;
        let operations = vec![function.launch([n_blocks, 1, 1])];
        Some(Generated { text: text.finish(), operations, workspace_bytes: 0 })
    }
}

/// Returns the dims, outermost first and at least one. A dim that is kept whole is merged into the
/// one before.
fn dims(padding: &Padding) -> Vec<Dim> {
    let mut dims = vec![Dim { input: 1, result: 1, low: 0 }];
    for ((input, result), low) in padding.input.iter().zip(padding.result.iter()).zip(padding.low) {
        match dims.last_mut() {
            Some(last) if low == 0 && input == result => {
                last.input *= input;
                last.result *= result;
                last.low *= i64::try_from(*input).expect("extents are small");
            }
            _ => dims.push(Dim { input: *input, result: *result, low: i64::from(low) }),
        }
    }
    // Drops the initial dim if it was not needed.
    if dims.len() > 1 && dims[0].input == 1 && dims[0].result == 1 && dims[0].low == 0 {
        dims.remove(0);
    }
    dims
}

/// Writes the code of a thread for the element with its number, in units of `c_type`.
fn write(text: &mut Text, dims: &[Dim], n: usize, (c_type, fill): (&str, &str)) {
    let largest = n.max(dims.iter().map(|it| it.input).product());
    let index_type = index_type_below(largest);
    text.line(format!(
        "const {index_type} index = ({index_type})blockIdx.x * {BLOCK}u + threadIdx.x;"
    ));
    text.line(format!("if (index >= {n}u) return;"));
    let mut rest = "index".to_owned();
    let mut conditions = Vec::new();
    let mut place = String::new();
    for (number, dim) in dims.iter().enumerate().rev() {
        let Dim { input, result, low } = *dim;
        let coordinate = if number == 0 { rest.clone() } else { format!("{rest} % {result}u") };
        // Positions before the first element wrap around to huge numbers, beyond the last element.
        text.line(format!(
            "const {index_type} c{number} = {coordinate} - ({index_type})({low}ll);"
        ));
        if number > 0 {
            text.line(format!("const {index_type} rest{number} = {rest} / {result}u;"));
            rest = format!("rest{number}");
        }
        if low != 0 || input != result {
            conditions.push(format!("c{number} < {input}u"));
        }
    }
    for (number, dim) in dims.iter().enumerate() {
        place = if number == 0 {
            "c0".to_owned()
        } else {
            format!("({place} * {}u + c{number})", dim.input)
        };
    }
    text.line(format!("{c_type} unit = {fill};"));
    let copy = format!("unit = (({c_type} const*)in0)[{place}];");
    if conditions.is_empty() {
        text.line(copy);
    } else {
        text.line(format!("if ({}) {copy}", conditions.join(" && ")));
    }
    text.line(format!("(({c_type}*)out0)[index] = unit;"));
}
