//! Matrix products, computed by the threads of a rank.
#![expect(unsafe_code, reason = "kernels work on memory that other buffers share")]

use soybean_plan::{Contraction, MatrixStrides};

use super::{
    few_columns,
    kernel::{Arguments, CpuKernel, Prepare, Threads},
    parallel::parallel_for,
    product::{Matrix, Workspace},
    region::Region,
    space::{Space, offset},
};
use crate::{Error, ErrorKind};

/// The number of multiply-adds that take the time of one operation of other kernels.
const PRODUCTS_PER_OPERATION: usize = 8;

/// A prepared [`Contraction`].
pub(crate) struct ContractionKernel {
    contraction: Contraction,
    /// The batch dims; operands are left, right and result.
    batch: Space,
    /// The elements that left, right and result must have.
    n_needed: [usize; 3],
    /// True if the transposed product is computed, because the innermost loops need contiguous rows
    /// of the result.
    is_transposed: bool,
    /// The number of threads along the rows and along the columns of one product.
    grid: (usize, usize),
    /// The loop for few columns, if it fits.
    few_columns: Option<few_columns::Product>,
}

impl Prepare for Contraction {
    fn prepare(&self, threads: &Threads<'_>) -> Box<dyn CpuKernel> {
        Box::new(ContractionKernel::new(self, threads.workspaces))
    }
}

impl CpuKernel for ContractionKernel {
    unsafe fn launch(&mut self, arguments: Arguments<'_>) -> Result<(), Error> {
        let ([left, right], result) = arguments.regions()?;
        // SAFETY: required of the caller.
        unsafe { self.run(arguments.workspaces, [left, right, result]) }
    }
}

impl ContractionKernel {
    pub(crate) fn new(contraction: &Contraction, workspaces: &[Workspace]) -> Self {
        let Contraction { batch, rows, columns, depth, left, right, result } = *contraction;
        let space = Space::new(&batch, &[left.batch, right.batch, result.batch]);
        let needed = |operand, strides: MatrixStrides, n_rows: usize, n_columns: usize| {
            if n_rows == 0 || n_columns == 0 || space.n_points() == 0 {
                return 0;
            }
            space.n_needed(operand) + (n_rows - 1) * strides.row + (n_columns - 1) * strides.column
        };
        let n_needed = [
            needed(0, left, rows, depth),
            needed(1, right, depth, columns),
            needed(2, result, rows, columns),
        ];
        let few = few_columns::is_transposed(contraction);
        let few_columns = few.and_then(|is_transposed| {
            let (left, right, result) = oriented([left, right, result], is_transposed);
            few_columns::product(left, right, result, workspaces[0].isa())
        });
        let is_transposed = match few.filter(|_| few_columns.is_some()) {
            Some(is_transposed) => is_transposed,
            None => result.column == 1 && result.row != 1,
        };
        let (n_rows, n_columns) = if is_transposed { (columns, rows) } else { (rows, columns) };
        let grid = match few_columns {
            Some(_) => (workspaces.len(), 1),
            None => grid(n_rows, n_columns, workspaces[0].tile(), workspaces.len()),
        };
        Self { contraction: *contraction, batch: space, n_needed, is_transposed, grid, few_columns }
    }

    /// Runs the kernel. Regions are left, right and result.
    ///
    /// # Safety
    /// Nobody else uses the regions during the call.
    pub(crate) unsafe fn run(
        &self,
        workspaces: &mut [Workspace],
        regions: [Region; 3],
    ) -> Result<(), Error> {
        self.check(regions)?;
        let Contraction { rows, columns, depth, .. } = self.contraction;
        let (n_products, tile) = (self.batch.n_points(), workspaces[0].tile());
        let work = n_products * rows * columns * depth / PRODUCTS_PER_OPERATION;
        let is_split = n_products < workspaces.len();
        let grid = if is_split { self.grid } else { (1, 1) };
        let n_cells = grid.0 * grid.1;
        parallel_for(workspaces, n_products * n_cells, work, |workspace, units| {
            for unit in units {
                let (product, cell) = (unit / n_cells, unit % n_cells);
                // SAFETY: all regions were checked to have the elements that are needed; cells
                // write different ones.
                unsafe { self.multiply(workspace, regions, product, (cell, grid), tile) };
            }
        });
        Ok(())
    }

