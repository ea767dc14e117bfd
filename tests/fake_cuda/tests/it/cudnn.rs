//! Tests of cuDNN on virtual devices against plain loops.

use cudarc::cudnn::sys;
use cudarc::cudnn::sys::{
    cudnnActivationMode_t as Mode, cudnnConvolutionFwdAlgo_t as Algorithm, cudnnDataType_t as Type,
    cudnnMathType_t as Mathematics, cudnnNanPropagation_t as Nan, cudnnStatus_t as Status,
    cudnnTensorFormat_t as Format,
};

use crate::child_process::with_devices;
use crate::convolution_reference::{
    ALPHA, BETA, CASES, Case, Direction, Library, Tensor, WORKSPACE_BYTES, convolution_descriptor,
    count, numbers, scale,
};

const PRECOMPUTED: Algorithm = Algorithm::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;

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

/// Runs a convolution with a bias and an activation.
fn run_with_bias(
    library: &Library,
    [x, w, bias, y]: [&Tensor; 4],
    case: &Case,
    (mode, of_nan): (Mode, Nan),
    algorithm: Algorithm,
) -> Status {
    let mut activation = std::ptr::null_mut();
    // SAFETY: the result is a local variable.
    unsafe { sys::cudnnCreateActivationDescriptor(&raw mut activation) }.result().unwrap();
    // SAFETY: it was just created.
    unsafe { sys::cudnnSetActivationDescriptor(activation, mode, of_nan, 0.0) }.result().unwrap();
    let results = y.tensor_descriptor();
    // SAFETY: all tensors match their descriptors.
    unsafe {
        sys::cudnnConvolutionBiasActivationForward(
            library.handle,
            scale(&ALPHA),
            x.tensor_descriptor(),
            x.pointer(),
            w.filter_descriptor(),
            w.pointer(),
            convolution_descriptor(case, Mathematics::CUDNN_FMA_MATH),
            algorithm,
            library.workspace_pointer(),
            WORKSPACE_BYTES,
            scale(&BETA),
            results,
            y.pointer(),
            bias.tensor_descriptor(),
            bias.pointer(),
            activation,
            results,
            y.pointer(),
        )
    }
}

/// Returns images, filters, bias and results of a case.
fn tensors_with_bias(library: &Library, case: &Case, format: Format) -> [(Tensor, Vec<f32>); 4] {
    let bias = [1, case.filters[0], 1, 1];
    [
        (1, format, case.images),
        (2, format, case.filters),
        (3, Format::CUDNN_TENSOR_NCHW, bias),
        (4, format, case.results()),
    ]
    .map(|(seed, format, extents)| {
        let values = numbers(count(extents), seed);
        let number = Type::CUDNN_DATA_FLOAT;
        (Tensor::new(&library.stream, number, format, extents, &values), values)
    })
}

#[test]
fn biases_and_activations_follow_convolutions() {
    with_devices(&[], |_| {
        let library = Library::new();
        for case in &CASES {
            for (format, mode) in [
                (Format::CUDNN_TENSOR_NHWC, Mode::CUDNN_ACTIVATION_RELU),
                (Format::CUDNN_TENSOR_NCHW, Mode::CUDNN_ACTIVATION_RELU),
                (Format::CUDNN_TENSOR_NHWC, Mode::CUDNN_ACTIVATION_IDENTITY),
            ] {
                let tensors = tensors_with_bias(&library, case, format);
                let [x, w, bias, y] = tensors.each_ref().map(|it| &it.1);
                let n_pixels = y.len() / (case.images[0] as usize * bias.len());
                let before = |(at, it): (usize, &f32)| 0.5 * it + bias[at / n_pixels % bias.len()];
                let mut expected: Vec<f32> = y.iter().enumerate().map(before).collect();
                case.for_each_product(|at_x, at_w, at_y| expected[at_y] += 2.0 * x[at_x] * w[at_w]);
                let made = tensors.each_ref().map(|it| &it.0);
                let activation = (mode, Nan::CUDNN_NOT_PROPAGATE_NAN);
                run_with_bias(&library, made, case, activation, PRECOMPUTED).result().unwrap();
                for (found, sum) in made[3].read(&library.stream).iter().zip(&expected) {
                    let is_relu = mode == Mode::CUDNN_ACTIVATION_RELU;
                    let expected = if is_relu { sum.max(0.0) } else { *sum };
                    assert!((found - expected).abs() <= 1e-5, "{found}, not {expected}");
                }
            }
        }
    });
}

#[test]
fn activations_have_the_limits_of_the_documentation() {
    with_devices(&[], |_| {
        let (library, case) = (Library::new(), CASES[0]);
        let tensors = tensors_with_bias(&library, &case, Format::CUDNN_TENSOR_NHWC);
        let [x, w, bias, y] = tensors.each_ref().map(|it| &it.0);
        let status = |bias: &Tensor, mode, of_nan, algorithm| {
            run_with_bias(&library, [x, w, bias, y], &case, (mode, of_nan), algorithm)
        };
        let (relu, not) = (Mode::CUDNN_ACTIVATION_RELU, Nan::CUDNN_NOT_PROPAGATE_NAN);
        let simple = Algorithm::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM;
        assert_eq!(status(bias, relu, not, simple), Status::CUDNN_STATUS_SUCCESS);
        for (mode, of_nan, algorithm) in [
            (Mode::CUDNN_ACTIVATION_IDENTITY, not, simple),
            (Mode::CUDNN_ACTIVATION_TANH, not, PRECOMPUTED),
            (relu, Nan::CUDNN_PROPAGATE_NAN, PRECOMPUTED),
        ] {
            assert_eq!(status(bias, mode, of_nan, algorithm), Status::CUDNN_STATUS_NOT_SUPPORTED);
        }
        assert_eq!(status(y, relu, not, PRECOMPUTED), Status::CUDNN_STATUS_BAD_PARAM);
    });
}
