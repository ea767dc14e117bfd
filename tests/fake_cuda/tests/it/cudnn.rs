//! Tests of cuDNN on virtual devices against plain loops.

use cudarc::cudnn::sys;
use cudarc::cudnn::sys::{
    cudnnDataType_t as Type, cudnnMathType_t as Mathematics, cudnnStatus_t as Status,
    cudnnTensorFormat_t as Format,
};

use crate::child_process::with_devices;
use crate::convolution_reference::{
    CASES, Case, Direction, Library, Tensor, convolution_descriptor, count, numbers,
};

#[test]
fn convolutions_and_gradients_are_right() {
    with_devices(&[], |_| {
        let library = Library::new();
        let formats = [Format::CUDNN_TENSOR_NCHW, Format::CUDNN_TENSOR_NHWC];
        for (number, tolerance) in
            [(Type::CUDNN_DATA_FLOAT, 1e-6), (Type::CUDNN_DATA_BFLOAT16, 0.01)]
        {
            for (case, format) in CASES.iter().flat_map(|case| formats.map(|format| (case, format)))
            {
                let extents = [case.images, case.filters, case.results()];
                let values: Vec<Vec<f32>> = (1..)
                    .zip(extents)
                    .map(|(seed, extents)| numbers(count(extents), seed))
                    .collect();
                for (direction, computed) in [
                    (Direction::Forward, 2),
                    (Direction::BackwardData, 0),
                    (Direction::BackwardFilter, 1),
                ] {
                    let tensors: Vec<Tensor> = values
                        .iter()
                        .zip(extents)
                        .map(|(values, extents)| {
                            Tensor::new(&library.stream, number, format, extents, values)
                        })
                        .collect();
                    library
                        .run(direction, [&tensors[0], &tensors[1], &tensors[2]], case)
                        .result()
                        .unwrap();
                    let mut expected: Vec<f32> =
                        values[computed].iter().map(|value| 0.5 * value).collect();
                    case.for_each_product(|x, w, y| match computed {
                        0 => expected[x] += 2.0 * values[1][w] * values[2][y],
                        1 => expected[w] += 2.0 * values[0][x] * values[2][y],
                        _ => expected[y] += 2.0 * values[0][x] * values[1][w],
                    });
                    let found = tensors[computed].read(&library.stream);
                    for (place, (found, expected)) in found.iter().zip(&expected).enumerate() {
                        let limit = tolerance * expected.abs().max(1.0);
                        assert!(
                            (found - expected).abs() <= limit,
                            "{direction:?}, element {place} is {found}, not {expected}"
                        );
                    }
                }
            }
        }
    });
}

#[test]
fn algorithms_report_their_properties() {
    with_devices(&[], |_| {
        let library = Library::new();
        let case = CASES[0];
        let tensor = |extents| {
            Tensor::new(
                &library.stream,
                Type::CUDNN_DATA_FLOAT,
                Format::CUDNN_TENSOR_NCHW,
                extents,
                &numbers(count(extents), 1),
            )
        };
        let (x, w, y) = (tensor(case.images), tensor(case.filters), tensor(case.results()));
        let (x_description, w_description, y_description) =
            (x.tensor_descriptor(), w.filter_descriptor(), y.tensor_descriptor());
        let descriptor = convolution_descriptor(&case, Mathematics::CUDNN_DEFAULT_MATH);
        // SAFETY: zero is valid for all fields.
        let mut found: [sys::cudnnConvolutionBwdFilterAlgoPerf_t; 8] =
            unsafe { std::mem::zeroed() };
        let mut n_found = 0;
        // SAFETY: there is memory for as many results as are requested.
        let asked = unsafe {
            sys::cudnnGetConvolutionBackwardFilterAlgorithm_v7(
                library.handle,
                x_description,
                y_description,
                descriptor,
                w_description,
                8,
                &raw mut n_found,
                found.as_mut_ptr(),
            )
        };
        asked.result().unwrap();
        assert_eq!(n_found, 5);
        // Winograd's transforms come first, and Fourier's last.
        let determinism: Vec<_> = found.iter().take(5).map(|it| it.determinism as u32).collect();
        assert_eq!(determinism, [1, 0, 0, 1, 1]);
        assert!(found.iter().take(5).is_sorted_by(|one, other| one.time < other.time));
        let mut n_bytes = 0;
        // SAFETY: all descriptors are valid.
        let size = unsafe {
            sys::cudnnGetConvolutionBackwardFilterWorkspaceSize(
                library.handle,
                x_description,
                y_description,
                descriptor,
                w_description,
                found[2].algo,
                &raw mut n_bytes,
            )
        };
        size.result().unwrap();
        // The heuristic's number need not be the workspace's size.
        assert_eq!((n_bytes, found[2].memory), (4096, 2048));
        let wrong = Case { padding: 0, ..case };
        assert_eq!(
            library.run(Direction::Forward, [&x, &w, &y], &wrong),
            Status::CUDNN_STATUS_BAD_PARAM
        );
    });
}
