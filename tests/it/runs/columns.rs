//! Columns of data are the inputs of their names, and what readers number means the same in every
//! part of a run.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use soybean::{
    Error, Event, Flow, Metric, Resume, Split, TrainConfig,
    checkpoint::{Checkpoint, Checkpoints, Progress},
    data::{
        ByteTokenizer, Classes, Column, ColumnSpec, DataLoader, Dataset, LoaderOptions, Numbering,
        Table, TokenSpec, Tokenizer, Tokens, Values, ViewMut, Vocabulary,
    },
    weights::Mapping,
};

use soybean_test_support::{example, run};

use super::small::{folder, newest};

/// Two inputs of one type and shape: only their names tell them apart.
#[soybean::model(gpus = 2, optimizer = adam())]
mod weighted {
    use soybean::{nn, prelude::*};

    pub(crate) fn forward(
        x: Tensor<f32, 8, 2>,
        weight: Tensor<f32, 8>,
        y: Tensor<f32, 8>,
    ) -> (Tensor, Tensor) {
        let p = nn::linear(x, 1).squeeze(1);
        ((weight * (p - y).square()).mean(..), p)
    }
}

const INPUTS: [&str; 3] = ["x", "weight", "y"];

fn table(names: [&str; 3]) -> Table {
    let x: Vec<f32> = (0..160_u16).map(|it| f32::from(it * 37 % 101) / 100.0).collect();
    let y = x.chunks(2).map(|row| 3.0 * row[0] - row[1] + 5.0).collect();
    let weight = (0..80_u8).map(|it| f32::from(it % 5)).collect();
    let column = |(name, row, values): (&str, &[usize], _)| Column {
        name: name.to_owned(),
        row: row.to_vec(),
        values: Values::F32(values),
    };
    let [n1, n2, n3] = names;
    let columns = [(n1, &[2][..], x), (n2, &[][..], weight), (n3, &[][..], y)].map(column);
    Table::new(columns.into()).unwrap()
}

/// Returns what a run, an evaluation and a loop of steps find with these data, in bits.
fn outcome(data: &Split) -> Result<(Vec<u32>, u64, u64), Error> {
    let config = TrainConfig::new(2, 0.05);
    let mut trainer = weighted::Trainer::new(config.trainer.clone())?;
    let summary = trainer.fit(&config, data)?;
    let evaluated = trainer.evaluate_dataset(Arc::clone(&data.held_out), &[])?;
    let loader = DataLoader::new(Arc::clone(&data.train), LoaderOptions::training(8, 7))?;
    let mut bits = Vec::new();
    for batch in loader {
        let batch = batch?;
        bits.push(trainer.evaluate(&batch)?.loss.to_bits());
        bits.extend(trainer.predict(&batch)?[0].data.iter().map(|it| it.to_bits()));
        trainer.queue(&batch)?;
        bits.push(trainer.step_queued(None)?.to_bits());
        bits.push(trainer.step(&batch)?.to_bits());
    }
    let last = summary.last.map_or(0, |it| it.held_out_loss.to_bits());
    Ok((bits, last, evaluated.loss.to_bits()))
}

fn split(order: [&str; 3]) -> Split {
    let (train, held_out) = table(INPUTS).select(&order).unwrap().split(0.2, 0);
    Split::new(train, held_out)
}

/// Guards: columns were matched by position, so a file with other order trained without a word.
#[test]
fn columns_in_any_order_are_the_inputs_of_their_names() {
    let expected = outcome(&split(INPUTS)).unwrap();
    for order in [
        ["x", "y", "weight"],
        ["y", "x", "weight"],
        ["y", "weight", "x"],
        ["weight", "x", "y"],
        ["weight", "y", "x"],
    ] {
        assert!(outcome(&split(order)).unwrap() == expected, "{order:?}");
        // Each part has its own order.
        let mixed = Split { train: split(order).train, held_out: split(INPUTS).held_out };
        assert!(outcome(&mixed).unwrap() == expected, "{order:?}");
    }
    // Other names: positions decide, and the run says so.
    let train = split(INPUTS).train.rename(&["a", "b", "c"]).unwrap();
    let held_out = split(INPUTS).held_out.rename(&["a", "b", "c"]).unwrap();
    let positions = Split::new(train, held_out);
    assert!(outcome(&positions).unwrap() == expected);
    let mut notes = Vec::new();
    let config = TrainConfig::new(1, 0.05);
    let mut trainer = weighted::Trainer::new(config.trainer.clone()).unwrap();
    let watch = |event: &Event<'_>| {
        if let Event::Note(note) = event {
            notes.push((*note).to_owned());
        }
        Flow::Continue
    };
    trainer.fit_watched(&config, &positions, watch).unwrap();
    let note = "the columns `a`, `b`, `c` are taken for the inputs x [8, 2], weight [8], y [8] in \
                their order, since none has the name of an input";
    assert_eq!(notes, [note]);
}

