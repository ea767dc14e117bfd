//! Descriptors and their attributes.

use super::{ApiResult, Status};
use crate::element_type::ElementType;
use crate::ffi::Address;

/// `cublasLtMatmulDesc_t`.
#[derive(Clone, Debug)]
pub(super) struct MatmulDescriptor {
    compute: u32,
    /// For A and B.
    pub(super) transposed: [bool; 2],
    pub(super) epilogue: Epilogue,
    pub(super) bias: u64,
    /// `None` means the type of the result.
    pub(super) bias_type: Option<ElementType>,
    /// Distance between the vectors of a batch in elements.
    pub(super) bias_stride: i64,
    pub(super) auxiliary: u64,
    pub(super) auxiliary_leading: i64,
    pub(super) auxiliary_stride: i64,
    pub(super) auxiliary_type: Option<ElementType>,
}

/// `cublasLtMatrixLayout_t` in column-major order.
#[derive(Clone, Copy, Debug)]
pub(super) struct MatrixLayout {
    pub(super) dtype: ElementType,
    pub(super) rows: u64,
    pub(super) columns: u64,
    pub(super) leading: i64,
    pub(super) batch: i32,
    pub(super) stride: i64,
}

/// `cublasLtMatrixTransformDesc_t`, of copies of one matrix.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TransformDescriptor {
    pub(super) is_transposed: bool,
}

/// `cublasLtMatmulPreference_t`.
#[derive(Clone, Debug)]
pub(super) struct MatmulPreference {
    pub(super) workspace_bytes: u64,
    /// Alignments of A, B, C and D. The default is 256.
    pub(super) alignments: [u32; 4],
}

/// `cublasLtEpilogue_t`, a sum of these flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Epilogue(u32);

impl Epilogue {
    const DEFAULT: u32 = 1;
    pub(super) const RELU: u32 = 2;
    pub(super) const BIAS: u32 = 4;
    pub(super) const RELU_GRADIENT: u32 = 8;
    pub(super) const BIAS_GRADIENT: u32 = 16;
    pub(super) const GELU: u32 = 32;
    pub(super) const GELU_GRADIENT: u32 = 64;
    pub(super) const AUXILIARY: u32 = 128;
    pub(super) const BIAS_GRADIENT_A: u32 = 256;
    pub(super) const BIAS_GRADIENT_B: u32 = 512;

    /// The sums that the library defines.
    const NAMED: [u32; 16] = [1, 2, 130, 4, 6, 134, 136, 152, 32, 160, 36, 164, 192, 208, 256, 512];

    fn new(number: u32) -> ApiResult<Self> {
        if Self::NAMED.contains(&number) { Ok(Self(number)) } else { Err(Status::NOT_SUPPORTED) }
    }

    pub(super) fn has(self, part: u32) -> bool {
        self.0 & part != 0
    }

    /// Returns true if the epilogue reads or writes a bias vector.
    pub(super) fn has_bias(self) -> bool {
        self.has(Self::BIAS) || self.writes_bias()
    }

    /// Returns true if the epilogue writes a bias vector.
    pub(super) fn writes_bias(self) -> bool {
        self.has(Self::BIAS_GRADIENT | Self::BIAS_GRADIENT_A | Self::BIAS_GRADIENT_B)
    }
}

/// Reads the value of an attribute and checks its size.
fn value<T: Copy>(offset_address: Address, n_bytes: usize) -> ApiResult<T> {
    if n_bytes == size_of::<T>() {
        offset_address.value().ok_or(Status::INVALID_VALUE)
    } else {
        Err(Status::INVALID_VALUE)
    }
}

/// `cublasOperation_t`. A real matrix equals its conjugate.
fn is_transposed(offset_address: Address, n_bytes: usize) -> ApiResult<bool> {
    match value::<u32>(offset_address, n_bytes)? {
        0 => Ok(false),
        1 | 2 => Ok(true),
        _ => Err(Status::INVALID_VALUE),
    }
}

/// `cudaDataType_t`.
fn element_type(data_type: u32) -> ApiResult<ElementType> {
    match data_type {
        0 => Ok(ElementType::F32),
        14 => Ok(ElementType::Bf16),
        _ => Err(Status::NOT_SUPPORTED),
    }
}

impl MatmulDescriptor {
    /// `cublasComputeType_t`, without and with rounding to tf32.
    const COMPUTE_32F: u32 = 68;
    const COMPUTE_32F_FAST_TF32: u32 = 77;

    /// The attribute for the distance between the bias vectors of a batch.
    pub(super) const BIAS_STRIDE: u32 = 10;

