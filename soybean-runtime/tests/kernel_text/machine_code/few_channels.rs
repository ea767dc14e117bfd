//! Convolutions of images with three channels: sums stay in registers, and most instructions are
//! products and their operands.

use soybean_plan::{Convolution, ConvolutionForm, DType, ImageLayout, Precision};

use super::{Row, check_figures};
use crate::{
    case::{Case, Data},
    device,
};

/// Returns the first layers of AlexNet, of VGG-16, and of ResNet.
fn cases(dtype: DType, precision: Precision) -> [Case; 3] {
    [(11, 4, 2, 55), (3, 1, 1, 224), (7, 2, 3, 112)].map(|(window, stride, padding, result)| {
        let it = Convolution {
            form: ConvolutionForm::Forward,
            batch: 256,
            groups: 1,
            channels: 3,
            filters: 64,
            image: [224; 2],
            window: [window; 2],
            result: [result; 2],
            stride: [stride; 2],
            padding: [padding; 2],
            dilation: [1; 2],
            layout: ImageLayout::ChannelsLast,
        };
        let inputs = vec![Data { dtype, numbers: Vec::new() }; 2];
        Case { precision, ..Case::new(it, inputs, vec![(dtype, 0)], 0.0) }
    })
}

#[test]
fn convolutions_of_few_channels_have_few_instructions_for_each_product() {
    for (dtype, precision) in [(DType::Bf16, Precision::Bf16), (DType::F32, Precision::Tf32)] {
        let name = format!("few-channels-{precision}");
        check_figures(&name, &device::text(&cases(dtype, precision)), |rows, architecture| {
            assert_eq!(rows.len(), 3, "{rows:?}");
            rows.iter().for_each(|it| check(it, architecture));
        });
    }
}

fn check(row: &Row, architecture: &str) {
    let what = format!("{architecture}: {row:?}");
    assert_eq!([row.n_stack_bytes, row.n_spills], [0; 2], "{what}");
    // A multiprocessor has room for two blocks.
    assert!(row.n_registers <= 128, "{what}");
    // Of the products of a tile, each operand in shared memory serves four or more. Small windows
    // have few products beside the copies of pixels and results.
    assert!(
        row.per_product.unwrap() <= if row.name.starts_with("k1") { 8.0 } else { 3.0 },
        "{what}"
    );
}
