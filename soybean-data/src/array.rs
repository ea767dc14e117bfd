//! Arrays of files, and columns made of them.

use std::io::Read;

use crate::{Column, Element, Form, Values};

/// The most elements that a file is believed to have.
const MAX_ELEMENTS: usize = 1 << 40;

/// What a file says about its array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) element: Element,
    /// The extents, outermost first.
    pub(super) shape: Vec<usize>,
    pub(super) layout: Layout,
    /// The byte of the file at which the elements begin.
    pub(super) start: usize,
}

/// In which order an array's elements stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// The last index changes fastest.
    RowMajor,
    /// The first index changes fastest: the order of Fortran.
    ColumnMajor,
}

impl Header {
    /// The number of elements.
    ///
    /// # Errors
    /// If there is none, the array is a scalar, or no file has so many.
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

    /// The extents of one row.
    pub(super) fn row(&self) -> &[usize] {
        &self.shape[1..]
    }

    /// Reads the elements, of which there must be neither fewer nor more, as a column.
    ///
    /// # Errors
    /// What was expected and found, with the byte.
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
        // Memory grows with what is there, not with what the header says. One more byte than there should be, so that too long a file is noticed.
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
        let values = values.map_err(|misfit| {
            format!("byte {}: {}", start + misfit.place * size, misfit.message)
        })?;
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

/// The elements of an array whose first index changes fastest, so that the last does.
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
