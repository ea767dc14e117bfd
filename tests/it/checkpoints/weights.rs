//! Weights of another program: `fixtures/make_weights.py`, with Python's `safetensors`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use soybean::{
    Array, Config,
    checkpoint::Checkpoints,
    runtime::{ErrorKind, Trainer},
    weights::{self, Mapping},
};

use super::{
    environment::{folder, names},
    network::{bits, progress, state, train, trainer},
};

/// The names of PyTorch's `Sequential`.
const RULES: &str = "
    net.0.weight = first.w
    net.0.bias = first.b
    net.1.num_batches_tracked = nothing
    net.1.* = norm.*
    net.4.weight = last.w transposed
    net.4.bias = last.b
";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/checkpoints/fixtures").join(name)
}

fn mapping() -> Mapping {
    RULES.parse::<Mapping>().unwrap().may_be_unused("*.num_batches_tracked")
}

/// Returns the numbers of the script.
fn values(seed: usize, n_elements: usize) -> Vec<f32> {
    (0..n_elements).map(|it| ((it * 7 + seed) % 65) as f32 / 32.0 - 1.0).collect()
}

/// Returns the parameters in the script's file, in the order of the model.
fn expected() -> Vec<(&'static str, Vec<f32>)> {
    vec![
        ("first.w", values(1, 24 * 12)),
        ("first.b", values(2, 24)),
        ("norm.running_mean", values(5, 24)),
        ("norm.running_var", values(6, 24)),
        ("norm.weight", values(3, 24)),
        ("norm.bias", values(4, 24)),
        ("last.w", values(7, 12 * 24)),
        ("last.b", values(8, 12)),
    ]
}

fn parameters(trainer: &mut Trainer) -> Vec<(String, Vec<f32>)> {
    trainer.parameters().unwrap().into_iter().map(|(name, array)| (name, array.data)).collect()
}

#[test]
fn files_indices_and_folders_of_other_programs_are_loaded() {
    for (name, n_gpus) in [("weights.safetensors", 1), ("model.safetensors.index.json", 4), ("", 6)]
    {
        let mut trainer = trainer(n_gpus);
        let loaded = weights::load(&mut trainer, fixture(name), &mapping()).unwrap();
        assert_eq!((loaded.n_tensors, loaded.missing.len()), (8, 0), "{name}");
        assert_eq!(loaded.unused, ["net.1.num_batches_tracked"]);
        let mut found = parameters(&mut trainer);
        let mut expected: Vec<_> =
            expected().into_iter().map(|(name, data)| (name.to_owned(), data)).collect();
        found.sort_by(|one, other| one.0.cmp(&other.0));
        expected.sort_by(|one, other| one.0.cmp(&other.0));
        assert_eq!(found, expected, "{name}");
    }
}

#[track_caller]
fn check(path: &Path, mapping: &str, message: &str) {
    let mut trainer = trainer(2);
    let before = state(&mut trainer);
    let error = weights::load(&mut trainer, path, &mapping.parse().unwrap()).unwrap_err();
    assert_eq!(error.to_string(), format!("{}: {message}", path.display()));
    assert_eq!(state(&mut trainer), before);
}

#[test]
fn what_does_not_fit_is_listed_with_what_may_have_been_meant() {
    let path = fixture("weights.safetensors");
    check(
        &path,
        &RULES.replace("net.1.* =", "net.1.*s ="),
        "expected weights of the model `model`: missing `norm.running_mean` (is it their `net.1.running_mean`?), `norm.running_var` (is it their `net.1.running_var`?), \
         `norm.weight` (is it their `net.1.weight`?), `norm.bias` (is it their `net.1.bias`?); unused `net.1.num_batches_tracked`, `net.1.running_mean` (is it our `norm.running_mean`?), \
         `net.1.running_var` (is it our `norm.running_var`?), `net.1.weight` (is it our `norm.weight`?), `net.1.bias` (is it our `norm.bias`?)",
    );
}

