//! `D = epilogue(alpha op(A) op(B) + beta C)`, for each matrix of a batch.

use super::description::{Description, Epilogue, Layout};
use super::{Answer, Status};
use crate::c::Handle;
use crate::memory::{Memory, Place};
use crate::numbers::{Number, rounded_to_tf32};
use crate::state::lock;
use crate::status::Fault;
use crate::work::Task;

/// A product of matrices.
#[derive(Clone, Debug)]
pub(super) struct Product {
    description: Description,
    /// Of A, B, C and D.
    layouts: [Layout; 4],
    pub(super) addresses: [u64; 4],
    pub(super) alpha: f32,
    pub(super) beta: f32,
    /// Where it may leave what it likes, and how many bytes.
    pub(super) workspace: (u64, u64),
    rows: usize,
    depth: usize,
}

/// A matrix by columns, without gaps.
struct Matrix {
    rows: usize,
    values: Vec<f32>,
}

impl Product {
    /// A product of such matrices, if there is an algorithm for it.
    pub(super) fn new(description: Description, layouts: [Layout; 4]) -> Answer<Self> {
        let [a, b, c, d] = layouts;
        let is_kept = |layout: &Layout| {
            i64::try_from(layout.rows).is_ok_and(|rows| layout.leading >= rows)
                && layout.batch == d.batch
        };
        if !layouts.iter().all(is_kept) || d.batch < 1 {
            return Err(Status::INVALID_VALUE);
        }
        let extents = |layout: Layout, is_transposed: bool| {
            if is_transposed {
                (layout.columns, layout.rows)
            } else {
                (layout.rows, layout.columns)
            }
        };
        let (a_extents, b_extents) =
            (extents(a, description.transposed[0]), extents(b, description.transposed[1]));
        let is_same = a_extents.1 == b_extents.0
            && (a_extents.0, b_extents.1) == (d.rows, d.columns)
            && (c.rows, c.columns) == (d.rows, d.columns);
        if !is_same || d.rows == 0 || d.columns == 0 || a_extents.1 == 0 {
            return Err(Status::INVALID_VALUE);
        }
        let is_known = matches!(
            (a.number, b.number, d.number),
            (Number::F32, Number::F32, Number::F32)
                | (Number::Bf16, Number::Bf16, Number::F32 | Number::Bf16)
        );
        if !is_known
            || c.number != d.number
            || (description.rounds_to_tf32() && a.number != Number::F32)
        {
            return Err(Status::NOT_SUPPORTED);
        }
        check_epilogue(&description, d)?;
        let count = |extent: u64| usize::try_from(extent).map_err(|_| Status::INVALID_VALUE);
        let (rows, depth) = (count(d.rows)?, count(a_extents.1)?);
        Ok(Self {
            description,
            layouts,
            addresses: [0; 4],
            alpha: 1.0,
            beta: 0.0,
            workspace: (0, 0),
            rows,
            depth,
        })
    }

    /// Gives the product to a stream, after a look at its addresses.
    pub(super) fn give(self, stream: Handle) -> Answer {
        let mut state = lock();
        let stream = state.stream(stream).map_err(|_| Status::INVALID_VALUE)?;
        let device = state.streams[&stream].device;
        let memory = &state.machine.memory;
        let is_there = |address: u64, n_bytes: u64, number: Number| {
            let place =
                usize::try_from(n_bytes).ok().and_then(|n_bytes| memory.place(address, n_bytes));
            place == Some(Place::Device(device)) && address.is_multiple_of(number.n_bytes())
        };
        let epilogue = self.description.epilogue;
        let are_there = self
            .addresses
            .iter()
            .zip(&self.layouts)
            .all(|(&address, layout)| is_there(address, 0, layout.number))
            && (self.workspace.1 == 0 || is_there(self.workspace.0, self.workspace.1, Number::F32))
            && (!epilogue.has_bias() || is_there(self.description.bias, 0, self.bias_number()))
            && (!epilogue.has(Epilogue::AUXILIARY)
                || is_there(self.description.auxiliary, 0, Number::F32));
        if !are_there {
            return Err(Status::INVALID_VALUE);
        }
        state
            .give(stream, Task::new(device, move |machine| self.run(&machine.memory)))
            .map_err(|_| Status::EXECUTION_FAILED)
    }

    fn bias_number(&self) -> Number {
        self.description.bias_number.unwrap_or(self.layouts[3].number)
    }

    fn run(&self, memory: &Memory) -> Result<(), Fault> {
        let (workspace, n_bytes) = self.workspace;
        // What lies where the workspace is must not be needed any longer.
        memory.write(workspace, &vec![0xff_u8; usize::try_from(n_bytes).unwrap_or(0)])?;
        (0..i64::from(self.layouts[3].batch)).try_for_each(|number| self.run_one(memory, number))
    }

    fn run_one(&self, memory: &Memory, number: i64) -> Result<(), Fault> {
        let mut a = self.matrix(memory, 0, number)?;
        let mut b = self.matrix(memory, 1, number)?;
        if self.description.transposed[0] {
            a = a.transposed();
        }
        if self.description.transposed[1] {
            b = b.transposed();
        }
        if self.description.rounds_to_tf32() {
            a.values
                .iter_mut()
                .chain(&mut b.values)
                .for_each(|value| *value = rounded_to_tf32(*value));
        }
        let mut d = multiply(&a, &b, self.depth);
        d.iter_mut().for_each(|value| *value *= self.alpha);
        if self.beta != 0.0 {
            let c = self.matrix(memory, 2, number)?;
            d.iter_mut().zip(&c.values).for_each(|(value, c)| *value += self.beta * c);
        }
        self.finish(memory, &mut d, number)?;
        self.write_bias_gradient(memory, [&a, &b], &d, number)?;
        self.write(memory, &d, number)
    }

