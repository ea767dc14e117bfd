//! Channels last: how many copies of images well-known networks have, and that the computation is
//! the same.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use soybean_compiler::{
    Argument, Network, Optimizer, Strategy, Value, build_network, channels_last,
    operators::{convolve::Convolve, permute::Permute},
    round,
    tiling::search,
    verify,
};
use soybean_plan::{DType, ImageLayout, Mesh, Precision};
use soybean_zoo::{
    Layers, Model, alexnet, cnn5, inception_v3, mobilenet_v2, resnet20, resnet50, unet, vgg16,
};

fn network(model: Model) -> Network {
    build_network(model.builder, model.loss, &[], &Optimizer::default()).unwrap()
}

/// Returns convolutions whose results are normalized in groups of channels.
fn with_group_norm() -> Model {
    let mut it = Layers::new(DType::F32, &[64, 3, 32, 32], true);
    for channels in [16, 32, 64] {
        it = it.conv(channels, 3, 2, 1);
        let (scale, shift) =
            (it.parameter("scale", &[channels]), it.parameter("shift", &[channels]));
        let settings = [Argument::Integer(4), scale, shift, Argument::Float(1e-5)];
        it = it.apply("group_norm", &settings).ended();
    }
    it.apply("mean", &[Argument::List(vec![Argument::Integer(2), Argument::Integer(3)])])
        .dense(10)
        .classified(&[64])
}

/// Lists all copies, and counts convolutions by layout.
fn check(precision: Precision, expected: Expect) {
    let accumulating = Optimizer { accumulate: 2, ..Optimizer::default() };
    let model = resnet20(128);
    let accumulating = build_network(model.builder, model.loss, &[], &accumulating).unwrap();
    let networks: [(&str, Network); 10] = [
        ("alexnet", network(alexnet(256))),
        ("vgg16", network(vgg16(256))),
        ("cnn5", network(cnn5(256, 64, 24))),
        ("resnet20", network(resnet20(128))),
        ("resnet20, two steps for each update", accumulating),
        ("resnet50", network(resnet50(256))),
        ("inception-v3", network(inception_v3(256))),
        ("u-net", network(unet(8, 64, 64))),
        ("mobilenet-v2", network(mobilenet_v2(64, 224))),
        ("groups of channels", network(with_group_norm())),
    ];
    let mut text = String::new();
    for (name, network) in networks {
        let network = channels_last(network, precision);
        verify(&network).unwrap();
        let graph = &network.graph;
        let copies = graph.values().filter(|it| graph.operator_as::<Permute>(*it).is_some());
        let copies: Vec<String> = copies.map(|it| graph.shape(it).to_string()).collect();
        let convolutions = |layout| {
            let of_layout = |it: &Value| {
                graph.operator_as::<Convolve>(*it).is_some_and(|it| it.layout == layout)
            };
            graph.values().filter(of_layout).count()
        };
        writeln!(
            text,
            "{name}: {}; {} + {}",
            copies.join(", "),
            convolutions(ImageLayout::ChannelsLast),
            convolutions(ImageLayout::ChannelsFirst),
        )
        .unwrap();
    }
    expected.assert_eq(&text);
}

#[test]
fn images_are_copied_at_the_ends_of_a_network_and_filters_never() {
    check(
        Precision::Bf16,
        expect![[r#"
            alexnet: [256, 256, 6, 6]; 14 + 0
            vgg16: [256, 512, 7, 7]; 38 + 0
            cnn5: ; 14 + 0
            resnet20: ; 62 + 0
            resnet20, two steps for each update: ; 62 + 0
            resnet50: ; 158 + 0
            inception-v3: ; 281 + 0
            u-net: ; 38 + 0
            mobilenet-v2: ; 155 + 0
            groups of channels: ; 8 + 0
        "#]],
    );
    check(
        Precision::Tf32,
        expect![[r#"
            alexnet: [256, 224, 224, 3], [256, 256, 6, 6]; 14 + 0
            vgg16: [256, 224, 224, 3], [256, 512, 7, 7]; 38 + 0
            cnn5: [256, 24, 24, 64]; 14 + 0
            resnet20: [128, 32, 32, 3]; 62 + 0
            resnet20, two steps for each update: [128, 32, 32, 3]; 62 + 0
            resnet50: [256, 224, 224, 3]; 158 + 0
            inception-v3: [256, 299, 299, 3]; 281 + 0
            u-net: [8, 64, 64, 3]; 38 + 0
            mobilenet-v2: [64, 224, 224, 3]; 155 + 0
            groups of channels: [64, 32, 32, 3]; 8 + 0
        "#]],
    );
}

/// Plans for 8 devices move no more bytes than with channels first. The search of ResNet-50 is not
/// exhaustive with either layout, and its plans differ by 0.1 %.
#[test]
fn plans_move_as_many_bytes() {
    let models: [(&str, Model); 6] = [
        ("alexnet", alexnet(64)),
        ("vgg16", vgg16(64)),
        ("resnet20", resnet20(128)),
        ("resnet50", resnet50(32)),
        ("u-net", unet(8, 64, 64)),
        ("mobilenet-v2", mobilenet_v2(64, 224)),
    ];
    for (name, model) in models {
        let network = network(model);
        for precision in [Precision::Bf16, Precision::Tf32] {
            let bytes = |network: Network| {
                let rounded = round(network, precision);
                search(&rounded, Mesh::new(8), &Strategy::Auto.into()).tiled.bytes()
            };
            let last = bytes(channels_last(network.clone(), precision));
            let first = bytes(network.clone());
            let most = if name == "resnet50" { first * 1002 / 1000 } else { first };
            assert!(last <= most, "{name} in {precision}: {last} bytes, {first} before");
        }
    }
}
