//! Tensors on a virtual device, convolutions by cuDNN, and the products of a convolution.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::cudnn::sys;
use cudarc::cudnn::sys::{
    cudnnDataType_t as Type, cudnnMathType_t as Mathematics, cudnnStatus_t as Status,
    cudnnTensorFormat_t as Format,
};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr};

/// Extents of images, filters and results, and the parameters of the convolution.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) images: [i32; 4],
    pub(crate) filters: [i32; 4],
    pub(crate) padding: i32,
    pub(crate) stride: i32,
    pub(crate) dilation: i32,
    pub(crate) groups: i32,
}

pub(crate) const CASES: [Case; 4] = [
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
    pub(crate) fn results(&self) -> [i32; 4] {
        let extent = |axis: usize| {
            let reach = self.dilation * (self.filters[axis] - 1) + 1;
            (self.images[axis] + 2 * self.padding - reach) / self.stride + 1
        };
        [self.images[0], self.filters[0], extent(2), extent(3)]
    }

    /// Calls `visit` with the offsets of the elements of image, filter and result of each product.
    pub(crate) fn for_each_product(&self, mut visit: impl FnMut(usize, usize, usize)) {
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

pub(crate) fn numbers(count: i32, seed: i32) -> Vec<f32> {
    (0..count).map(|i| ((i * 37 + seed * 11) % 17 - 8) as f32 / 8.0).collect()
}

pub(crate) fn count(extents: [i32; 4]) -> i32 {
    extents.iter().product()
}

/// Returns the NCHW offset of the element at an NHWC offset.
pub(crate) fn channels_first(extents: [i32; 4], place: usize) -> usize {
    let [_, c, h, w] = extents.map(|extent| extent as usize);
    let [n, y, x, channel] = [place / (h * w * c), place / (w * c) % h, place / c % w, place % c];
    ((n * c + channel) * h + y) * w + x
}

/// A tensor on the device.
pub(crate) struct Tensor {
    pub(crate) memory: CudaSlice<u8>,
    pub(crate) number: Type,
    pub(crate) format: Format,
    pub(crate) extents: [i32; 4],
}

impl Tensor {
    pub(crate) fn new(
        stream: &Arc<CudaStream>,
        number: Type,
        format: Format,
        extents: [i32; 4],
        values: &[f32],
    ) -> Self {
        let is_last = format == Format::CUDNN_TENSOR_NHWC;
        let value = |place| values[if is_last { channels_first(extents, place) } else { place }];
        let values = (0..values.len()).map(value);
        let bytes: Vec<u8> = match number {
            Type::CUDNN_DATA_FLOAT => values.flat_map(f32::to_ne_bytes).collect(),
            // The numbers of these tests have few bits.
            _ => values.flat_map(|value| ((value.to_bits() >> 16) as u16).to_ne_bytes()).collect(),
        };
        Self { memory: stream.clone_htod(&bytes).unwrap(), number, format, extents }
    }

    pub(crate) fn read(&self, stream: &Arc<CudaStream>) -> Vec<f32> {
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

    pub(crate) fn pointer(&self) -> *mut c_void {
        self.memory.device_ptr(self.memory.stream()).0 as *mut c_void
    }

    pub(crate) fn tensor_descriptor(&self) -> sys::cudnnTensorDescriptor_t {
        let ([n, c, h, w], mut made) = (self.extents, std::ptr::null_mut());
        // SAFETY: the result is a local variable.
        unsafe { sys::cudnnCreateTensorDescriptor(&raw mut made) }.result().unwrap();
        // SAFETY: it was just created.
        unsafe { sys::cudnnSetTensor4dDescriptor(made, self.format, self.number, n, c, h, w) }
            .result()
            .unwrap();
        made
    }

    pub(crate) fn filter_descriptor(&self) -> sys::cudnnFilterDescriptor_t {
        let ([k, c, h, w], mut made) = (self.extents, std::ptr::null_mut());
        // SAFETY: the result is a local variable.
        unsafe { sys::cudnnCreateFilterDescriptor(&raw mut made) }.result().unwrap();
        // SAFETY: it was just created.
        unsafe { sys::cudnnSetFilter4dDescriptor(made, self.number, self.format, k, c, h, w) }
            .result()
            .unwrap();
        made
    }
}

pub(crate) fn convolution_descriptor(
    case: &Case,
    mathematics: Mathematics,
) -> sys::cudnnConvolutionDescriptor_t {
    let mut made = std::ptr::null_mut();
    // SAFETY: the result is a local variable.
    unsafe { sys::cudnnCreateConvolutionDescriptor(&raw mut made) }.result().unwrap();
    let (pad, stride, dilation) = (case.padding, case.stride, case.dilation);
    let mode = sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION;
    // SAFETY: it was just created.
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

pub(crate) struct Library {
    pub(crate) stream: Arc<CudaStream>,
    pub(crate) handle: sys::cudnnHandle_t,
    pub(crate) workspace: CudaSlice<u8>,
}

impl Library {
    pub(crate) fn new() -> Self {
        let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
        let mut handle = std::ptr::null_mut();
        // SAFETY: the result is a local variable.
        unsafe { sys::cudnnCreate(&raw mut handle) }.result().unwrap();
        // SAFETY: both are valid.
        unsafe { sys::cudnnSetStream(handle, stream.cu_stream().cast()) }.result().unwrap();
        Self { workspace: stream.alloc_zeros(WORKSPACE_BYTES).unwrap(), stream, handle }
    }

    pub(crate) fn workspace_pointer(&self) -> *mut c_void {
        self.workspace.device_ptr(&self.stream).0 as *mut c_void
    }

    /// Computes one of the three tensors from the others, with factors 2 for the sum and 0.5 for
    /// the previous content.
    pub(crate) fn run(&self, direction: Direction, tensors: [&Tensor; 3], case: &Case) -> Status {
        let [x, w, y] = tensors;
        let call = Call {
            handle: self.handle,
            tensors: [(x.tensor_descriptor(), x.pointer()), (y.tensor_descriptor(), y.pointer())],
            filters: (w.filter_descriptor(), w.pointer()),
            descriptor: convolution_descriptor(case, Mathematics::CUDNN_FMA_MATH),
            workspace: self.workspace_pointer(),
        };
        match direction {
            Direction::Forward => call.forward(),
            Direction::BackwardData => call.backward_data(),
            Direction::BackwardFilter => call.backward_filter(),
        }
    }
}

/// Selects the tensor that is computed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Direction {
    Forward,
    BackwardData,
    BackwardFilter,
}

/// Arguments of a call.
pub(crate) struct Call {
    pub(crate) handle: sys::cudnnHandle_t,
    /// Images and results.
    pub(crate) tensors: [(sys::cudnnTensorDescriptor_t, *mut c_void); 2],
    pub(crate) filters: (sys::cudnnFilterDescriptor_t, *mut c_void),
    pub(crate) descriptor: sys::cudnnConvolutionDescriptor_t,
    pub(crate) workspace: *mut c_void,
}

pub(crate) const WORKSPACE_BYTES: usize = 8192;
pub(crate) const ALPHA: f32 = 2.0;
pub(crate) const BETA: f32 = 0.5;

pub(crate) fn scale(value: &'static f32) -> *const c_void {
    (&raw const *value).cast()
}

impl Call {
    pub(crate) fn forward(&self) -> Status {
        let Self { handle, tensors: [x, y], filters: w, descriptor, workspace } = *self;
        let algorithm =
            sys::cudnnConvolutionFwdAlgo_t::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
        // SAFETY: all tensors match their descriptors.
        unsafe {
            sys::cudnnConvolutionForward(
                handle,
                scale(&ALPHA),
                x.0,
                x.1,
                w.0,
                w.1,
                descriptor,
                algorithm,
                workspace,
                WORKSPACE_BYTES,
                scale(&BETA),
                y.0,
                y.1,
            )
        }
    }

    pub(crate) fn backward_data(&self) -> Status {
        let Self { handle, tensors: [x, y], filters: w, descriptor, workspace } = *self;
        let algorithm = sys::cudnnConvolutionBwdDataAlgo_t::CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
        // SAFETY: all tensors match their descriptors.
        unsafe {
            sys::cudnnConvolutionBackwardData(
                handle,
                scale(&ALPHA),
                w.0,
                w.1,
                y.0,
                y.1,
                descriptor,
                algorithm,
                workspace,
                WORKSPACE_BYTES,
                scale(&BETA),
                x.0,
                x.1,
            )
        }
    }

    pub(crate) fn backward_filter(&self) -> Status {
        let Self { handle, tensors: [x, y], filters: w, descriptor, workspace } = *self;
        let algorithm = sys::cudnnConvolutionBwdFilterAlgo_t::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;
        // SAFETY: all tensors match their descriptors.
        unsafe {
            sys::cudnnConvolutionBackwardFilter(
                handle,
                scale(&ALPHA),
                x.0,
                x.1,
                y.0,
                y.1,
                descriptor,
                algorithm,
                workspace,
                WORKSPACE_BYTES,
                scale(&BETA),
                w.0,
                w.1,
            )
        }
    }
}
