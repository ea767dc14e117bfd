//! Attention in one kernel, compared with products, maps and reductions, by the length of the
//! sequence: `cargo bench -p soybean-runtime --bench attention`.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark reports on standard output"
)]

#[path = "support/timing.rs"]
#[expect(dead_code, reason = "the other benchmark uses the rest")]
mod timing;

use soybean_plan::{
    Attention, AttentionForm, Binary, Combine, Contraction, Instruction, Kernel, Map,
    MatrixStrides, Reduction, ScalarProgram, Shape, Step, Strides, Unary,
};
use timing::seconds_of_steps;

fn main() {
    println!(
        "ms: forward, forward + backward; in one kernel each, then of several; GFLOP/s of the whole scores"
    );
    for (heads, n, d) in [
        (256, 32, 64),
        (128, 64, 64),
        (64, 128, 64),
        (96, 256, 64),
        (48, 512, 64),
        (96, 1024, 64),
        (4, 4096, 64),
    ] {
        for is_causal in [false, true] {
            measure(heads, n, d, is_causal);
        }
    }
}

fn attention(form: AttentionForm, heads: usize, n: usize, d: usize, is_causal: bool) -> Attention {
    let pairs = if is_causal { Attention::causal_pairs(n, n) } else { n * n };
    let plain = Attention::new(form, heads, [n; 2], [d; 2]);
    Attention { is_causal, pairs, scale: 0.125, ..plain }
}

fn measure(heads: usize, n: usize, d: usize, is_causal: bool) {
    let (rows, scores) = (heads * n * d, heads * n * n);
    let one_kernel = |form| {
        let kernel = attention(form, heads, n, d, is_causal);
        let [n_inputs, n_results] = [kernel.input_lengths().len(), kernel.result_lengths().len()];
        // Positions come last.
        let n_read = n_inputs + usize::from(is_causal);
        let sizes = [vec![rows; n_inputs], vec![n; n_read - n_inputs], vec![rows; n_results]];
        let (inputs, results) = ((0..n_read).collect(), (n_read..n_read + n_results).collect());
        let step = Step { kernel: 0, inputs, results };
        seconds_of_steps(1, &sizes.concat(), vec![kernel.into()], &[step])
    };
    let forward = one_kernel(AttentionForm::Forward);
    let backward = one_kernel(AttentionForm::Gradient);
    // Queries, keys, values and the gradient of the result; positions; scores, weights and their
    // gradients; two numbers for each row; results.
    let sizes = [
        rows,
        rows,
        rows,
        rows,
        n,
        scores,
        scores,
        scores,
        scores,
        heads * n,
        heads * n,
        rows,
        rows,
        rows,
        rows,
    ];
    let (kernels, (steps, n_forward)) = (kernels(heads, n, d, is_causal), steps());
    let parts = seconds_of_steps(1, &sizes, kernels.clone(), &steps[..n_forward]);
    let all_parts = seconds_of_steps(1, &sizes, kernels, &steps);
    let gigaflops = |n_products: usize, time: f64| 2e-9 * (n_products * scores * d) as f64 / time;
    println!(
        "{heads:4} x {n:4} x {d}{}: {:8.3} {:8.3}; {:8.3} {:8.3}; ratios {:.2} {:.2}; {:4.0} {:4.0} GFLOP/s",
        if is_causal { ", causal" } else { "        " },
        1e3 * forward,
        1e3 * (forward + backward),
        1e3 * parts,
        1e3 * all_parts,
        forward / parts,
        (forward + backward) / all_parts,
        gigaflops(2, forward),
        gigaflops(5, backward),
    );
}