#[test]
fn names_that_contradict_the_inputs_are_errors_everywhere() {
    let message = |part: &str, columns: &str| {
        format!(
            "the {part}: expected columns with the names of the inputs (x [8, 2], weight [8], y \
             [8]), found {columns}: "
        )
    };
    let good = split(INPUTS);
    let renamed = |names: [&str; 3]| -> Arc<dyn Dataset> {
        Arc::new(Arc::clone(&good.train).rename(&names).unwrap())
    };
    for names in [
        ["x", "y", "w"],
        ["x", "target", "weight"],
        ["y", "b", "c"],
        ["x", "b", "c"],
        ["x", "x", "y"],
    ] {
        let columns = names.map(|it| format!("`{it}`")).join(", ");
        let starts = |found: Error, part: &str| {
            let (found, expected) = (found.to_string(), message(part, &columns));
            assert!(found.starts_with(&expected), "{found} instead of {expected}");
        };
        let bad = renamed(names);
        let train = Split { train: Arc::clone(&bad), held_out: Arc::clone(&good.held_out) };
        starts(outcome(&train).unwrap_err(), "training data");
        let held_out = Split { train: Arc::clone(&good.train), held_out: Arc::clone(&bad) };
        starts(outcome(&held_out).unwrap_err(), "held-out data");
        let mut trainer = weighted::Trainer::new(soybean::Config::default()).unwrap();
        starts(trainer.evaluate_dataset(Arc::clone(&bad), &[]).unwrap_err(), "evaluation data");
        let batch = DataLoader::new(bad, LoaderOptions::training(8, 7)).unwrap().next().unwrap();
        let batch = batch.unwrap();
        starts(trainer.step(&batch).unwrap_err(), "batch");
        starts(trainer.queue(&batch).unwrap_err(), "batch");
        starts(trainer.evaluate(&batch).unwrap_err(), "batch");
        starts(trainer.predict(&batch).unwrap_err(), "batch");
    }
    // Positions decide in both parts, but not on the same columns.
    let parts = Split { train: renamed(["a", "b", "c"]), held_out: renamed(["a", "c", "b"]) };
    let error = outcome(&parts).unwrap_err().to_string();
    assert_eq!(
        error,
        "the held-out data: expected columns in the order of the training data, `a`, `b`, `c`, \
         found `a`, `c`, `b`"
    );
}

#[soybean::model(gpus = 2, optimizer = adam())]
mod pets {
    use soybean::{nn, prelude::*};

    pub(crate) fn forward(x: Tensor<f32, 8, 4>, label: Tensor<i32, 8>) -> (Tensor, Tensor) {
        let logits = nn::linear(x, 3);
        (logits.cross_entropy(label), logits)
    }
}

#[soybean::model(gpus = 1, mode = "inference")]
mod serving {
    use soybean::{nn, prelude::*};

    pub(crate) fn forward(x: Tensor<f32, 8, 4>) -> Tensor {
        nn::linear(x, 3)
    }
}

/// Rows of which a reader has numbered the labels.
struct Numbered(Table, Classes);

impl Dataset for Numbered {
    fn n_rows(&self) -> usize {
        self.0.n_rows()
    }

    fn columns(&self) -> &[ColumnSpec] {
        self.0.columns()
    }

    fn numbering(&self, column: usize) -> Option<Numbering> {
        (column == 0).then(|| Numbering::Classes(self.1.clone()))
    }

