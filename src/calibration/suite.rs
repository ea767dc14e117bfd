//! The kernels that a calibration measures: every kind, in sizes of small and of large networks.

mod elementwise;

use soybean_plan::{
    Attention, AttentionForm, Concatenation, Contraction, Convolution, ConvolutionForm, Embedding,
    EmbeddingForm, ImageLayout, Indexing, IndexingForm, MAX_RANK, MatrixStrides, Padding,
    Permutation, Pooling, PoolingForm, Ranking, RankingForm, Shape, Strides,
};

use super::trial::{Operand, Trial};

/// Returns all trials, each kind from small to large.
pub(super) fn suite() -> Vec<Trial> {
    let mut trials = Vec::new();
    trials.extend(products());
    trials.extend(convolutions());
    trials.extend(elementwise::maps());
    trials.extend(elementwise::reductions());
    trials.extend(poolings());
    trials.extend(copies());
    trials.extend(embeddings());
    trials.extend(indexings());
    trials.extend(rankings());
    trials.extend(attentions());
    trials
}

/// Batch, rows, depth and columns of products: square, flat and narrow.
const PRODUCTS: [[usize; 4]; 24] = [
    [1, 4, 16, 4],
    [1, 16, 16, 16],
    [1, 32, 64, 8],
    [1, 64, 32, 8],
    [1, 32, 64, 32],
    [1, 32, 8, 64],
    [1, 64, 64, 64],
    [1, 32, 128, 128],
    [1, 128, 16, 128],
    [1, 16, 512, 128],
    [1, 512, 16, 128],
    [1, 128, 128, 128],
    [1, 64, 256, 256],
    [1, 256, 64, 256],
    [1, 1024, 128, 64],
    [1, 64, 1024, 1024],
    [1, 1024, 64, 1024],
    [1, 256, 256, 256],
    [1, 1024, 128, 512],
    [1, 512, 1024, 128],
    [1, 512, 512, 512],
    [1, 64, 4096, 4096],
    [1, 1024, 1024, 1024],
    [16, 64, 32, 64],
];

/// Each product as it is in a forward computation, with the first operand transposed as in
/// gradients of weights, and with the second one transposed as in gradients of activations.
fn products() -> impl Iterator<Item = Trial> {
    let variants = [(false, false), (true, false), (false, true)];
    PRODUCTS.into_iter().flat_map(move |sizes| variants.map(|it| product(sizes, it)))
}

fn product(
    [batch, rows, depth, columns]: [usize; 4],
    (left_transposed, right_transposed): (bool, bool),
) -> Trial {
    let strides = |rows: usize, columns: usize, is_transposed: bool| MatrixStrides {
        batch: if batch == 1 { Strides::new(&[]) } else { Strides::new(&[rows * columns]) },
        row: if is_transposed { 1 } else { columns },
        column: if is_transposed { rows } else { 1 },
    };
    let kernel = Contraction {
        batch: if batch == 1 { Shape::new(&[]) } else { Shape::new(&[batch]) },
        rows,
        columns,
        depth,
        left: strides(rows, depth, left_transposed),
        right: strides(depth, columns, right_transposed),
        result: strides(rows, columns, false),
    };
    let inputs = [batch * rows * depth, batch * depth * columns];
    Trial::new(kernel, &inputs, &[batch * rows * columns])
}

/// Batch, channels, filters, side of the images, side of the window, and stride.
const CONVOLUTIONS: [[usize; 6]; 18] = [
    [4, 1, 8, 8, 3, 1],
    [16, 1, 16, 8, 3, 1],
    [16, 1, 16, 28, 3, 1],
    [16, 16, 16, 8, 3, 1],
    [16, 3, 16, 32, 3, 1],
    [16, 32, 32, 4, 3, 1],
    [16, 16, 32, 16, 1, 1],
    [16, 8, 16, 32, 1, 2],
    [16, 8, 8, 32, 3, 1],
    [16, 16, 32, 16, 3, 2],
    [16, 16, 16, 16, 3, 1],
    [16, 16, 32, 14, 5, 1],
    [16, 64, 64, 8, 3, 1],
    [8, 64, 64, 28, 1, 1],
    [2, 3, 64, 112, 7, 2],
    [4, 256, 256, 14, 3, 1],
    [2, 64, 128, 56, 3, 1],
    [2, 64, 64, 112, 3, 1],
];

