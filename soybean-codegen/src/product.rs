//! Matrix products of operands with any layout: `result[b, i, j] = sum over k of left[b, i, k] *
//! right[b, k, j]`, where source text describes how elements are found.
//!
//! It serves contractions whose strides no library supports. It also serves convolutions without a
//! library, as products with matrices of patches that are never in memory.

use soybean_plan::{DType, Precision};

use crate::{
    Address, Call, Generated, Operation,
    text::{Function, Parameter, Text, Threads, c_type, result_apart, workspace},
};

/// The maximum number of columns that one thread sums.
const THIN: usize = 8;
/// Fewer blocks leave large GPUs idle.
const ENOUGH_BLOCKS: usize = 256;
/// The minimum depth of a block if the depth is split between blocks.
const LEAST_DEPTH: usize = 256;
/// The maximum number of bytes of partial sums.
const MOST_PARTIAL_BYTES: usize = 64 << 20;
/// The threads of a block that adds up partial sums.
const N_FINISHING: u32 = 256;

/// The units that compute products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Units {
    /// Fused multiply-add in single precision.
    Single,
    /// Tensor cores, on words of `n` numbers: 1 in tf32, 2 in bf16.
    Tensor { per_word: usize },
}

impl Units {
    pub(crate) fn new(call: &Call<'_>) -> Self {
        match call.precision {
            Precision::Bf16 => Self::Tensor { per_word: 2 },
            Precision::Tf32 => Self::Tensor { per_word: 1 },
            Precision::F32 if call.inputs.iter().all(|it| *it == DType::Bf16) => {
                Self::Tensor { per_word: 2 }
            }
            Precision::F32 => Self::Single,
        }
    }
}

/// A matrix whose rows are its lines and whose columns are along the depth.
pub(crate) struct Operand {
    /// The number of the input.
    pub(crate) input: usize,
    pub(crate) dtype: DType,
    /// True if neighbors along the depth are closer in memory than those of neighboring lines.
    pub(crate) is_along_depth: bool,
    /// The members of a struct: the type `Line`, `start(batch)` in elements, `line(Index)` and
    /// `at(Line, Index depth)`; `from` is the start of the batch.
    pub(crate) members: String,
}

/// An addition to the sums of each column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColumnBias {
    /// The number of the input, which has an element for each column of each batch.
    pub(crate) input: usize,
    pub(crate) dtype: DType,
    /// True if ReLU follows.
    pub(crate) has_relu: bool,
}

/// A batched product that is not empty.
pub(crate) struct Product<'a> {
    pub(crate) prefix: &'a str,
    pub(crate) units: Units,
    pub(crate) batch: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) depth: usize,
    /// The left operand; its lines are rows.
    pub(crate) left: Operand,
    /// The right operand; its lines are columns.
    pub(crate) right: Operand,
    pub(crate) bias: Option<ColumnBias>,
    pub(crate) result: DType,
    /// True if 8 columns from a multiple of 8 on are neighbors in the result, and if the first of
    /// them is at a multiple of 8.
    pub(crate) has_eight_neighbors: bool,
    /// The names of rows and columns in `offset`.
    pub(crate) axes: [&'static str; 2],
    /// The offset of the result of `batch` at that row and column.
    pub(crate) offset: String,
    /// The number of elements of the largest buffer.
    pub(crate) most_elements: usize,
}

/// The distribution of sums over threads.
struct Tiling {
    text: &'static str,
    rows: usize,
    columns: usize,
    constants: Vec<(&'static str, usize)>,
    threads: usize,
    splits: usize,
}

impl Product<'_> {
    /// Returns the functions, unless there are more blocks than a launch can have.
    pub(crate) fn generated(&self) -> Option<Generated> {
        let tiling = self.tiling();
        let n_results = self.batch * self.rows * self.columns;
        let mut text = Text::default();
        let space = format!("{}text", self.prefix);
        text.block(format!("namespace {space}"), |text| self.space(text, &tiling));
        let parameter = |name: &str, dtype: DType, input: usize| Parameter {
            declaration: format!("const {}* __restrict__ {name}", c_type(dtype)),
            argument: Address::Input(input),
        };
        let bias = self.bias.map(|it| parameter("bias", it.dtype, it.input));
        let result = result_apart(0, self.result);
        let target = match tiling.splits {
            1 => result.clone(),
            _ => workspace("float* __restrict__ out0", 0),
        };
        let [left, right] = [("left", &self.left), ("right", &self.right)]
            .map(|(name, it)| parameter(name, it.dtype, it.input));
        // The sums of parts of the depth get their bias at the end.
        let added = bias.clone().filter(|_| tiling.splits == 1);
        let multiply = Function {
            name: format!("{}product", self.prefix),
            parameters: [left, right, target].into_iter().chain(added.clone()).collect(),
            threads: Threads::Cooperating,
            block: u32::try_from(tiling.threads).ok()?,
        };
        let output = format!("out0, {}", bias_argument(added.is_some()));
        text.function(&multiply, |text| {
            text.line(format!("{space}::product(left, right, {output});"));
        });
        let tiles = self.rows.div_ceil(tiling.rows) * self.columns.div_ceil(tiling.columns);
        let mut operations = vec![multiply.launch(grid(tiles * self.batch * tiling.splits)?)];
        if tiling.splits > 1 {
            let parameters = [result].into_iter().chain(bias).collect();
            operations.push(self.finish(&mut text, &space, parameters, n_results)?);
        }
        let workspace_bytes = if tiling.splits > 1 { 4 * tiling.splits * n_results } else { 0 };
        Some(Generated { text: text.finish(), operations, workspace_bytes })
    }

