//! Tests that joined products compute the same as products alone, in any memory plan.

mod interpreter;

use soybean_linear_program::program;
use soybean_plan::{
    Binary, Buffer, DType, Instruction, Map, Precision, ScalarProgram, random::mixed,
};

use self::interpreter::lasting_values;
use super::{super::epilogue::Function, *};

/// Rows, depth and columns of all products.
const ROWS: usize = 8;
const WIDTH: usize = 4;
/// The elements of an activation and of a weight.
const ACTIVATION: usize = ROWS * WIDTH;
const WEIGHT: usize = WIDTH * WIDTH;

/// The numbers of the kernels.
const PRODUCT: usize = 0;
const COPY: usize = 1;
const ADD: usize = 2;
const EXCHANGE: usize = 3;

/// The input of the linear program.
const X: BufferId = 0;

struct Model {
    steps: Vec<FusedStep>,
    kernels: Vec<Kernel>,
    tables: Tables,
}

fn step(kernel: usize, inputs: &[BufferId], result: BufferId) -> FusedStep {
    FusedStep::Plain(Step { kernel, inputs: inputs.to_vec(), results: vec![result] })
}

impl Model {
    /// Creates a model with the inputs of the linear program.
    fn new() -> Self {
        let tables = program(1).tables;
        assert_eq!(tables.precision, Precision::F32);
        let matrix = |row: usize| MatrixStrides { batch: Strides::new(&[]), row, column: 1 };
        let product = Contraction {
            batch: Shape::new(&[]),
            rows: ROWS,
            columns: WIDTH,
            depth: WIDTH,
            left: matrix(WIDTH),
            right: matrix(WIDTH),
            result: matrix(WIDTH),
        };
        let extents = Shape::new(&[ACTIVATION]);
        let map = |n_inputs: usize, program| Map {
            extents,
            inputs: vec![extents.dense_strides(); n_inputs].into(),
            program,
        };
        let add =
            [Instruction::Input(0), Instruction::Input(1), Instruction::Binary(Binary::Add, 0, 1)];
        let add = ScalarProgram { instructions: add.to_vec().into(), results: vec![2].into() };
        let kernels =
            vec![product.into(), map(1, ScalarProgram::identity()).into(), map(2, add).into()];
        Self { steps: Vec::new(), kernels, tables }
    }

    /// Adds a buffer behind the arena.
    fn buffer(&mut self, n_elements: usize) -> BufferId {
        let offset = self.tables.arena_bytes.next_multiple_of(64);
        self.tables.arena_bytes = offset + n_elements * DType::F32.bytes();
        let buffers = self.tables.buffers.to_mut();
        buffers.push(Buffer { offset, n_elements, dtype: DType::F32 });
        buffers.len() - 1
    }

    /// Adds a parameter, which the products of each phase can read.
    fn parameter(&mut self, n_elements: usize) -> BufferId {
        let buffer = self.buffer(n_elements);
        let parameters = self.tables.parameters.to_mut();
        let parameter = soybean_plan::Parameter { buffer, ..parameters[0].clone() };
        parameters.push(parameter);
        buffer
    }

    /// Adds a step with a new buffer for its result.
    fn compute(&mut self, kernel: usize, inputs: &[BufferId]) -> BufferId {
        let result = self.buffer(ACTIVATION);
        self.steps.push(step(kernel, inputs, result));
        result
    }

    /// Lets a parameter keep the sum of these.
    fn keep_sum(&mut self, results: &[BufferId]) {
        let kept = self.parameter(ACTIVATION);
        self.steps.push(step(COPY, &[results[0]], kept));
        results[1..].iter().for_each(|it| self.steps.push(step(ADD, &[kept, *it], kept)));
    }

    /// Joins products, and checks that parameters get the same values.
    #[track_caller]
    fn joined(&self, max_arena_bytes: usize, can: CanFuse<'_>) -> Self {
        let expected = lasting_values(self);
        let Self { steps, mut kernels, mut tables } = Self {
            steps: self.steps.clone(),
            kernels: self.kernels.clone(),
            tables: self.tables.clone(),
        };
        let mut joined =
            join_products(vec![steps], &mut kernels, &mut tables, max_arena_bytes, can);
        let joined = Self { steps: joined.remove(0), kernels, tables };
        assert_eq!(lasting_values(&joined), expected);
        joined
    }

