//! Columns by name, and the meaning of integers that readers number themselves.

use std::{fs, path::PathBuf, sync::Arc};

use soybean_data::{
    Augmentation, ByteTokenizer, Classes, Column, ColumnSpec, Dataset, Error, Joined, Mixing,
    Numbering, Shards, Standardization, Subset, Table, TokenSpec, TokenWidth, Tokenizer, Tokens,
    Values, ViewMut, Vocabulary, tokenize_file,
};

use crate::files::contents;

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("numbering").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Four images and their labels, whose classes a reader has numbered.
#[derive(Clone)]
struct Labeled {
    table: Table,
    classes: Classes,
}

impl Labeled {
    fn new(classes: &[&str]) -> Self {
        let image = Values::F32((0..16_u8).map(f32::from).collect());
        let image = Column { name: "image".to_owned(), row: vec![2, 2], values: image };
        let label = Values::I32(vec![0, 1, 1, 0]);
        let label = Column { name: "label".to_owned(), row: vec![], values: label };
        let table = Table::new(vec![image, label]).unwrap();
        Self { table, classes: Classes::new(classes.iter().copied()).unwrap() }
    }
}

impl Dataset for Labeled {
    fn n_rows(&self) -> usize {
        self.table.n_rows()
    }

    fn columns(&self) -> &[ColumnSpec] {
        self.table.columns()
    }

    fn numbering(&self, column: usize) -> Option<Numbering> {
        (column == 1).then(|| Numbering::Classes(self.classes.clone()))
    }

    fn read(&self, rows: &[usize], into: &mut [ViewMut<'_>]) -> Result<(), Error> {
        self.table.read(rows, into)
    }
}

/// Guards: a dataset that reads another one passes its numbering on. Each adapter is listed.
#[test]
fn adapters_pass_the_numbering_on() {
    let new = || Labeled::new(&["cat", "dog"]);
    let expected = Some(Numbering::Classes(new().classes));
    let one_hot = || new().one_hot("label", 2).unwrap();
    let table = Joined::new(vec![Arc::new(new().table), Arc::new(new())]).unwrap();
    let scaling =
        Standardization { column: "image".into(), mean: vec![0.0; 4], deviation: vec![1.0; 4] };
    let files = [PathBuf::from("a"), PathBuf::from("b")];
    let shards = || Shards::open(&files, 1, |_| Ok(Labeled::new(&["cat", "dog"]))).unwrap();
    let counted = Shards::with_counts(&shards().counts(), 1, |_| Ok(Labeled::new(&["cat", "dog"])));
    let all: Vec<(&str, usize, Arc<dyn Dataset>)> = vec![
        ("Arc", 1, Arc::new(Arc::new(new()))),
        ("transform", 1, Arc::new(new().transform(0, |_, _| {}))),
        (
            "augment",
            1,
            Arc::new(new().augment(0, vec![Augmentation::Brightness { most: 0.1 }]).unwrap()),
        ),
        ("standardize", 1, Arc::new(scaling.apply(new()).unwrap())),
        ("one_hot", 1, Arc::new(one_hot())),
        ("mix", 1, Arc::new(one_hot().mix(0, Mixing::Mixup { alpha: 0.5 }).unwrap())),
        ("split", 1, Arc::new(new().split(0.5, 0).1)),
        ("subset", 1, Arc::new(Subset::new(Arc::new(new()), vec![2]).unwrap())),
        ("joined", 3, Arc::new(table)),
        ("select", 0, Arc::new(new().select(&["label", "image"]).unwrap())),
        ("rename", 1, Arc::new(new().rename(&["x", "y"]).unwrap())),
        ("shards", 1, Arc::new(shards())),
        ("counted shards", 1, Arc::new(counted.unwrap())),
    ];
    for (name, label, dataset) in all {
        for column in 0..dataset.columns().len() {
            let expected = expected.clone().filter(|_| column == label);
            assert_eq!(dataset.numbering(column), expected, "{name}, column {column}");
        }
    }
}

#[test]
fn shards_with_other_classes_are_refused() {
    let files = [PathBuf::from("a"), PathBuf::from("b")];
    for (of_b, message) in [
        (&["cat", "cow"][..], "expected class 1 to be \"dog\", found \"cow\""),
        (&["cat", "dog", "emu"], "expected 2 classes, found one more, \"emu\""),
        (&["cat"], "expected class 1, \"dog\", found none"),
    ] {
        let of_b: Vec<String> = of_b.iter().map(|it| (*it).to_owned()).collect();
        let open = move |path: &std::path::Path| {
            let of_b: Vec<&str> = of_b.iter().map(String::as_str).collect();
            Ok(Labeled::new(if path.ends_with("a") { &["cat", "dog"] } else { &of_b }))
        };
        let error = Shards::open(&files, 1, open.clone()).unwrap_err().to_string();
        assert_eq!(error, format!("b: `label`: {message}, unlike in the first file"));
        // Shards whose rows are known are compared when they are read.
        let counts = files.clone().map(|it| (it, 4));
        let shards = Shards::with_counts(&counts, 1, open).unwrap();
        assert!(contents(shards).unwrap_err().to_string().contains(message));
    }
}

#[test]
fn columns_are_selected_by_name() {
    let table = || Labeled::new(&["cat", "dog"]).table;
    let all = contents(table()).unwrap();
    let both = contents(table().select(&["label", "image"]).unwrap()).unwrap();
    assert_eq!(both.values, [all.values[1].clone(), all.values[0].clone()]);
    assert_eq!(both.columns, [all.columns[1].clone(), all.columns[0].clone()]);
    let labels = contents(table().select(&["label"]).unwrap()).unwrap();
    assert_eq!(labels.values, all.values[1..]);
    let renamed = contents(table().rename(&["x", "y"]).unwrap()).unwrap();
    assert_eq!((&renamed.values, &*renamed.columns[1].name), (&all.values, "y"));
    let message = |it: Result<_, Error>| it.map(drop).unwrap_err().to_string();
    for (found, expected) in [
        (
            message(table().select(&["labels"]).map(drop)),
            "expected one column `labels`, found none among `image`, `label`",
        ),
        (
            message(table().select(&["label", "label"]).map(drop)),
            "expected different columns in 0..2, found [1, 1]",
        ),
        (message(table().select(&[]).map(drop)), "expected different columns in 0..2, found []"),
        (
            message(table().rename(&["x"]).map(drop)),
            "expected 2 names, one for each column, found 1: `x`",
        ),
        (
            message(table().rename(&["x", "x"]).unwrap().select(&["x"]).map(drop)),
            "expected one column `x`, found several among `x`, `x`",
        ),
    ] {
        assert_eq!(found, expected);
    }
}

#[test]
fn classes_are_kept_in_a_file() {
    let path = folder("classes").join("classes.json");
    let classes = Classes::new(["b\u{1b}[31m", "a", "ü"]).unwrap();
    classes.save(&path).unwrap();
    assert_eq!(Classes::open(&path).unwrap(), classes);
    assert_eq!(
        (classes.number("a"), classes.name(2), classes.number("c")),
        (Some(1), Some("ü"), None)
    );
    for names in [&["a", "a"][..], &[]] {
        assert!(Classes::new(names.iter().copied()).is_err());
    }
    fs::write(&path, "[1]").unwrap();
    assert!(Classes::open(&path).unwrap_err().to_string().starts_with(&path.display().to_string()));
}

/// Guards: tokens of another tokenizer are found, also where the vocabularies have the same size.
#[test]
fn tokens_say_of_which_tokenizer_they_are() {
    let folder = folder("tokens");
    let (text, tokens) = (folder.join("a.txt"), folder.join("a.u16"));
    fs::write(&text, "abcabcabc").unwrap();
    let letters = |it: &str| Vocabulary::of_characters(it);
    let spec = TokenSpec { length: 2, stride: 2, vocabulary: 256 };
    let open = || Tokens::open(&tokens, TokenWidth::U16, spec);
    let mut found = Vec::new();
    for tokenizer in [&letters("abc"), &letters("abcd"), &Vocabulary::new(["c", "b", "a"]).unwrap()]
    {
        tokenize_file(&text, &tokens, TokenWidth::U16, tokenizer).unwrap();
        let dataset = open().unwrap();
        assert_eq!(dataset.numbering(0), Some(Numbering::Tokens(tokenizer.fingerprint())));
        assert_eq!(dataset.numbering(0), dataset.numbering(1));
        found.push(tokenizer.fingerprint());
    }
    found.push(ByteTokenizer.fingerprint());
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), 4);
    let of_memory = Tokens::new(vec![0, 1, 2], spec).unwrap();
    assert_eq!(of_memory.numbering(0), None);
    let named = of_memory.with_tokenizer(&ByteTokenizer).numbering(1);
    assert_eq!(named, Some(Numbering::Tokens(ByteTokenizer.fingerprint())));
    // Another program has replaced the tokens.
    fs::write(&tokens, [0; 8]).unwrap();
    let error = open().unwrap_err().to_string();
    assert!(error.contains("a.u16.json: is of 18 bytes of tokens, found 8: "), "{error}");
    fs::write(folder.join("a.u16.json"), "{}").unwrap();
    assert!(open().unwrap_err().to_string().contains("expected the tokenizer of a file of tokens"));
    fs::remove_file(folder.join("a.u16.json")).unwrap();
    assert_eq!(open().unwrap().numbering(0), None);
}

