//! The rows of an index space, and the steps that compute along them.

use soybean_plan::{
    Combine, DType, Kernel, MAX_RANK, Map, Reduction, RowStageForm, Shape, Step, Strides, Tables,
};

/// An index space and the number of its dims that number rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowSpace {
    pub(super) extents: Shape,
    pub(super) n_row_dims: usize,
}

impl RowSpace {
    /// Returns the rows that a kernel combines: the dims behind those that it keeps. None if it
    /// does not combine the values of rows.
    pub(super) fn of(kernel: &Kernel) -> Option<Self> {
        let Kernel::Reduce(Reduction { map, result, .. }) = kernel else { return None };
        let is_reduced = |dim: &usize| map.extents[*dim] != 1 && result.0[*dim] == 0;
        let n_row_dims = (0..map.extents.len()).find(is_reduced)?;
        let this = Self { extents: map.extents, n_row_dims };
        (this.extents.n_elements() > 0 && this.is_along_rows(result)).then_some(this)
    }

    pub(super) fn n_rows(&self) -> usize {
        self.extents[..self.n_row_dims].iter().product()
    }

    pub(super) fn row_length(&self) -> usize {
        self.extents[self.n_row_dims..].iter().product()
    }

    /// Returns the kind of value that a step computes, if it is a stage over this space.
    pub(super) fn form(
        &self,
        step: &Step,
        kernels: &[Kernel],
        tables: &Tables,
    ) -> Option<RowStageForm> {
        let Step { kernel, results, .. } = step;
        let &[result] = &results[..] else { return None };
        let kernel = kernels.get(*kernel)?;
        let (form, map) = match kernel {
            Kernel::Map(map) if map.extents == self.extents => (RowStageForm::Point, map),
            Kernel::Map(map) if self.is_row_shape(&map.extents) => (RowStageForm::Row, map),
            Kernel::Reduce(reduction) if Self::of(kernel) == Some(*self) => {
                let form = match reduction.combine {
                    Combine::Sum => RowStageForm::Sum,
                    Combine::Max => RowStageForm::Max,
                };
                (form, &reduction.map)
            }
            _ => return None,
        };
        let gives_number =
            map.program.integer_results() == [false] && tables.buffers[result].dtype != DType::I32;
        let is_near = map.inputs.iter().all(|it| self.is_near(&self.strides(it, form)));
        (gives_number && is_near).then_some(form)
    }

    /// Returns the map of a step over this space.
    pub(super) fn map(kernel: &Kernel) -> Option<&Map> {
        match kernel {
            Kernel::Map(map) => Some(map),
            Kernel::Reduce(reduction) => Some(&reduction.map),
            _ => None,
        }
    }

    /// Returns strides over this space, without those of dims of extent 1 and beyond the dims.
    pub(super) fn strides(&self, strides: &Strides, form: RowStageForm) -> Strides {
        let n_dims = match form {
            RowStageForm::Row => self.n_row_dims,
            RowStageForm::Point | RowStageForm::Sum | RowStageForm::Max => self.extents.len(),
        };
        let mut only = [0; MAX_RANK];
        for dim in (0..n_dims).filter(|it| self.extents[*it] != 1) {
            only[dim] = strides.0[dim];
        }
        Strides(only)
    }

    /// Returns the strides of the values of a stage.
    pub(super) fn of_values(&self, form: RowStageForm) -> Strides {
        match form {
            RowStageForm::Point => self.strides(&self.extents.dense_strides(), form),
            RowStageForm::Row | RowStageForm::Sum | RowStageForm::Max => {
                let rows = Shape::new(&self.extents[..self.n_row_dims]);
                self.strides(&rows.dense_strides(), form)
            }
        }
    }

    /// Returns true if the elements of an operand differ along rows, and from row to row.
    pub(super) fn is_large(&self, strides: &Strides) -> bool {
        let varies = |dims: std::ops::Range<usize>| {
            dims.into_iter().any(|it| self.extents[it] != 1 && strides.0[it] != 0)
        };
        let n = self.n_row_dims;
        varies(n..self.extents.len()) && (self.n_rows() == 1 || varies(0..n))
    }

    /// Returns true if a result has one element for each row, in their order.
    fn is_along_rows(&self, result: &Strides) -> bool {
        let form = RowStageForm::Sum;
        self.strides(result, form) == self.of_values(form)
    }

    /// Returns true if the points of an index space are the rows.
    fn is_row_shape(&self, extents: &Shape) -> bool {
        let n = self.n_row_dims;
        extents.len() >= n
            && extents[..n] == self.extents[..n]
            && extents[n..].iter().all(|it| *it == 1)
    }

    /// Returns true if neighbors in a row are neighbors in the operand, or the same element.
    fn is_near(&self, strides: &Strides) -> bool {
        let last = (self.n_row_dims..self.extents.len()).rev().find(|it| self.extents[*it] != 1);
        last.is_none_or(|it| strides.0[it] <= 1)
    }
}