    /// Returns the number of products in each call with several.
    fn batches(&self) -> Vec<usize> {
        let n_products = |it: &FusedStep| match it {
            FusedStep::Joined(it) => Some(it.products.len()),
            FusedStep::Plain(_) | FusedStep::Product(_) | FusedStep::Round { .. } => None,
        };
        self.steps.iter().filter_map(n_products).collect()
    }

    fn offsets(&self) -> Vec<usize> {
        self.tables.buffers.iter().map(|it| it.offset).collect()
    }
}

/// Allows all calls.
fn allow_all(_: &Kernel, _: [DType; 3], _: Epilogue) -> bool {
    true
}

/// Three products of one activation, with a step between the first two and the last.
fn three_products(between: impl Fn(&mut Model, BufferId)) -> (Model, [BufferId; 3]) {
    let mut model = Model::new();
    let activation = model.compute(COPY, &[X]);
    let weights = [(); 3].map(|()| model.parameter(WEIGHT));
    let [one, two] = [0, 1].map(|it| model.compute(PRODUCT, &[activation, weights[it]]));
    between(&mut model, activation);
    let results = [one, two, model.compute(PRODUCT, &[activation, weights[2]])];
    model.keep_sum(&results);
    (model, results)
}

#[test]
fn products_of_one_activation_are_one_call() {
    let (model, results) = three_products(|_, _| ());
    let joined = model.joined(0, &allow_all);
    assert_eq!((joined.batches(), joined.offsets()), (vec![3], model.offsets()));
    let FusedStep::Joined(batch) = &joined.steps[1] else { unreachable!("a batch") };
    assert_eq!(batch.products.iter().map(|it| it.result).collect::<Vec<_>>(), results);
    let Kernel::Contract(contraction) = joined.kernels[batch.kernel] else {
        unreachable!("a product")
    };
    let strides = [contraction.left, contraction.right, contraction.result].map(|it| it.batch.0[0]);
    assert_eq!(strides, [0, WEIGHT, ACTIVATION]);
}

#[test]
fn results_move_to_equal_distances() {
    // Another result lies between those of the products.
    let (model, results) = three_products(|model, activation| {
        let other = model.compute(ADD, &[activation, activation]);
        model.keep_sum(&[other]);
    });
    let joined = model.joined(usize::MAX, &allow_all);
    assert_eq!(joined.batches(), [3]);
    let moved =
        (0..model.offsets().len()).filter(|it| joined.offsets()[*it] != model.offsets()[*it]);
    assert!(moved.collect::<Vec<_>>().iter().all(|it| results.contains(it)));
}

#[test]
fn a_value_that_is_read_as_another_buffer_keeps_its_place() {
    let (mut model, results) = three_products(|model, activation| {
        let other = model.compute(ADD, &[activation, activation]);
        model.keep_sum(&[other]);
    });
    let alias = model.buffer(ACTIVATION);
    let buffers = model.tables.buffers.to_mut();
    buffers[alias].offset = buffers[results[1]].offset;
    model.keep_sum(&[alias]);
    let joined = model.joined(usize::MAX, &allow_all);
    // The first two lie side by side, and the third is too far away.
    assert_eq!((joined.batches(), joined.offsets()), (vec![2], model.offsets()));
}

#[test]
fn without_memory_products_stay_apart() {
    let (mut model, results) = three_products(|_, _| ());
    // The other buffers of the linear program leave no gap.
    for buffer in 0..program(1).tables.buffers.len() {
        let parameters = model.tables.parameters.to_mut();
        let parameter = soybean_plan::Parameter { buffer, ..parameters[0].clone() };
        parameters.push(parameter);
    }
    let buffers = model.tables.buffers.to_mut();
    buffers[results[2]].offset = model.tables.arena_bytes;
    model.tables.arena_bytes += 4 * ACTIVATION;
    assert_eq!(model.joined(usize::MAX, &allow_all).batches(), [3]);
    // The first two lie side by side.
    let joined = model.joined(0, &allow_all);
    assert_eq!((joined.batches(), joined.offsets()), (vec![2], model.offsets()));
}

