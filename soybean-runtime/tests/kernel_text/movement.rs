//! Tests of the functions that collectives use, over random patterns.
#![expect(unsafe_code, reason = "the functions work on memory that they are given by address")]

use soybean_codegen::{movement, prelude};
use soybean_fake_cuda::{Module, Order, Sanitize, compile};
use soybean_plan::{Combine, DType, Run};

use crate::{
    case::{Data, decoded, encoded, to_bf16},
    device::Block,
    dice::Dice,
};

/// Returns the text of the functions.
pub(crate) fn text() -> String {
    [prelude(), &movement::text(&movement::functions())].concat()
}

/// Runs this many random movements.
pub(crate) fn check(sanitize: Sanitize, n: u64) {
    let library = compile(&text(), sanitize).unwrap_or_else(|log| panic!("{log}"));
    let module = Module::load(&library).unwrap();
    for seed in 0..n {
        let mut dice = Dice(seed);
        let dtype = dice.pick(&[DType::F32, DType::Bf16, DType::I32]);
        match seed % 2 {
            0 => copy(&module, &mut dice, dtype),
            _ => combine(&module, &mut dice, dtype),
        }
    }
}

/// Returns the dims that a source shares with a result with this many elements in each dim, whose
/// extents are given too.
fn dims(dice: &mut Dice) -> (Vec<movement::Dim>, [usize; 2]) {
    let n_dims = dice.below(4);
    let mut dims = Vec::new();
    let mut sizes = [1; 2];
    for _ in 0..n_dims {
        let step = dice.pick(&[1, 2, 4, 8]);
        let runs = runs(dice, step);
        let last = *runs.last().unwrap();
        // Some elements after the last that is shared.
        let slack = [dice.below(2), dice.below(2)];
        let extents = [last.here + last.length, last.there + last.length];
        dims.push((runs, [0, 1].map(|it| extents[it] + slack[it] * step)));
    }
    let dims: Vec<movement::Dim> = dims
        .into_iter()
        .rev()
        .map(|(runs, extents)| {
            let [stride_here, stride_there] = sizes;
            sizes = [0, 1].map(|it| sizes[it] * extents[it]);
            movement::Dim { runs, stride_here, stride_there }
        })
        .collect();
    (dims.into_iter().rev().collect(), sizes)
}

/// Returns ordered runs, as tiles share them, evenly spaced or not.
fn runs(dice: &mut Dice, step: usize) -> Vec<Run> {
    let n_runs = 1 + dice.below(3);
    let is_even = dice.below(2) == 0;
    let mut lengths = [0; 3].map(|_| step * (1 + dice.below(3)));
    let mut gaps = [0; 3].map(|_| [step * dice.below(2), step * dice.below(3)]);
    if is_even {
        lengths = [lengths[0]; 3];
        gaps = [gaps[0]; 3];
    }
    let mut at = [0; 2];
    let run = |number: usize| {
        let [here, there] = [0, 1].map(|it| at[it] + gaps[number][it]);
        let length = lengths[number];
        at = [here + length, there + length];
        Run { here, there, length }
    };
    (0..n_runs).map(run).collect()
}

