//! Kernels that all threads share, with few results of long sums, since these sums are split
//! between threads.

use soybean_plan::{
    Attention, AttentionBias, AttentionForm, AttentionLayout, Combine, Contraction, Convolution,
    ConvolutionForm, DType, Embedding, EmbeddingForm, ImageLayout, Map, MatrixStrides, Pooling,
    PoolingForm, Reduction, Shape, Strides,
};

use crate::{
    attention::{layout, masks},
    case::{Case, Data},
    dice::Dice,
    map::program,
    row_fusion,
    score_function::score_function,
};

/// Returns a random kernel of each kind.
pub(crate) fn cases(dice: &mut Dice) -> Vec<Case> {
    vec![
        reduction(dice),
        filter_gradient(dice),
        convolution(dice),
        attention(dice),
        contraction(dice),
        embedding(dice),
        map(dice),
        pooling(dice),
        row_fusion::of_networks(dice),
    ]
}

fn float(dice: &mut Dice, n_elements: usize) -> Data {
    dice.data(DType::F32, n_elements)
}

fn case(kernel: impl Into<soybean_plan::Kernel>, inputs: Vec<Data>, n_result: usize) -> Case {
    // Bits are compared.
    Case::new(kernel, inputs, vec![(DType::F32, n_result)], 0.0)
}

/// Returns sums and maxima over any of the dims, of about as many elements as are worth sharing,
/// and more.
pub(crate) fn reduction(dice: &mut Dice) -> Case {
    let shapes = [
        &[70_000][..],
        &[100_000],
        &[3, 40_000],
        &[130, 1100],
        &[4100, 17],
        &[700, 260],
        &[5, 33, 700],
        &[40, 6, 300],
        &[2, 400, 90],
    ];
    let extents = Shape::new(dice.pick(&shapes));
    let mut result = Strides::default();
    let mut n_results = 1;
    for dim in (0..extents.len()).rev().filter(|_| dice.below(2) == 0) {
        result.0[dim] = n_results;
        n_results *= extents[dim];
    }
    let combine = dice.pick(&[Combine::Sum, Combine::Sum, Combine::Max]);
    let map =
        Map { extents, inputs: vec![extents.dense_strides()].into(), program: program(dice, 1, 1) };
    let input = float(dice, extents.n_elements());
    case(Reduction { map, combine, result }, vec![input], n_results)
}

/// Returns gradients of few and of many filters, over few and many pixels.
pub(crate) fn filter_gradient(dice: &mut Dice) -> Case {
    // The batch, the side, groups, channels and filters.
    let sizes = [
        [8, 20, 1, 3, 20],
        [13, 13, 1, 16, 8],
        [3, 45, 2, 2, 4],
        [2, 28, 1, 2, 270],
        [1, 6, 1, 60, 30],
        [9, 30, 1, 1, 5],
    ];
    let [batch, side, groups, channels, filters] = dice.pick(&sizes);
    let form = ConvolutionForm::Filter;
    of(dice, Convolution { form, batch, groups, channels, filters, ..of_side(side) })
}

/// Returns other convolutions, direct and by transforms.
pub(crate) fn convolution(dice: &mut Dice) -> Case {
    let convolution = Convolution {
        form: dice.pick(&[ConvolutionForm::Forward, ConvolutionForm::Data]),
        batch: dice.pick(&[1, 2, 5]),
        groups: 1,
        channels: dice.pick(&[1, 5, 20]),
        filters: dice.pick(&[3, 17, 40]),
        ..of_side(dice.pick(&[5, 16, 23]))
    };
    of(dice, convolution)
}

/// Returns a convolution that keeps the size of its square images.
fn of_side(side: usize) -> Convolution {
    Convolution {
        form: ConvolutionForm::Forward,
        batch: 1,
        groups: 1,
        channels: 1,
        filters: 1,
        image: [side; 2],
        window: [3; 2],
        result: [side; 2],
        stride: [1; 2],
        padding: [1; 2],
        dilation: [1; 2],
        layout: ImageLayout::ChannelsFirst,
    }
}

fn of(dice: &mut Dice, it: Convolution) -> Case {
    let images = it.batch * it.groups * it.channels * it.image[0] * it.image[1];
    let filters = it.groups * it.filters * it.channels * 9;
    let results = it.batch * it.groups * it.filters * it.result[0] * it.result[1];
    let [left, right, result] = match it.form {
        ConvolutionForm::Forward => [images, filters, results],
        ConvolutionForm::Data => [results, filters, images],
        ConvolutionForm::Filter => [images, results, filters],
    };
    let inputs = vec![float(dice, left), float(dice, right)];
    case(it, inputs, result)
}