    /// The matrix of a batch, without gaps.
    fn matrix(&self, memory: &Memory, operand: usize, number: i64) -> Result<Matrix, Fault> {
        let layout = self.layouts[operand];
        let start = at(self.addresses[operand], number * layout.stride, layout.number);
        let rows = count(layout.rows);
        let mut values = Vec::with_capacity(rows * count(layout.columns));
        for column in 0..layout.columns.cast_signed() {
            values.extend(layout.number.read(
                memory,
                at(start, column * layout.leading, layout.number),
                rows,
            )?);
        }
        Ok(Matrix { rows, values })
    }

    fn write(&self, memory: &Memory, d: &[f32], number: i64) -> Result<(), Fault> {
        let layout = self.layouts[3];
        let start = at(self.addresses[3], number * layout.stride, layout.number);
        let mut columns = (0..).zip(d.chunks(self.rows));
        columns.try_for_each(|(column, values): (i64, _)| {
            layout.number.write(memory, at(start, column * layout.leading, layout.number), values)
        })
    }

    /// Adds the vector, and applies the function or its gradient.
    fn finish(&self, memory: &Memory, d: &mut [f32], number: i64) -> Result<(), Fault> {
        let description = &self.description;
        let epilogue = description.epilogue;
        if epilogue.has(Epilogue::BIAS) {
            let start = at(description.bias, number * description.bias_stride, self.bias_number());
            let bias = self.bias_number().read(memory, start, self.rows)?;
            d.chunks_mut(self.rows).for_each(|column| {
                column.iter_mut().zip(&bias).for_each(|(value, bias)| *value += bias);
            });
        }
        for (number_of_column, column) in (0..).zip(d.chunks_mut(self.rows)) {
            let place = number * description.auxiliary_stride
                + number_of_column * description.auxiliary_leading;
            if epilogue.has(Epilogue::RELU | Epilogue::RELU_GRADIENT) {
                self.relu(memory, column, place)?;
            } else if epilogue.has(Epilogue::GELU | Epilogue::GELU_GRADIENT) {
                self.gelu(memory, column, place)?;
            }
        }
        Ok(())
    }

    /// Relu of a column, or its gradient; the auxiliary matrix has a bit for each element.
    fn relu(&self, memory: &Memory, column: &mut [f32], place: i64) -> Result<(), Fault> {
        let epilogue = self.description.epilogue;
        // The leading extent is a multiple of 128 bits.
        let start = self.description.auxiliary.wrapping_add_signed(place / 8);
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
        column.iter_mut().for_each(|value| *value = value.max(0.0));
        Ok(())
    }

    /// Gelu of a column, or its gradient; the auxiliary matrix has the argument.
    fn gelu(&self, memory: &Memory, column: &mut [f32], place: i64) -> Result<(), Fault> {
        let epilogue = self.description.epilogue;
        let number = self.description.auxiliary_number.unwrap_or(self.layouts[3].number);
        let start = at(self.description.auxiliary, place, number);
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

    /// Sums of the result along its rows, of op(A) along its rows, or of op(B) along its columns.
    fn write_bias_gradient(
        &self,
        memory: &Memory,
        [a, b]: [&Matrix; 2],
        d: &[f32],
        number: i64,
    ) -> Result<(), Fault> {
        let epilogue = self.description.epilogue;
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
        let start =
            at(self.description.bias, number * self.description.bias_stride, self.bias_number());
        self.bias_number().write(memory, start, &sums)
    }
}

impl Matrix {
    fn transposed(&self) -> Self {
        let columns = self.values.len() / self.rows;
        let values = (0..self.rows)
            .flat_map(|row| self.values.iter().skip(row).step_by(self.rows))
            .copied()
            .collect();
        Self { rows: columns, values }
    }
}

/// `a b`, column by column of the result.
fn multiply(a: &Matrix, b: &Matrix, depth: usize) -> Vec<f32> {
    let rows = a.rows;
    let mut product = vec![0.0; rows * (b.values.len() / depth)];
    for (result, factors) in product.chunks_mut(rows).zip(b.values.chunks(depth)) {
        for (column, factor) in a.values.chunks(rows).zip(factors) {
            for (sum, value) in result.iter_mut().zip(column) {
                *sum += value * factor;
            }
        }
    }
    product
}

/// Refuses what an epilogue cannot do with such a result.
fn check_epilogue(description: &Description, d: Layout) -> Answer {
    let epilogue = description.epilogue;
    if epilogue.has_bias() && description.bias_number.is_some_and(|number| number != d.number) {
        return Err(Status::NOT_SUPPORTED);
    }
    if epilogue.has(Epilogue::AUXILIARY) {
        // Bits are written in words, numbers in vectors.
        let is_mask = epilogue.has(Epilogue::RELU | Epilogue::RELU_GRADIENT);
        let multiple = if is_mask { 128 } else { 8 };
        let is_wide = i64::try_from(d.rows).is_ok_and(|rows| description.auxiliary_leading >= rows);
        if !is_wide || description.auxiliary_leading % multiple != 0 {
            return Err(Status::INVALID_VALUE);
        }
        if !is_mask && description.auxiliary_number.is_some_and(|number| number != d.number) {
            return Err(Status::NOT_SUPPORTED);
        }
    }
    Ok(())
}

/// The address so many elements further on.
fn at(address: u64, elements: i64, number: Number) -> u64 {
    address.wrapping_add_signed(elements * number.n_bytes().cast_signed())
}

fn count(extent: u64) -> usize {
    usize::try_from(extent).unwrap_or(0)
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
