//! Shapes: reshape, permute, and what is known of them at build time.

use soybean_plan::{MAX_RANK, Shape};

use super::{Arguments, Row, SampleArgument};
use crate::{
    builder::{Argument, Builder},
    fault::Fault,
    graph::Value,
    operators::{permute::Permute, reshape::Reshape},
};

const fn tensor(shape: &'static [usize]) -> SampleArgument {
    SampleArgument::tensor(shape)
}

pub(super) const TABLE: &[Row] = &[
    Row {
        name: "reshape",
        arguments: &["input", "shape"],
        build: reshape,
        samples: &[
            &[tensor(&[4, 6]), SampleArgument::List(&[4, 2, 3])],
            &[tensor(&[4, 6]), SampleArgument::List(&[6, 4])],
            &[tensor(&[2, 1, 6]), SampleArgument::List(&[12])],
        ],
    },
    Row {
        name: "flatten",
        arguments: &["input"],
        build: |builder, arguments| {
            let value = arguments.tensor(builder, 0)?;
            let shape = builder.shape(value);
            let Some(&batch) = shape.first() else {
                return Err(arguments.fault(0, "takes tensors of at least 1 dim, found a scalar"));
            };
            let flat = Shape::new(&[batch, shape[1..].iter().product()]);
            Ok(Argument::Tensor(builder.graph.add(Reshape { shape: flat }.into(), &[value])))
        },
        samples: &[&[tensor(&[4, 2, 6])]],
    },
    Row {
        name: "transpose",
        arguments: &["input"],
        build: |builder, arguments| {
            let value = arguments.tensor(builder, 0)?;
            let rank = builder.shape(value).len();
            if rank < 2 {
                return Err(
                    arguments.fault(0, format!("takes tensors of at least 2 dims, found {rank}"))
                );
            }
            let mut order: Vec<usize> = (0..rank).collect();
            order.swap(rank - 1, rank - 2);
            Ok(permuted(builder, value, order))
        },
        samples: &[&[tensor(&[4, 6])], &[tensor(&[2, 4, 6])]],
    },
    Row {
        name: "permute",
        arguments: &["input", "dims"],
        build: permute,
        samples: &[&[tensor(&[2, 4, 6]), SampleArgument::List(&[2, 0, 1])]],
    },
    Row {
        name: "dim",
        arguments: &["input", "dim"],
        build: |builder, arguments| {
            let &Argument::Tensor(value) = arguments.get(0) else {
                return Err(arguments
                    .fault(0, format!("takes a tensor, found {}", arguments.get(0).kind())));
            };
            let shape = builder.shape(value);
            let extent = shape[arguments.dim(1, shape.len())?];
            Ok(Argument::Integer(i64::try_from(extent).expect("extents are far below 2^63")))
        },
        samples: &[],
    },
];

fn reshape(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, Fault> {
    let value = arguments.tensor(builder, 0)?;
    let given = arguments.integers(1)?;
    let extent = |&extent: &i64| usize::try_from(extent).ok().filter(|&it| it > 0);
    let Some(extents) = given.iter().map(extent).collect::<Option<Vec<usize>>>() else {
        return Err(arguments.fault(1, format!("extents must be positive, found {given:?}")));
    };
    if extents.len() > MAX_RANK {
        return Err(arguments
            .fault(1, format!("a tensor has at most {MAX_RANK} dims, found {}", extents.len())));
    }
    let (from, shape) = (builder.shape(value), Shape::new(&extents));
    if from.n_elements() != shape.n_elements() {
        let (before, after) = (from.n_elements(), shape.n_elements());
        return Err(
            arguments.fault(1, format!("{from} has {before} elements, {shape} has {after}"))
        );
    }
    Ok(Argument::Tensor(builder.graph.add(Reshape { shape }.into(), &[value])))
}

fn permute(builder: &mut Builder, arguments: &Arguments<'_>) -> Result<Argument, Fault> {
    let value = arguments.tensor(builder, 0)?;
    let rank = builder.shape(value).len();
    let given = arguments.integers(1)?;
    let order: Vec<usize> = given.iter().filter_map(|&it| usize::try_from(it).ok()).collect();
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if sorted != (0..rank).collect::<Vec<_>>() || order.len() != given.len() {
        return Err(arguments
            .fault(1, format!("the dims must be 0..{rank} in some order, found {given:?}")));
    }
    Ok(permuted(builder, value, order))
}

fn permuted(builder: &mut Builder, value: Value, order: Vec<usize>) -> Argument {
    Argument::Tensor(builder.graph.add(Permute { order }.into(), &[value]))
}