fn convolutions() -> impl Iterator<Item = Trial> {
    let forms = [ConvolutionForm::Forward, ConvolutionForm::Data, ConvolutionForm::Filter];
    CONVOLUTIONS.into_iter().flat_map(move |sizes| forms.map(|form| convolution(sizes, form)))
}

fn convolution(
    [batch, channels, filters, side, window, stride]: [usize; 6],
    form: ConvolutionForm,
) -> Trial {
    let padding = window / 2;
    let result = (side + 2 * padding - window) / stride + 1;
    let kernel = Convolution {
        form,
        batch,
        groups: 1,
        channels,
        filters,
        image: [side; 2],
        window: [window; 2],
        result: [result; 2],
        stride: [stride; 2],
        padding: [padding; 2],
        dilation: [1; 2],
        layout: ImageLayout::ChannelsFirst,
    };
    let images = batch * channels * side * side;
    let weights = filters * channels * window * window;
    let results = batch * filters * result * result;
    match form {
        ConvolutionForm::Forward => Trial::new(kernel, &[images, weights], &[results]),
        ConvolutionForm::Data => Trial::new(kernel, &[results, weights], &[images]),
        ConvolutionForm::Filter => Trial::new(kernel, &[images, results], &[weights]),
    }
}

/// Planes, side of the images, side of the window, and stride.
const POOLINGS: [[usize; 4]; 5] =
    [[64, 8, 2, 2], [512, 8, 2, 2], [256, 28, 2, 2], [128, 55, 3, 2], [512, 56, 2, 2]];

fn poolings() -> impl Iterator<Item = Trial> {
    let forms =
        [PoolingForm::Max, PoolingForm::MaxGradient, PoolingForm::Sum, PoolingForm::SumGradient];
    POOLINGS.into_iter().flat_map(move |sizes| forms.map(|form| pooling(sizes, form)))
}

fn pooling([planes, side, window, stride]: [usize; 4], form: PoolingForm) -> Trial {
    let result = (side - window) / stride + 1;
    let kernel = Pooling {
        form,
        planes,
        channels: 1,
        image: [side; 2],
        window: [window; 2],
        result: [result; 2],
        stride: [stride; 2],
        padding: [0; 2],
    };
    let (images, results) = (planes * side * side, planes * result * result);
    match form {
        PoolingForm::Max | PoolingForm::Sum => Trial::new(kernel, &[images], &[results]),
        PoolingForm::MaxGradient => Trial::new(kernel, &[images, results], &[images]),
        PoolingForm::SumGradient => Trial::new(kernel, &[results], &[images]),
    }
}

/// Copies in another order, of windows, and side by side.
fn copies() -> impl Iterator<Item = Trial> {
    let transposed = [[8, 8], [64, 16], [128, 64], [256, 256], [512, 1024], [2048, 1024]];
    let transposed = transposed.map(|[rows, columns]| {
        let (extents, input) = (Shape::new(&[rows, columns]), Strides::new(&[1, rows]));
        Trial::new(Permutation { extents, input }, &[rows * columns], &[rows * columns])
    });
    // Heads of attention: `[batch, length, heads, features]` by heads.
    let by_heads = [[4, 16, 4, 8], [8, 64, 4, 32], [8, 256, 12, 64]].map(|sizes| {
        let [batch, length, heads, features] = sizes;
        let extents = Shape::new(&[batch, heads, length, features]);
        let strides = [length * heads * features, features, heads * features, 1];
        let n_elements = sizes.iter().product();
        let input = Strides::new(&strides);
        Trial::new(Permutation { extents, input }, &[n_elements], &[n_elements])
    });
    let sizes = [[8, 16], [64, 64], [256, 512], [1024, 1024]];
    let windows = sizes.map(|[rows, columns]| {
        let (input, result) = (Shape::new(&[rows, 3 * columns]), Shape::new(&[rows, columns]));
        let kernel = Padding { input, result, low: [0; MAX_RANK], fill: 0.0 };
        Trial::new(kernel, &[3 * rows * columns], &[rows * columns])
    });
    let side_by_side = sizes.map(|[outer, length]| {
        let kernel = Concatenation { outer, lengths: vec![length; 2].into() };
        Trial::new(kernel, &[outer * length; 2], &[2 * outer * length])
    });
    transposed.into_iter().chain(by_heads).chain(windows).chain(side_by_side)
}

