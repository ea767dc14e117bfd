//! cuDNN on virtual devices, against convolutions computed plainly.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::cudnn::sys;
use cudarc::cudnn::sys::{
    cudnnDataType_t as Type, cudnnMathType_t as Mathematics, cudnnStatus_t as Status,
    cudnnTensorFormat_t as Format,
};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr};

use crate::child::with_devices;

/// Extents of images, filters and results, and how filters walk.
#[derive(Clone, Copy)]
struct Case {
    images: [i32; 4],
    filters: [i32; 4],
    padding: i32,
    stride: i32,
    dilation: i32,
    groups: i32,
}

const CASES: [Case; 4] = [
    Case {
        images: [2, 3, 6, 5],
        filters: [4, 3, 3, 3],
        padding: 1,
        stride: 1,
        dilation: 1,
        groups: 1,
    },
    Case {
        images: [1, 2, 7, 7],
        filters: [3, 2, 3, 2],
        padding: 0,
        stride: 2,
        dilation: 1,
        groups: 1,
    },
    Case {
        images: [2, 4, 8, 6],
        filters: [6, 2, 3, 3],
        padding: 2,
        stride: 1,
        dilation: 2,
        groups: 2,
    },
    Case {
        images: [1, 3, 5, 4],
        filters: [3, 1, 1, 1],
        padding: 1,
        stride: 3,
        dilation: 1,
        groups: 3,
    },
];

impl Case {
    fn results(&self) -> [i32; 4] {
        let extent = |axis: usize| {
            let reach = self.dilation * (self.filters[axis] - 1) + 1;
            (self.images[axis] + 2 * self.padding - reach) / self.stride + 1
        };
        [self.images[0], self.filters[0], extent(2), extent(3)]
    }

    /// Calls with the places of an image's, a filter's and a result's element that belong together.
    fn walk(&self, mut visit: impl FnMut(usize, usize, usize)) {
        let results = self.results();
        let place = |extents: [i32; 4], at: [i32; 4]| {
            extents.iter().zip(at).fold(0, |sum, (extent, at)| sum * extent + at) as usize
        };
        for y in 0..results.iter().product() {
            let [n, k] = [
                y / (results[1] * results[2] * results[3]),
                y / (results[2] * results[3]) % results[1],
            ];
            let [p, q] = [y / results[3] % results[2], y % results[3]];
            for w in 0..self.filters[1..].iter().product() {
                let [c, r, s] = [
                    w / (self.filters[2] * self.filters[3]),
                    w / self.filters[3] % self.filters[2],
                    w % self.filters[3],
                ];
                let channel = k / (self.filters[0] / self.groups) * self.filters[1] + c;
                let row = p * self.stride + r * self.dilation - self.padding;
                let column = q * self.stride + s * self.dilation - self.padding;
                if (0..self.images[2]).contains(&row) && (0..self.images[3]).contains(&column) {
                    visit(
                        place(self.images, [n, channel, row, column]),
                        place(self.filters, [k, c, r, s]),
                        y as usize,
                    );
                }
            }
        }
    }
}

fn numbers(count: i32, seed: i32) -> Vec<f32> {
    (0..count).map(|i| ((i * 37 + seed * 11) % 17 - 8) as f32 / 8.0).collect()
}

fn count(extents: [i32; 4]) -> i32 {
    extents.iter().product()
}

/// The element of a tensor by channels first that is at this place of one by channels last.
fn channels_first(extents: [i32; 4], place: usize) -> usize {
    let [_, c, h, w] = extents.map(|extent| extent as usize);
    let [n, y, x, channel] = [place / (h * w * c), place / (w * c) % h, place / c % w, place % c];
    ((n * c + channel) * h + y) * w + x
}

/// A tensor on the device.
struct Tensor {
    memory: CudaSlice<u8>,
    number: Type,
    format: Format,
    extents: [i32; 4],
}

impl Tensor {
    fn new(
        stream: &Arc<CudaStream>,
        number: Type,
        format: Format,
        extents: [i32; 4],
        values: &[f32],
    ) -> Self {
        let value = |place| {
            values[if format == Format::CUDNN_TENSOR_NHWC {
                channels_first(extents, place)
            } else {
                place
            }]
        };
        let values = (0..values.len()).map(value);
        let bytes: Vec<u8> = match number {
            Type::CUDNN_DATA_FLOAT => values.flat_map(f32::to_ne_bytes).collect(),
            // The numbers of these tests have few bits.
            _ => values.flat_map(|value| ((value.to_bits() >> 16) as u16).to_ne_bytes()).collect(),
        };
        Self { memory: stream.clone_htod(&bytes).unwrap(), number, format, extents }
    }

