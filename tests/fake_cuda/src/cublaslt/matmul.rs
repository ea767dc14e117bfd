//! `D = epilogue(alpha op(A) op(B) + beta C)` for each matrix of a batch.

use super::descriptor::{Epilogue, MatmulDescriptor, MatrixLayout};
use super::matrix::{Matrix, offset_address};
use super::{ApiResult, Status};
use crate::element_type::{ElementType, rounded_to_tf32};
use crate::ffi::Handle;
use crate::memory::{Memory, MemoryKind};
use crate::state::lock;
use crate::status::DeviceError;
use crate::work::Task;

/// A matrix product.
#[derive(Clone, Debug)]
pub(super) struct Matmul {
    descriptor: MatmulDescriptor,
    /// Layouts of A, B, C and D.
    layouts: [MatrixLayout; 4],
    pub(super) addresses: [u64; 4],
    pub(super) alpha: f32,
    pub(super) beta: f32,
    /// Address and size of the workspace.
    pub(super) workspace: (u64, u64),
    /// True if ReLU makes 0 of NaN, as in one kernel of cuBLASLt 13.1 on an H100.
    pub(super) relu_drops_nan: bool,
    rows: usize,
    depth: usize,
}

impl Matmul {
    /// Creates the product, if there is an algorithm for these layouts.
    pub(super) fn new(descriptor: MatmulDescriptor, layouts: [MatrixLayout; 4]) -> ApiResult<Self> {
        let [a, b, c, d] = layouts;
        let is_kept = |layout: &MatrixLayout| {
            i64::try_from(layout.rows).is_ok_and(|rows| layout.leading >= rows)
                && layout.batch == d.batch
        };
        if !layouts.iter().all(is_kept) || d.batch < 1 {
            return Err(Status::INVALID_VALUE);
        }
        let extents = |layout: MatrixLayout, is_transposed: bool| {
            if is_transposed {
                (layout.columns, layout.rows)
            } else {
                (layout.rows, layout.columns)
            }
        };
        let (a_extents, b_extents) =
            (extents(a, descriptor.transposed[0]), extents(b, descriptor.transposed[1]));
        let is_same = a_extents.1 == b_extents.0
            && (a_extents.0, b_extents.1) == (d.rows, d.columns)
            && (c.rows, c.columns) == (d.rows, d.columns);
        if !is_same || d.rows == 0 || d.columns == 0 || a_extents.1 == 0 {
            return Err(Status::INVALID_VALUE);
        }
        let is_known = matches!(
            (a.dtype, b.dtype, d.dtype),
            (ElementType::F32, ElementType::F32, ElementType::F32)
                | (ElementType::Bf16, ElementType::Bf16, ElementType::F32 | ElementType::Bf16)
        );
        if !is_known
            || c.dtype != d.dtype
            || (descriptor.rounds_to_tf32() && a.dtype != ElementType::F32)
        {
            return Err(Status::NOT_SUPPORTED);
        }
        // The matrices of a batch are written at the same time.
        if d.batch > 1 && d.stride == 0 {
            return Err(Status::INVALID_VALUE);
        }
        check_epilogue(&descriptor, [b, d])?;
        let count = |extent: u64| usize::try_from(extent).map_err(|_| Status::INVALID_VALUE);
        let (rows, depth) = (count(d.rows)?, count(a_extents.1)?);
        Ok(Self {
            descriptor,
            layouts,
            addresses: [0; 4],
            alpha: 1.0,
            beta: 0.0,
            workspace: (0, 0),
            relu_drops_nan: false,
            rows,
            depth,
        })
    }

    /// Checks the addresses and submits the product to a stream.
    pub(super) fn submit(self, stream: Handle) -> ApiResult {
        let mut state = lock();
        let stream = state.stream(stream).map_err(|_| Status::INVALID_VALUE)?;
        let device = state.streams[&stream].device;
        let memory = &state.machine.memory;
        let is_there = |address: u64, n_bytes: u64, number: ElementType| {
            let place =
                usize::try_from(n_bytes).ok().and_then(|n_bytes| memory.kind(address, n_bytes));
            place == Some(MemoryKind::Device(device)) && address.is_multiple_of(number.n_bytes())
        };
        let epilogue = self.descriptor.epilogue;
        let are_there = self
            .addresses
            .iter()
            .zip(&self.layouts)
            .all(|(&address, layout)| is_there(address, 0, layout.dtype))
            && (self.workspace.1 == 0
                || is_there(self.workspace.0, self.workspace.1, ElementType::F32))
            && (!epilogue.has_bias() || is_there(self.descriptor.bias, 0, self.bias_type()))
            && (!epilogue.has(Epilogue::AUXILIARY)
                || is_there(self.descriptor.auxiliary, 0, ElementType::F32));
        if !are_there {
            return Err(Status::INVALID_VALUE);
        }
        state
            .submit_here(stream, Task::new(device, move |machine| self.run(&machine.memory)))
            .map_err(|_| Status::EXECUTION_FAILED)
    }

