//! CUDA C for [`EmbeddingUpdate`]: the block that sums the gradients of a row updates it.

use soybean_plan::{EmbeddingUpdate, Strides};

use crate::{
    Call, CheckedResult, Generated,
    embedding::{Writer, store},
    formula::{self, Element},
    generate::CudaKernel,
    map::{Access, Input, write_result},
    text::{Parameter, Text, first_non_finite, input, input_apart, result},
};

impl CudaKernel for EmbeddingUpdate {
    fn generate(&self, call: &Call<'_>, prefix: &str) -> Option<Generated> {
        generate_checked_embedding_update(self, call, &[], prefix)
    }
}

/// Returns the text of an update that notes for each of these results the first element that is not
/// finite, at [`Address::FirstNonFinite`](crate::Address::FirstNonFinite).
#[must_use]
pub fn generate_checked_embedding_update(
    update: &EmbeddingUpdate,
    call: &Call<'_>,
    checked: &[CheckedResult],
    prefix: &str,
) -> Option<Generated> {
    let gradient = update.gradient();
    if gradient.n_indices * gradient.width * gradient.rows == 0 {
        return Some(Generated::default());
    }
    let writer = Writer { it: &gradient, prefix, types: *call.inputs.first_chunk()? };
    let mut text = Text::default();
    let mut operations = writer.write_places(&mut text);
    operations.extend(writer.write_firsts(&mut text));
    let parameters = parameters(update, call, checked.len());
    operations.extend(writer.write_sums(&mut text, parameters, |text| {
        write_update(text, update, call, checked, &writer);
    }));
    let workspace_bytes = writer.workspace_bytes();
    Some(Generated { text: text.finish(), operations, workspace_bytes })
}

/// Returns the parameters of an update besides those of sums.
fn parameters(update: &EmbeddingUpdate, call: &Call<'_>, n_checked: usize) -> Vec<Parameter> {
    let inputs = update.map.inputs.iter().enumerate().skip(1).map(|(at, strides)| {
        let number = update.input(at);
        match access(strides) {
            Access::Same => input_apart(number, call.inputs[number]),
            // The memory of a result.
            _ => input(number, call.inputs[number]),
        }
    });
    let results = call.results.iter().enumerate().map(|it| result(it.0, *it.1));
    let first_non_finite = (0..n_checked).map(first_non_finite);
    let scalars = formula::scalars(&update.map.program);
    inputs.chain(results).chain(first_non_finite).chain(scalars).collect()
}

/// Returns the access of an input of the map by neighboring columns.
fn access(strides: &Strides) -> Access {
    if *strides == Strides::default() { Access::Same } else { Access::Stretch }
}

/// Writes the update of a few columns of a row, given the `sums` of their gradients.
fn write_update(
    text: &mut Text,
    update: &EmbeddingUpdate,
    call: &Call<'_>,
    checked: &[CheckedResult],
    writer: &Writer<'_>,
) {
    let (width, program) = (writer.width(), &update.map.program);
    formula::write_scalars(text, program);
    text.line(format!("const {} place = {};", writer.index_type(), writer.place()));
    for (at, strides) in update.map.inputs.iter().enumerate().skip(1) {
        let access = access(strides);
        let place = if access == Access::Same { "0" } else { "place" };
        let input = Input { number: update.input(at), is_integer: false };
        input.write_load(text, place, access, width);
    }
    for number in 0..program.results.len() {
        text.line(format!("float y{number}[{width}];"));
    }
    text.line("#pragma unroll");
    text.block(format!("for (int lane = 0; lane < {width}; ++lane)"), |text| {
        let input = |at: usize| match at {
            0 => Element { text: "sums[lane]".to_owned(), varies: true },
            _ => Element {
                text: format!("x{}[lane]", update.input(at)),
                varies: access(&update.map.inputs[at]) != Access::Same,
            },
        };
        let results = formula::write(text, program, call.precision, input);
        for number in 0..results.len() {
            write_result(text, checked, &results, number, "place");
        }
    });
    for number in 0..program.results.len() {
        text.line(store(width, &format!("out{number} + place"), &format!("y{number}")));
    }
}
