//! The storage of tensors.

use soybean_plan::Mode;

use super::{Arguments, Row, SampleArgument, map_one};
use crate::{
    builder::{Argument, Builder},
    diagnostic::CallDiagnostic,
    graph::Source,
    pin::Pin,
    scalar,
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
        name: "assign",
        doc: "The value, which a buffer becomes after a training step, or a state after a prediction.",
        arguments: &["input", "value"],
        build: assign,
        samples: &[&[
            SampleArgument::Buffer { shape: &[4, 6], low: -2.0, high: 2.0 },
            SampleArgument::tensor(&[4, 6]),
        ]],
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

fn assign(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, CallDiagnostic> {
    let (kept, value) = (arguments.tensor(builder, 0)?, arguments.tensor(builder, 1)?);
    let node = builder.graph.node(kept);
    let is_updated = match node.source {
        Source::Buffer(_) => builder.mode() == Mode::Training,
        Source::State => true,
        Source::Input { .. } | Source::Parameter(_) | Source::Operator(_) => {
            let help = "write `buffer(\"name\", [..], zeros())`, or `state(\"name\", [..])` in mode inference";
            let fault = arguments.expected_number(0, "a buffer or a state", "another tensor");
            return Err(fault.with_help(help));
        }
    };
    if builder.updates.iter().any(|it| it.0 == kept) {
        return Err(arguments.fault(0, format!("`{}` is assigned already", node.name)));
    }
    let (expected, found) = (node.shape, builder.shape(value));
    if expected != found {
        let message = format!("`{}` is {expected}, and cannot become {found}", node.name);
        return Err(arguments.fault(1, message));
    }
    if is_updated {
        let next = map_one(builder, value, &scalar::identity());
        builder.updates.push((kept, next));
    }
    Ok(Argument::Tensor(value))
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
