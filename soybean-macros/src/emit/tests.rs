//! Tests of emission: values in, text out.

use std::borrow::Cow;

use expect_test::{Expect, expect};
use soybean_plan::{
    AxisSet, Bucket, Collective, CollectiveKind, Combine, ConstExpression, Convolution,
    ConvolutionForm, DType, Halo, ImageLayout, Init, Instruction, Kernel, Map, Placement, Pooling,
    PoolingForm, RunScalar, ScalarProgram, Shape, Step, Strides, Tiling, Unary,
};

use super::{functions, method};

fn check(value: &(impl ConstExpression + ?Sized), expected: Expect) {
    let mut text = String::new();
    value.write_expression(&mut text);
    expected.assert_eq(&text);
}

#[test]
fn numbers_can_be_read_back() {
    check(
        &[0.1, 1e-8, 2.0, -0.0, f64::NEG_INFINITY][..],
        expect!["[0.1, 1e-8, 2.0, -0.0, f64::NEG_INFINITY]"],
    );
    check(&f64::NAN, expect!["f64::NAN"]);
}

#[test]
fn descriptors_are_expressions() {
    check(&Strides::new(&[784, 0, 1]), expect!["Strides::new(&[784, 0, 1])"]);
    check(&Strides::new(&[]), expect!["Strides::new(&[])"]);
    let map = Map {
        extents: Shape::new(&[64, 10]),
        inputs: Cow::Owned(vec![Strides::new(&[10, 1])]),
        program: ScalarProgram {
            instructions: Cow::Borrowed(&[
                Instruction::Input(0),
                Instruction::Constant(0.5),
                Instruction::Unary(Unary::Relu, 0),
                Instruction::Select(2, 0, 1),
            ]),
            results: Cow::Borrowed(&[3]),
        },
    };
    check(
        &map,
        expect![
            "Map { extents: Shape::new(&[64, 10]), inputs: Cow::Borrowed(&[Strides::new(&[10, 1])]), program: ScalarProgram { instructions: Cow::Borrowed(&[Instruction::Input(0), Instruction::Constant(0.5), Instruction::Unary(Unary::Relu, 0), Instruction::Select(2, 0, 1)]), results: Cow::Borrowed(&[3]), }, }"
        ],
    );
    let collective = Collective {
        kind: CollectiveKind::AllReduce,
        dtype: DType::F32,
        combine: Combine::Sum,
        axes: AxisSet(5),
        shape: Shape::new(&[]),
        from: Tiling::new(&[Placement::Partial, Placement::Split(1), Placement::Partial]),
        to: Tiling::new(&[Placement::Replicated, Placement::Split(1), Placement::Replicated]),
        halo: Halo::NONE,
    };
    check(
        &collective,
        expect![
            "Collective { kind: CollectiveKind::AllReduce, dtype: DType::F32, combine: Combine::Sum, axes: AxisSet(5), shape: Shape::new(&[]), from: Tiling::new(&[Placement::Partial, Placement::Split(1), Placement::Partial]), to: Tiling::new(&[Placement::Replicated, Placement::Split(1), Placement::Replicated]), halo: Halo::NONE, }"
        ],
    );
    check(
        &Bucket::from(Collective { axes: AxisSet(1), ..collective }),
        expect![
            "Bucket { collectives: Cow::Borrowed(&[Collective { kind: CollectiveKind::AllReduce, dtype: DType::F32, combine: Combine::Sum, axes: AxisSet(1), shape: Shape::new(&[]), from: Tiling::new(&[Placement::Partial, Placement::Split(1), Placement::Partial]), to: Tiling::new(&[Placement::Replicated, Placement::Split(1), Placement::Replicated]), halo: Halo::NONE, }]), }"
        ],
    );
    check(
        &Init::Uniform { low: -1.0, high: 1.0 },
        expect!["Init::Uniform { low: -1.0, high: 1.0 }"],
    );
    check(
        &RunScalar::OneMinusPower { base: 0.999 },
        expect!["RunScalar::OneMinusPower { base: 0.999 }"],
    );
}

#[test]
fn windows_are_expressions() {
    let convolution = Convolution {
        form: ConvolutionForm::Filter,
        batch: 8,
        groups: 1,
        channels: 3,
        filters: 16,
        image: [32, 30],
        window: [3, 5],
        result: [16, 15],
        stride: [2, 2],
        padding: [1, 2],
        dilation: [1, 1],
        layout: ImageLayout::ChannelsFirst,
    };
    let pooling = Pooling {
        form: PoolingForm::MaxGradient,
        planes: 128,
        channels: 1,
        image: [16, 15],
        window: [2, 3],
        result: [8, 5],
        stride: [2, 3],
        padding: [0, 0],
    };
    let kernels = [Kernel::Convolve(convolution), Kernel::Pool(pooling)];
    check(
        &kernels[..],
        expect![
            "[Kernel::Convolve(Convolution { form: ConvolutionForm::Filter, batch: 8, groups: 1, channels: 3, filters: 16, image: [32, 30], window: [3, 5], result: [16, 15], stride: [2, 2], padding: [1, 2], dilation: [1, 1], layout: ImageLayout::ChannelsFirst, }), Kernel::Pool(Pooling { form: PoolingForm::MaxGradient, planes: 128, channels: 1, image: [16, 15], window: [2, 3], result: [8, 5], stride: [2, 3], padding: [0, 0], })]"
        ],
    );
}

#[test]
fn steps_are_calls_in_short_functions() {
    let steps = [
        Step { kernel: 0, inputs: vec![5, 2], results: vec![6] },
        Step { kernel: 1, inputs: vec![6, 3], results: vec![7] },
    ];
    let mut text = String::new();
    functions(&mut text, "train", &steps);
    method(&mut text, "train", &vec![Step { kernel: 0, inputs: vec![0], results: vec![1] }; 101]);
    method(&mut text, "evaluate", &[]);
    expect![[r#"
        fn train_0(rank: &mut Rank<'_>) {
        rank.run(0, &[5, 2], &[6]);
        rank.run(1, &[6, 3], &[7]);
        }
        fn train(&self, rank: &mut Rank<'_>) {
        train_0(rank);
        if rank.is_failed() { return; }
        train_1(rank);
        }
        fn evaluate(&self, _: &mut Rank<'_>) {
        }
    "#]]
    .assert_eq(&text);
}
