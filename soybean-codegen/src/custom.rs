//! CUDA C for [`Custom`]: a thread for each element of the result, which runs the user's text.
//!
//! The text is the body of a function. It reads element `(i, j)` of an operand `x` by `x(i, j)`,
//! knows the extent of each letter as `n_i`, and its element of the result by the letters.

use soybean_plan::{Custom, DType};

use crate::{
    Call, Generated,
    generate::CudaKernel,
    space::index_type_below,
    text::{Function, Text, Threads, c_type, input_apart, result_apart},
};

/// The threads of a block.
const BLOCK: u32 = 256;

impl CudaKernel for Custom {
    fn generate(&self, call: &Call<'_>, prefix: &str) -> Option<Generated> {
        let body = self.cuda.as_deref()?;
        let n_elements = self.result.n_elements();
        if n_elements == 0 {
            return Some(Generated::default());
        }
        let mut text = Text::default();
        for (number, dtype) in call.inputs.iter().enumerate() {
            operand(self, number, *dtype, prefix, &mut text);
        }
        element(self, body, prefix, &mut text);
        let parameters = call.inputs.iter().enumerate().map(|(at, it)| input_apart(at, *it));
        let function = Function {
            name: format!("{prefix}_custom"),
            parameters: parameters.chain([result_apart(0, *call.results.first()?)]).collect(),
            threads: Threads::Independent,
            block: BLOCK,
        };
        text.function(&function, |text| kernel(self, n_elements, prefix, text));
        let n_blocks = u32::try_from(n_elements.div_ceil(BLOCK as usize)).ok()?;
        let operations = vec![function.launch([n_blocks, 1, 1])];
        Some(Generated { text: text.finish(), operations, workspace_bytes: 0 })
    }
}

/// Writes the type of an operand, whose call reads an element.
fn operand(custom: &Custom, number: usize, dtype: DType, prefix: &str, text: &mut Text) {
    let shape = &custom.operands[number];
    let index_type = index_type_below(shape.n_elements());
    let indices: Vec<String> = (0..shape.len()).map(|it| format!("int i{it}")).collect();
    let strides = shape.dense_strides().0;
    let terms = (0..shape.len()).map(|it| format!("({index_type})i{it} * {}u", strides[it]));
    let place = match shape.is_empty() {
        true => "0".to_owned(),
        false => terms.collect::<Vec<_>>().join(" + "),
    };
    let element = c_type(dtype);
    text.line(format!("struct {prefix}_operand{number} {{ const {element}* data;"));
    text.line(format!(
        "  __device__ float operator()({}) const {{ return soybean_value(data[{place}]); }} }};",
        indices.join(", ")
    ));
}

/// Writes the function with the user's text.
fn element(custom: &Custom, body: &str, prefix: &str, text: &mut Text) {
    let notation = custom.index_notation();
    let names = custom.names.iter().enumerate();
    let operands = names.map(|(at, name)| format!("const {prefix}_operand{at} {name}"));
    let indices = notation.result().iter().map(|it| format!("const int {it}"));
    let parameters: Vec<String> = operands.chain(indices).collect();
    let head = format!("static __device__ float {prefix}_element({})", parameters.join(", "));
    text.block(head, |text| {
        let shapes: Vec<&[usize]> = custom.operands.iter().map(|it| &it[..]).collect();
        for letter in notation.letters() {
            let extent = notation.extent(letter, &shapes);
            text.line(format!("const int n_{letter} = {extent}; (void)n_{letter};"));
        }
        for line in body.lines() {
            text.line(line.trim());
        }
    });
}

fn kernel(custom: &Custom, n_elements: usize, prefix: &str, text: &mut Text) {
    let index_type = index_type_below(n_elements);
    text.line(format!(
        "const {index_type} at = ({index_type})blockIdx.x * {BLOCK}u + threadIdx.x;"
    ));
    text.line(format!("if (at >= {n_elements}u) return;"));
    let operands = (0..custom.operands.len()).map(|it| format!("{prefix}_operand{it}{{in{it}}}"));
    let strides = custom.result.dense_strides().0;
    let dims = custom.result.iter().zip(strides);
    let indices = dims.map(|(extent, stride)| format!("(int)(at / {stride}u % {extent}u)"));
    let arguments: Vec<String> = operands.chain(indices).collect();
    text.line(format!("soybean_store(out0 + at, {prefix}_element({}));", arguments.join(", ")));
}
