//! First layers of AlexNet, VGG-16 and ResNet: sums stay in registers, and loops have few
//! instructions for each product.

use soybean_plan::{Convolution, ConvolutionForm, DType, ImageLayout, Precision};

use super::{Row, USUAL, check_figures};
use crate::{
    case::{Case, Data},
    device,
};

const TYPES: [(DType, Precision); 2] =
    [(DType::Bf16, Precision::Bf16), (DType::F32, Precision::Tf32)];

/// Width, stride and padding of the windows of AlexNet, VGG-16 and ResNet.
const WINDOWS: [[usize; 3]; 3] = [[11, 4, 2], [3, 1, 1], [7, 2, 3]];

/// Returns a convolution of 64 filters on images of 224 x 224 pixels.
fn case(
    form: ConvolutionForm,
    channels: usize,
    [window, stride, padding]: [usize; 3],
    ((dtype, precision), result): ((DType, Precision), DType),
) -> Case {
    let it = Convolution {
        form,
        batch: 256,
        groups: 1,
        channels,
        filters: 64,
        image: [224; 2],
        window: [window; 2],
        result: [(224 + 2 * padding - window) / stride + 1; 2],
        stride: [stride; 2],
        padding: [padding; 2],
        dilation: [1; 2],
        layout: ImageLayout::ChannelsLast,
    };
    let inputs = vec![Data { dtype, numbers: Vec::new() }; 2];
    Case { precision, ..Case::new(it, inputs, vec![(result, 0)], 0.0) }
}

fn check_registers(row: &Row, what: &str) {
    assert_eq!([row.n_stack_bytes, row.n_spills], [0; 2], "{what}");
}

#[test]
fn convolutions_of_few_channels_have_few_instructions_for_each_product() {
    for types in TYPES {
        let name = format!("convolutions-of-few-channels-{}", types.1);
        let cases = WINDOWS.map(|it| case(ConvolutionForm::Forward, 3, it, (types, types.0)));
        check_figures(&name, &device::text(&cases), &USUAL, |rows, architecture| {
            assert_eq!(rows.len(), 3, "{rows:?}");
            for row in rows {
                let what = format!("{architecture}: {row:?}");
                check_registers(row, &what);
                // A multiprocessor has room for two blocks.
                assert!(row.n_registers <= 128, "{what}");
                // Each operand in shared memory serves four or more products. Small windows have
                // few products beside the copies of pixels and results.
                let most = if row.name.starts_with("k1") { 8.0 } else { 3.0 };
                assert!(row.per_product.is_some_and(|it| it <= most), "{what}");
            }
        });
    }
}

#[test]
fn filter_gradients_of_few_channels_keep_their_sums_in_registers() {
    let form = ConvolutionForm::Filter;
    let of = |types| {
        let with = move |window| [3, 8].map(|it| case(form, it, window, (types, DType::F32)));
        WINDOWS.into_iter().flat_map(with)
    };
    let cases: Vec<Case> = TYPES.into_iter().flat_map(of).collect();
    check_figures(
        "filters-of-few-channels",
        &device::text(&cases),
        &["sm_90"],
        |rows, architecture| {
            assert_eq!(rows.len(), 2 * cases.len(), "{rows:?}");
            for row in rows {
                let what = format!("{architecture}: {row:?}");
                check_registers(row, &what);
                assert!(row.per_product.is_none_or(|it| it <= 4.5), "{what}");
            }
        },
    );
}
