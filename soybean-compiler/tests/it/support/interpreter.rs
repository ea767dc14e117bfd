//! A deliberately naive interpreter of kernels and graphs in `f64`: what they mean.

use std::collections::BTreeMap;

use soybean_compiler::{Value, graph::Graph};
use soybean_plan::{
    Attention, AttentionForm, Binary, Combine, Concatenation, Contraction, Convolution,
    ConvolutionForm, DType, Embedding, EmbeddingForm, Instruction, Kernel, Map, MatrixStrides,
    Padding, Pooling, PoolingForm, ScalarProgram, Shape, Strides, Unary, bf16, noise,
};

/// All points of an index space, in row-major order.
pub(crate) fn points(extents: &[usize]) -> Vec<Vec<usize>> {
    extents.iter().fold(vec![Vec::new()], |points, &extent| {
        let extend = |point: &Vec<usize>| {
            (0..extent)
                .map(|at| point.iter().copied().chain([at]).collect())
                .collect::<Vec<Vec<usize>>>()
        };
        points.iter().flat_map(extend).collect()
    })
}

fn offset(point: &[usize], strides: &Strides) -> usize {
    point.iter().zip(strides.0).map(|(at, stride)| at * stride).sum()
}

/// Runs a kernel on dense operands.
pub(crate) fn run(kernel: &Kernel, operands: &[&[f64]], result: &Shape) -> Vec<f64> {
    match kernel {
        Kernel::Contract(it) => contract(it, operands, result),
        Kernel::Map(it) => map(it, operands),
        Kernel::Reduce(it) => {
            let start = match it.combine {
                Combine::Sum => 0.0,
                Combine::Max => f64::NEG_INFINITY,
            };
            let mut results = vec![start; result.n_elements()];
            for (point, value) in points(&it.map.extents).iter().zip(map(&it.map, operands)) {
                let slot = &mut results[offset(point, &it.result)];
                *slot = combine(it.combine, *slot, value);
            }
            results
        }
        Kernel::Permute(it) => {
            points(&it.extents).iter().map(|point| operands[0][offset(point, &it.input)]).collect()
        }
        Kernel::Convolve(it) => convolve(it, operands, result),
        Kernel::Pool(it) => pool(it, operands, result),
        Kernel::Pad(it) => pad(it, operands),
        Kernel::Concatenate(it) => concatenate(it, operands),
        Kernel::Embed(it) => embed(it, operands),
        Kernel::Attend(it) => attend(it, operands),
        Kernel::Communicate(_) => unreachable!("operators have no collectives"),
    }
}

/// Returns the result of an operator without a kernel: its operand in another shape, or the indices
/// if it has no operands.
fn run_nothing(operands: &[&[f64]], result: &Shape) -> Vec<f64> {
    match operands.first() {
        Some(operand) => operand.to_vec(),
        None => (0..result.n_elements()).map(|it| it as f64).collect(),
    }
}

/// Runs an operator's kernel, if it has one. The result is rounded to its type: integers towards
/// zero, `bf16` to the nearest.
pub(crate) fn run_operator(
    kernel: Option<&Kernel>,
    operands: &[&[f64]],
    result: &Shape,
    dtype: DType,
) -> Vec<f64> {
    let exact = match kernel {
        None => run_nothing(operands, result),
        Some(kernel) => run(kernel, operands, result),
    };
    match dtype {
        DType::F32 => exact,
        #[expect(clippy::cast_possible_truncation, reason = "kernels compute in single precision")]
        DType::Bf16 => {
            let round = |it: f64| f64::from(bf16::to_f32(bf16::from_f32(it as f32)));
            exact.into_iter().map(round).collect()
        }
        DType::I32 => exact.into_iter().map(f64::trunc).collect(),
    }
}

fn pad(it: &Padding, operands: &[&[f64]]) -> Vec<f64> {
    let strides = it.input.dense_strides();
    let value = |point: &Vec<usize>| {
        let mut at = 0;
        for (dim, &position) in point.iter().enumerate() {
            let inside = i64::try_from(position).unwrap() - i64::from(it.low[dim]);
            match usize::try_from(inside).ok().filter(|&inside| inside < it.input[dim]) {
                Some(inside) => at += inside * strides.0[dim],
                None => return it.fill,
            }
        }
        operands[0][at]
    };
    points(&it.result).iter().map(value).collect()
}

fn concatenate(it: &Concatenation, operands: &[&[f64]]) -> Vec<f64> {
    let part = |outer: usize| {
        let stretch = move |(operand, &length): (&&[f64], &usize)| {
            operand[outer * length..(outer + 1) * length].to_vec()
        };
        operands.iter().zip(it.lengths.iter()).flat_map(stretch).collect::<Vec<_>>()
    };
    (0..it.outer).flat_map(part).collect()
}

