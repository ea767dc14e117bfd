//! Parquet files that PyArrow wrote, as rows, as shards and as texts.

use std::path::PathBuf;

use soybean_data::{
    ByteTokenizer, DataLoader, Dataset, ErrorKind, Form, LoaderOptions, NamedColumn, Shards, Table,
    TextField, TokenWidth, Values, read_file, tokenize_parquet,
};

use crate::files::{contents, made};

const NUMBERS: Form = Form::Numbers { scale: 1.0 };

fn rows(number: impl Fn(f32) -> Vec<f32>) -> Values {
    Values::F32((0_u8..10).flat_map(|it| number(it.into())).collect())
}

/// Returns a column for each kind of numbers that `make_files.py` writes.
pub(crate) fn columns() -> Vec<NamedColumn> {
    let column = |name: &str| NamedColumn::new(name, name, NUMBERS);
    ["int8", "float16", "uint64", "vector", "matrix"].map(column).into()
}

#[test]
fn numbers_of_python() {
    for file in ["none", "snappy", "gzip"] {
        let path = made(&format!("parquet/{file}.parquet"));
        let read = |field: &str, form| {
            let columns = [NamedColumn::new("x", field, form)];
            let table = Table::from_parquet(&path, &columns).unwrap();
            (table.columns()[0].row.clone(), table.values(0).clone())
        };
        for kind in ["int8", "int16", "int32", "int64", "float16", "float32", "float64"] {
            assert_eq!(read(kind, NUMBERS), (vec![], rows(|r| vec![r - 4.0])), "{kind}");
        }
        for kind in ["uint8", "uint16", "uint32", "uint64"] {
            assert_eq!(read(kind, NUMBERS), (vec![], rows(|r| vec![r])), "{kind}");
            assert_eq!(read(kind, Form::Integers), (vec![], Values::I32((0..10).collect())));
        }
        assert_eq!(read("bool", NUMBERS), (vec![], rows(|r| vec![r % 2.0])));
        assert_eq!(read("vector", NUMBERS), (vec![3], rows(|r| vec![r, r + 0.5, -r])));
        assert_eq!(read("fixed", NUMBERS), (vec![2], rows(|r| vec![r, -r])));
        let matrix = rows(|r| vec![r, 1.0, 2.0, 3.0, 4.0, r]);
        assert_eq!(read("matrix", NUMBERS), (vec![2, 3], matrix));
        assert_eq!(read("point.y", NUMBERS), (vec![], rows(|r| vec![r / 2.0])));
    }
}

#[test]
fn several_fields_are_one_column() {
    let half = Form::Numbers { scale: 0.5 };
    let columns = [
        NamedColumn::new("x", ["point.x", "uint8", "int8"], half),
        NamedColumn::new("y", ["fixed", "fixed"], NUMBERS),
    ];
    let table = Table::from_parquet(made("parquet/gzip.parquet"), &columns).unwrap();
    assert_eq!(*table.values(0), rows(|r| vec![r / 2.0, r / 2.0, r / 2.0 - 2.0]));
    assert_eq!(table.columns()[1].row, [2, 2]);
    assert_eq!(*table.values(1), rows(|r| vec![r, -r, r, -r]));
    let columns = [NamedColumn::new("x", "largest", NUMBERS)];
    let table = Table::from_parquet(made("parquet/odd.parquet"), &columns).unwrap();
    assert_eq!(*table.values(0), Values::F32(vec![2_f32.powi(32), 0.0, 0.0, 0.0]));
}

/// Row groups have 3, 3, 3 and 1 rows.
#[test]
fn row_groups_are_shards() {
    let files = ["snappy", "gzip"].map(|it| made(&format!("parquet/{it}.parquet")));
    let open = || Shards::open_parquet(&files, 1, columns()).unwrap();
    let whole = contents(Table::from_parquet(&files[0], &columns()).unwrap()).unwrap();
    let found = contents(open()).unwrap();
    assert_eq!((found.n_rows, &found.columns), (20, &whole.columns));
    for (found, whole) in found.values.iter().zip(&whole.values) {
        let (Values::F32(found), Values::F32(whole)) = (found, whole) else { panic!("numbers") };
        assert_eq!(*found, whole.repeat(2));
    }
    assert_eq!(open().counts(), files.clone().map(|it| (it, 10)));
    // With one row group at a time, a shuffled epoch visits each as a whole.
    let options = LoaderOptions { n_threads: 0, ..LoaderOptions::training(1, 3) };
    let columns = vec![NamedColumn::new("x", "uint8", Form::Integers)];
    let shards = Shards::open_parquet(&files, 1, columns).unwrap();
    let order: Vec<i32> =
        DataLoader::new(shards, options).unwrap().map(|it| it.unwrap().i32s(0)[0]).collect();
    let mut sorted = order.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..20).map(|it| it / 2).collect::<Vec<_>>());
    let n_changes = order.windows(2).filter(|it| it[0] / 3 != it[1] / 3).count();
    assert!(n_changes <= 7, "{order:?}");
    assert_ne!(order, sorted);
}

