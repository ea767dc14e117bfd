//! Random steps in random memory for tests.

use soybean_plan::{
    Attention, AttentionForm, Binary, Buffer, BufferId, DType, Entry, Instruction, Kernel, Map,
    Mesh, Output, Rows, ScalarProgram, Shape, Step, Tables, Tile, Tiling, overlaps, random::mixed,
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
    Attention { group, scale: 0.1, ..Attention::new(form, heads, [rows; 2], [columns; 2]) }
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

/// Returns a random one of these forms of attention, with the elements of its inputs and results.
pub(crate) fn random_attention(dice: &mut Dice) -> (Kernel, Vec<usize>, Vec<usize>) {
    let it = attention(AttentionForm::ALL[dice.below(5)]);
    let all = |lengths: Vec<usize>| lengths.into_iter().map(|n| it.heads * n).collect();
    let (inputs, results) = (all(it.input_lengths()), all(it.result_lengths()));
    (it.into(), inputs, results)
}

/// A phase of random steps.
pub(crate) struct Phase {
    pub(crate) steps: Vec<Step>,
    pub(crate) kernels: Vec<Kernel>,
    pub(crate) buffers: Vec<Buffer>,
}

impl Phase {
    /// Returns a phase without steps. Most of its buffers have memory of their own, and one in
    /// `rarity` overlaps others in any way.
    pub(crate) fn new(dice: &mut Dice, n_buffers: usize, rarity: usize) -> Self {
        let mut buffer = |n_elements: usize| {
            let is_apart = dice.below(rarity) > 0;
            let place = if is_apart { dice.below(6) * 24 } else { dice.below(N_CELLS - 24) };
            Buffer { offset: place * 4, n_elements, dtype: DType::F32 }
        };
        let buffers = (0..n_buffers).map(|it| buffer(N_ELEMENTS[it % 2])).collect();
        Self { steps: Vec::new(), kernels: Vec::new(), buffers }
    }

    /// Adds a step, if its results overlap neither each other nor its inputs. Returns whether they
    /// do not.
    pub(crate) fn push(
        &mut self,
        kernel: Kernel,
        inputs: &[BufferId],
        results: &[BufferId],
    ) -> bool {
        let range = |it: BufferId| {
            let Buffer { offset, n_elements, .. } = self.buffers[it];
            offset..offset + n_elements * 4
        };
        let is_apart = results.iter().enumerate().all(|(at, result)| {
            let others = inputs.iter().chain(&results[..at]);
            others.copied().all(|it| !overlaps(&range(it), &range(*result)))
        });
        if is_apart {
            let (inputs, results) = (inputs.to_vec(), results.to_vec());
            self.steps.push(Step { kernel: self.kernels.len(), inputs, results });
            self.kernels.push(kernel);
        }
        is_apart
    }

    /// Returns the results of one or more of the last steps, at most this many.
    pub(crate) fn last_results(&self, dice: &mut Dice, most: usize) -> Vec<BufferId> {
        let last = self.steps.iter().rev().take(1 + dice.below(most));
        last.map(|it| it.results[0]).collect()
    }
}

/// Describes buffers and the steps before and after a change.
pub(crate) fn described(tables: &Tables, kernels: &[Kernel], steps: [&[Step]; 2]) -> String {
    let line = |it: &Step| format!("{:?} = {} {:?}", it.results, kernels[it.kernel], it.inputs);
    let lines = |steps: &[Step]| steps.iter().map(line).collect::<Vec<_>>().join("\n");
    format!("{:?}\n{}", tables.buffers, steps.map(lines).join("\n->\n"))
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