    /// Writes the function that adds up the partial sums of parts of the depth, with these
    /// parameters besides.
    fn finish(
        &self,
        text: &mut Text,
        space: &str,
        mut parameters: Vec<Parameter>,
        n_results: usize,
    ) -> Option<Operation> {
        parameters.insert(0, workspace("const float* __restrict__ partial", 0));
        let function = Function {
            name: format!("{}finish", self.prefix),
            parameters,
            threads: Threads::Independent,
            block: N_FINISHING,
        };
        let bias = bias_argument(self.bias.is_some());
        text.function(&function, |text| {
            text.line(format!("{space}::finish(partial, out0, {bias});"));
        });
        Some(function.launch(grid(n_results.div_ceil(N_FINISHING as usize))?))
    }

    /// Writes the constants, the offsets of elements, and the functions that rely on them.
    fn space(&self, text: &mut Text, tiling: &Tiling) {
        let n_sums = tiling.splits * self.batch * self.rows * self.columns;
        // Tiles extend beyond the ends of lines and of the depth.
        let most = self.most_elements.max(n_sums).max(self.depth) + 1024;
        text.index_type(most);
        let sizes = [
            ("BATCH", self.batch),
            ("ROWS", self.rows),
            ("COLUMNS", self.columns),
            ("DEPTH", self.depth),
            ("SPLITS", tiling.splits),
            ("SPLIT_DEPTH", self.depth.div_ceil(tiling.splits).next_multiple_of(32)),
        ];
        text.constants("Index", sizes);
        let tiles = [("TILE_ROWS", tiling.rows), ("TILE_COLUMNS", tiling.columns)];
        text.constants("int", tiles.iter().chain(&tiling.constants).copied());
        for (name, operand) in [("Left", &self.left), ("Right", &self.right)] {
            text.block(format!("struct {name}"), |text| {
                text.line(format!("typedef {} Element;", c_type(operand.dtype)));
                text.line(format!(
                    "static constexpr bool ALONG_DEPTH = {};",
                    operand.is_along_depth
                ));
                text.line("const Element* from;");
                operand.members.lines().for_each(|line| text.line(line));
            });
            text.line(";");
        }
        let bias = self.bias.map_or(DType::F32, |it| it.dtype);
        let facts = [
            ("HAS_BIAS", self.bias.is_some()),
            ("HAS_RELU", self.bias.is_some_and(|it| it.has_relu)),
            ("HAS_EIGHT_NEIGHBORS", self.has_eight_neighbors),
        ];
        text.constants("bool", facts);
        text.line(format!("typedef {} Bias;", c_type(bias)));
        text.line(format!("typedef {} Result;", c_type(self.result)));
        text.line(if tiling.splits > 1 {
            "typedef float Target;"
        } else {
            "typedef Result Target;"
        });
        let [row, column] = self.axes;
        let head = format!(
            "__device__ __forceinline__ Index result_offset(Index batch, Index {row}, Index {column})"
        );
        text.block(head, |text| text.line(format!("return {};", self.offset)));
        text.line(include_str!("product/target.cu"));
        text.line(tiling.text);
    }

    fn tiling(&self) -> Tiling {
        if self.columns <= THIN {
            return self.thin();
        }
        let (rows, columns) = self.tile();
        let is_large = rows * columns == 128 * 128;
        let (text, constants, threads) = match self.units {
            Units::Single => {
                let side = if is_large { 8 } else { 4 };
                let constants = vec![("TILE_DEPTH", 16), ("THREAD_SIDE", side)];
                (include_str!("product/fma.cu"), constants, rows * columns / (side * side))
            }
            Units::Tensor { per_word } => {
                let row_tiles = if is_large { 4 } else { 2 };
                let constants =
                    vec![("PER_WORD", per_word), ("ROW_TILES", row_tiles), ("COLUMN_TILES", 4)];
                (include_str!("product/mma.cu"), constants, rows * columns / (16 * row_tiles))
            }
        };
        let n_blocks = self.batch * self.rows.div_ceil(rows) * self.columns.div_ceil(columns);
        Tiling { text, rows, columns, constants, threads, splits: self.splits(n_blocks) }
    }