/// Returns the positions of each shared element in the result and in the source.
fn places(dims: &[movement::Dim]) -> Vec<[usize; 2]> {
    let mut all = vec![[0, 0]];
    for dim in dims {
        let steps = dim.runs.iter().flat_map(|run| {
            (0..run.length)
                .map(|it| [(run.here + it) * dim.stride_here, (run.there + it) * dim.stride_there])
        });
        let steps: Vec<[usize; 2]> = steps.collect();
        let inner = |at: &[usize; 2]| {
            let at = *at;
            steps.iter().map(move |it| [at[0] + it[0], at[1] + it[1]]).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(inner).collect();
    }
    all
}

fn words(words: impl IntoIterator<Item = u64>) -> Block {
    Block::of(&words.into_iter().flat_map(u64::to_le_bytes).collect::<Vec<_>>())
}

fn tables(pattern: &movement::Pattern) -> Block {
    Block::of(&pattern.tables.iter().flatten().flat_map(|it| it.to_le_bytes()).collect::<Vec<_>>())
}

fn launch(
    module: &Module,
    function: &str,
    parts: &[[u64; movement::PART_WORDS]],
    most_points: u64,
    result: &Block,
) {
    let list = words(parts.iter().flatten().copied());
    let n_parts = u32::try_from(parts.len()).unwrap();
    let grid = movement::grid(most_points, n_parts).unwrap();
    let arguments = [list.at(0), result.at(0)];
    // SAFETY: the parts describe buffers that are as large as the patterns need.
    let done = unsafe {
        module.launch(function, grid, [movement::BLOCK, 1, 1], 0, &arguments, Order::Reverse)
    };
    done.unwrap();
}

/// Two sources, each of which gives one half of the result.
fn copy(module: &Module, dice: &mut Dice, dtype: DType) {
    let (dims, sizes) = dims(dice);
    let half = |part: usize| {
        let runs = vec![Run { here: part, there: 0, length: 1 }];
        let [stride_here, stride_there] = sizes;
        let outer = movement::Dim { runs, stride_here, stride_there };
        [outer].into_iter().chain(dims.iter().cloned()).collect::<Vec<_>>()
    };
    let halves = [half(0), half(1)];
    let sources = [0; 2].map(|_| dice.data(dtype, sizes[1]));
    let units = halves.each_ref().map(|it| movement::unit_bytes(it, dtype.bytes()));
    let unit = units[0].min(units[1]);
    let patterns =
        halves.each_ref().map(|it| movement::Pattern::new(it, dtype.bytes(), unit).unwrap());
    let (from, to) = (sources.each_ref().map(|it| Block::of(&encoded(it))), 2 * sizes[0]);
    let to = Block::new(to * dtype.bytes());
    let tables = patterns.each_ref().map(tables);
    let address = |block: &Block| block.at(0).addr() as u64;
    let part = |it: usize| patterns[it].part(address(&from[it]), 1, address(&tables[it]));
    let mut expected = decoded(dtype, to.bytes());
    let parts = [part(0), part(1)];
    launch(module, &movement::move_function(unit), &parts, patterns[0].n_points, &to);
    for (half, source) in halves.iter().zip(&sources) {
        for [here, there] in places(half) {
            expected[here] = source.numbers[there];
        }
    }
    assert_eq!(bits(&decoded(dtype, to.bytes())), bits(&expected), "{dims:?}");
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|it| it.to_bits()).collect()
}

fn combine(module: &Module, dice: &mut Dice, dtype: DType) {
    let (dims, sizes) = dims(dice);
    let n_sources = 1 + dice.below(5);
    let how = dice.pick(&[Combine::Sum, Combine::Max]);
    let sources: Vec<Data> = (0..n_sources).map(|_| dice.data(dtype, sizes[1])).collect();
    let unit = movement::unit_bytes(&dims, dtype.bytes());
    let pattern = movement::Pattern::new(&dims, dtype.bytes(), unit).unwrap();
    let blocks: Vec<Block> = sources.iter().map(|it| Block::of(&encoded(it))).collect();
    let to = Block::new(sizes[0] * dtype.bytes());
    let (tables, list) = (tables(&pattern), words(blocks.iter().map(|it| it.at(0).addr() as u64)));
    let n_sources = u32::try_from(n_sources).unwrap();
    let part = pattern.part(list.at(0).addr() as u64, n_sources, tables.at(0).addr() as u64);
    let mut expected = decoded(dtype, to.bytes());
    let function = movement::combine_function(how, dtype, unit);
    launch(module, &function, &[part], pattern.n_points, &to);
    for [here, there] in places(&dims) {
        let numbers = sources.iter().map(|it| it.numbers[there]);
        let all = numbers.reduce(|a, b| match how {
            Combine::Sum => a + b,
            Combine::Max => a.max(b),
        });
        expected[here] = if dtype == DType::Bf16 { to_bf16(all.unwrap()) } else { all.unwrap() };
    }
    assert_eq!(bits(&decoded(dtype, to.bytes())), bits(&expected), "{how:?} {dims:?}");
}