    /// Computes one cell of the grid of one product.
    ///
    /// # Safety
    /// As [`Self::run`]; the regions have the elements that are needed.
    unsafe fn multiply(
        &self,
        workspace: &mut Workspace,
        regions: [Region; 3],
        product: usize,
        (cell, grid): (usize, (usize, usize)),
        tile: (usize, usize),
    ) {
        let Contraction { rows, columns, depth, left, right, result, .. } = self.contraction;
        let matrix = |operand: usize, strides: MatrixStrides| {
            let start = offset(&self.batch.extents, &self.batch.strides[operand], product);
            Matrix { start: regions[operand].at(start), row: strides.row, column: strides.column }
        };
        let (left, right, result) = (matrix(0, left), matrix(1, right), matrix(2, result));
        let (n_rows, n_columns, left, right, result) = if self.is_transposed {
            (columns, rows, right.transposed(), left.transposed(), result.transposed())
        } else {
            (rows, columns, left, right, result)
        };
        let (first_row, end_row) = part(n_rows, tile.0, cell % grid.0, grid.0);
        let (first_column, end_column) = part(n_columns, tile.1, cell / grid.0, grid.1);
        let result = result.from(first_row, first_column);
        let sizes = (end_row - first_row, end_column - first_column, depth);
        let (left, right) = (left.from(first_row, 0), right.from(0, first_column));
        match self.few_columns {
            // SAFETY: as below; the loop is that of these strides.
            Some(product) => unsafe { product(sizes, left, right, result) },
            // SAFETY: required of the caller; the cell is within the product.
            None => unsafe { workspace.multiply(sizes, left, right, result) },
        }
    }

    fn check(&self, regions: [Region; 3]) -> Result<(), Error> {
        let fault = |message: String| Err(Error::new(ErrorKind::Program, message));
        let names = ["left", "right", "result"];
        for ((region, expected), name) in regions.iter().zip(self.n_needed).zip(names) {
            if region.n_elements < expected {
                let found = region.n_elements;
                return fault(format!("{name}: expected {expected} elements, found {found}"));
            }
        }
        if regions[..2].iter().any(|it| it.overlaps(&regions[2])) {
            return fault("result: expected memory apart from the operands".to_owned());
        }
        Ok(())
    }
}

/// Returns the strides of a product, or of the transposed one.
const fn oriented(
    [left, right, result]: [MatrixStrides; 3],
    is_transposed: bool,
) -> (MatrixStrides, MatrixStrides, MatrixStrides) {
    const fn transposed(MatrixStrides { batch, row, column }: MatrixStrides) -> MatrixStrides {
        MatrixStrides { batch, row: column, column: row }
    }
    match is_transposed {
        true => (transposed(right), transposed(left), transposed(result)),
        false => (left, right, result),
    }
}

/// Returns the range of the `number`-th of `n_parts` parts of `n` elements, in whole tiles.
fn part(n: usize, tile: usize, number: usize, n_parts: usize) -> (usize, usize) {
    let n_tiles = n.div_ceil(tile);
    let bound = |number: usize| (number * n_tiles / n_parts * tile).min(n);
    (bound(number), bound(number + 1))
}

/// Returns how many parts of the rows and of the columns give one part to each thread with the
/// least work. The tiles of the largest part count first, then the elements that each thread reads.
fn grid(
    n_rows: usize,
    n_columns: usize,
    (tile_rows, tile_columns): (usize, usize),
    n_threads: usize,
) -> (usize, usize) {
    let cost = |(by_rows, by_columns): &(usize, usize)| {
        let rows = n_rows.div_ceil(tile_rows).div_ceil(*by_rows) * tile_rows;
        let columns = n_columns.div_ceil(tile_columns).div_ceil(*by_columns) * tile_columns;
        // Packing and reading an element costs as much as about ten products.
        rows * columns + 10 * (rows + columns)
    };
    let splits = (1..=n_threads).filter(|it| n_threads.is_multiple_of(*it));
    splits.map(|it| (it, n_threads / it)).min_by_key(cost).expect("one split at least")
}

#[cfg(test)]
mod tests {
    use soybean_plan::{DType, Shape, Strides};

    use super::*;
    use crate::cpu::{
        isa::Isa,
        random_data::{Dice, in_pool, region},
    };