#[test]
fn shapes_types_and_names_that_come_twice_are_refused() {
    let path = fixture("weights.safetensors");
    let with = |old: &str, new: &str| RULES.replace(old, new) + "\nunused *.num_batches_tracked";
    check(
        &path,
        &with(" transposed", ""),
        "expected weights of the model `model`: `last.w` (their `net.4.weight`): expected shape [12, 24], found [24, 12]",
    );
    check(
        &path,
        &(with("net.0.bias = first.b", "net.0.bias = first.w") + "; missing first.b"),
        "expected weights of the model `model`: `first.w` (their `net.0.bias`): expected shape [24, 12], found [24]; `first.w`: expected one tensor, found `net.0.weight` and `net.0.bias`",
    );
}

/// The stem, a stage that keeps the shape, one that halves it, and the head.
#[soybean::model(gpus = 2)]
mod resnet {
    use soybean::{nn, prelude::*};

    pub(crate) fn forward(x: Tensor<f32, 4, 3, 8, 8>, y: Tensor<i32, 4>) -> Tensor {
        let h = layer2(layer1(nn::conv_norm_relu(
            x,
            4,
            nn::Window { kernel: 7, stride: 2, padding: 3 },
        )));
        nn::linear(h.global_avg_pool2d(), 10).cross_entropy(y)
    }

    fn layer1(x: Tensor) -> Tensor {
        let mut h = x;
        for _ in 0..2 {
            h = nn::basic_block(h, nn::BasicBlock { out_channels: 4, stride: 1 });
        }
        h
    }

    fn layer2(x: Tensor) -> Tensor {
        let mut h = x;
        for round in 0..2 {
            h = nn::basic_block(h, nn::BasicBlock { out_channels: 8, stride: 2 - round });
        }
        h
    }
}

/// The names of `torchvision.models.resnet18().state_dict()` for these layers, in the order of our
/// parameters except for the buffers.
fn names_of_torchvision() -> Vec<String> {
    let norm = |path: &str| {
        ["weight", "bias", "running_mean", "running_var"].map(|it| format!("{path}.{it}"))
    };
    let mut names = vec!["conv1.weight".to_owned()];
    names.extend(norm("bn1"));
    for block in ["layer1.0", "layer1.1", "layer2.0", "layer2.1"] {
        for number in [1, 2] {
            names.push(format!("{block}.conv{number}.weight"));
            names.extend(norm(&format!("{block}.bn{number}")));
        }
        if block == "layer2.0" {
            names.push(format!("{block}.downsample.0.weight"));
            names.extend(norm(&format!("{block}.downsample.1")));
        }
    }
    names.extend(["fc.weight".to_owned(), "fc.bias".to_owned()]);
    names
}

#[test]
fn the_mapping_of_the_documentation_is_that_of_torchvision() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/checkpoints.md");
    let text = fs::read_to_string(path).unwrap();
    let (_, text) = text.split_once("```text\n# theirs = ours\n").unwrap();
    let mapping: Mapping = text.split_once("```").unwrap().0.parse().unwrap();
    let mut model = resnet::Trainer::new(Config::default()).unwrap();
    let ours = model.parameters().unwrap();
    let names = names_of_torchvision();
    assert_eq!(names.len(), ours.len(), "{ours:?}");
    let marked = |(name, (_, array)): (String, &(String, Array))| {
        let data = (0..array.data.len()).map(|it| (it % 977) as f32 + name.len() as f32);
        let array = Array { shape: array.shape.clone(), data: data.collect(), ..Array::default() };
        (name, array)
    };
    let theirs: Vec<_> = names.into_iter().zip(&ours).map(marked).collect();
    let file = folder("torchvision").join("resnet.safetensors");
    weights::save(&file, &theirs).unwrap();
    let loaded = model.load_weights(&file, &mapping).unwrap();
    assert_eq!((loaded.n_tensors, loaded.missing.len(), loaded.unused.len()), (ours.len(), 0, 0));
    for (found, (_, expected)) in model.parameters().unwrap().iter().zip(&theirs) {
        assert_eq!(found.1, *expected, "{}", found.0);
    }
}

#[test]
fn some_may_be_missing() {
    let path = fixture("weights.safetensors");
    let mut trainer = trainer(2);
    let before = parameters(&mut trainer);
    let mapping = Mapping::new().rule("net.4.bias", "last.b").unwrap();
    let mapping = mapping.may_be_missing("*").may_be_unused("*");
    let loaded = weights::load(&mut trainer, &path, &mapping).unwrap();
    assert_eq!((loaded.n_tensors, loaded.missing.len(), loaded.unused.len()), (1, 7, 8));
    for (found, before) in parameters(&mut trainer).into_iter().zip(before) {
        match found.0.as_str() {
            "last.b" => assert_eq!(found.1, values(8, 12)),
            _ => assert_eq!(found, before),
        }
    }
}

