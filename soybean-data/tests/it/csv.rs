//! CSV files, good and bad, and tables in memory.

use std::{fs, io::Write, path::PathBuf};

use flate2::{Compression, write::GzEncoder};
use soybean_data::{Column, CsvSpec, Dataset, ErrorKind, Table, Values};

fn spec() -> CsvSpec {
    CsvSpec { has_header: false, n_fields: 3, features: 0..2, scale: 0.5, label: 2, n_classes: 10 }
}

fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, bytes).unwrap();
    path
}

fn compressed(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn plain_and_compressed_files_are_read() {
    let text = "1,2,3\n4,5,6\n";
    for (name, bytes) in [("good.csv", text.as_bytes().to_vec()), ("good.csv.gz", compressed(text))]
    {
        let dataset = Table::from_csv(file(name, &bytes), &spec()).unwrap();
        assert_eq!(dataset.n_rows(), 2);
        assert_eq!(*dataset.values(0), Values::F32(vec![0.5, 1.0, 2.0, 2.5]));
        assert_eq!(*dataset.values(1), Values::I32(vec![3, 6]));
    }
    let headed = CsvSpec { has_header: true, ..spec() };
    let dataset = Table::from_csv(file("headed.csv", b"a,b,c\n1,2,3\n"), &headed).unwrap();
    assert_eq!(dataset.n_rows(), 1);
}

/// Checks that the error names the file, the line, what was expected and what was found.
#[track_caller]
fn check(name: &str, bytes: &[u8], message: &str) {
    let path = file(name, bytes);
    let error = Table::from_csv(&path, &spec()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Data);
    let found = error.to_string();
    let expected = format!("{}: {message}", path.display());
    assert!(found.starts_with(&expected), "{found}\nnot {expected}");
}

#[test]
fn bad_files_are_refused() {
    check("short.csv", b"1,2,3\n4,5\n", "line 2: expected 3 fields, found 2");
    check("long.csv", b"1,2,3,4\n", "line 1: expected 3 fields, found 4");
    check("word.csv", b"1,2,3\n1,two,3\n", "line 2: field 2: expected a number, found `two`");
    check("nan.csv", b"NaN,2,3\n", "line 1: field 1: expected a finite number, found NaN");
    check("label.csv", b"1,2,10\n", "line 1: field 3: expected a label in 0..10, found 10");
    check("half.csv", b"1,2,0.5\n", "line 1: field 3: expected a number, found `0.5`");
    check("empty.csv", b"", "expected at least one row, found none");
    check("text.csv", b"1,2,3\n\xff\xfe,2,3\n", "line 2: expected UTF-8 text, found: ");
    let whole = compressed(&"1,2,3\n".repeat(50_000));
    check("cut.csv.gz", &whole[..whole.len() / 2], "after line ");
    let mut corrupt = whole;
    let middle = corrupt.len() / 2;
    corrupt[middle..].fill(0x55);
    check("corrupt.csv.gz", &corrupt, "after line ");
}

#[test]
fn a_missing_file_is_named() {
    let error = Table::from_csv("no/such/file.csv", &spec()).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("no/such/file.csv: expected a file that can be read, found: ")
    );
}

#[test]
fn columns_that_do_not_fit_are_refused() {
    let column = |row, n| Column { name: "x".to_owned(), row, values: Values::F32(vec![0.0; n]) };
    let error = Table::new(vec![column(vec![2], 4), column(vec![3], 4)]).unwrap_err();
    assert_eq!(error.to_string(), "column `x`: expected 6 elements for 2 rows, found 4");
    let error = Table::new(vec![]).unwrap_err();
    assert_eq!(error.to_string(), "expected at least one column, found none");
}