    fn read(&self, stream: &Arc<CudaStream>) -> Vec<f32> {
        let bytes = stream.clone_dtoh(&self.memory).unwrap();
        let values: Vec<f32> = match self.number {
            Type::CUDNN_DATA_FLOAT => {
                bytes.as_chunks().0.iter().map(|&it| f32::from_ne_bytes(it)).collect()
            }
            _ => bytes
                .as_chunks()
                .0
                .iter()
                .map(|&it| f32::from_bits(u32::from(u16::from_ne_bytes(it)) << 16))
                .collect(),
        };
        if self.format == Format::CUDNN_TENSOR_NCHW {
            return values;
        }
        let mut sorted = vec![0.0; values.len()];
        values
            .iter()
            .enumerate()
            .for_each(|(place, &value)| sorted[channels_first(self.extents, place)] = value);
        sorted
    }

    fn pointer(&self) -> *mut c_void {
        self.memory.device_ptr(self.memory.stream()).0 as *mut c_void
    }

    fn describe(&self) -> sys::cudnnTensorDescriptor_t {
        let ([n, c, h, w], mut made) = (self.extents, std::ptr::null_mut());
        // SAFETY: the result is a place of this function.
        unsafe { sys::cudnnCreateTensorDescriptor(&raw mut made) }.result().unwrap();
        // SAFETY: it has just been made.
        unsafe { sys::cudnnSetTensor4dDescriptor(made, self.format, self.number, n, c, h, w) }
            .result()
            .unwrap();
        made
    }

    fn describe_filter(&self) -> sys::cudnnFilterDescriptor_t {
        let ([k, c, h, w], mut made) = (self.extents, std::ptr::null_mut());
        // SAFETY: the result is a place of this function.
        unsafe { sys::cudnnCreateFilterDescriptor(&raw mut made) }.result().unwrap();
        // SAFETY: it has just been made.
        unsafe { sys::cudnnSetFilter4dDescriptor(made, self.number, self.format, k, c, h, w) }
            .result()
            .unwrap();
        made
    }
}

fn describe_walk(case: &Case, mathematics: Mathematics) -> sys::cudnnConvolutionDescriptor_t {
    let mut made = std::ptr::null_mut();
    // SAFETY: the result is a place of this function.
    unsafe { sys::cudnnCreateConvolutionDescriptor(&raw mut made) }.result().unwrap();
    let (pad, stride, dilation) = (case.padding, case.stride, case.dilation);
    let mode = sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION;
    // SAFETY: it has just been made.
    unsafe {
        sys::cudnnSetConvolution2dDescriptor(
            made,
            pad,
            pad,
            stride,
            stride,
            dilation,
            dilation,
            mode,
            Type::CUDNN_DATA_FLOAT,
        )
    }
    .result()
    .unwrap();
    // SAFETY: as above.
    unsafe { sys::cudnnSetConvolutionMathType(made, mathematics) }.result().unwrap();
    // SAFETY: as above.
    unsafe { sys::cudnnSetConvolutionGroupCount(made, case.groups) }.result().unwrap();
    made
}

struct Library {
    stream: Arc<CudaStream>,
    handle: sys::cudnnHandle_t,
    workspace: CudaSlice<u8>,
}

impl Library {
    fn new() -> Self {
        let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
        let mut handle = std::ptr::null_mut();
        // SAFETY: the result is a place of this function.
        unsafe { sys::cudnnCreate(&raw mut handle) }.result().unwrap();
        // SAFETY: both are there.
        unsafe { sys::cudnnSetStream(handle, stream.cu_stream().cast()) }.result().unwrap();
        Self { workspace: stream.alloc_zeros(8192).unwrap(), stream, handle }
    }