    fn read(&self, rows: &[usize], into: &mut [ViewMut<'_>]) -> Result<(), Error> {
        self.0.read(rows, into)
    }
}

fn numbered(classes: &[&str]) -> Numbered {
    let column = |name: &str, row: &[usize], values| Column {
        name: name.to_owned(),
        row: row.to_vec(),
        values,
    };
    let x = Values::F32((0..96_u8).map(f32::from).collect());
    let label = Values::I32((0..24).map(|it| it % 2).collect());
    // In another order than the inputs.
    let table = Table::new(vec![column("label", &[], label), column("x", &[4], x)]).unwrap();
    Numbered(table, Classes::new(classes.iter().copied()).unwrap())
}

fn fit(
    out: &Path,
    train: &[&str],
    held_out: &[&str],
    resume: Resume,
) -> Result<pets::Trainer, Error> {
    let config = TrainConfig { out: Some(out.into()), resume, ..TrainConfig::new(1, 0.01) };
    let mut trainer = pets::Trainer::new(config.trainer.clone())?;
    trainer.fit(&config, &Split::new(numbered(train), numbered(held_out)))?;
    Ok(trainer)
}

/// Guards: classes that a reader numbers are kept with the run, and other ones are an error in
/// training, in evaluations and on resuming. Predictions know their names.
#[test]
fn classes_are_the_same_in_every_part_of_a_run() {
    let out = folder("classes");
    let classes = ["cat", "cow", "dog"];
    for held_out in [
        &["cat", "dog"][..],
        &["cat", "dog", "emu"],
        &["cow", "cat", "dog"],
        &["cat", "cow", "dog", "emu"],
    ] {
        let error = fit(&out, &classes, held_out, Resume::Never).unwrap_err().to_string();
        assert!(error.starts_with("the held-out data for `label`: expected "), "{error}");
        assert!(error.contains(", unlike in training: "), "{error}");
    }
    let mut trainer = fit(&out, &classes, &classes, Resume::Never).unwrap();
    assert_eq!(trainer.classes("label").unwrap().names(), classes);
    assert_eq!(trainer.classes("x"), None);
    let checkpoint = newest(&out);
    let evaluate = |trainer: &mut pets::Trainer, names: &[&str]| {
        trainer.evaluate_dataset(numbered(names), &Metric::usual()).map_err(|it| it.to_string())
    };
    let other = &["cat", "dog"];
    let error =
        "the evaluation data for `label`: expected class 1 to be \"cow\", found \"dog\", unlike ";
    assert!(evaluate(&mut trainer, other).unwrap_err().starts_with(error));
    evaluate(&mut trainer, &classes).unwrap();
    // The checkpoint has them, for a trainer that restores or loads it and for a predictor.
    let new = || pets::Trainer::new(soybean::Config::default()).unwrap();
    evaluate(&mut new(), other).unwrap();
    let (mut restored, mut loaded, mut of_file) = (new(), new(), new());
    restored.restore(&Checkpoint::open(&checkpoint).unwrap()).unwrap();
    loaded.load_weights(&checkpoint, &Mapping::default()).unwrap();
    of_file.load_weights(checkpoint.join("model.safetensors"), &Mapping::default()).unwrap();
    for trainer in [&mut restored, &mut loaded, &mut of_file] {
        assert_eq!(trainer.classes("label").unwrap().names(), classes);
        assert!(evaluate(trainer, other).unwrap_err().starts_with(error));
    }
    let mut predictor = serving::Predictor::new(soybean::Config::default()).unwrap();
    assert_eq!(predictor.classes("label"), None);
    predictor.load_weights(&checkpoint, &Mapping::default()).unwrap();
    assert_eq!(predictor.classes("label").unwrap().name(2), Some("dog"));
    // A run with other classes does not go on.
    let error = fit(&out, other, other, Resume::Must).unwrap_err().to_string();
    let expected = "; if that is meant, add --allow-change classes";
    assert!(
        error.contains("`label`: expected class 1 to be \"cow\", found \"dog\"")
            && error.ends_with(expected),
        "{error}"
    );
    fit(&out, &classes, &classes, Resume::Must).unwrap();
    // Weights of another program have none.
    let plain = folder("classes-plain").join("model.safetensors");
    std::fs::copy(checkpoint.join("model.safetensors"), &plain).unwrap();
    loaded.load_weights(&plain, &Mapping::default()).unwrap();
    assert_eq!(loaded.classes("label"), None);
    // A checkpoint of a loop of one's own has none either.
    let mut own = Checkpoints::new(folder("classes-own"), 1);
    let path = loaded.save(&mut own, &Progress::default()).unwrap();
    restored.restore(&Checkpoint::open(path).unwrap()).unwrap();
    assert_eq!(restored.classes("label"), None);
}

#[soybean::model(gpus = 1, optimizer = adam())]
mod letters {
    use soybean::{nn, prelude::*};

