//! Matrices in the memory of a device.

use super::descriptor::MatrixLayout;
use crate::element_type::ElementType;
use crate::memory::Memory;
use crate::status::DeviceError;

/// A dense column-major matrix.
pub(super) struct Matrix {
    pub(super) rows: usize,
    pub(super) values: Vec<f32>,
}

impl Matrix {
    /// Reads a matrix of a batch.
    pub(super) fn read(
        memory: &Memory,
        layout: &MatrixLayout,
        address: u64,
        number: i64,
    ) -> Result<Self, DeviceError> {
        let (rows, columns) = (count(layout.rows), count(layout.columns));
        let mut values = Vec::with_capacity(rows * columns);
        for column in 0..columns {
            let start = layout.start_of_column(address, number, column);
            values.extend(layout.dtype.read(memory, start, rows)?);
        }
        Ok(Self { rows, values })
    }

    /// Writes a matrix of a batch.
    pub(super) fn write(
        &self,
        memory: &Memory,
        layout: &MatrixLayout,
        address: u64,
        number: i64,
    ) -> Result<(), DeviceError> {
        let mut columns = self.values.chunks(self.rows).enumerate();
        columns.try_for_each(|(column, values)| {
            layout.dtype.write(memory, layout.start_of_column(address, number, column), values)
        })
    }

    pub(super) fn transposed(&self) -> Self {
        let columns = self.values.len() / self.rows;
        let values = (0..self.rows)
            .flat_map(|row| self.values.iter().skip(row).step_by(self.rows))
            .copied()
            .collect();
        Self { rows: columns, values }
    }
}

impl MatrixLayout {
    fn start_of_column(&self, address: u64, number: i64, column: usize) -> u64 {
        let column = i64::try_from(column).unwrap_or(0);
        offset_address(address, number * self.stride + column * self.leading, self.dtype)
    }
}

/// Returns the address after this many elements.
pub(super) fn offset_address(address: u64, elements: i64, number: ElementType) -> u64 {
    address.wrapping_add_signed(elements * number.n_bytes().cast_signed())
}

fn count(extent: u64) -> usize {
    usize::try_from(extent).unwrap_or(0)
}