#[test]
fn a_checkpoint_is_a_file_of_weights_too() {
    let mut saved = trainer(4);
    train(&mut saved, 2);
    let path = Checkpoints::new(folder("as_weights"), 1).save(&mut saved, &progress(0)).unwrap();
    let mut other = trainer(1);
    weights::load(&mut other, &path, &Mapping::new()).unwrap();
    assert_eq!(parameters(&mut other), parameters(&mut saved));
    assert_eq!(other.n_steps(), 0);
    weights::load(&mut other, path.join("model.safetensors"), &Mapping::new()).unwrap();
    // A checkpoint has a checksum.
    let file = path.join("model.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    let error = weights::load(&mut other, &path, &Mapping::new()).unwrap_err();
    assert!(error.to_string().contains("CRC-32"), "{error}");
}

#[test]
fn averaged_weights_are_written_and_read() {
    let folder = folder("averaged");
    let path = folder.join("average.safetensors");
    let mut first = trainer(2);
    let arrays = first.parameters().unwrap();
    fs::write(folder.join(".tmp-average.safetensors"), "of a killed run").unwrap();
    weights::save(&path, &arrays[1..]).unwrap();
    weights::save(&path, &arrays).unwrap();
    assert_eq!(names(&folder), ["average.safetensors"]);
    let mut second = trainer(4);
    train(&mut second, 1);
    weights::load(&mut second, &path, &Mapping::new()).unwrap();
    assert_eq!(bits(second.parameters().unwrap()), bits(arrays.clone()));
    let wrong = |arrays: &[(String, Array)]| weights::save(&path, arrays).unwrap_err();
    let mut short = arrays.clone();
    short[0].1.data.pop();
    assert_eq!(wrong(&short).to_string(), "`first.w`: expected 288 elements, found 287");
    let twice = [arrays[0].clone(), arrays[0].clone()];
    assert_eq!(wrong(&twice).kind(), ErrorKind::Parameters);
    assert!(weights::save(folder.join("none/file"), &arrays).is_err());
    assert_eq!(names(&folder), ["average.safetensors"]);
}

#[test]
fn what_an_f32_cannot_be_is_refused_before_anything_is_loaded() {
    let path = folder("large").join("large.safetensors");
    let header = br#"{"last.b":{"dtype":"F64","shape":[12],"data_offsets":[0,96]}}"#;
    let mut numbers = [1.0_f64; 12];
    numbers[7] = 1e300;
    let numbers: Vec<u8> = numbers.iter().flat_map(|it| it.to_le_bytes()).collect();
    fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], header, &numbers].concat())
        .unwrap();
    check(&path, "missing *", "`last.b`: expected numbers in the range of f32, found 1e300");
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(3).position(|it| it == b"F64").unwrap();
    bytes[at..at + 3].copy_from_slice(b"I64");
    fs::write(&path, bytes).unwrap();
    let message = "expected weights of the model `model`: `last.b`: expected F32, F64, F16 or BF16, found I64";
    check(&path, "missing *", message);
}

#[test]
fn what_is_no_source_of_weights_is_said() {
    let empty = folder("no_weights");
    check(
        &empty,
        "",
        "expected a checkpoint, or model.safetensors.index.json or model.safetensors, found neither",
    );
    let index = empty.join("model.safetensors.index.json");
    fs::write(&index, r#"{"weight_map":{"a":"../b.safetensors"}}"#).unwrap();
    check(&index, "", "expected files of the same folder, found `../b.safetensors`");
    fs::copy(fixture("weights.safetensors"), empty.join("b.safetensors")).unwrap();
    fs::write(&index, r#"{"weight_map":{"a":"b.safetensors"}}"#).unwrap();
    let error = weights::load(&mut trainer(1), &index, &Mapping::new()).unwrap_err().to_string();
    assert!(error.contains("expected `b.safetensors` with the tensor `a`"), "{error}");
}
