//! JSON Lines, good and bad, as rows and as texts.

use std::{fs, path::PathBuf};

use soybean_data::{
    ByteTokenizer, Dataset, ErrorKind, Form, NamedColumn, Table, TextField, TokenWidth, Values,
    read_file, tokenize_json_lines,
};

use crate::files::made;

const NUMBERS: Form = Form::Numbers { scale: 1.0 };

/// Returns columns of `rows.jsonl`.
pub(crate) fn columns() -> [NamedColumn; 4] {
    [
        NamedColumn::new("x", ["x", "good"], Form::Numbers { scale: 2.0 }),
        NamedColumn::new("label", "label", Form::Labels { n_classes: 3 }),
        NamedColumn::new("matrix", "matrix", Form::Integers),
        NamedColumn::new("two", ["matrix", "matrix"], NUMBERS),
    ]
}

#[test]
fn lines_of_python() {
    for name in ["rows.jsonl", "rows.jsonl.gz"] {
        let table = Table::from_json_lines(made(name), &columns()).unwrap();
        let shapes: Vec<&[usize]> = table.columns().iter().map(|it| &it.row[..]).collect();
        assert_eq!(shapes, [&[2][..], &[], &[3, 2], &[2, 3, 2]]);
        assert_eq!(*table.values(0), Values::F32(vec![0.0, 2.0, 0.5, 0.0, 1.0, 2.0]));
        assert_eq!(*table.values(1), Values::I32(vec![0, 1, 2]));
        let matrix = |r| [r, 1, 2, 3, 4, 5 * r];
        assert_eq!(*table.values(2), Values::I32((0..3).flat_map(matrix).collect()));
        let Values::F32(two) = table.values(3) else { panic!("numbers") };
        assert_eq!(two[12..24], [1.0, 1.0, 2.0, 3.0, 4.0, 5.0].repeat(2));
    }
}

#[test]
fn texts_of_python() {
    let tokens = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("rows.u16");
    let tokenize = |name, end| {
        let field = TextField { name, end };
        tokenize_json_lines(made("rows.jsonl.gz"), field, &tokens, TokenWidth::U16, &ByteTokenizer)
    };
    assert_eq!(tokenize("text", Some(255)).unwrap(), 3 * 13);
    let expected: Vec<u8> =
        (0..3).flat_map(|r| [format!("{r}: “ä”\n").as_bytes(), &[255]].concat()).collect();
    let found = read_file(&tokens).unwrap();
    let found: Vec<u16> = found.as_chunks().0.iter().map(|it| u16::from_le_bytes(*it)).collect();
    assert_eq!(found, expected.iter().map(|it| u16::from(*it)).collect::<Vec<_>>());
    assert_eq!(tokenize("text", None).unwrap(), 3 * 12);
    let path = made("rows.jsonl.gz").display().to_string();
    let fault = |name, end| tokenize(name, end).unwrap_err().to_string();
    let expected = "line 1: field `x`: expected a text, found 0.0";
    assert_eq!(fault("x", None), format!("{path}: {expected}"));
    let expected = "line 1: expected a field `txt`, found none; the nearest is `text`";
    assert_eq!(fault("txt", None), format!("{path}: {expected}"));
    assert_eq!(fault("text", Some(256)), "expected a token in 0..256 for the end, found 256");
}

/// Checks that the error names the file, the line, what was expected and what was found.
#[track_caller]
fn check(lines: &str, message: &str) {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bad.jsonl");
    fs::write(&path, lines).unwrap();
    let columns = [
        NamedColumn::new("a", "a", NUMBERS),
        NamedColumn::new("b", ["b", "c"], Form::Labels { n_classes: 4 }),
    ];
    let error = Table::from_json_lines(&path, &columns).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Data);
    assert_eq!(error.to_string(), format!("{}: {message}", path.display()));
}

#[test]
fn bad_lines_are_refused() {
    check("", "expected at least one row, found none");
    check("\n \n", "expected at least one row, found none");
    check("[1]\n", "line 1: expected an object of JSON, found an array of 1 elements");
    let good = r#"{"a": [[1, 2]], "b": 1, "c": 2}"#;
    let second = |line: &str, message: &str| check(&format!("{good}\n\n{line}"), message);
    second(
        r#"{"a": [[1, 2}"#,
        "line 3: byte 13: expected an object of JSON, found: expected `,` or `]`",
    );
    second(
        r#"{"a": [[1, 2]], "b": 1, "cc": 2}"#,
        "line 3: expected a field `c`, found none; the nearest is `cc`",
    );
    second("{}", "line 3: expected a field `a`, found none");
    let a = |a: &str| format!(r#"{{"a": {a}, "b": 1, "c": 2}}"#);
    second(&a("[[1, 2, 3]]"), "line 3: field `a[0]`: expected 2 numbers, found 3 elements");
    second(&a("[[1, 2], 3]"), "line 3: field `a`: expected an array of 1 arrays, found 2 elements");
    second(&a("[7]"), "line 3: field `a[0]`: expected 2 numbers, found 7");
    second(&a(r#"[[1, "two"]]"#), "line 3: field `a[0][1]`: expected a number, found \"two\"");
    second(
        &a("[[1, [2]]]"),
        "line 3: field `a[0][1]`: expected a number, found an array of 1 elements",
    );
    second(&a("[[1, 1e40]]"), "line 3: field `a[0][1]`: expected a finite number, found 1e40");
    let b = |b: &str| format!(r#"{{"a": [[1, 2]], "b": {b}, "c": 2}}"#);
    second(&b("4"), "line 3: field `b`: expected a label in 0..4, found 4");
    second(&b("1.0"), "line 3: field `b`: expected a label in 0..4, found 1.0");
    second(&b("null"), "line 3: field `b`: expected a number, found null");
    second(&b("[1]"), "line 3: field `b`: expected a number, found an array of 1 elements");
    let first = r#"{"a": [], "b": 1, "c": 2}"#;
    check(first, "line 1: field `a`: expected a number, found an array of 0 elements");
}

// Guards: a message that hides that Python writes `NaN` into JSON.
#[test]
fn numbers_that_are_not_finite_are_named() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("not_finite.jsonl");
    for (number, byte) in [("NaN", 7), ("Infinity", 7), ("-Infinity", 8), ("[1, inf]", 11)] {
        fs::write(&path, format!("{{\"x\": {number}, \"y\": 0}}\n")).unwrap();
        let error = Table::from_json_lines(&path, &[NamedColumn::new("x", "x", Form::Integers)]);
        let expected = format!("line 1: byte {byte}: expected an object of JSON, found: a number");
        assert!(error.unwrap_err().to_string().contains(&expected), "{number}");
    }
}
