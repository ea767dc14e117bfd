//! Convolutions and poolings in parts along rows and columns, for many windows.

use std::collections::BTreeMap;

use soybean_compiler::{
    Optimizer, Strategy, Value, build_network,
    graph::{Graph, Source},
    operator::Operator,
    operators::{convolve::Convolve, pool::Pool},
};
use soybean_plan::{ConvolutionForm, DType, ImageLayout, PoolingForm, Shape};

use crate::{
    support::{
        interpreter::evaluate, random_networks::image_model, samples::noise, split::check_split,
    },
    time::{is_close, level, program_seconds, searched, slow},
};

/// Evaluates an operator whole and in parts along rows, along columns and along both. Returns the
/// number of ways in which it was split.
fn check(operator: &Operator, operands: &[Shape]) -> usize {
    let mut graph = Graph::default();
    let mut sources = BTreeMap::new();
    let mut add = |(at, shape): (usize, &Shape)| -> Value {
        let source = Source::Input { n_classes: None, ignored_label: None };
        let value = graph.add_source(&format!("x{at}"), DType::F32, *shape, source);
        // Few distinct numbers, so that several pixels of a window attain the maximum.
        let number = |it| (8.0 * noise(it + 1000 * at)).floor() - 3.0;
        sources.insert(value, (0..shape.n_elements()).map(number).collect());
        value
    };
    let inputs: Vec<Value> = operands.iter().enumerate().map(&mut add).collect();
    let value = graph.add(operator.clone(), &inputs);
    let values = evaluate(&graph, &sources);
    let signature = operator.signature(operands);
    let windowed = |dim: usize| {
        let all = signature.operands.iter().chain([&signature.result]);
        all.filter(|it| it.len() == 4)
            .find_map(|it| it[dim].factor.filter(|_| it[dim].halo.is_some()))
    };
    let counts = |factor: Option<u8>| -> Vec<usize> {
        let extent = factor.map_or(1, |it| signature.factors[usize::from(it)]);
        (1..=extent).filter(|it| extent.is_multiple_of(*it)).collect()
    };
    let [rows, columns] = [2, 3].map(windowed);
    let mut n_splits = 0;
    for of_rows in counts(rows) {
        for of_columns in counts(columns).into_iter().filter(|it| of_rows * it > 1) {
            let mut n_parts = vec![1; signature.factors.len()];
            rows.into_iter().for_each(|it| n_parts[usize::from(it)] = of_rows);
            columns.into_iter().for_each(|it| n_parts[usize::from(it)] = of_columns);
            check_split("", &graph, operator, (value, &values), &n_parts);
            n_splits += 1;
        }
    }
    n_splits
}

/// Windows along one dim: reach, stride and padding.
const WINDOWS: [[usize; 3]; 14] = [
    [1, 1, 0],
    [1, 2, 0],
    [2, 2, 0],
    [2, 3, 0],
    [3, 1, 1],
    [3, 2, 1],
    [3, 3, 1],
    [3, 4, 1],
    [4, 2, 1],
    [5, 1, 2],
    [5, 2, 2],
    [5, 3, 1],
    [6, 2, 2],
    [7, 2, 3],
];

#[test]
fn convolutions_in_parts_are_whole() {
    use ConvolutionForm::{Data, Filter, Forward};
    let mut n_splits = 0;
    for (number, [reach, stride, padding]) in WINDOWS.into_iter().enumerate() {
        let [groups, dilation] =
            [1 + number % 2, if reach % 2 == 1 { 1 + number / 2 % 2 } else { 1 }];
        // A reach of 3 or 5 is also that of 2 or 3 elements at a distance of 2.
        let elements = (reach - 1) / dilation + 1;
        let reach = dilation * (elements - 1) + 1;
        let forward = Convolve {
            form: Forward,
            image: Shape::new(&[2, 2 * groups, 4 * stride, 6 * stride]),
            filter: Shape::new(&[2 * groups, 2, elements, elements]),
            groups,
            stride: [stride; 2],
            padding: [padding; 2],
            dilation: [dilation; 2],
            layout: ImageLayout::ChannelsFirst,
        };
        let (image, filter, result) = (forward.image, forward.filter, forward.result());
        assert_eq!(result[2], 4, "reach {reach}, stride {stride}, padding {padding}");
        for (form, operands) in
            [(Forward, [image, filter]), (Data, [result, filter]), (Filter, [image, result])]
        {
            n_splits += check(&Convolve { form, ..forward.clone() }.into(), &operands);
        }
    }
    assert_eq!(n_splits, WINDOWS.len() * 3 * (3 * 4 - 1));
}

#[test]
fn poolings_in_parts_are_whole() {
    use PoolingForm::{Max, MaxGradient, Sum, SumGradient};
    let mut n_splits = 0;
    for [reach, stride, padding] in WINDOWS {
        let max = Pool {
            form: Max,
            image: Shape::new(&[1, 2, 6 * stride, 4 * stride]),
            window: [reach; 2],
            stride: [stride; 2],
            padding: [padding; 2],
            layout: ImageLayout::ChannelsFirst,
        };
        let (image, result) = (max.image, max.result());
        for (form, operands) in [
            (Max, vec![image]),
            (Sum, vec![image]),
            (SumGradient, vec![result]),
            (MaxGradient, vec![image, result]),
        ] {
            n_splits += check(&Pool { form, ..max.clone() }.into(), &operands);
        }
    }
    assert_eq!(n_splits, WINDOWS.len() * 4 * (3 * 4 - 1));
}

#[test]
fn times_of_plans_with_halos_are_those_of_their_programs() {
    let mut n_with_halo = 0;
    for seed in 0..30 {
        let (builder, loss) = image_model(seed, 1);
        let network = build_network(builder, loss, &[], &Optimizer::default()).unwrap();
        for levels in [&[level(4, 1e6, 1e-5)][..], &[level(2, 1e5, 1e-4), level(2, 1e6, 1e-5)]] {
            let found = searched(&network, &slow(levels), Strategy::Auto);
            let (plan, program) = (found.times.unwrap().plan, program_seconds(&found));
            assert!(is_close(plan, program), "seed {seed}: {plan} s, the program {program} s");
            let graph = &network.graph;
            let computed = graph.values().filter(|it| graph.operator(*it).is_some());
            let mut conversions = computed.flat_map(|it| found.tiled.conversions(it));
            n_with_halo += usize::from(conversions.any(|it| !it.halo.is_none()));
        }
    }
    assert!(n_with_halo >= 8, "{n_with_halo}");
}

#[test]
fn images_that_strides_do_not_divide_stay_whole() {
    let convolve = Convolve {
        form: ConvolutionForm::Forward,
        image: Shape::new(&[1, 3, 224, 8]),
        filter: Shape::new(&[4, 3, 11, 3]),
        groups: 1,
        stride: [4, 1],
        padding: [2, 1],
        dilation: [1, 1],
        layout: ImageLayout::ChannelsFirst,
    };
    let signature = Operator::from(convolve.clone()).signature(&[convolve.image, convolve.filter]);
    assert_eq!(signature.to_string(), "ij_l{1|1},kj__->ik_l");
}
