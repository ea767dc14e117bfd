//! Bytes of two small networks: the example of the paper's introduction, and one for which cutting
//! in two again and again does not find the best plan.

use std::error::Error;

use soybean_compiler::{Options, SearchRequest, Strategy, compile, optimizer};
use soybean_plan::Precision;
use soybean_zoo::mlp;

use crate::table::table;

/// Returns the bytes of a training step of a perceptron under a strategy.
fn bytes(
    strategy: Strategy,
    n_gpus: usize,
    batch: usize,
    widths: &[usize],
) -> Result<u64, Box<dyn Error>> {
    let options = Options {
        name: "network".to_owned(),
        n_gpus,
        search: SearchRequest { strategy, ..SearchRequest::default() },
        precision: Precision::F32,
        optimizer: optimizer("sgd", &[]).map_err(|fault| fault.message)?,
    };
    let model = mlp(batch, widths);
    // Its mean is the loss, which ranks could otherwise compute from terms of the last product.
    let output = ("output".to_owned(), model.output);
    let compiled = compile(model.builder, model.loss, &[output], &options, &|| 0.0)
        .map_err(|faults| faults.into_iter().map(|it| it.message).collect::<Vec<_>>().join("; "))?;
    Ok(compiled.report.bytes_total)
}

/// Writes the bytes of both networks, and why the paper's figures differ.
pub(crate) fn section() -> Result<String, Box<dyn Error>> {
    let of_introduction = |strategy| bytes(strategy, 16, 400, &[300; 6]);
    let rows = [
        (Strategy::Data, "data parallelism", "57.6"),
        (Strategy::Model, "model parallelism", "76.8"),
        (Strategy::Auto, "hybrid", "33.6"),
    ];
    let row = |(strategy, name, stated): (Strategy, &str, &str)| -> Result<_, Box<dyn Error>> {
        let megabytes = format!("{:.1}", of_introduction(strategy)? as f64 / 1e6);
        Ok(vec![name.to_owned(), stated.to_owned(), megabytes])
    };
    let rows = rows.into_iter().map(row).collect::<Result<Vec<_>, _>>()?;
    let of_small = |strategy| bytes(strategy, 4, 20, &[8, 4, 4]);
    let (best, cuts) = (of_small(Strategy::Auto)?, of_small(Strategy::Recursive)?);
    Ok(format!(
        "## Bytes

These figures are counted, not simulated: the bytes that all ranks together receive in a step.

The example of the paper's introduction is a perceptron of five layers of 300 units, with a batch of
400, on 16 GPUs, in MB:

{table}
- The paper counts as many messages as there are GPUs in a group, where one fewer is enough: 15/16
  of 57.6 are 54.0.
- Its model parallelism gathers every activation. The strategy `model` splits each layer by inputs
  or outputs along each axis, so that every second activation can stay in parts.
- Its hybrid is data parallelism over 4 groups of 4. The plan here splits inputs and outputs within
  a group, too. 16 does not divide 300, so widths are padded to 304.

The paper finds its plan by cutting in two, each time by the best cut. This is not always the best
plan: a perceptron with 8 inputs, 4 hidden units and 4 outputs, and a batch of 20, moves {best} bytes
on 4 GPUs at best, and {cuts} with the strategy `recursive`. With the best choice among equally good
first cuts it would be 984. Of all perceptrons of two layers whose sizes are multiples of 4, it has
the smallest sum of sizes for which no such choice gives the best plan. The test
`the_best_first_cut_may_be_part_of_no_best_plan` finds both figures by brute force.
",
        table = table(&["", "paper", "here"], rows),
    ))
}