    fn bias_type(&self) -> ElementType {
        self.descriptor.bias_type.unwrap_or(self.layouts[3].dtype)
    }

    fn run(&self, memory: &Memory) -> Result<(), DeviceError> {
        let (workspace, n_bytes) = self.workspace;
        // Poisons the workspace, whose content must not be needed.
        memory.write(workspace, &vec![0xff_u8; usize::try_from(n_bytes).unwrap_or(0)])?;
        (0..i64::from(self.layouts[3].batch)).try_for_each(|number| self.run_matrix(memory, number))
    }

    fn run_matrix(&self, memory: &Memory, number: i64) -> Result<(), DeviceError> {
        let mut a = self.matrix(memory, 0, number)?;
        let mut b = self.matrix(memory, 1, number)?;
        if self.descriptor.transposed[0] {
            a = a.transposed();
        }
        if self.descriptor.transposed[1] {
            b = b.transposed();
        }
        if self.descriptor.rounds_to_tf32() {
            a.values
                .iter_mut()
                .chain(&mut b.values)
                .for_each(|value| *value = rounded_to_tf32(*value));
        }
        let mut d = Matrix { rows: self.rows, values: multiply(&a, &b, self.depth) };
        d.values.iter_mut().for_each(|value| *value *= self.alpha);
        if self.beta != 0.0 {
            let c = self.matrix(memory, 2, number)?;
            d.values.iter_mut().zip(&c.values).for_each(|(value, c)| *value += self.beta * c);
        }
        self.apply_epilogue(memory, &mut d.values, number)?;
        self.write_bias_gradient(memory, [&a, &b], &d.values, number)?;
        d.write(memory, &self.layouts[3], self.addresses[3], number)
    }

    /// Reads a matrix of a batch.
    fn matrix(&self, memory: &Memory, operand: usize, number: i64) -> Result<Matrix, DeviceError> {
        Matrix::read(memory, &self.layouts[operand], self.addresses[operand], number)
    }

    /// Adds the bias, and applies the function or its gradient.
    fn apply_epilogue(
        &self,
        memory: &Memory,
        d: &mut [f32],
        number: i64,
    ) -> Result<(), DeviceError> {
        let descriptor = &self.descriptor;
        let epilogue = descriptor.epilogue;
        if epilogue.has(Epilogue::BIAS) {
            let start =
                offset_address(descriptor.bias, number * descriptor.bias_stride, self.bias_type());
            let bias = self.bias_type().read(memory, start, self.rows)?;
            d.chunks_mut(self.rows).for_each(|column| {
                column.iter_mut().zip(&bias).for_each(|(value, bias)| *value += bias);
            });
        }
        for (number_of_column, column) in (0..).zip(d.chunks_mut(self.rows)) {
            let place = number * descriptor.auxiliary_stride
                + number_of_column * descriptor.auxiliary_leading;
            if epilogue.has(Epilogue::RELU | Epilogue::RELU_GRADIENT) {
                self.relu(memory, column, place)?;
            } else if epilogue.has(Epilogue::GELU | Epilogue::GELU_GRADIENT) {
                self.gelu(memory, column, place)?;
            }
        }
        Ok(())
    }

    /// Applies relu to a column, or its gradient. The auxiliary matrix has one bit per element.
    fn relu(&self, memory: &Memory, column: &mut [f32], place: i64) -> Result<(), DeviceError> {
        let epilogue = self.descriptor.epilogue;
        // The leading dimension is a multiple of 128 bits.
        let start = self.descriptor.auxiliary.wrapping_add_signed(place / 8);
        if epilogue.has(Epilogue::RELU_GRADIENT) {
            let bits: Vec<u8> = memory.read(start, column.len().div_ceil(8))?;
            for (row, value) in column.iter_mut().enumerate() {
                *value = if bits[row / 8] >> (row % 8) & 1 == 1 { *value } else { 0.0 };
            }
            return Ok(());
        }
        if epilogue.has(Epilogue::AUXILIARY) {
            let mut bits = vec![0_u8; column.len().div_ceil(8)];
            column
                .iter()
                .enumerate()
                .for_each(|(row, &value)| bits[row / 8] |= u8::from(value > 0.0) << (row % 8));
            memory.write(start, &bits)?;
        }
        let is_zero = |it: f32| it < 0.0 || self.relu_drops_nan && it.is_nan();
        column.iter_mut().filter(|it| is_zero(**it)).for_each(|it| *it = 0.0);
        Ok(())
    }