#[test]
fn an_operand_that_changes_between_products_separates_them() {
    let (model, results) = three_products(|model, activation| {
        model.steps.push(step(ADD, &[activation, activation], activation));
    });
    let joined = model.joined(usize::MAX, &allow_all);
    assert_eq!(joined.batches(), [2]);
    let last = joined.steps.iter().find(|it| it.results() == [results[2]]);
    assert!(matches!(last, Some(FusedStep::Plain(_))));
}

#[test]
fn steps_that_read_a_result_follow_the_call() {
    let mut model = Model::new();
    let activation = model.compute(COPY, &[X]);
    let weights = [(); 2].map(|()| model.parameter(WEIGHT));
    let one = model.compute(PRODUCT, &[activation, weights[0]]);
    model.keep_sum(&[one]);
    let other = model.compute(ADD, &[activation, one]);
    let two = model.compute(PRODUCT, &[activation, weights[1]]);
    model.keep_sum(&[two, other]);
    let joined = model.joined(usize::MAX, &allow_all);
    assert_eq!(joined.batches(), [2]);
    let results: Vec<Vec<BufferId>> = joined.steps.iter().map(FusedStep::results).collect();
    assert_eq!(results[1..4], [vec![one, two], model.steps[2].results(), vec![other]]);
}

#[test]
fn no_exchange_waits_for_a_product() {
    let mut model = Model::new();
    let activation = model.compute(COPY, &[X]);
    let weights = [(); 2].map(|()| model.parameter(WEIGHT));
    let one = model.compute(PRODUCT, &[activation, weights[0]]);
    let sum = program(2).kernels.iter().find(|it| matches!(it, Kernel::Communicate(_))).cloned();
    model.kernels.push(sum.unwrap());
    model.compute(EXCHANGE, &[one]);
    model.compute(PRODUCT, &[activation, weights[1]]);
    let (mut kernels, mut tables) = (model.kernels.clone(), model.tables.clone());
    let steps = vec![model.steps.clone()];
    let joined = join_products(steps, &mut kernels, &mut tables, usize::MAX, &allow_all);
    assert_eq!(joined, [model.steps]);
}

#[test]
fn a_product_of_a_result_of_another_stays_apart() {
    let mut model = Model::new();
    let activation = model.compute(COPY, &[X]);
    let [weight, other] = [(); 2].map(|()| model.parameter(WEIGHT));
    let one = model.compute(PRODUCT, &[activation, weight]);
    let two = model.compute(PRODUCT, &[one, weight]);
    let three = model.compute(PRODUCT, &[activation, other]);
    model.keep_sum(&[two, three]);
    // The first and the third share their operand.
    let joined = model.joined(usize::MAX, &allow_all);
    assert_eq!(joined.batches(), [2]);
    assert!(joined.steps.contains(&step(PRODUCT, &[one, weight], two)));
}

#[test]
fn weights_keep_their_places() {
    let mut model = Model::new();
    let activation = model.compute(COPY, &[X]);
    let sizes = [WEIGHT, WEIGHT, ACTIVATION, WEIGHT];
    let weights = sizes.map(|it| model.parameter(it));
    let results = [0, 1, 3].map(|it| model.compute(PRODUCT, &[activation, weights[it]]));
    model.keep_sum(&results);
    let joined = model.joined(usize::MAX, &allow_all);
    assert_eq!((joined.batches(), joined.offsets()), (vec![2], model.offsets()));
}

#[test]
fn products_whose_sum_is_computed_are_joined() {
    let mut model = Model::new();
    let weights = [(); 2].map(|()| model.parameter(WEIGHT));
    let gradients = [(); 2].map(|()| model.compute(COPY, &[X]));
    let parts = [0, 1].map(|it| model.compute(PRODUCT, &[gradients[it], weights[it]]));
    let sum = model.compute(ADD, &parts);
    model.keep_sum(&[sum]);
    assert_eq!(model.joined(0, &allow_all).batches(), [2]);
    // Nothing relates two products whose results two steps read.
    model.steps.truncate(4);
    parts.iter().for_each(|it| model.keep_sum(&[*it]));
    assert_eq!(model.joined(usize::MAX, &allow_all).batches(), [0; 0]);
}

#[test]
fn unsupported_calls_change_nothing() {
    let (model, _) = three_products(|model, activation| {
        model.keep_sum(&[activation]);
    });
    let joined = model.joined(usize::MAX, &|_, _, _| false);
    assert_eq!((&joined.steps, joined.offsets()), (&model.steps, model.offsets()));
}