/// Guards: a folder that lacks a class does not shift the numbers of the others.
#[cfg(feature = "image")]
#[test]
fn folders_of_images_have_the_classes_of_the_training_data() {
    use soybean_data::{ImageFolder, ImageSpec};
    let (root, spec) = (folder("images"), ImageSpec::new(2, 2));
    let image = fs::read(crate::files::made("images/colors/a.png")).unwrap();
    let put = |part: &str, class: &str| {
        fs::create_dir_all(root.join(part).join(class)).unwrap();
        fs::write(root.join(part).join(class).join("a.png"), &image).unwrap();
    };
    ["cat", "cow", "dog"].iter().for_each(|it| put("train", it));
    ["cat", "dog"].iter().for_each(|it| put("test", it));
    ["cat", "emu"].iter().for_each(|it| put("other", it));
    let train = ImageFolder::open(root.join("train"), spec).unwrap();
    assert_eq!(train.classes().names(), ["cat", "cow", "dog"]);
    let test = ImageFolder::open_as(root.join("test"), spec, train.classes()).unwrap();
    assert_eq!(test.numbering(1), train.numbering(1));
    assert_eq!(contents(test).unwrap().values[1], Values::I32(vec![0, 2]));
    let error = ImageFolder::open_as(root.join("other"), spec, train.classes()).unwrap_err();
    assert!(
        error.to_string().ends_with("other: expected folders of 3 known classes, found \"emu\"")
    );
    let alone = ImageFolder::open(root.join("test"), spec).unwrap();
    let difference = train.numbering(1).unwrap().difference(&alone.numbering(1).unwrap());
    assert_eq!(difference.unwrap(), "expected class 1 to be \"cow\", found \"dog\"");
}