    pub(super) fn new(compute: u32, scale: u32) -> ApiResult<Self> {
        if !matches!(compute, Self::COMPUTE_32F | Self::COMPUTE_32F_FAST_TF32)
            || element_type(scale)? != ElementType::F32
        {
            return Err(Status::NOT_SUPPORTED);
        }
        Ok(Self {
            compute,
            transposed: [false; 2],
            epilogue: Epilogue(Epilogue::DEFAULT),
            bias: 0,
            bias_type: None,
            bias_stride: 0,
            auxiliary: 0,
            auxiliary_leading: 0,
            auxiliary_stride: 0,
            auxiliary_type: None,
        })
    }

    pub(super) fn rounds_to_tf32(&self) -> bool {
        self.compute == Self::COMPUTE_32F_FAST_TF32
    }

    pub(super) fn set(
        &mut self,
        attribute: u32,
        offset_address: Address,
        n_bytes: usize,
    ) -> ApiResult {
        match attribute {
            3 | 4 => {
                let place = usize::from(attribute == 4);
                self.transposed[place] = is_transposed(offset_address, n_bytes)?;
            }
            7 => self.epilogue = Epilogue::new(value(offset_address, n_bytes)?)?,
            8 => self.bias = value(offset_address, n_bytes)?,
            Self::BIAS_STRIDE => self.bias_stride = value(offset_address, n_bytes)?,
            11 => self.auxiliary = value(offset_address, n_bytes)?,
            12 => self.auxiliary_leading = value(offset_address, n_bytes)?,
            13 => self.auxiliary_stride = value(offset_address, n_bytes)?,
            22 => self.auxiliary_type = Some(element_type(value(offset_address, n_bytes)?)?),
            26 => self.bias_type = Some(element_type(value(offset_address, n_bytes)?)?),
            _ => return Err(Status::NOT_SUPPORTED),
        }
        Ok(())
    }

    pub(super) fn bytes(&self, attribute: u32) -> ApiResult<Vec<u8>> {
        Ok(match attribute {
            0 => self.compute.to_ne_bytes().to_vec(),
            3 | 4 => u32::from(self.transposed[usize::from(attribute == 4)]).to_ne_bytes().to_vec(),
            7 => self.epilogue.0.to_ne_bytes().to_vec(),
            8 => self.bias.to_ne_bytes().to_vec(),
            11 => self.auxiliary.to_ne_bytes().to_vec(),
            12 => self.auxiliary_leading.to_ne_bytes().to_vec(),
            _ => return Err(Status::NOT_SUPPORTED),
        })
    }
}

impl MatrixLayout {
    pub(super) fn new(data_type: u32, rows: u64, columns: u64, leading: i64) -> ApiResult<Self> {
        Ok(Self { dtype: element_type(data_type)?, rows, columns, leading, batch: 1, stride: 0 })
    }

    pub(super) fn set(
        &mut self,
        attribute: u32,
        offset_address: Address,
        n_bytes: usize,
    ) -> ApiResult {
        match attribute {
            0 => self.dtype = element_type(value(offset_address, n_bytes)?)?,
            1 if value::<u32>(offset_address, n_bytes)? == 0 => {}
            2 => self.rows = value(offset_address, n_bytes)?,
            3 => self.columns = value(offset_address, n_bytes)?,
            4 => self.leading = value(offset_address, n_bytes)?,
            5 => self.batch = value(offset_address, n_bytes)?,
            6 => self.stride = value(offset_address, n_bytes)?,
            _ => return Err(Status::NOT_SUPPORTED),
        }
        Ok(())
    }
}

impl TransformDescriptor {
    pub(super) fn new(scale: u32) -> ApiResult<Self> {
        if element_type(scale)? == ElementType::F32 {
            Ok(Self::default())
        } else {
            Err(Status::NOT_SUPPORTED)
        }
    }

    pub(super) fn set(
        &mut self,
        attribute: u32,
        offset_address: Address,
        n_bytes: usize,
    ) -> ApiResult {
        if attribute != 2 {
            return Err(Status::NOT_SUPPORTED);
        }
        self.is_transposed = is_transposed(offset_address, n_bytes)?;
        Ok(())
    }
}

impl Default for MatmulPreference {
    fn default() -> Self {
        Self { workspace_bytes: 0, alignments: [256; 4] }
    }
}

impl MatmulPreference {
    pub(super) fn set(
        &mut self,
        attribute: u32,
        offset_address: Address,
        n_bytes: usize,
    ) -> ApiResult {
        match attribute {
            1 => self.workspace_bytes = value(offset_address, n_bytes)?,
            5..=8 => {
                let alignment: u32 = value(offset_address, n_bytes)?;
                if !alignment.is_power_of_two() {
                    return Err(Status::INVALID_VALUE);
                }
                self.alignments[attribute as usize - 5] = alignment;
            }
            _ => return Err(Status::NOT_SUPPORTED),
        }
        Ok(())
    }
}