/// Gives the three products of a model biases.
fn with_biases(model: &mut Model) {
    let biases = [(); 3].map(|()| model.parameter(WIDTH));
    let mut biases = biases.into_iter();
    for it in &mut model.steps {
        let FusedStep::Plain(Step { kernel: PRODUCT, inputs, results }) = it else { continue };
        *it = FusedStep::Product(FusedProduct {
            kernel: PRODUCT,
            inputs: [inputs[0], inputs[1]],
            result: results[0],
            epilogue: Epilogue::new(Function::Identity, Some(DType::F32)),
            bias: biases.next().map(Location::Buffer),
            aux: None,
        });
    }
}

#[test]
fn biases_lie_at_equal_distances_too() {
    let (mut model, _) = three_products(|_, _| ());
    with_biases(&mut model);
    let joined = model.joined(0, &allow_all);
    let FusedStep::Joined(batch) = &joined.steps[1] else { unreachable!("a batch") };
    assert_eq!((batch.products.len(), batch.epilogue.bias_stride), (3, 64 / 4));
    // A library without distances of biases leaves the products alone.
    let without = model.joined(0, &|_, _, epilogue| epilogue.bias_stride == 0);
    assert_eq!(without.steps, model.steps);
}

/// Returns a model of random steps, whose buffers share memory over time.
fn random(seed: u64) -> Model {
    let mut number = seed << 32;
    let mut below = |n: usize| {
        number += 1;
        usize::try_from(mixed(number) % n as u64).unwrap()
    };
    let mut model = Model::new();
    let weights = [(); 4].map(|()| model.parameter(WEIGHT));
    let start = model.tables.arena_bytes;
    let mut values = vec![model.compute(COPY, &[X])];
    for _ in 0..16 {
        let [one, other] = [(); 2].map(|()| values[values.len() - 1 - below(values.len().min(3))]);
        values.push(match below(4) {
            0 => model.compute(ADD, &[one, other]),
            _ => model.compute(PRODUCT, &[one, weights[below(4)]]),
        });
    }
    let of_steps = model.steps.clone();
    let life = |buffer: BufferId| {
        let uses = |it: &FusedStep| it.inputs().contains(&buffer) || it.results().contains(&buffer);
        let first = of_steps.iter().position(uses).unwrap_or(0);
        // The last four are kept in the end.
        let is_kept = values[values.len() - 4..].contains(&buffer);
        let last =
            if is_kept { of_steps.len() } else { of_steps.iter().rposition(uses).unwrap_or(0) };
        (first, last)
    };
    let mut placed: Vec<BufferId> = Vec::new();
    for &value in &values {
        let (first, last) = life(value);
        // A sum may overwrite an operand that it is the last to read.
        let operands = match &of_steps[first] {
            FusedStep::Plain(Step { kernel: ADD, inputs, .. }) => &inputs[..],
            _ => &[],
        };
        if let Some(dying) = operands.iter().find(|it| life(**it).1 == first) {
            let buffers = model.tables.buffers.to_mut();
            buffers[value].offset = buffers[*dying].offset;
            placed.push(value);
            continue;
        }
        loop {
            model.tables.buffers.to_mut()[value].offset = start + 64 * below(32);
            let range = model.tables.range(value);
            let is_free = placed.iter().all(|it| {
                let (from, to) = life(*it);
                to < first
                    || last < from
                    || !soybean_plan::overlaps(&range, &model.tables.range(*it))
            });
            if is_free {
                break;
            }
        }
        placed.push(value);
    }
    model.tables.arena_bytes = start + 64 * 34;
    let kept = values[values.len() - 4..].to_vec();
    model.keep_sum(&kept);
    model
}

#[test]
fn steps_keep_their_meaning_in_all_memory_plans() {
    let (mut n_joined, mut n_moved) = (0, 0);
    for seed in 0..200 {
        let model = random(seed);
        let max_arena_bytes = if seed % 3 == 0 { usize::MAX } else { 0 };
        let joined = model.joined(max_arena_bytes, &allow_all);
        n_joined += joined.batches().len();
        n_moved += usize::from(joined.offsets() != model.offsets());
    }
    assert!(n_joined > 200 && n_moved > 100, "{n_joined} joined, {n_moved} moved");
}