    pub(crate) fn forward(tokens: Tensor<i32, 4, 2>, next: Tensor<i32, 4, 2>) -> Tensor {
        let h = nn::embedding(tokens, nn::Embedding { vocabulary: 256, width: 4 });
        nn::linear(h, 256).reshape([8, 256]).cross_entropy(next.reshape([8]))
    }
}

#[soybean::model(gpus = 1, mode = "inference")]
mod writer {
    use soybean::{nn, prelude::*};

    pub(crate) fn forward(tokens: Tensor<i32, 4, 2>) -> Tensor {
        nn::linear(nn::embedding(tokens, nn::Embedding { vocabulary: 256, width: 4 }), 256)
    }
}

fn tokens(tokenizer: &dyn Tokenizer) -> Tokens {
    let text = (0..60).map(|it| it % 3).collect();
    let spec = TokenSpec { length: 2, stride: 2, vocabulary: 256 };
    Tokens::new(text, spec).unwrap().with_tokenizer(tokenizer)
}

/// Trains with tokens of a tokenizer, and returns the newest checkpoint.
fn train_with(tokenizer: &dyn Tokenizer, out: &Path, resume: Resume) -> Result<PathBuf, Error> {
    let config = TrainConfig { out: Some(out.into()), resume, ..TrainConfig::new(1, 0.01) };
    let mut trainer = letters::Trainer::new(config.trainer.clone())?;
    trainer.fit(&config, &Split::new(tokens(tokenizer), tokens(tokenizer)))?;
    Ok(newest(out))
}

/// Guards: texts of another tokenizer are an error in every part of a run, and so is a prediction.
#[test]
fn tokens_are_of_one_tokenizer_in_every_part_of_a_run() {
    let out = folder("tokenizer");
    let (own, other) = (Vocabulary::of_characters("abc"), ByteTokenizer);
    let checkpoint = train_with(&own, &out, Resume::Never).unwrap();
    let difference = format!(
        "expected tokens of the tokenizer with the fingerprint {:016x}, found {:016x}",
        own.fingerprint(),
        other.fingerprint()
    );
    let config = TrainConfig::new(1, 0.01);
    let mut trainer = letters::Trainer::new(config.trainer.clone()).unwrap();
    let parts = Split::new(tokens(&own), tokens(&other));
    let error = trainer.fit(&config, &parts).unwrap_err().to_string();
    assert!(error.starts_with(&format!("the held-out data for `next`: {difference}")), "{error}");
    trainer.restore(&Checkpoint::open(&checkpoint).unwrap()).unwrap();
    let error = trainer.evaluate_dataset(tokens(&other), &[]).unwrap_err().to_string();
    assert!(error.contains(&difference), "{error}");
    let error = train_with(&other, &out, Resume::Must).unwrap_err().to_string();
    assert!(
        error.contains(&difference) && error.ends_with("add --allow-change tokenizer"),
        "{error}"
    );
    train_with(&own, &out, Resume::Must).unwrap();
    let mut predictor = writer::Predictor::new(soybean::Config::default()).unwrap();
    predictor.check_tokenizer(&other).unwrap();
    predictor.load_weights(&checkpoint, &Mapping::default()).unwrap();
    predictor.check_tokenizer(&own).unwrap();
    assert_eq!(predictor.check_tokenizer(&other).unwrap_err().to_string(), difference);
}

/// The command finds it too.
#[test]
fn generate_refuses_the_tokenizer_of_another_run() {
    let network = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference/transformers/gpt2");
    for (letters, code) in [("abcdefghijklmnopqrstu", 0), ("abcdefghijklmnopqrstv", 1)] {
        let out = folder("tokenizer-of-generate");
        let run_file = train_with(&Vocabulary::of_characters(letters), &out, Resume::Never);
        let weights = out.join("model.safetensors");
        std::fs::copy(network.join("model.safetensors"), &weights).unwrap();
        std::fs::copy(run_file.unwrap().join("run.json"), out.join("run.json")).unwrap();
        let mut command = example!("texts_program");
        command.args(["--tokens", "2", "--weights"]).arg(&weights);
        let (found, output, errors) = run(&mut command);
        assert_eq!(found, Some(code), "{output}{errors}");
        assert_eq!(errors.starts_with("error: --tokenizer: "), code == 1, "{errors}");
    }
}
