//! Files that are cut, damaged or made to harm: each public reader returns an error that names the
//! file and that a terminal can show, and none panics, waits, or recurses without end.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use soybean_data::{
    ByteTokenizer, CifarLabel, Column, CsvSpec, Error, Form, IdxSpec, Records, Standardization,
    Table, TextField, TokenSpec, TokenWidth, Tokens, Vocabulary, read_file, tokenize_file,
    tokenize_json_lines,
};
use soybean_plan::random::mixed;

use crate::{
    files::{contents, made, points},
    fuzz::put,
};

/// A reader, and the contents of a good file.
struct Reader {
    name: &'static str,
    whole: fn() -> Vec<u8>,
    read: fn(&Path) -> Result<(), Error>,
}

/// Defines a reader of a file of `make_files.py`.
macro_rules! reader {
    ($name:literal, $read:expr) => {
        Reader { name: $name, whole: || fs::read(made($name)).unwrap(), read: $read }
    };
}

const NUMBERS: Form = Form::Numbers { scale: 1.0 };
const WINDOWS: TokenSpec = TokenSpec { length: 16, stride: 16, vocabulary: 50_000 };
const FIELD: TextField<'static> = TextField { name: "text", end: None };

fn tokens(path: &Path) -> PathBuf {
    path.with_file_name("written.u16")
}

fn table(table: Table) -> Result<(), Error> {
    contents(table).map(|_| ())
}

fn column(column: Column) -> Result<(), Error> {
    table(Table::new(vec![column])?)
}

/// One reader for each function of the crate that takes a file.
const READERS: &[Reader] = &[
    reader!("points.csv", |path| table(Table::from_csv(path, &points())?)),
    reader!("points.csv.gz", |path| table(Table::from_csv(path, &points())?)),
    reader!("rows.jsonl", |path| {
        table(Table::from_json_lines(path, &crate::json_lines::columns())?)
    }),
    reader!("rows.jsonl.gz", |path| {
        table(Table::from_json_lines(path, &crate::json_lines::columns())?)
    }),
    Reader {
        name: "texts.jsonl",
        whole: || b"{\"text\": \"one\"}\n\n{\"year\": [1, {}], \"text\": \"t\\u0077o\"}\n".to_vec(),
        read: |path| {
            tokenize_json_lines(path, FIELD, tokens(path), TokenWidth::U16, &ByteTokenizer)
                .map(|_| ())
        },
    },
    reader!("points.csv.gz", |path| {
        tokenize_file(path, tokens(path), TokenWidth::U16, &ByteTokenizer).map(|_| ())
    }),
    reader!("images-idx3-ubyte.gz", |path| read_file(path).map(|_| ())),
    reader!("images-idx3-ubyte", |path| {
        let labels = made("labels-idx1-ubyte");
        table(Table::from_idx(path, labels, &IdxSpec { scale: 1.0, n_classes: 5 })?)
    }),
    reader!("doubles.idx", |path| column(Column::from_idx(path, NUMBERS)?)),
    reader!("npy/int64_fortran.npy", |path| column(Column::from_npy(path, NUMBERS)?)),
    reader!("npy/uint8.npy", |path| contents(Records::open_npy(path, NUMBERS)?).map(|_| ())),
    reader!("stored.npz", |path| column(Column::from_npz(path, "x", NUMBERS)?)),
    reader!("deflated.npz", |path| column(Column::from_npz(path, "x", NUMBERS)?)),
    reader!("cifar10/data_batch_2.bin", |path| {
        contents(Records::cifar10(&[path], 1.0)?).map(|_| ())
    }),
    reader!("cifar100/train.bin", |path| {
        contents(Records::cifar100(&[path], CifarLabel::Fine, 1.0)?).map(|_| ())
    }),
    reader!("tokens.u16", |path| {
        contents(Tokens::open(path, TokenWidth::U16, WINDOWS)?).map(|_| ())
    }),
    Reader {
        name: "vocabulary.json",
        whole: || b"[\"a\", \"b\", \"\\u0063d\", \"\\ud83d\\ude00\"]\n".to_vec(),
        read: |path| Vocabulary::open(path).map(|_| ()),
    },
    Reader {
        name: "standardization.json",
        whole: || b"{\"column\": \"x\", \"mean\": [1.5, -2e3], \"deviation\": [0.5, 1]}\n".to_vec(),
        read: |path| Standardization::open(path).map(|_| ()),
    },
    #[cfg(feature = "image")]
    reader!("images/colors/b.png", image),
    #[cfg(feature = "image")]
    reader!("images/gray/c.jpeg", image),
    #[cfg(feature = "parquet")]
    reader!("parquet/snappy.parquet", |path| {
        table(Table::from_parquet(path, &crate::parquet::columns())?)
    }),
    #[cfg(feature = "parquet")]
    reader!("parquet/gzip.parquet", |path| {
        let columns = crate::parquet::columns();
        contents(soybean_data::Shards::open_parquet(&[path.to_owned()], 1, columns)?).map(|_| ())
    }),
    #[cfg(feature = "parquet")]
    reader!("parquet/none.parquet", |path| {
        soybean_data::tokenize_parquet(path, FIELD, tokens(path), TokenWidth::U16, &ByteTokenizer)
            .map(|_| ())
    }),
    #[cfg(feature = "tokenizers")]
    Reader { name: "words.json", whole: || WORDS.as_bytes().to_vec(), read: tokenizer },
    #[cfg(feature = "tokenizers")]
    Reader { name: "merges.json", whole: || MERGES.as_bytes().to_vec(), read: tokenizer },
    #[cfg(feature = "tokenizers")]
    Reader {
        name: "generation_config.json",
        whole: || b"{\"eos_token_id\": [1, 0], \"top_p\": 0.9}".to_vec(),
        read: beside_a_tokenizer,
    },
    #[cfg(feature = "tokenizers")]
    Reader {
        name: "tokenizer_config.json",
        whole: || {
            b"{\"eos_token\": \"a\", \"chat_template\": \"{% if add_generation_prompt %}\"}"
                .to_vec()
        },
        read: beside_a_tokenizer,
    },
];

