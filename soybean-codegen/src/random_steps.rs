//! Random steps in random memory for tests.

use soybean_plan::{
    Attention, AttentionForm, AttentionLayout, Binary, Buffer, DType, Entry, Instruction, Kernel,
    Map, Mesh, Output, Rows, ScalarProgram, Shape, Step, Tables, Tile, Tiling, random::mixed,
};

/// The elements of the arena.
pub(crate) const N_CELLS: usize = 160;

/// The heads of a tensor, with the group of each, and the rows and columns of a head.
pub(crate) const SIZES: [usize; 4] = [2, 2, 3, 2];
/// The elements of a tensor of queries, and of one of keys.
pub(crate) const N_ELEMENTS: [usize; 2] = [24, 12];

/// A generator of pseudorandom numbers.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    #[expect(clippy::cast_possible_truncation, reason = "below a `usize`")]
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = mixed(self.0);
        (self.0 % n as u64) as usize
    }
}

/// Returns attention of these sizes.
pub(crate) fn attention(form: AttentionForm) -> Attention {
    let [heads, group, rows, columns] = SIZES;
    Attention {
        form,
        heads,
        group,
        queries: rows,
        keys: rows,
        features: columns,
        width: columns,
        is_causal: false,
        window: None,
        is_part: false,
        segments: None,
        score: None,
        bias: None,
        pairs: 0,
        scale: 0.1,
        layout: AttentionLayout::HEADS_FIRST,
        saves_logarithms: false,
    }
}

/// Returns `x0 - x1`.
pub(crate) fn difference(n_elements: usize) -> Map {
    let extents = Shape::new(&[n_elements]);
    let instructions = vec![
        Instruction::Input(0),
        Instruction::Input(1),
        Instruction::Binary(Binary::Subtract, 0, 1),
    ];
    let program = ScalarProgram { instructions: instructions.into(), results: vec![2].into() };
    Map { extents, inputs: vec![extents.dense_strides(); 2].into(), program }
}

/// A phase of random steps.
pub(crate) struct Phase {
    pub(crate) steps: Vec<Step>,
    pub(crate) kernels: Vec<Kernel>,
    pub(crate) buffers: Vec<Buffer>,
}

/// Returns the tables of a phase with these outputs.
pub(crate) fn tables(buffers: &[Buffer], lasting: &[usize]) -> Tables {
    let output = |buffer: &usize| Output {
        name: "out".into(),
        dtype: DType::F32,
        tile: Tile::new(Shape::new(&[buffers[*buffer].n_elements]), Tiling::replicated(0)),
        buffer: *buffer,
        rows: Rows::Mixed,
    };
    Tables {
        arena_bytes: N_CELLS * 4,
        buffers: buffers.to_vec().into(),
        entries: vec![Entry::only(0, lasting.len(), 0, 0)].into(),
        outputs: lasting.iter().map(output).collect(),
        ..Tables::new("steps", Mesh::new(1))
    }
}

/// Returns the contents of the outputs after the steps have run in an arena.
pub(crate) fn run(steps: &[Step], kernels: &[Kernel], tables: &Tables) -> Vec<f64> {
    let n_cells = tables.arena_bytes / 4;
    let mut arena: Vec<f64> = (0..n_cells).map(|it| (it * 7 % 23) as f64 - 11.0).collect();
    let cells = |it: &usize| {
        let Buffer { offset, n_elements, .. } = tables.buffers[*it];
        offset / 4..offset / 4 + n_elements
    };
    for step in steps {
        let inputs: Vec<Vec<f64>> =
            step.inputs.iter().map(|it| arena[cells(it)].to_vec()).collect();
        let inputs: Vec<&[f64]> = inputs.iter().map(|it| &it[..]).collect();
        let kernel = kernels[step.kernel].local().expect("no step communicates");
        for (result, values) in step.results.iter().zip(kernel.evaluate(&inputs, &[])) {
            arena[cells(result)].copy_from_slice(&values);
        }
    }
    tables.outputs.iter().flat_map(|it| arena[cells(&it.buffer)].to_vec()).collect()
}
