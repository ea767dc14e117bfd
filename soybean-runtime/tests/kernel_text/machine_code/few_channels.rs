//! Gradients of the filters of first layers: their sums stay in registers, and loops have few
//! instructions for each product.

use soybean_plan::{Convolution, ConvolutionForm, DType, ImageLayout, Precision};

use super::check_figures;
use crate::{
    case::{Case, Data},
    device,
};

/// Returns gradients of 64 filters of this window on images of 224 x 224 pixels.
fn case(
    channels: usize,
    (window, stride, padding): (usize, usize, usize),
    (dtype, precision): (DType, Precision),
) -> Case {
    let it = Convolution {
        form: ConvolutionForm::Filter,
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
    let inputs = [dtype; 2].map(|dtype| Data { dtype, numbers: Vec::new() }).to_vec();
    Case { precision, ..Case::new(it, inputs, vec![(DType::F32, 0)], 0.0) }
}

#[test]
fn filter_gradients_of_few_channels_keep_their_sums_in_registers() {
    // VGG-16, AlexNet and ResNet.
    let windows = [(3, 1, 1), (11, 4, 2), (7, 2, 3)];
    let of = |(dtype, precision)| {
        let with = move |window| [3, 8].map(|it| case(it, window, (dtype, precision)));
        windows.into_iter().flat_map(with)
    };
    let types = [(DType::Bf16, Precision::Bf16), (DType::F32, Precision::Tf32)];
    let cases: Vec<Case> = types.into_iter().flat_map(of).collect();
    check_figures("few-channels", &device::text(&cases), |rows, architecture| {
        assert_eq!(rows.len(), 2 * cases.len(), "{rows:?}");
        for row in rows {
            let what = format!("{architecture}: {row:?}");
            assert_eq!([row.n_stack_bytes, row.n_spills], [0; 2], "{what}");
            assert!(row.per_product.is_none_or(|it| it <= 4.5), "{what}");
        }
    });
}
