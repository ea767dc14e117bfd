//! The speed of single kernels on one rank with all cores: `cargo bench -p soybean-runtime`.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark reports on standard output"
)]

#[path = "support/timing.rs"]
mod timing;

use soybean_plan::{
    Binary, Collective, CollectiveKind, Combine, Contraction, Convolution, ConvolutionForm, DType,
    Halo, ImageLayout, Instruction, Map, MatrixStrides, Mesh, Permutation, Placement, Pooling,
    PoolingForm, Reduction, ScalarProgram, Shape, Strides, Tiling, Unary,
};
use timing::seconds;

fn main() {
    products_and_convolutions();
    let columns = [Strides::new(&[1024, 1]), Strides::new(&[0, 1])];
    let relu = vec![
        Instruction::Input(0),
        Instruction::Input(1),
        Instruction::Binary(Binary::Add, 0, 1),
        Instruction::Unary(Unary::Relu, 2),
    ];
    map("relu(x + b), 512 x 1024", &[512, 1024], &columns, relu);
    let update = vec![
        Instruction::Input(0),
        Instruction::Input(1),
        Instruction::Constant(0.01),
        Instruction::Binary(Binary::Multiply, 1, 2),
        Instruction::Binary(Binary::Subtract, 0, 3),
    ];
    map("w - 0.01 g, 1024 x 1024", &[1024, 1024], &[columns[0]; 2], update);
    let slow = [Unary::Expm1, Unary::Log1p, Unary::Sin, Unary::Cos];
    for unary in
        [Unary::Exp, Unary::Log, Unary::Tanh, Unary::Sigmoid, Unary::Erf].into_iter().chain(slow)
    {
        let program = vec![Instruction::Input(0), Instruction::Unary(unary, 0)];
        map(&format!("{}, 512 x 1024", unary.name()), &[512, 1024], &columns[..1], program);
    }
    let noise = vec![
        Instruction::Input(0),
        Instruction::Constant(0.5),
        Instruction::Binary(Binary::Noise, 1, 0),
    ];
    map("noise, 512 x 1024", &[512, 1024], &columns[..1], noise);
    let scale = vec![
        Instruction::Input(0),
        Instruction::Input(1),
        Instruction::Binary(Binary::Multiply, 0, 1),
    ];
    map("x * row, 512 x 10", &[512, 10], &[Strides::new(&[10, 1]), Strides::new(&[1, 0])], scale);
    reduction("column sums, 512 x 1024", &[512, 1024], Combine::Sum, &[0, 1]);
    reduction("row sums, 512 x 1024", &[512, 1024], Combine::Sum, &[1, 0]);
    reduction("row maxima, 512 x 10", &[512, 10], Combine::Max, &[1, 0]);
    reduction("column sums, 512 x 10", &[512, 10], Combine::Sum, &[0, 1]);
    let transpose =
        Permutation { extents: Shape::new(&[1024, 1024]), input: Strides::new(&[1, 1024]) };
    let milliseconds = 1e3 * seconds(1, &[1 << 20, 1 << 20], transpose);
    println!("transpose, 1024 x 1024: {milliseconds:.3} ms");
    for n_ranks in [2, 4, 8] {
        all_reduce(n_ranks, 1);
        all_reduce(n_ranks, 1 << 20);
    }
}

fn products_and_convolutions() {
    for (m, n, k) in
        [(512, 1024, 1024), (512, 2048, 2048), (1024, 1024, 512), (64, 784, 512), (512, 10, 1024)]
    {
        contraction("NN", [m, n, k], (k, 1), (n, 1));
        contraction("NT", [m, n, k], (k, 1), (1, k));
        contraction("TN", [m, n, k], (1, m), (n, 1));
    }
    for (channels, filters, side) in [(3, 64, 32), (64, 64, 32), (128, 128, 16), (256, 256, 8)] {
        convolutions(8, channels, filters, side, 1);
    }
    convolutions(8, 128, 256, 16, 2);
    for (channels, side, window, stride) in [
        (32, 112, 3, 1),
        (96, 112, 3, 2),
        (192, 28, 3, 1),
        (192, 28, 3, 2),
        (576, 14, 3, 1),
        (960, 7, 3, 1),
        (240, 28, 5, 1),
        (240, 28, 5, 2),
    ] {
        grouped(channels, [1, 1], side, [window, stride]);
    }
    for sizes in [[1, 2], [2, 2], [4, 4], [8, 8]] {
        grouped(128 / sizes[0], sizes, 28, [3, 1]);
    }
    poolings();
}

fn all_reduce(n_ranks: usize, n_elements: usize) {
    let n_axes = Mesh::new(n_ranks).n_axes();
    let collective = Collective {
        kind: CollectiveKind::AllReduce,
        dtype: DType::F32,
        combine: Combine::Sum,
        axes: (0..n_axes).collect(),
        shape: Shape::new(&[n_elements]),
        from: Tiling::new(&vec![Placement::Partial; n_axes]),
        to: Tiling::replicated(n_axes),
        halo: Halo::NONE,
    };
    let time = seconds(n_ranks, &[n_elements; 2], collective);
    println!("all-reduce of {n_elements} elements among {n_ranks} ranks: {:.3} ms", 1e3 * time);
}