#[test]
fn texts_of_python() {
    let tokens = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("parquet.u16");
    let tokenize = |file: &str, name, end| {
        let (file, field) = (made(file), TextField { name, end });
        tokenize_parquet(file, field, &tokens, TokenWidth::U16, &ByteTokenizer)
    };
    assert_eq!(tokenize("parquet/snappy.parquet", "text", Some(0)).unwrap(), 10 * 5);
    let expected: String = (0..10).map(|r| format!("{r} ä\0")).collect();
    let found = read_file(&tokens).unwrap();
    let found: Vec<u8> = found.chunks(2).map(|it| it[0]).collect();
    assert_eq!(String::from_utf8(found).unwrap(), expected);
    let fault = |name| {
        let text = tokenize("parquet/odd.parquet", name, None).unwrap_err().to_string();
        let path = made("parquet/odd.parquet").display().to_string();
        text.strip_prefix(&format!("{path}: ")).unwrap().to_owned()
    };
    assert_eq!(
        fault("null_text"),
        "row 1: field `null_text`: expected a value, found null or an empty list"
    );
    assert_eq!(fault("label"), "field `label`: expected texts, found INT64");
    assert_eq!(fault("uneven"), "field `uneven`: expected texts, found lists of INT64");
}

#[test]
fn bad_columns_are_refused() {
    let fault = |file: &str, fields: &str, form| {
        let path = made(file);
        let error = Table::from_parquet(&path, &[NamedColumn::new("x", fields, form)]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Data);
        let text = error.to_string();
        text.strip_prefix(&format!("{}: ", path.display())).unwrap().to_owned()
    };
    let odd = |field: &str, form, message: &str| {
        assert_eq!(fault("parquet/odd.parquet", field, form), message);
    };
    let null = "expected a value, found null or an empty list";
    odd("null", NUMBERS, &format!("row 2: field `null`: {null}"));
    odd("empty", NUMBERS, &format!("row 3: field `empty`: {null}"));
    let message = "row 2: field `uneven`: expected lists of shape [2], found [1]";
    odd("uneven", NUMBERS, message);
    let message =
        "row 1: field `unequal`: expected lists of shape [2, 2], found [2, 2], but unequal ones";
    odd("unequal", NUMBERS, message);
    let message = "row 0: field `large`: expected an integer of 32 bits, found 4294967296";
    odd("large", Form::Integers, message);
    let message = "row 1: field `not_a_number`: expected a finite number, found NaN";
    odd("not_a_number", NUMBERS, message);
    odd("date", NUMBERS, "field `date`: expected numbers, found INT32, Date");
    odd("null_text", NUMBERS, "field `null_text`: expected numbers, found BYTE_ARRAY, String");
    let message = "row 3: field `label`: expected a label in 0..3, found 3";
    odd("label", Form::Labels { n_classes: 3 }, message);
    odd("labels", NUMBERS, "expected a field `labels`, found none; the nearest is `label`");
    let message = "expected a field `point` of numbers or texts, found `point.x`, `point.y`";
    assert_eq!(fault("parquet/snappy.parquet", "point", NUMBERS), message);
    let message = "expected a Parquet file, found: ";
    let zstd = fault("parquet/zstd.parquet", "int8", NUMBERS);
    assert!(zstd.contains(message) && zstd.to_lowercase().contains("zstd"), "{zstd}");
    let other = fault("rows.jsonl", "x", NUMBERS);
    assert!(other.starts_with(message), "{other}");
    let error = Shards::open_parquet(&[made("parquet/odd.parquet")], 1, columns()).unwrap_err();
    assert!(error.to_string().contains("expected a field `int8`, found none"), "{error}");
}