/// Opens the image folder of an image, two levels above the file.
#[cfg(feature = "image")]
fn image(path: &Path) -> Result<(), Error> {
    use soybean_data::{ImageFolder, ImageSpec};
    let classes = path.parent().and_then(Path::parent).unwrap();
    contents(ImageFolder::open(classes, ImageSpec::new(8, 8))?).map(|_| ())
}

#[cfg(feature = "tokenizers")]
const WORDS: &str = r#"{
  "version": "1.0", "truncation": null, "padding": null,
  "added_tokens": [{"id": 0, "content": "[UNK]", "single_word": false, "lstrip": false,
    "rstrip": false, "normalized": false, "special": true}],
  "normalizer": {"type": "Sequence", "normalizers": [
    {"type": "Lowercase"}, {"type": "Replace", "pattern": {"Regex": " +"}, "content": " "}]},
  "pre_tokenizer": {"type": "Whitespace"},
  "post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "[UNK]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"[UNK]": {"id": "[UNK]", "ids": [0], "tokens": ["[UNK]"]}}},
  "decoder": {"type": "WordPiece", "prefix": "x", "cleanup": true},
  "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "a": 1, "b": 2}, "unk_token": "[UNK]"}
}"#;

#[cfg(feature = "tokenizers")]
const MERGES: &str = r#"{
  "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
  "post_processor": null,
  "decoder": {"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "_"}, "content": " "}, {"type": "ByteFallback"},
    {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}]},
  "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
    "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
    "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}
}"#;

#[cfg(feature = "tokenizers")]
fn tokenizer(path: &Path) -> Result<(), Error> {
    use soybean_data::{Tokenizer, TokenizerFile};
    let tokenizer = TokenizerFile::open(path)?;
    let at = |message: String| Error::data(format!("{}: {message}", path.display()));
    for text in ["", "a b  ab", "\u{1f600} \u{1b}[1m"] {
        let tokens = tokenizer.encode(text).map_err(at)?;
        tokenizer.decode(&tokens).map_err(at)?;
    }
    tokenizer.decode(&[0, 1, 2, 3, u32::MAX]).map(|_| ()).map_err(at)
}

#[cfg(feature = "tokenizers")]
fn beside_a_tokenizer(path: &Path) -> Result<(), Error> {
    let file = path.with_file_name("tokenizer.json");
    if !file.exists() {
        fs::write(&file, MERGES).unwrap();
    }
    tokenizer(&file)
}

/// Returns a folder for the file of a reader, which is two levels deep, as those of images.
fn folder(reader: &Reader, number: usize) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("hostile");
    let folder = folder.join(format!("{number}")).join("class");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder.join(Path::new(reader.name).file_name().unwrap())
}

/// Checks the message of an error: it names the file and obeys no escape sequence.
fn check(error: &Error, path: &Path, what: &str) {
    let text = error.to_string();
    let name = soybean_plan::printable(&path.file_name().unwrap().to_string_lossy());
    assert!(text.contains(&name), "{what}: the file is not named: {text}");
    assert!(!text.chars().any(char::is_control), "{what}: {text:?}");
    assert!(text.len() < 9000, "{what}: {} bytes", text.len());
}

fn below(seed: u64, n: usize) -> usize {
    usize::try_from(mixed(seed) % n.max(1) as u64).unwrap()
}