/// Returns attention of few heads over several blocks of queries.
pub(crate) fn attention(dice: &mut Dice) -> Case {
    let sizes =
        [[1, 1, 520, 1030], [3, 1, 520, 70], [1, 5, 600, 33], [2, 3, 300, 70], [7, 1, 65, 150]];
    let [heads, group, queries, keys] = dice.pick(&sizes);
    let is_causal = dice.below(2) == 0;
    let window = dice.pick(&[None, Some(50), Some(300)]).filter(|_| is_causal);
    let mut it = Attention {
        form: dice.pick(AttentionForm::ALL),
        heads,
        group,
        queries,
        keys,
        features: 4,
        width: dice.pick(&[3, 4]),
        is_causal,
        window,
        is_part: dice.below(2) == 0,
        halo: None,
        segments: dice.pick(&[None, Some(heads)]),
        score: score_function(dice.below(6), heads * group),
        bias: dice.pick(&[None, Some(AttentionBias { matrices: 1, repeats: 1, rows: queries })]),
        pairs: 0,
        scale: 0.25,
        layout: AttentionLayout::HEADS_FIRST,
        saves_logarithms: false,
    };
    let mut inputs: Vec<Data> =
        it.input_lengths().iter().map(|n| float(dice, it.heads * n)).collect();
    inputs.extend(masks(dice, &it, DType::F32));
    let results = it.result_lengths().into_iter().map(|n| (DType::F32, it.heads * n)).collect();
    it.layout = layout(dice, &it);
    // Bits are compared.
    Case::new(it, inputs, results, 0.0)
}

/// Returns products with a great depth, and with few rows or columns.
pub(crate) fn contraction(dice: &mut Dice) -> Case {
    let sides = [1, 7, 65];
    let (rows, columns) = (dice.pick(&sides), dice.pick(&sides));
    let (depth, n_products) = (dice.pick(&[400, 1200]), dice.pick(&[1, 1, 2, 6]));
    let matrix =
        |batch: usize, row, column| MatrixStrides { batch: Strides::new(&[batch]), row, column };
    let it = Contraction {
        batch: Shape::new(&[n_products]),
        rows,
        columns,
        depth,
        left: matrix(rows * depth, depth, 1),
        right: matrix(depth * columns, columns, 1),
        result: if dice.below(2) == 0 {
            matrix(rows * columns, columns, 1)
        } else {
            matrix(rows * columns, 1, rows)
        },
    };
    let inputs =
        vec![float(dice, n_products * rows * depth), float(dice, n_products * depth * columns)];
    case(it, inputs, n_products * rows * columns)
}

/// Returns gradients of tables with many equal indices.
pub(crate) fn embedding(dice: &mut Dice) -> Case {
    let (n_indices, rows, width) = (3000, dice.pick(&[2, 40]), dice.pick(&[5, 40, 100]));
    let it =
        Embedding { form: EmbeddingForm::ScatterAdd, n_indices, rows, vocabulary: rows, width };
    let numbers = (0..n_indices).map(|_| dice.below(rows) as f32).collect();
    let places = (0..rows).map(|it| it as f32).collect();
    let inputs = vec![
        Data { dtype: DType::I32, numbers },
        float(dice, n_indices * width),
        Data { dtype: DType::I32, numbers: places },
    ];
    case(it, inputs, rows * width)
}

/// Returns maps over rows of odd lengths.
pub(crate) fn map(dice: &mut Dice) -> Case {
    let extents = Shape::new(dice.pick(&[&[70_001][..], &[700, 101], &[9, 13, 611]]));
    let it =
        Map { extents, inputs: vec![extents.dense_strides()].into(), program: program(dice, 1, 1) };
    let input = float(dice, extents.n_elements());
    case(it, vec![input], extents.n_elements())
}

/// Returns poolings whose windows overlap.
pub(crate) fn pooling(dice: &mut Dice) -> Case {
    let (planes, side) = (23, 31);
    let it = Pooling {
        form: PoolingForm::SumGradient,
        planes,
        channels: 1,
        image: [2 * side + 1; 2],
        window: [3; 2],
        result: [side; 2],
        stride: [2; 2],
        padding: [0; 2],
    };
    let (image, pooled) = (planes * (2 * side + 1) * (2 * side + 1), planes * side * side);
    let input = float(dice, pooled);
    case(it, vec![input], image)
}