    fn matrix(
        dice: &mut Dice,
        batch: &Shape,
        n_rows: usize,
        n_columns: usize,
        may_repeat: bool,
    ) -> MatrixStrides {
        let extents: Vec<usize> = batch.iter().copied().chain([n_rows, n_columns]).collect();
        let mut strides = Shape::new(&extents).dense_strides().0;
        let n_batch = batch.len();
        let (mut row, mut column) = (strides[n_batch], strides[n_batch + 1]);
        if dice.below(2) == 0 {
            (row, column) = (1, n_rows);
        }
        strides[n_batch..].fill(0);
        if may_repeat && dice.below(4) == 0 {
            strides.fill(0);
        }
        MatrixStrides { batch: Strides(strides), row, column }
    }

    fn check(dice: &mut Dice, n_batch: usize, extents: &[usize]) {
        let batch: Shape = (0..n_batch).map(|_| dice.pick(&[1, 2, 3, 5])).collect();
        let mut extent = || dice.pick(extents);
        let (rows, columns, depth) = (extent(), extent(), extent());
        let contraction = Contraction {
            batch,
            rows,
            columns,
            depth,
            left: matrix(dice, &batch, rows, depth, true),
            right: matrix(dice, &batch, depth, columns, true),
            result: matrix(dice, &batch, rows, columns, false),
        };
        let isa = dice.pick(&Isa::all());
        let n_threads = dice.pick(&[1, 2, 3, 4]);
        let mut workspaces: Vec<Workspace> = (0..n_threads).map(|_| Workspace::new(isa)).collect();
        let kernel = ContractionKernel::new(&contraction, &workspaces);
        let [mut left, mut right, mut result] = kernel.n_needed.map(|n| dice.buffer(n, DType::F32));
        let regions = [&mut left, &mut right, &mut result].map(|it| region(it, DType::F32));

        // SAFETY: the buffers are this test's.
        in_pool(|| unsafe { kernel.run(&mut workspaces, regions) }.unwrap());
        for product in batch.points() {
            let starts = [&contraction.left, &contraction.right, &contraction.result]
                .map(|it| it.batch.offset(&product));
            for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
                let term = |k: usize| {
                    let (left_strides, right_strides) = (&contraction.left, &contraction.right);
                    let a = left[starts[0] + i * left_strides.row + k * left_strides.column];
                    let b = right[starts[1] + k * right_strides.row + j * right_strides.column];
                    f64::from(a) * f64::from(b)
                };
                let expected: f64 = (0..depth).map(term).sum();
                let place = i * contraction.result.row + j * contraction.result.column;
                let found = f64::from(result[starts[2] + place]);
                // Each term is at most 4, and each sum is rounded to 6e-8 of it; errors add up like
                // a random walk.
                let error = (found - expected).abs();
                assert!(
                    error < 1e-6 * (1.0 + depth as f64),
                    "{contraction:?} {isa:?}: {found}, not {expected}"
                );
            }
        }
    }

    #[test]
    fn random_contractions_agree_with_plain_loops() {
        for seed in 0..200 {
            let mut dice = Dice(seed);
            let n_batch = dice.below(3);
            check(&mut dice, n_batch, &[1, 2, 7, 16, 33, 64, 90]);
        }
    }

    /// Half of these products have at most four rows or columns, and a loop of their own.
    #[test]
    fn products_with_few_columns_agree_with_plain_loops() {
        for seed in 0..300 {
            check(&mut Dice(seed), usize::try_from(seed % 2).unwrap(), &[1, 3, 4, 31, 100, 333]);
        }
    }

    #[test]
    fn contractions_larger_than_a_block_agree_with_plain_loops() {
        for seed in 0..12 {
            check(&mut Dice(seed), 0, &[3, 270, 400, 1600][..3 + usize::from(seed == 0)]);
        }
    }

    #[test]
    fn products_of_depth_zero_are_zero() {
        let strides = MatrixStrides { batch: Strides::default(), row: 2, column: 1 };
        let contraction = Contraction {
            batch: Shape::default(),
            rows: 2,
            columns: 2,
            depth: 0,
            left: strides,
            right: strides,
            result: strides,
        };
        let mut result = [1.0; 4];
        let (left, right) = (region(&mut [], DType::F32), region(&mut [], DType::F32));
        let mut workspaces = [Workspace::new(Isa::detect())];
        let kernel = ContractionKernel::new(&contraction, &workspaces);
        let regions = [left, right, region(&mut result, DType::F32)];
        // SAFETY: the buffers are this test's.
        unsafe { kernel.run(&mut workspaces, regions) }.unwrap();
        assert_eq!(result, [0.0; 4]);
    }
}