    /// Applies gelu to a column, or its gradient. The auxiliary matrix stores the argument.
    fn gelu(&self, memory: &Memory, column: &mut [f32], place: i64) -> Result<(), DeviceError> {
        let epilogue = self.descriptor.epilogue;
        let number = self.descriptor.auxiliary_type.unwrap_or(self.layouts[3].dtype);
        let start = offset_address(self.descriptor.auxiliary, place, number);
        if epilogue.has(Epilogue::GELU_GRADIENT) {
            let arguments = number.read(memory, start, column.len())?;
            column.iter_mut().zip(arguments).for_each(|(value, x)| *value *= gelu_gradient(x));
            return Ok(());
        }
        if epilogue.has(Epilogue::AUXILIARY) {
            number.write(memory, start, column)?;
        }
        column.iter_mut().for_each(|value| *value = gelu(*value));
        Ok(())
    }

    /// Writes the bias gradient: sums of the rows of the result or op(A), or of the columns of
    /// op(B).
    fn write_bias_gradient(
        &self,
        memory: &Memory,
        [a, b]: [&Matrix; 2],
        d: &[f32],
        number: i64,
    ) -> Result<(), DeviceError> {
        let epilogue = self.descriptor.epilogue;
        let along_rows = |values: &[f32]| {
            (0..self.rows).map(|row| values.iter().skip(row).step_by(self.rows).sum()).collect()
        };
        let sums: Vec<f32> = if epilogue.has(Epilogue::BIAS_GRADIENT) {
            along_rows(d)
        } else if epilogue.has(Epilogue::BIAS_GRADIENT_A) {
            along_rows(&a.values)
        } else if epilogue.has(Epilogue::BIAS_GRADIENT_B) {
            b.values.chunks(self.depth).map(|column| column.iter().sum()).collect()
        } else {
            return Ok(());
        };
        let start = offset_address(
            self.descriptor.bias,
            number * self.descriptor.bias_stride,
            self.bias_type(),
        );
        self.bias_type().write(memory, start, &sums)
    }
}

/// Computes `a b` in column-major order.
fn multiply(a: &Matrix, b: &Matrix, depth: usize) -> Vec<f32> {
    let rows = a.rows;
    let mut matmul = vec![0.0; rows * (b.values.len() / depth)];
    for (result, factors) in matmul.chunks_mut(rows).zip(b.values.chunks(depth)) {
        for (column, factor) in a.values.chunks(rows).zip(factors) {
            for (sum, value) in result.iter_mut().zip(column) {
                *sum += value * factor;
            }
        }
    }
    matmul
}

/// Rejects epilogues that do not fit the result.
fn check_epilogue(descriptor: &MatmulDescriptor, [b, d]: [MatrixLayout; 2]) -> ApiResult {
    let epilogue = descriptor.epilogue;
    if d.batch > 1 && epilogue.writes_bias() {
        // The sums of each matrix of a batch have a place of their own.
        let n_columns = if descriptor.transposed[1] { b.rows } else { b.columns };
        let length = if epilogue.has(Epilogue::BIAS_GRADIENT_B) { n_columns } else { d.rows };
        if i64::try_from(length).is_ok_and(|length| descriptor.bias_stride < length) {
            return Err(Status::INVALID_VALUE);
        }
    }
    if epilogue.has_bias() && descriptor.bias_type.is_some_and(|number| number != d.dtype) {
        return Err(Status::NOT_SUPPORTED);
    }
    if epilogue.has(Epilogue::AUXILIARY) {
        // Bits are written in words, numbers in vectors.
        let is_mask = epilogue.has(Epilogue::RELU | Epilogue::RELU_GRADIENT);
        let multiple = if is_mask { 128 } else { 8 };
        let is_wide = i64::try_from(d.rows).is_ok_and(|rows| descriptor.auxiliary_leading >= rows);
        if !is_wide || descriptor.auxiliary_leading % multiple != 0 {
            return Err(Status::INVALID_VALUE);
        }
        if !is_mask && descriptor.auxiliary_type.is_some_and(|number| number != d.dtype) {
            return Err(Status::NOT_SUPPORTED);
        }
    }
    Ok(())
}

const GELU_SCALE: f32 = 0.797_884_6;
const GELU_CUBE: f32 = 0.044_715;

// gelu(x) = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
fn gelu(x: f32) -> f32 {
    0.5 * x * (1.0 + (GELU_SCALE * (x + GELU_CUBE * x * x * x)).tanh())
}

// With t the tanh: d gelu(x) = (1 + t) / 2 + x / 2 (1 - t^2) sqrt(2 / pi) (1 + 3 * 0.044715 x^2)
fn gelu_gradient(x: f32) -> f32 {
    let t = (GELU_SCALE * (x + GELU_CUBE * x * x * x)).tanh();
    0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * GELU_SCALE * (1.0 + 3.0 * GELU_CUBE * x * x)
}