fn contraction(
    name: &str,
    [rows, columns, depth]: [usize; 3],
    left: (usize, usize),
    right: (usize, usize),
) {
    let matrix = |(row, column)| MatrixStrides { batch: Strides::default(), row, column };
    let contraction = Contraction {
        batch: Shape::default(),
        rows,
        columns,
        depth,
        left: matrix(left),
        right: matrix(right),
        result: matrix((columns, 1)),
    };
    let sizes = [rows * depth, depth * columns, rows * columns];
    let time = seconds(1, &sizes, contraction);
    let gigaflops = 2e-9 * (rows * columns * depth) as f64 / time;
    println!("{name} {rows} x {columns} x {depth}: {:.3} ms, {gigaflops:.0} GFLOP/s", 1e3 * time);
}

/// Measures convolutions with 3 x 3 filters, and a matrix product of the same size.
fn convolutions(batch: usize, channels: usize, filters: usize, side: usize, stride: usize) {
    let side_to = (side - 1) / stride + 1;
    println!(
        "3 x 3 filters, {batch} x {channels} x {side} x {side} to {filters} x {side_to} x {side_to}:"
    );
    let (rows, depth) = (batch * side_to * side_to, channels * 9);
    contraction("product of the same size, NT", [rows, filters, depth], (depth, 1), (1, depth));
    let images = batch * channels * side * side;
    let (weights, results) = (filters * depth, rows * filters);
    let forms = [
        (ConvolutionForm::Forward, [images, weights, results]),
        (ConvolutionForm::Data, [results, weights, images]),
        (ConvolutionForm::Filter, [images, results, weights]),
    ];
    for (form, sizes) in forms {
        let convolution = Convolution {
            form,
            batch,
            groups: 1,
            channels,
            filters,
            image: [side; 2],
            window: [3; 2],
            result: [side_to; 2],
            stride: [stride; 2],
            padding: [1; 2],
            dilation: [1; 2],
            layout: ImageLayout::ChannelsFirst,
        };
        let time = seconds(1, &sizes, convolution);
        let gigaflops = 2e-9 * (rows * filters * depth) as f64 / time;
        println!("{}: {:.3} ms, {gigaflops:.0} GFLOP/s", form.name(), 1e3 * time);
    }
}

/// Measures convolutions of 8 images in groups with these channels and filters each.
fn grouped(groups: usize, sizes: [usize; 2], side: usize, [window, stride]: [usize; 2]) {
    let ([channels, filters], batch) = (sizes, 8);
    let padding = window / 2;
    let side_to = (side + 2 * padding - window) / stride + 1;
    let pixels = [side * side, side_to * side_to];
    let images = batch * groups * channels * pixels[0];
    let weights = groups * filters * channels * window * window;
    let results = batch * groups * filters * pixels[1];
    for (form, sizes) in [
        (ConvolutionForm::Forward, [images, weights, results]),
        (ConvolutionForm::Data, [results, weights, images]),
        (ConvolutionForm::Filter, [images, results, weights]),
    ] {
        let convolution = Convolution {
            form,
            batch,
            groups,
            channels,
            filters,
            image: [side; 2],
            window: [window; 2],
            result: [side_to; 2],
            stride: [stride; 2],
            padding: [padding; 2],
            dilation: [1; 2],
            layout: ImageLayout::ChannelsFirst,
        };
        let time = seconds(1, &sizes, convolution);
        let gigaflops = 2e-9 * (results * channels * window * window) as f64 / time;
        println!(
            "{} in {groups} groups of {channels} to {filters}, {window} x {window}, {side} / {stride}: \
             {:.3} ms, {gigaflops:.1} GFLOP/s",
            form.name(),
            1e3 * time
        );
    }
}

fn poolings() {
    let (planes, side) = (512, 32);
    let forms =
        [PoolingForm::Max, PoolingForm::MaxGradient, PoolingForm::Sum, PoolingForm::SumGradient];
    for form in forms {
        let pooling = Pooling {
            form,
            planes,
            channels: 1,
            image: [side; 2],
            window: [2; 2],
            result: [side / 2; 2],
            stride: [2; 2],
            padding: [0; 2],
        };
        let (image, pooled) = (planes * side * side, planes * side * side / 4);
        let sizes = match form {
            PoolingForm::Max | PoolingForm::Sum => vec![image, pooled],
            PoolingForm::MaxGradient => vec![image, pooled, image],
            PoolingForm::SumGradient => vec![pooled, image],
        };
        let time = seconds(1, &sizes, pooling);
        println!("{}, 2 x 2, {planes} x {side} x {side}: {:.3} ms", form.name(), 1e3 * time);
    }
}

fn one_map(extents: &[usize], inputs: &[Strides], program: Vec<Instruction>) -> Map {
    let result = u16::try_from(program.len() - 1).unwrap();
    Map {
        extents: Shape::new(extents),
        inputs: inputs.to_vec().into(),
        program: ScalarProgram { instructions: program.into(), results: vec![result].into() },
    }
}

fn map(name: &str, extents: &[usize], inputs: &[Strides], program: Vec<Instruction>) {
    let n_elements = extents.iter().product();
    let map = one_map(extents, inputs, program);
    let time = seconds(1, &vec![n_elements; inputs.len() + 1], map);
    println!("{name}: {:.3} ms", 1e3 * time);
}

fn reduction(name: &str, extents: &[usize], combine: Combine, result: &[usize]) {
    let n_elements: usize = extents.iter().product();
    let dense = Shape::new(extents).dense_strides();
    let map = one_map(extents, &[dense], vec![Instruction::Input(0)]);
    let reduction = Reduction { map, combine, result: Strides::new(result) };
    let time = seconds(1, &[n_elements; 2], reduction);
    println!("{name}: {:.3} ms", 1e3 * time);
}