fn embeddings() -> impl Iterator<Item = Trial> {
    // Indices, rows of the table, and elements of a row.
    let sizes = [[64, 64, 16], [512, 128, 64], [2048, 1024, 128], [2048, 16_384, 256]];
    let forms = [EmbeddingForm::Gather, EmbeddingForm::ScatterAdd];
    sizes.into_iter().flat_map(move |[n_indices, rows, width]| {
        forms.map(|form| {
            let kernel = Embedding { form, n_indices, rows, vocabulary: rows, width };
            let (read, written) = match form {
                EmbeddingForm::Gather => (rows, n_indices),
                EmbeddingForm::ScatterAdd => (n_indices, rows),
            };
            let inputs = vec![
                Operand::Indices { n_elements: n_indices, limit: rows },
                Operand::Numbers(read * width),
                Operand::Indices { n_elements: rows, limit: rows },
            ];
            Trial { kernel: kernel.into(), inputs, results: vec![written * width] }
        })
    })
}

fn indexings() -> impl Iterator<Item = Trial> {
    // Lines, indices of a line, and elements of a line.
    let sizes = [[64, 2, 8], [512, 2, 64], [512, 16, 256], [2048, 64, 64]];
    sizes.into_iter().flat_map(|[outer, n_indices, rows]| {
        IndexingForm::ALL.iter().map(move |&form| {
            let kernel = Indexing { form, outer, n_indices, rows, extent: rows, inner: 1 };
            let (read, written) = match form {
                IndexingForm::Gather => (rows, n_indices),
                IndexingForm::ScatterAdd => (n_indices, rows),
            };
            let inputs = vec![
                Operand::Indices { n_elements: outer * n_indices, limit: rows },
                Operand::Numbers(outer * read),
                Operand::Indices { n_elements: rows, limit: rows },
            ];
            Trial { kernel: kernel.into(), inputs, results: vec![outer * written] }
        })
    })
}

fn rankings() -> impl Iterator<Item = Trial> {
    // Lines, and elements of a line.
    let sizes = [[64, 8], [2048, 8], [512, 64], [256, 1024]];
    sizes.into_iter().flat_map(|[outer, length]| {
        RankingForm::ALL.iter().map(move |&form| {
            let kernel = Ranking { form, outer, length, inner: 1 };
            Trial::new(kernel, &[outer * length], &[outer * length])
        })
    })
}

fn attentions() -> impl Iterator<Item = Trial> {
    // Heads, queries and keys, features.
    let sizes = [[4, 32, 16], [16, 64, 32], [32, 64, 32], [16, 256, 32], [12, 512, 64]];
    sizes.into_iter().flat_map(move |[heads, length, features]| {
        AttentionForm::ALL.iter().map(move |&form| {
            let kernel = Attention {
                is_causal: true,
                pairs: Attention::causal_pairs(length, length),
                scale: 0.25,
                ..Attention::new(form, heads, [length; 2], [features; 2])
            };
            let of_heads = |lengths: Vec<usize>| lengths.into_iter().map(move |it| heads * it);
            let numbers = of_heads(kernel.input_lengths()).map(Operand::Numbers);
            let positions = Operand::Indices { n_elements: length, limit: length };
            Trial {
                inputs: numbers.chain([positions]).collect(),
                results: of_heads(kernel.result_lengths()).collect(),
                kernel: kernel.into(),
            }
        })
    })
}
