//! Operators in models whose arguments or results are not one `f32` tensor: arrays of tensors, and
//! integers.

use soybean::{Config, Tensor, eager};

const BATCH: usize = 6;
const LENGTH: usize = 4;
const CLASSES: usize = 6;

#[soybean::model(gpus = 2)]
mod tagger {
    use soybean::prelude::*;

    const WORDS: usize = 10;
    const WIDTH: usize = 4;

    pub(crate) fn forward(
        words: Tensor<i32, 6, 4>,
        tags: Tensor<i32, 6, 4>,
        marks: Tensor<f32, 6, 4>,
    ) -> (Tensor, Tensor, Tensor) {
        let table = param("table", [WORDS, WIDTH], normal(0.5));
        // Indices may be rearranged before the lookup.
        let [first, rest] = words.split([1, 3], 1);
        let embedded = concat([first, rest], 1).reshape([24]).embedding(table);
        let features = concat([embedded.reshape([6, 4, WIDTH]), marks.unsqueeze(2)], 2);
        let [left, right] = features.split([2, WIDTH - 1], -1);
        let x = concat([right, left], 2).pad([0, 1], 1.0);
        let logits = x.matmul(param("w", [6, WIDTH + 2], normal(0.5)).transpose());
        let found = logits.argmax(-1);
        let is_found = stack([found.eq(tags), found.ge(3)], 0).to_i32();
        (logits.cross_entropy(tags), found, is_found)
    }
}

fn words() -> Vec<i32> {
    (0..10).cycle().step_by(3).take(BATCH * LENGTH).collect()
}

fn tags() -> Vec<i32> {
    (0..6).cycle().step_by(5).take(BATCH * LENGTH).collect()
}

fn marks() -> Vec<f32> {
    (0_u8..).take(BATCH * LENGTH).map(|it| f32::from(it % 7) / 4.0 - 1.0).collect()
}

#[test]
fn arrays_of_tensors_and_integers() -> Result<(), soybean::Error> {
    let mut trainer = tagger::Trainer::new(Config { seed: 5, ..Config::default() })?;
    let (words, tags, marks) = (words(), tags(), marks());
    let batch = tagger::Batch { words: &words, tags: &tags, marks: &marks };
    let found = trainer.evaluate(&batch)?;
    let parameters = trainer.parameters()?;
    let integers = |it: &[i32]| it.iter().copied().map(f64::from).collect::<Vec<_>>();
    let numbers = |it: &[f32]| it.iter().copied().map(f64::from).collect::<Vec<_>>();
    let expected = eager::scope(|| {
        let shape = [BATCH, LENGTH];
        let inputs = [
            Tensor::new(shape, &integers(&words)),
            Tensor::new(shape, &integers(&tags)),
            Tensor::new(shape, &numbers(&marks)),
        ];
        let parameters: Vec<Tensor> =
            parameters.iter().map(|(_, it)| Tensor::new(&it.shape, &numbers(&it.data))).collect();
        eager::with_parameters(&parameters, || {
            let (loss, found, is_found) = tagger::forward(inputs[0], inputs[1], inputs[2]);
            [loss, found, is_found].map(|it| (it.shape(), it.to_vec()))
        })
    });
    assert!((f64::from(found.loss) - expected[0].1[0]).abs() < 1e-5);
    for (output, (shape, elements)) in found.outputs.iter().zip(&expected[1..]) {
        assert_eq!(&output.shape, shape);
        assert_eq!(&numbers(&output.data), elements);
    }
    let largest = expected[1].1.iter().copied().fold(0.0, f64::max);
    assert!(largest > 0.0 && largest < CLASSES as f64);
    let mut loss = found.loss;
    for _ in 0..3 {
        loss = trainer.step(&batch)?;
    }
    assert!(loss < found.loss);
    Ok(())
}