/// The bytes that damage text most: quotes, brackets, digits, escapes and those that are no text.
const BYTES: [u8; 16] = *b"\"\\[]{}0-9,\x1b\x9b\x00\xff\n:";

// Guards: panics of decoders (`tokenizers` on a cut decoder, `parquet` on a page of texts), and
// escape sequences of a file in messages.
#[test]
fn no_cut_and_no_damage_panics() {
    let (mut n_refused, mut n_caught, mut n_all) = (0, 0, 0);
    for (number, reader) in READERS.iter().enumerate() {
        let path = folder(reader, number);
        let whole = (reader.whole)();
        let mut read = |bytes: &[u8], what: String| {
            put(&path, bytes);
            n_all += 1;
            if let Err(error) = (reader.read)(&path) {
                check(&error, &path, &what);
                n_refused += 1;
                n_caught += usize::from(error.to_string().contains("panicked"));
            }
        };
        read(&whole, String::new());
        // All cuts of small files, and 500 of larger ones, near the end above all.
        for at in 0..whole.len() {
            let n_left = whole.len() - at;
            if n_left < 250 || at % (whole.len() / 250 + 1) == 0 {
                read(&whole[..at], format!("{} cut at {at}", reader.name));
            }
        }
        for seed in 0..500 {
            let mut bytes = whole.clone();
            for place in 0..=seed % 3 {
                let seed = seed << 8 | place;
                bytes[below(seed, whole.len())] = match seed & 1024 {
                    0 => BYTES[below(!seed, BYTES.len())],
                    _ => u8::try_from(below(!seed, 256)).unwrap(),
                };
            }
            read(&bytes, format!("{} damaged by {seed}", reader.name));
        }
    }
    // With all features, about 15,900 of 19,800 are refused, and 280 of them by a caught panic.
    assert!(n_refused > n_all / 2, "{n_refused} of {n_all}");
    // The newest releases of both crates panic on some of these files.
    let n_least = if cfg!(all(feature = "tokenizers", feature = "parquet")) { 10 } else { 0 };
    assert!(n_caught >= n_least, "{n_caught}");
}

// Guards: a named pipe that is waited for, and a device that never ends.
#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_refused() {
    for (number, reader) in READERS.iter().enumerate() {
        let path = folder(reader, 100 + number);
        let refuse = |found: &str| {
            let error = (reader.read)(&path).unwrap_err();
            check(&error, &path, reader.name);
            assert!(error.to_string().contains(found), "{}: {error}", reader.name);
        };
        fs::create_dir(&path).unwrap();
        refuse("a folder");
        fs::remove_dir(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        refuse("a device, not a regular file");
        fs::remove_file(&path).unwrap();
        if Command::new("mkfifo").arg(&path).status().is_ok_and(|it| it.success()) {
            refuse("a named pipe, not a regular file");
        }
    }
}

// Guards: escape sequences in the names of files.
#[cfg(unix)]
#[test]
fn names_of_files_are_escaped() {
    for (number, reader) in READERS.iter().enumerate() {
        let path = folder(reader, 200 + number);
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        let path = path.with_file_name(format!("\u{1b}]0;x\u{7}\u{9b}2J\u{202e}\n.{extension}"));
        // Files beside a tokenizer have fixed names.
        let is_fixed = reader.name.ends_with("_config.json");
        // Any bytes are lines of text.
        if !is_fixed && fs::write(&path, b"\x1f\x8b[31m").is_ok() {
            let error = (reader.read)(&path).unwrap_err();
            check(&error, &path, reader.name);
            assert!(error.to_string().contains("\\u{1b}]0;x\\u{7}\\u{9b}2J\\u{202e}\\n."));
        }
    }
}