    /// Computes one of the three tensors from the others, as `direction` says, with weights 2 and 0.5 of what is new and what was there.
    fn run(&self, direction: usize, [x, w, y]: [&Tensor; 3], case: &Case) -> sys::cudnnStatus_t {
        let (x_description, w_description, y_description) =
            (x.describe(), w.describe_filter(), y.describe());
        let walk = describe_walk(case, Mathematics::CUDNN_FMA_MATH);
        let (alpha, beta) = (2.0_f32, 0.5_f32);
        let (alpha, beta) =
            ((&raw const alpha).cast::<c_void>(), (&raw const beta).cast::<c_void>());
        let workspace = self.workspace.device_ptr(&self.stream).0 as *mut c_void;
        let (xd, wd, yd) = (x.pointer(), w.pointer(), y.pointer());
        match direction {
            0 => {
                let algorithm = sys::cudnnConvolutionFwdAlgo_t::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
                // SAFETY: all tensors are as described.
                unsafe {
                    sys::cudnnConvolutionForward(
                        self.handle,
                        alpha,
                        x_description,
                        xd,
                        w_description,
                        wd,
                        walk,
                        algorithm,
                        workspace,
                        8192,
                        beta,
                        y_description,
                        yd,
                    )
                }
            }
            1 => {
                let algorithm =
                    sys::cudnnConvolutionBwdDataAlgo_t::CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
                // SAFETY: all tensors are as described.
                unsafe {
                    sys::cudnnConvolutionBackwardData(
                        self.handle,
                        alpha,
                        w_description,
                        wd,
                        y_description,
                        yd,
                        walk,
                        algorithm,
                        workspace,
                        8192,
                        beta,
                        x_description,
                        xd,
                    )
                }
            }
            _ => {
                let algorithm =
                    sys::cudnnConvolutionBwdFilterAlgo_t::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;
                // SAFETY: all tensors are as described.
                unsafe {
                    sys::cudnnConvolutionBackwardFilter(
                        self.handle,
                        alpha,
                        x_description,
                        xd,
                        y_description,
                        yd,
                        walk,
                        algorithm,
                        workspace,
                        8192,
                        beta,
                        w_description,
                        wd,
                    )
                }
            }
        }
    }
}

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
                for (direction, computed) in [(0, 2), (1, 0), (2, 1)] {
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
                    case.walk(|x, w, y| match computed {
                        0 => expected[x] += 2.0 * values[1][w] * values[2][y],
                        1 => expected[w] += 2.0 * values[0][x] * values[2][y],
                        _ => expected[y] += 2.0 * values[0][x] * values[1][w],
                    });
                    let found = tensors[computed].read(&library.stream);
                    for (place, (found, expected)) in found.iter().zip(&expected).enumerate() {
                        let limit = tolerance * expected.abs().max(1.0);
                        assert!(
                            (found - expected).abs() <= limit,
                            "direction {direction}, element {place} is {found}, not {expected}"
                        );
                    }
                }
            }
        }
    });
}

#[test]
fn algorithms_say_what_they_are() {
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
            (x.describe(), w.describe_filter(), y.describe());
        let walk = describe_walk(&case, Mathematics::CUDNN_DEFAULT_MATH);
        // SAFETY: numbers may have any bits here, and these are those of a number each.
        let mut found: [sys::cudnnConvolutionBwdFilterAlgoPerf_t; 8] =
            unsafe { std::mem::zeroed() };
        let mut n_found = 0;
        // SAFETY: there is room for as many as are asked for.
        let asked = unsafe {
            sys::cudnnGetConvolutionBackwardFilterAlgorithm_v7(
                library.handle,
                x_description,
                y_description,
                walk,
                w_description,
                8,
                &raw mut n_found,
                found.as_mut_ptr(),
            )
        };
        asked.result().unwrap();
        assert_eq!(n_found, 4);
        assert_eq!(found[0].determinism, sys::cudnnDeterminism_t::CUDNN_NON_DETERMINISTIC);
        assert_eq!(found[2].determinism, sys::cudnnDeterminism_t::CUDNN_DETERMINISTIC);
        assert!(found.iter().take(4).is_sorted_by(|one, other| one.time < other.time));
        let mut n_bytes = 0;
        // SAFETY: all descriptions are there.
        let size = unsafe {
            sys::cudnnGetConvolutionBackwardFilterWorkspaceSize(
                library.handle,
                x_description,
                y_description,
                walk,
                w_description,
                found[2].algo,
                &raw mut n_bytes,
            )
        };
        size.result().unwrap();
        assert_eq!((n_bytes, found[2].memory), (4096, 4096));
        let wrong = Case { padding: 0, ..case };
        assert_eq!(library.run(0, [&x, &w, &y], &wrong), Status::CUDNN_STATUS_BAD_PARAM);
    });
}
