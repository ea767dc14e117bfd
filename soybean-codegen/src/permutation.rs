//! CUDA C for [`Permutation`]. If rows of the result are columns of the input, tiles go through
//! shared memory, so that both are read and written in contiguous ranges. Otherwise it is a map.

use soybean_plan::{DType, Kernel, Map, Permutation, ScalarProgram};

use crate::{
    Call, Generated,
    generate::CudaKernel,
    space::{Axis, axes, index_type, n_points, product, sum, write_places},
    text::{Function, Text, Threads, input_apart, result_apart},
};

/// The rows and columns of a tile.
const TILE: usize = 32;
/// The threads of a block.
const BLOCK: usize = 256;
/// Shorter dims would leave tiles nearly empty.
const SHORTEST: usize = 8;

impl CudaKernel for Permutation {
    fn generate(&self, call: &Call<'_>, prefix: &str) -> Option<Generated> {
        // Bits are copied unchanged, whatever their type.
        let types = [*call.inputs.first()?, *call.results.first()?].map(|it| match it {
            DType::F32 | DType::I32 => DType::F32,
            DType::Bf16 => DType::Bf16,
        });
        let axes = axes(&self.extents, &[self.input, self.extents.dense_strides()]);
        match Transposition::of(&axes) {
            Some(tiles) => tiles.generate(types, prefix),
            None => direct(self, call, types, prefix),
        }
    }
}

fn direct(it: &Permutation, call: &Call<'_>, types: [DType; 2], prefix: &str) -> Option<Generated> {
    let program = ScalarProgram::identity();
    let map = Map { extents: it.extents, inputs: vec![it.input].into(), program };
    let kernel = Kernel::Map(map.clone());
    let call = Call { kernel: &kernel, inputs: &types[..1], results: &types[1..], ..*call };
    map.generate(&call, prefix)
}

/// A copy in which neighbors in the input (`near`) and in the result (`row`) are along different
/// dims.
struct Transposition {
    near: Axis,
    row: Axis,
    others: Vec<Axis>,
    index_type: &'static str,
}

impl Transposition {
    fn of(axes: &[Axis]) -> Option<Self> {
        let (row, outer) = axes.split_last()?;
        let near = outer.iter().position(|it| it.strides[0] == 1)?;
        let is_worth = row.strides[0] > 1 && row.extent.min(outer[near].extent) >= SHORTEST;
        let mut others = outer.to_vec();
        let near = others.remove(near);
        is_worth.then(|| Self { near, row: row.clone(), others, index_type: index_type(axes) })
    }

    fn generate(&self, types: [DType; 2], prefix: &str) -> Option<Generated> {
        let function = Function {
            name: format!("{prefix}_transpose"),
            parameters: vec![input_apart(0, types[0]), result_apart(0, types[1])],
            threads: Threads::Cooperating,
            block: 256,
        };
        let (n_near, n_rows) = (self.near.extent.div_ceil(TILE), self.row.extent.div_ceil(TILE));
        let mut text = Text::default();
        text.function(&function, |text| {
            let index_type = self.index_type;
            // One column more than needed, so that the elements of a column are in different banks.
            text.line(format!("__shared__ float tile[{TILE}][{}];", TILE + 1));
            text.line("const unsigned column = threadIdx.x % 32, row = threadIdx.x / 32;");
            text.line(format!("const {index_type} number = blockIdx.x / {}u;", n_near * n_rows));
            text.line(format!("const {index_type} near = blockIdx.x % {n_near}u * {TILE}u;"));
            text.line(format!("const {index_type} far = blockIdx.x / {n_near}u % {n_rows}u * {TILE}u;"));
            let mut places = vec!["0u".to_owned(); 2];
            if !self.others.is_empty() {
                places = write_places(text, index_type, ("c", "number"), &self.others);
            }
            let steps = format!("for (unsigned i = row; i < {TILE}; i += {}u)", BLOCK / TILE);
            let ends = (self.near.extent, self.row.extent);
            let place = |operand: usize, near: &str, far: &str| {
                let near = product(near, self.near.strides[operand]);
                sum([places[operand].clone(), near, product(far, self.row.strides[operand])])
            };
            text.block(&steps, |text| {
                let from = place(0, "(near + column)", "(far + i)");
                text.line(format!("if (near + column < {}u && far + i < {}u) tile[i][column] = soybean_value(in0[{from}]);", ends.0, ends.1));
            });
            text.line("__syncthreads();");
            text.block(&steps, |text| {
                let to = place(1, "(near + i)", "(far + column)");
                text.line(format!("if (near + i < {}u && far + column < {}u) soybean_store(out0 + {to}, tile[column][i]);", ends.0, ends.1));
            });
        });
        let n_blocks = u32::try_from(n_points(&self.others) * n_near * n_rows).ok()?;
        let operations =
            if n_blocks == 0 { Vec::new() } else { vec![function.launch([n_blocks, 1, 1])] };
        Some(Generated { text: text.finish(), operations, workspace_bytes: 0 })
    }
}