/// Returns the kernels of attention and its gradients without the attention kernel.
fn kernels(heads: usize, n: usize, d: usize, is_causal: bool) -> Vec<Kernel> {
    let (of_head, scores) = ((n * d, d, 1), (n * n, n, 1));
    let turned = |(batch, row, column): (usize, usize, usize)| (batch, column, row);
    let product = |columns, depth, left, right, result| {
        let matrix =
            |(batch, row, column)| MatrixStrides { batch: Strides::new(&[batch]), row, column };
        let (left, right, result) = (matrix(left), matrix(right), matrix(result));
        Kernel::from(Contraction {
            batch: Shape::new(&[heads]),
            rows: n,
            columns,
            depth,
            left,
            right,
            result,
        })
    };
    let extents = Shape::new(&[heads, n, n]);
    let (whole, row) = (extents.dense_strides(), Strides::new(&[n, 1, 0]));
    let positions = [Strides::new(&[0, 0, 1]), Strides::new(&[0, 1, 0])];
    let inputs = [whole, positions[0], positions[1], row, row];
    let map = |inputs: &[Strides], instructions: Vec<Instruction>| {
        let result = u16::try_from(instructions.len() - 1).unwrap();
        let program =
            ScalarProgram { instructions: instructions.into(), results: vec![result].into() };
        Map { extents, inputs: inputs.to_vec().into(), program }
    };
    let reduction = |map, combine| Kernel::from(Reduction { map, combine, result: row });
    let products = vec![
        Instruction::Input(0),
        Instruction::Input(1),
        Instruction::Binary(Binary::Multiply, 0, 1),
    ];
    vec![
        product(n, d, of_head, turned(of_head), scores),
        reduction(map(&inputs[..3], softmax(is_causal, 0)), Combine::Max),
        reduction(map(&inputs[..4], softmax(is_causal, 1)), Combine::Sum),
        Kernel::from(map(&inputs, softmax(is_causal, 2))),
        product(d, n, scores, of_head, of_head),
        reduction(map(&[whole; 2], products), Combine::Sum),
        Kernel::from(map(&[whole, whole, row], slope())),
        product(d, n, turned(scores), of_head, of_head),
    ]
}

/// Returns the steps that run [`kernels`] on the buffers of [`measure`], and the number of those in
/// the forward pass.
fn steps() -> (Vec<Step>, usize) {
    let step = |kernel, inputs: &[usize], result| Step {
        kernel,
        inputs: inputs.to_vec(),
        results: vec![result],
    };
    let (query, key, value, gradient, position) = (0, 1, 2, 3, 4);
    let (products, weights, by_weight, by_score) = (5, 6, 7, 8);
    let (most, total, results) = (9, 10, 11);
    let steps = vec![
        step(0, &[query, key], products),
        step(1, &[products, position, position], most),
        step(2, &[products, position, position, most], total),
        step(3, &[products, position, position, most, total], weights),
        step(4, &[weights, value], results),
        step(0, &[gradient, value], by_weight),
        step(5, &[weights, by_weight], total),
        step(6, &[weights, by_weight, total], by_score),
        step(7, &[weights, gradient], results + 1),
        step(4, &[by_score, key], results + 2),
        step(7, &[by_score, query], results + 3),
    ];
    (steps, 5)
}

/// Returns the scaled and masked scores. With one input for each row, its largest score, they
/// become `exp(score - largest)`. With a second, their total, they are divided by it.
fn softmax(is_causal: bool, n_rows: usize) -> Vec<Instruction> {
    let mut program = vec![
        Instruction::Input(0),
        Instruction::Constant(0.125),
        Instruction::Binary(Binary::Multiply, 0, 1),
    ];
    if is_causal {
        program.extend([
            Instruction::Input(1),
            Instruction::Input(2),
            Instruction::Binary(Binary::Greater, 3, 4),
            Instruction::Constant(-1e30),
            Instruction::Select(5, 6, 2),
        ]);
    }
    let last = |program: &Vec<Instruction>| u16::try_from(program.len() - 1).unwrap();
    if n_rows > 0 {
        let score = last(&program);
        program.extend([
            Instruction::Input(3),
            Instruction::Binary(Binary::Subtract, score, score + 1),
            Instruction::Unary(Unary::Exp, score + 2),
        ]);
    }
    if n_rows > 1 {
        let weight = last(&program);
        program.extend([
            Instruction::Input(4),
            Instruction::Binary(Binary::Divide, weight, weight + 1),
        ]);
    }
    program
}

/// Returns the gradient of a score, from its weight, the gradient of the weight, and the sum of
/// their products over the row.
fn slope() -> Vec<Instruction> {
    vec![
        Instruction::Input(0),
        Instruction::Input(1),
        Instruction::Input(2),
        Instruction::Binary(Binary::Subtract, 1, 2),
        Instruction::Binary(Binary::Multiply, 0, 3),
        Instruction::Constant(0.125),
        Instruction::Binary(Binary::Multiply, 4, 5),
    ]
}