    /// Returns the rows and columns of a tile with the least work. The work beyond the ends counts,
    /// and so does that larger tiles read less.
    fn tile(&self) -> (usize, usize) {
        let n_blocks = |(rows, columns): (usize, usize)| {
            self.batch * self.rows.div_ceil(rows) * self.columns.div_ceil(columns)
        };
        let work =
            |tile: (usize, usize), percent: usize| n_blocks(tile) * tile.0 * tile.1 * percent;
        let large = if n_blocks((128, 128)) >= ENOUGH_BLOCKS { 80 } else { 120 };
        [((64, 64), 100), ((128, 128), large), ((32, 128), 105), ((128, 32), 105)]
            .into_iter()
            .min_by_key(|(tile, percent)| work(*tile, *percent))
            .map_or((64, 64), |(tile, _)| tile)
    }

    /// Returns a product with few columns.
    fn thin(&self) -> Tiling {
        // The threads that share a row are as many as find some work there and read whole sectors
        // of memory.
        let most = if self.left.is_along_depth { 256 } else { 8 };
        let n_parts = (self.depth / 16).next_power_of_two().clamp(1, most);
        let rows = 256 / n_parts;
        let n_blocks = self.batch * self.rows.div_ceil(rows);
        Tiling {
            text: include_str!("product/thin.cu"),
            rows,
            columns: self.columns,
            constants: Vec::new(),
            threads: 256,
            splits: self.splits(n_blocks),
        }
    }

    /// Returns the number of parts of the depth; 1 if there are enough blocks without splitting it.
    fn splits(&self, n_blocks: usize) -> usize {
        let bytes = 4 * self.batch * self.rows * self.columns;
        let most = (self.depth / LEAST_DEPTH).min(MOST_PARTIAL_BYTES / bytes);
        let splits = ENOUGH_BLOCKS.div_ceil(n_blocks).min(most).max(1);
        // Parts have whole tiles, so fewer parts may be enough.
        self.depth.div_ceil(self.depth.div_ceil(splits).next_multiple_of(32).max(1)).max(1)
    }

    /// Returns the transposed product if it has fewer columns than rows.
    pub(crate) fn with_few_columns(self) -> Self {
        if self.columns <= THIN || self.rows > THIN { self } else { self.transposed() }
    }

    /// Returns the product of the same elements whose rows are the columns of this one. Its results
    /// count as scattered.
    pub(crate) fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            left: self.right,
            right: self.left,
            has_eight_neighbors: false,
            axes: [self.axes[1], self.axes[0]],
            ..self
        }
    }
}

/// Returns the argument for the bias of a function.
const fn bias_argument(has_bias: bool) -> &'static str {
    if has_bias { "bias" } else { "nullptr" }
}

/// Returns a grid of blocks along x.
pub(crate) fn grid(n_blocks: usize) -> Option<[u32; 3]> {
    Some([i32::try_from(n_blocks).ok()?.unsigned_abs(), 1, 1])
}

#[cfg(test)]
mod tests {
    use soybean_plan::{Contraction, Kernel, MatrixStrides, Shape, Strides};

    use super::*;

    fn generated(rows: usize, columns: usize, depth: usize) -> Generated {
        let by_row = |n: usize| MatrixStrides { batch: Strides::new(&[]), row: n, column: 1 };
        let kernel = Kernel::from(Contraction {
            batch: Shape::new(&[]),
            rows,
            columns,
            depth,
            left: by_row(depth),
            right: by_row(columns),
            result: by_row(columns),
        });
        let types = [DType::F32; 3];
        let (inputs, results) = (&types[..2], &types[2..]);
        let call = Call { kernel: &kernel, inputs, results, precision: Precision::F32 };
        crate::generate(&call, "k").unwrap()
    }

    /// Returns the value of a constant of a text.
    fn constant(generated: &Generated, name: &str) -> usize {
        let start = format!("constexpr Index {name} = ");
        let mut values = generated.text.lines().filter_map(|it| it.trim().strip_prefix(&start));
        values.next().unwrap().trim_end_matches(';').parse().unwrap()
    }

    #[test]
    fn parts_of_the_depth_are_all_of_it() {
        for (rows, columns) in [(64, 64), (1, 1), (5, 300), (100, 9)] {
            for depth in [1, 32, 511, 512, 513, 5000, 99_999] {
                let generated = generated(rows, columns, depth);
                let (n, each) =
                    (constant(&generated, "SPLITS"), constant(&generated, "SPLIT_DEPTH"));
                assert!((n - 1) * each < depth && depth <= n * each, "{depth}: {n} of {each}");
                assert_eq!(generated.operations.len(), if n > 1 { 2 } else { 1 });
                let sums = if n > 1 { 4 * n * rows * columns } else { 0 };
                assert_eq!(generated.workspace_bytes, sums);
            }
        }
    }

    #[test]
    fn few_results_of_great_depth_keep_many_blocks_busy() {
        let Some(Operation::Launch(launch)) =
            generated(64, 64, 100_000).operations.into_iter().next()
        else {
            panic!("nothing is launched")
        };
        assert!(launch.grid[0] as usize > ENOUGH_BLOCKS / 2, "{launch:?}");
    }

    #[test]
    fn indices_are_as_wide_as_needed() {
        assert!(generated(40_000, 64, 40_000).text.contains("typedef int Index;"));
        assert!(generated(50_000, 64, 50_000).text.contains("typedef long long Index;"));
    }
}