fn embed(it: &Embedding, operands: &[&[f64]]) -> Vec<f64> {
    let (indices, rows, numbers) = (operands[0], operands[1], operands[2]);
    let n_rows = if it.form == EmbeddingForm::Gather { it.n_indices } else { it.rows };
    let mut results = vec![0.0; n_rows * it.width];
    for (at, index) in indices.iter().enumerate() {
        let Some(row) = numbers.iter().position(|number| number == index) else { continue };
        for column in 0..it.width {
            match it.form {
                EmbeddingForm::Gather => {
                    results[at * it.width + column] = rows[row * it.width + column];
                }
                EmbeddingForm::ScatterAdd => {
                    results[row * it.width + column] += rows[at * it.width + column];
                }
            }
        }
    }
    results
}

/// Attention head by head, with gradients by the chain rule through the whole matrix of weights.
fn attend(it: &Attention, operands: &[&[f64]]) -> Vec<f64> {
    let (n, m, d, e) = (it.queries, it.keys, it.features, it.width);
    let mut results = Vec::new();
    for head in 0..it.heads {
        let of =
            |operand: usize, length: usize| &operands[operand][head * length..(head + 1) * length];
        let (query, key, value) = (of(0, n * d), of(1, m * d), of(2, m * e));
        let dot = |x: &[f64], i: usize, y: &[f64], j: usize, length: usize| -> f64 {
            (0..length).map(|at| x[i * length + at] * y[j * length + at]).sum()
        };
        let weights: Vec<Vec<f64>> = (0..n)
            .map(|i| {
                let n_seen = if it.is_causal { m.min(i + 1) } else { m };
                let scores: Vec<f64> =
                    (0..n_seen).map(|j| it.scale * dot(query, i, key, j, d)).collect();
                let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let total: f64 = scores.iter().map(|it| (it - most).exp()).sum();
                (0..m).map(|j| scores.get(j).map_or(0.0, |it| (it - most).exp() / total)).collect()
            })
            .collect();
        if it.form == AttentionForm::Forward {
            for point in points(&[n, e]) {
                results.push((0..m).map(|j| weights[point[0]][j] * value[j * e + point[1]]).sum());
            }
            continue;
        }
        let gradient = of(3, n * e);
        let by_weight = |i: usize, j: usize| dot(gradient, i, value, j, e);
        let by_score = |i: usize, j: usize| {
            let mean: f64 = (0..m).map(|j| weights[i][j] * by_weight(i, j)).sum();
            it.scale * weights[i][j] * (by_weight(i, j) - mean)
        };
        let scores: Vec<Vec<f64>> =
            (0..n).map(|i| (0..m).map(|j| by_score(i, j)).collect()).collect();
        for point in points(&[n, d]) {
            results.push((0..m).map(|j| scores[point[0]][j] * key[j * d + point[1]]).sum());
        }
        for point in points(&[m, d]) {
            results.push((0..n).map(|i| scores[i][point[0]] * query[i * d + point[1]]).sum());
        }
        for point in points(&[m, e]) {
            results.push((0..n).map(|i| weights[i][point[0]] * gradient[i * e + point[1]]).sum());
        }
    }
    results
}

pub(crate) fn combine(how: Combine, x: f64, y: f64) -> f64 {
    match how {
        Combine::Sum => x + y,
        Combine::Max => x.max(y),
    }
}

fn contract(it: &Contraction, operands: &[&[f64]], result: &Shape) -> Vec<f64> {
    let mut results = vec![0.0; result.n_elements()];
    let at = |batch: &[usize], lie: &MatrixStrides, row: usize, column: usize| {
        offset(batch, &lie.batch) + row * lie.row + column * lie.column
    };
    for batch in points(&it.batch) {
        for point in points(&[it.rows, it.columns, it.depth]) {
            let (i, j, k) = (point[0], point[1], point[2]);
            let product =
                operands[0][at(&batch, &it.left, i, k)] * operands[1][at(&batch, &it.right, k, j)];
            results[at(&batch, &it.result, i, j)] += product;
        }
    }
    results
}

/// Returns, for each point of a convolution, the positions in image, filter and result, if the
/// pixel is in the image.
fn convolution_points(it: &Convolution) -> Vec<[usize; 3]> {
    let shape = |extents: [usize; 4]| Shape::new(&extents).dense_strides();
    let image = shape([it.batch, it.groups * it.channels, it.image[0], it.image[1]]);
    let filter = shape([it.groups * it.filters, it.channels, it.window[0], it.window[1]]);
    let result = shape([it.batch, it.groups * it.filters, it.result[0], it.result[1]]);
    let loops = [
        it.batch,
        it.groups,
        it.filters,
        it.channels,
        it.result[0],
        it.result[1],
        it.window[0],
        it.window[1],
    ];
    let pixel = |dim: usize, at: usize, of_window: usize| {
        let padded = at * it.stride[dim] + of_window * it.dilation[dim];
        padded.checked_sub(it.padding[dim]).filter(|&it_is| it_is < it.image[dim])
    };
    let positions = |point: Vec<usize>| {
        let [n, g, o, c, y, x, i, j] = point[..] else { unreachable!("eight loops") };
        let (row, column) = (pixel(0, y, i)?, pixel(1, x, j)?);
        Some([
            offset(&[n, g * it.channels + c, row, column], &image),
            offset(&[g * it.filters + o, c, i, j], &filter),
            offset(&[n, g * it.filters + o, y, x], &result),
        ])
    };
    points(&loops).into_iter().filter_map(positions).collect()
}