#[test]
fn indices_beyond_the_table_are_an_error() -> Result<(), soybean::Error> {
    let mut trainer = tagger::Trainer::new(Config::default())?;
    let (mut words, tags, marks) = (words(), tags(), marks());
    words[7] = 10;
    let batch = tagger::Batch { words: &words, tags: &tags, marks: &marks };
    let error = trainer.step(&batch).expect_err("10 is no row of the table").to_string();
    assert!(error.contains("words") && error.contains("10"), "{error}");
    Ok(())
}

/// A decoder of rotary positions that predicts tokens, some of which are not to be predicted.
#[soybean::model(gpus = 4)]
mod decoder {
    use soybean::prelude::*;

    const HEADS: usize = 2;
    const WIDTH: usize = 4;
    const LENGTH: usize = 6;

    fn rotated(x: Tensor, angles: Tensor) -> Tensor {
        let [left, right] = x.chunk(2, -1);
        let (sin, cos) = (angles.sin(), angles.cos());
        concat([left * cos - right * sin, left * sin + right * cos], -1)
    }

    pub(crate) fn forward(
        tokens: Tensor<i32, 4, 6>,
        next: Tensor<i32, 4, 6>,
    ) -> (Tensor, Tensor, Tensor) {
        let x = tokens.embedding(param("table", [7, HEADS * WIDTH], normal(0.5)));
        let x = x.reshape((-1, 6, HEADS, WIDTH)).permute([0, 2, 1, -1]);
        let frequencies = full([WIDTH / 2], 10_000.0).pow(arange(WIDTH / 2) * -0.5);
        let query = rotated(x, arange(LENGTH).unsqueeze(1) * frequencies).normalize(-1, 1e-12);
        // The heads share the keys of the first one.
        let key = query.slice(1, 0, 1).transpose();
        let hidden = full([LENGTH, LENGTH], 1.0).triu(1);
        let scores = query.matmul(key).masked_fill(hidden, -1e9).softmax(-1);
        let h = scores.matmul(x).permute([0, 2, 1, 3]).reshape([4, 6, -1]).softplus();
        let logits = h.matmul(param("w", [7, HEADS * WIDTH], normal(0.5)).transpose());
        let weight = arange(7) / 7.0 + 0.5;
        let losses = logits.cross_entropy_with(next, weight, -100, "none", 0.0);
        (logits.cross_entropy_with(next, weight, -100, "mean", 0.1), logits, losses)
    }
}

/// Tokens, and the next ones; -100 in place of those that are not to be predicted.
fn texts() -> (Vec<i32>, Vec<i32>) {
    let tokens: Vec<i32> = (0..7).cycle().step_by(3).take(24).collect();
    let next = |(at, token): (usize, &i32)| if at % 5 == 0 { -100 } else { (token + 3) % 7 };
    let next = tokens.iter().enumerate().map(next).collect();
    (tokens, next)
}

#[test]
fn ignored_labels_have_no_loss_and_are_accepted() -> Result<(), soybean::Error> {
    let mut trainer = decoder::Trainer::new(Config { seed: 3, ..Config::default() })?;
    let (tokens, mut next) = texts();
    let batch = decoder::Batch { tokens: &tokens, next: &next };
    let expected = trainer.eager(&batch)?;
    let found = trainer.evaluate(&batch)?;
    assert!((found.loss - expected.outputs[0].data[0]).abs() < 1e-5);
    for (found, expected) in found.outputs.iter().zip(&expected.outputs[1..]) {
        assert_eq!(found.shape, expected.shape);
        for (found, expected) in found.data.iter().zip(&expected.data) {
            assert!((found - expected).abs() < 1e-4, "{found}, expected {expected}");
        }
    }
    let losses = &found.outputs[1].data;
    assert!(losses.iter().zip(&next).all(|(loss, label)| (*loss == 0.0) == (*label == -100)));
    for _ in 0..3 {
        trainer.step(&batch)?;
    }
    assert!(trainer.evaluate(&batch)?.loss < found.loss);
    next[1] = -1;
    let batch = decoder::Batch { tokens: &tokens, next: &next };
    let error = trainer.step(&batch).expect_err("-1 is no class").to_string();
    assert!(error.contains("expected a label in 0..7 or -100, found -1"), "{error}");
    Ok(())
}
