//! The storage of tensors.

use super::{Arguments, Row, SampleArgument};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    pin::Pin,
};

pub(super) const TABLE: &[Row] = &[
    Row {
        name: "tiled",
        doc: "The tensor itself, stored in this tiling: `\"P0 r\"`, an entry for each axis of the mesh, or one for all.",
        arguments: &["input", "tiling"],
        build: tiled,
        samples: &[
            &[SampleArgument::tensor(&[12, 5]), SampleArgument::Text("P0")],
            &[SampleArgument::tensor(&[4, 12]), SampleArgument::Text("[r]")],
        ],
    },
    Row {
        name: "probe",
        doc: "The tensor itself; `trainer.eager(&batch)` returns its elements by this name.",
        arguments: &["input", "name"],
        build: probe,
        samples: &[&[SampleArgument::tensor(&[12, 5]), SampleArgument::Text("h")]],
    },
];

fn probe(_: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    arguments.text(1)?;
    Ok(Argument::Tensor(arguments.any_tensor(0)?))
}

fn tiled(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let value = arguments.any_tensor(0)?;
    let pin: Pin = arguments.text(1)?.parse().map_err(|fault: String| {
        let help = "write `\"P0 r\"`, an entry for each axis of the mesh, or `\"P0\"` for all axes";
        arguments.fault(1, fault).with_help(help)
    })?;
    if let Some(fault) = pin.fault_for(&builder.shape(value)) {
        return Err(arguments.fault(1, fault));
    }
    let node = builder.graph.node_mut(value);
    let joined = node.pinned.map_or(Some(pin), |before| before.joined(pin));
    let Some(joined) = joined else {
        let before = node.pinned.map_or(String::new(), |it| it.to_string());
        return Err(arguments.fault(1, format!("the tensor is pinned to {before}, found {pin}")));
    };
    node.pinned = Some(joined);
    Ok(Argument::Tensor(value))
}
