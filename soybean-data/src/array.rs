//! Arrays in files, and the columns made of them.

use std::io::Read;

use crate::{Column, Element, Form, Values};

/// The limit for the number of elements in a header; larger numbers are errors of the file.
const MAX_ELEMENTS: usize = 1 << 40;

/// The description of an array at the start of its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) element: Element,
    /// The extents, outermost first.
    pub(super) shape: Vec<usize>,
    pub(super) layout: Layout,
    /// The byte offset of the elements in the file.
    pub(super) start: usize,
}

/// The order of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// The last index changes fastest.
    RowMajor,
    /// The first index changes fastest: the order of Fortran.
    ColumnMajor,
}

impl Header {
    /// Returns the number of elements.
    ///
    /// # Errors
    /// If there are no elements or too many, or the array is a scalar.
    pub(super) fn n_elements(&self) -> Result<usize, String> {
        let shape = &self.shape;
        let product = shape.iter().try_fold(1_usize, |product, it| product.checked_mul(*it));
        let product = product.filter(|it| (1..=MAX_ELEMENTS).contains(it) && !shape.is_empty());
        product.ok_or_else(|| {
            format!(
                "expected an array of rows with 1 to 2^40 elements in all, found extents {shape:?}"
            )
        })
    }

    /// Returns the extents of one row.
    pub(super) fn row(&self) -> &[usize] {
        &self.shape[1..]
    }

    /// Reads the elements as a column. The file must end after the last element.
    ///
    /// # Errors
    /// A message with the byte offset, and what was expected and found.
    pub(super) fn column(
        &self,
        file: &mut dyn Read,
        name: String,
        form: Form,
    ) -> Result<Column, String> {
        self.element.check(form)?;
        let (start, size) = (self.start, self.element.kind.n_bytes());
        let n_elements = self.n_elements()?;
        let n_bytes = n_elements * size;
        let mut bytes = Vec::new();
        // Memory grows with the bytes read, since the header may be wrong. One more byte is
        // requested, so that a file that is too long is noticed.
        file.take(n_bytes as u64 + 1).read_to_end(&mut bytes).map_err(|error| {
            format!("byte {}: expected more data, found: {error}", start + bytes.len())
        })?;
        if bytes.len() != n_bytes {
            let is_longer = bytes.len() > n_bytes;
            let found = if is_longer { "more".to_owned() } else { bytes.len().to_string() };
            let message = format!("{n_elements} elements, {n_bytes} bytes, found {found}");
            return Err(format!("from byte {start}: expected {message}"));
        }
        let values = self.element.values(&bytes, form);
        let values = values
            .map_err(|error| format!("byte {}: {}", start + error.place * size, error.message))?;
        let values = match (self.layout, values) {
            (Layout::RowMajor, values) => values,
            (Layout::ColumnMajor, Values::F32(values)) => {
                Values::F32(row_major(&values, &self.shape))
            }
            (Layout::ColumnMajor, Values::I32(values)) => {
                Values::I32(row_major(&values, &self.shape))
            }
        };
        Ok(Column { name, row: self.row().to_vec(), values })
    }
}

/// Reorders the elements of a column-major array to row-major.
fn row_major<T: Copy>(elements: &[T], shape: &[usize]) -> Vec<T> {
    let mut strides = Vec::new();
    let mut stride = 1;
    for extent in shape {
        strides.push(stride);
        stride *= extent;
    }
    let mut index = vec![0; shape.len()];
    let mut place = 0;
    let mut sorted = Vec::with_capacity(elements.len());
    for _ in elements {
        sorted.push(elements[place]);
        for dim in (0..shape.len()).rev() {
            index[dim] += 1;
            place += strides[dim];
            if index[dim] < shape[dim] {
                break;
            }
            place -= shape[dim] * strides[dim];
            index[dim] = 0;
        }
    }
    sorted
}