fn convolve(it: &Convolution, operands: &[&[f64]], result: &Shape) -> Vec<f64> {
    let mut results = vec![0.0; result.n_elements()];
    for [image, filter, output] in convolution_points(it) {
        match it.form {
            ConvolutionForm::Forward => results[output] += operands[0][image] * operands[1][filter],
            ConvolutionForm::Data => results[image] += operands[0][output] * operands[1][filter],
            ConvolutionForm::Filter => results[filter] += operands[0][image] * operands[1][output],
        }
    }
    results
}

fn pool(it: &Pooling, operands: &[&[f64]], result: &Shape) -> Vec<f64> {
    let start = if it.form == PoolingForm::Max { f64::NEG_INFINITY } else { 0.0 };
    let mut results = vec![start; result.n_elements()];
    for point in points(&[it.planes, it.result[0], it.result[1]]) {
        let output = (point[0] * it.result[0] + point[1]) * it.result[1] + point[2];
        let pixel = |dim: usize, of_window: usize| {
            (point[dim + 1] * it.stride[dim] + of_window)
                .checked_sub(it.padding[dim])
                .filter(|&at| at < it.image[dim])
        };
        let at = |window: &Vec<usize>| {
            Some(
                (point[0] * it.image[0] + pixel(0, window[0])?) * it.image[1]
                    + pixel(1, window[1])?,
            )
        };
        let pixels: Vec<usize> = points(&it.window).iter().filter_map(at).collect();
        match it.form {
            PoolingForm::Max => {
                results[output] = pixels.iter().map(|&at| operands[0][at]).fold(start, f64::max);
            }
            PoolingForm::Sum => results[output] = pixels.iter().map(|&at| operands[0][at]).sum(),
            PoolingForm::SumGradient => {
                pixels.iter().for_each(|&at| results[at] += operands[0][output]);
            }
            PoolingForm::MaxGradient => {
                let most =
                    pixels.iter().map(|&at| operands[0][at]).fold(f64::NEG_INFINITY, f64::max);
                if let Some(&first) = pixels.iter().find(|&&at| operands[0][at] >= most) {
                    results[first] += operands[1][output];
                }
            }
        }
    }
    results
}

fn map(it: &Map, operands: &[&[f64]]) -> Vec<f64> {
    let value = |point: &Vec<usize>| {
        let inputs: Vec<f64> = operands
            .iter()
            .zip(it.inputs.iter())
            .map(|(operand, strides)| operand[offset(point, strides)])
            .collect();
        scalar(&it.program, &inputs)
    };
    points(&it.extents).iter().map(value).collect()
}

/// The learning rate that programs read as run-time scalar 0.
pub(crate) const LEARNING_RATE: f64 = 0.01;

fn scalar(program: &ScalarProgram, inputs: &[f64]) -> f64 {
    let mut registers: Vec<f64> = Vec::new();
    for instruction in program.instructions.iter() {
        let of = |it: u16| registers[it as usize];
        let value = match *instruction {
            Instruction::Input(input) => inputs[input as usize],
            Instruction::Scalar(_) => LEARNING_RATE,
            Instruction::Constant(value) => value,
            Instruction::Unary(function, x) => unary(function, of(x)),
            Instruction::Binary(function, x, y) => binary(function, of(x), of(y)),
            Instruction::Select(condition, x, y) => {
                if of(condition) != 0.0 {
                    of(x)
                } else {
                    of(y)
                }
            }
        };
        registers.push(value);
    }
    registers[program.results[0] as usize]
}

fn unary(function: Unary, x: f64) -> f64 {
    match function {
        Unary::Negate => -x,
        Unary::Relu => x.max(0.0),
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::Sqrt => x.sqrt(),
        Unary::Tanh => x.tanh(),
        Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Unary::Erf => libm::erf(x),
        Unary::Detach => x,
    }
}

fn binary(function: Binary, x: f64, y: f64) -> f64 {
    match function {
        Binary::Add => x + y,
        Binary::Subtract => x - y,
        Binary::Multiply => x * y,
        Binary::Divide => x / y,
        Binary::Maximum => x.max(y),
        Binary::Equal => f64::from(x == y),
        Binary::Greater => f64::from(x > y),
        #[expect(clippy::cast_possible_truncation, reason = "noise is of single precision")]
        Binary::Noise => f64::from(noise(x as f32, y as f32)),
    }
}

/// Evaluates a graph, given its sources.
pub(crate) fn evaluate(
    graph: &Graph,
    sources: &BTreeMap<Value, Vec<f64>>,
) -> BTreeMap<Value, Vec<f64>> {
    let mut values = sources.clone();
    for value in graph.values() {
        let Some(operator) = graph.operator(value) else { continue };
        let kernel = operator.kernel(&graph.operand_shapes(value), &graph.shape(value));
        let operands: Vec<&[f64]> =
            graph.operands(value).iter().map(|it| &values[it][..]).collect();
        let node = graph.node(value);
        let result = run_operator(kernel.as_ref(), &operands, &node.shape, node.dtype);
        values.insert(value, result);
    }
    values
}