// Guards: escape sequences of headers, cells, keys and entries.
#[test]
fn contents_of_files_are_escaped() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("escapes");
    let escape = "\u{1b}]0;own\u{7}";
    let refuse = |contents: String, read: &dyn Fn() -> Option<Error>| {
        fs::write(&path, contents).unwrap();
        let error = read().unwrap();
        check(&error, &path, "escapes");
        assert!(error.to_string().contains("\\u{1b}]0;own\\u{7}"), "{error}");
    };
    let csv = || {
        let spec = CsvSpec::named(["x"], "y", Form::Labels { n_classes: 2 });
        Table::from_csv(&path, &spec).err()
    };
    refuse(format!("x{escape},y\n1,2\n"), &csv);
    refuse(format!("x,y\n{escape},1\n"), &csv);
    refuse(format!("x,y\n1,{escape}\n"), &csv);
    refuse(format!("x,y\n1,\"\n{escape}\"\n"), &csv);
    let text = || {
        tokenize_json_lines(
            &path,
            FIELD,
            tokens(&path),
            TokenWidth::U16,
            &Vocabulary::of_characters("a"),
        )
        .err()
    };
    refuse("{\"text\\u001b]0;own\\u0007\": 1}\n".to_owned(), &text);
    refuse("{\"text\": \"\\u001b]0;own\\u0007\"}\n".to_owned(), &text);
    let npy = |header: &str| {
        let header = format!("{header}\n");
        let length = u16::try_from(header.len()).unwrap().to_le_bytes();
        String::from_utf8([b"\x01\x00", &length[..], header.as_bytes()].concat()).unwrap()
    };
    let read_npy = || {
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, [b"\x93NUMPY", &bytes[..]].concat()).unwrap();
        Column::from_npy(&path, NUMBERS).err()
    };
    let end = "'fortran_order': False, 'shape': (3,), }";
    refuse(npy(&format!("{{'descr': '{escape}', {end}")), &read_npy);
    refuse(npy(&format!("{{'{escape}': '<f4', {end}")), &read_npy);
    refuse(npy(&format!("{{'descr': '<f4', {end} {escape}")), &read_npy);
}

// Guards: a stack that overflows, which ends the process.
#[test]
fn deep_nesting_is_refused() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("deep");
    fs::create_dir_all(&folder).unwrap();
    let refuse = |name: &str, contents: &[u8], read: &dyn Fn(&Path) -> Option<Error>| {
        let path = folder.join(name);
        fs::write(&path, contents).unwrap();
        check(&read(&path).unwrap(), &path, name);
    };
    let n = 200_000;
    let nested = format!("{}1{}", "[".repeat(n), "]".repeat(n));
    let line = format!("{{\"text\": {nested}}}\n");
    refuse("rows.jsonl", line.as_bytes(), &|path| {
        Table::from_json_lines(path, &crate::json_lines::columns()).err()
    });
    refuse("texts.jsonl", line.as_bytes(), &|path| {
        tokenize_json_lines(path, FIELD, tokens(path), TokenWidth::U16, &ByteTokenizer).err()
    });
    refuse("vocabulary.json", nested.as_bytes(), &|path| Vocabulary::open(path).err());
    refuse("standardization.json", nested.as_bytes(), &|path| Standardization::open(path).err());
    #[cfg(feature = "tokenizers")]
    {
        let open = |path: &Path| tokenizer(path).err();
        let start = "{\"type\": \"Sequence\", \"normalizers\": [".repeat(n);
        let normalizer = format!("{start}{{\"type\": \"Lowercase\"}}{}", "]}".repeat(n));
        let deep = WORDS.replace("{\"type\": \"Lowercase\"}", &normalizer);
        refuse("tokenizer.json", deep.as_bytes(), &open);
        let pattern = format!("{}{}", "(".repeat(n), ")".repeat(n));
        refuse("tokenizer.json", WORDS.replace(" +", &pattern).as_bytes(), &open);
    }
    #[cfg(feature = "parquet")]
    {
        let open = |path: &Path| Table::from_parquet(path, &crate::parquet::columns()).err();
        for n in [129, n] {
            refuse("deep.parquet", &parquet_of_depth(n), &open);
            let error = open(&folder.join("deep.parquet")).unwrap().to_string();
            assert!(
                error.contains("expected a schema of at most 128 levels, found more"),
                "{error}"
            );
        }
        refuse("deep.parquet", &parquet_of_depth(128), &open);
        let error = open(&folder.join("deep.parquet")).unwrap().to_string();
        assert!(error.ends_with("expected at least one row, found none"), "{error}");
    }
}

/// Returns a file of Parquet with a schema of `n` levels and no rows, in Thrift's compact protocol.
#[cfg(feature = "parquet")]
fn parquet_of_depth(n: usize) -> Vec<u8> {
    // Version 1, and a list of structs.
    let mut footer = vec![0x15, 0x02, 0x19, 0xfc];
    let mut rest = n;
    while rest > 127 {
        footer.push(u8::try_from(rest & 127).unwrap() | 128);
        rest >>= 7;
    }
    footer.push(u8::try_from(rest).unwrap());
    // Groups named `a` with one child each, and a column of integers.
    footer.extend([0x48, 1, b'a', 0x15, 0x02, 0]);
    (2..n).for_each(|_| footer.extend([0x35, 0, 0x18, 1, b'a', 0x15, 0x02, 0]));
    footer.extend([0x15, 0x02, 0x25, 0, 0x18, 1, b'a', 0]);
    // No rows in no groups.
    footer.extend([0x16, 0, 0x19, 0x0c, 0]);
    let length = u32::try_from(footer.len()).unwrap().to_le_bytes();
    [b"PAR1", &footer[..], &length, b"PAR1"].concat()
}
