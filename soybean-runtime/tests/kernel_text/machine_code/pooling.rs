//! Pooling of images whose channels are the last dim: a thread reads and writes 16 bytes at once,
//! and has few instructions for each pixel.

use soybean_plan::{DType, Pooling, PoolingForm};

use super::{Row, USUAL, check_figures};
use crate::{
    case::{Case, Data},
    device,
};

/// Returns pooling of 64 channels, as in VGG-16 and in AlexNet.
fn cases(form: PoolingForm, dtype: DType) -> [Case; 2] {
    let of = |side: usize, window: usize| {
        let result = [(side - window) / 2 + 1; 2];
        let (image, window) = ([side; 2], [window; 2]);
        let (planes, channels, stride, padding) = (256, 64, [2; 2], [0; 2]);
        let it = Pooling { form, planes, channels, image, window, result, stride, padding };
        let n_inputs = 1 + usize::from(form == PoolingForm::MaxGradient);
        let inputs = (0..n_inputs).map(|_| Data { dtype, numbers: Vec::new() }).collect();
        Case::new(it, inputs, vec![(dtype, 0)], 0.0)
    };
    [of(224, 2), of(55, 3)]
}

#[test]
fn pooling_reads_and_writes_16_bytes_at_once() {
    use PoolingForm::{Max, MaxGradient, Sum, SumGradient};
    for (dtype, width) in [(DType::Bf16, 8), (DType::F32, 4)] {
        let cases: Vec<Case> = [Max, MaxGradient, Sum, SumGradient]
            .into_iter()
            .flat_map(|form| cases(form, dtype))
            .collect();
        check_figures("pooling", &device::text(&cases), &USUAL, |rows, architecture| {
            assert_eq!(rows.len(), 9, "{rows:?}");
            rows.iter().for_each(|it| check(it, width, architecture));
        });
    }
}

/// Checks a kernel whose threads have `width` channels.
fn check(row: &Row, width: usize, architecture: &str) {
    let what = format!("{architecture}: {row:?}");
    assert_eq!([row.n_stack_bytes, row.n_spills], [0; 2], "{what}");
    let widths = |all: &str| -> Vec<usize> {
        all.split(',').map(|it| it.split_once('x').unwrap().1.parse().unwrap()).collect()
    };
    // The place of a maximum is one byte.
    let has_places = row.name.starts_with("k3");
    let (loads, stores) = match (has_places, row.name.ends_with("chosen")) {
        (true, true) => (vec![128], vec![8 * width]),
        (true, false) => (vec![8 * width, 128], vec![128]),
        (false, _) => (vec![128], vec![128]),
    };
    assert_eq!((widths(&row.loads), widths(&row.stores)), (loads, stores), "{what}");
    // A thread has a window, or four pixels that windows share.
    let most = if has_places { 16 } else { 11 };
    assert!(row.n_instructions <= most * 4 * width + 64, "{what}");
}
