//! CSV files, good and bad, and tables in memory.

use std::{fs, io::Write, path::PathBuf};

use flate2::{Compression, write::GzEncoder};
use soybean_counting_allocator as allocations;
use soybean_data::{
    Column, CsvColumn, CsvSpec, DataLoader, Dataset, ErrorKind, Form, LoaderOptions,
    Standardization, Table, Values,
};

fn spec() -> CsvSpec {
    let labels = CsvColumn::new("label", 2, Form::Labels { n_classes: 10 });
    CsvSpec { has_header: false, columns: vec![numbers("features", 0.5), labels] }
}

/// Returns a column of the first two fields.
fn numbers(name: &str, scale: f32) -> CsvColumn {
    CsvColumn::new(name, 0..2, Form::Numbers { scale })
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
    check("long.csv", b"1,2,3\n1,2,3,4\n", "line 2: expected 3 fields, found 4");
    check("few.csv", b"1,2\n", "line 1: column `label`: expected field 3, found 2 fields");
    check("word.csv", b"1,2,3\n1,two,3\n", "line 2: field 2: expected a number, found `two`");
    check("nan.csv", b"NaN,2,3\n", "line 1: field 1: expected a finite number, found NaN");
    check("label.csv", b"1,2,10\n", "line 1: field 3: expected a label in 0..10, found 10");
    check(
        "half.csv",
        b"1,2,0.5\n",
        "line 1: field 3: expected a whole number without a point, found `0.5`",
    );
    let large = "line 1: field 2: expected a finite number, found 3e38 times 2.0";
    let scaled = CsvSpec { columns: vec![numbers("x", 2.0)], ..spec() };
    let error = Table::from_csv(file("scaled.csv", b"1,3e38,3\n"), &scaled).unwrap_err();
    assert!(error.to_string().ends_with(large), "{error}");
    check("empty.csv", b"", "expected at least one row, found none");
    check("text.csv", b"1,2,3\n\xff\xfe,2,3\n", "line 2: expected UTF-8 text, found: ");
    let whole = compressed(&"1,2,3\n".repeat(50_000));
    check("cut.csv.gz", &whole[..whole.len() / 2], "after line ");
    let mut corrupt = whole;
    let middle = corrupt.len() / 2;
    corrupt[middle..].fill(0x55);
    check("corrupt.csv.gz", &corrupt, "after line ");
}

/// The file is small, and its field takes all memory.
#[test]
fn a_field_without_an_end_is_refused() {
    let bytes = compressed(&format!("1,2,3\n1,\"{}", "2".repeat(40 << 20)));
    assert!(bytes.len() < 1 << 20);
    let path = file("endless.csv.gz", &bytes);
    let (error, n_most) =
        allocations::most_during(|| Table::from_csv(&path, &spec()).unwrap_err().to_string());
    let message = "after line 2: expected more data or the end, found: more than 16777216 bytes \
                   without the end of a line; a quoted field may have no end";
    assert!(error.ends_with(message), "{error}");
    assert!(n_most < 64 << 20, "{n_most}");
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

/// A file with a header, and targets that are numbers.
const HOUSES: &[u8] = b"price, area,rooms,kind\n100,50,2,0\n200,70,3,1\n300,90,4,1\n";

fn houses(columns: Vec<CsvColumn>) -> Result<Table, String> {
    let path = file("houses.csv", HOUSES);
    let spec = CsvSpec { has_header: true, columns };
    let table = Table::from_csv(&path, &spec).map_err(|error| error.to_string());
    table.map_err(|error| error.replace(&format!("{}: ", path.display()), ""))
}

#[test]
fn fields_have_the_names_of_the_header() {
    let number = Form::Numbers { scale: 1.0 };
    let table = houses(vec![
        CsvColumn::new("x", ["rooms", "area"], number),
        CsvColumn::new("price", "price", Form::Numbers { scale: 1e-2 }),
        CsvColumn::new("kind", 3, Form::Integers),
    ])
    .unwrap();
    assert_eq!(*table.values(0), Values::F32(vec![2.0, 50.0, 3.0, 70.0, 4.0, 90.0]));
    assert_eq!(*table.values(1), Values::F32(vec![1.0, 2.0, 3.0]));
    assert_eq!(*table.values(2), Values::I32(vec![0, 1, 1]));
    let rows: Vec<_> = table.columns().iter().map(|it| (&it.name[..], &it.row[..])).collect();
    assert_eq!(rows, [("x", &[2][..]), ("price", &[]), ("kind", &[])]);
    let error = houses(vec![CsvColumn::new("x", ["aera"], number)]).unwrap_err();
    assert_eq!(error, "line 1: expected a field `aera` in the header; the nearest is `area`");
    let unnamed = CsvSpec { has_header: false, columns: vec![CsvColumn::new("x", "area", number)] };
    let error = Table::from_csv(file("unnamed.csv", b"1,2\n"), &unnamed).unwrap_err().to_string();
    let message = "expected a header that names the field `area`, found `has_header: false`";
    assert!(error.ends_with(message), "{error}");
}

#[test]
fn faults_of_files_with_a_header_name_the_field() {
    let fault = |name: &str, text: &str, form| {
        let path = file(name, text.as_bytes());
        let spec = CsvSpec::named(["area", "rooms"], "price", form);
        let error = Table::from_csv(&path, &spec).unwrap_err().to_string();
        error.replace(&format!("{}: ", path.display()), "")
    };
    let number = Form::Numbers { scale: 1.0 };
    assert_eq!(
        fault("named-word.csv", "price, area,rooms\n1,2,3\n1,2,\n", number),
        "line 3: field 3, `rooms`: expected a number, found ``"
    );
    assert_eq!(
        fault("named-label.csv", "price, area,rooms\n7,2,3\n", Form::Labels { n_classes: 7 }),
        "line 2: field 1, `price`: expected a label in 0..7, found 7"
    );
    assert_eq!(
        fault("named-none.csv", "prize,area,rooms\n7,2,3\n", number),
        "line 1: expected a field `price` in the header; the nearest is `prize`"
    );
    assert_eq!(
        fault("named-twice.csv", "price,area,rooms,area\n7,2,3,4\n", number),
        "line 1: expected one field `area`, found several"
    );
}

/// Features and targets are scaled by the training part. The held-out part and predictions of
/// another program follow it.
#[test]
fn a_regression_is_standardized_saved_and_undone() {
    let text: String =
        (0..50).map(|it| format!("{},{},{}\n", 3 * it + 1, 100 - it, it % 7)).collect();
    let path = file("regression.csv", format!("price,area,rooms\n{text}").as_bytes());
    let spec = CsvSpec::named(["area", "rooms"], "price", Form::Numbers { scale: 1.0 });
    let (train, held_out) = Table::from_csv(path, &spec).unwrap().split(0.2, 1);
    let scalings = ["features", "target"].map(|it| Standardization::of(&train, it).unwrap());
    let other = Standardization::of(&held_out, "target").unwrap();
    assert_ne!(scalings[1].mean, other.mean);
    let all = |dataset: &dyn Fn() -> Box<dyn Dataset>, column: usize| {
        let dataset: std::sync::Arc<dyn Dataset> = dataset().into();
        let n_rows = dataset.n_rows();
        let mut loader = DataLoader::new(dataset, LoaderOptions::evaluation(n_rows)).unwrap();
        loader.next().unwrap().unwrap().f32s(column).to_vec()
    };
    let scaled = |part: &soybean_data::Subset| -> Box<dyn Dataset> {
        let features = scalings[0].apply(part.clone()).unwrap();
        Box::new(scalings[1].apply(features).unwrap())
    };
    let of_train = all(&|| scaled(&train), 1);
    let mean = of_train.iter().sum::<f32>() / of_train.len() as f32;
    let square = of_train.iter().map(|it| it * it).sum::<f32>() / of_train.len() as f32;
    assert!(mean.abs() < 1e-6 && (square - 1.0).abs() < 1e-5, "{mean}, {square}");
    let path = file("target.json", b"");
    scalings[1].save(&path).unwrap();
    let saved = Standardization::open(&path).unwrap();
    assert_eq!(saved, scalings[1]);
    let (mut restored, plain) =
        (all(&|| scaled(&held_out), 1), all(&|| Box::new(held_out.clone()), 1));
    assert_ne!(restored, plain);
    saved.restore(&mut restored);
    for (restored, plain) in restored.iter().zip(&plain) {
        // Rounding of numbers up to 150.
        assert!((restored - plain).abs() < 1e-4, "{restored}, not {plain}");
    }
}

#[test]
fn damaged_standardizations_are_refused() {
    let fault = |text: &str| {
        let path = file("scaling.json", text.as_bytes());
        let error = Standardization::open(&path).unwrap_err().to_string();
        error.replace(&format!("{}: ", path.display()), "")
    };
    assert!(fault("{").starts_with("expected JSON, found: "));
    for text in [
        r#"{"mean": [1], "deviation": [1]}"#,
        r#"{"column": "x", "mean": [1, 2], "deviation": [1]}"#,
        r#"{"column": "x", "mean": [1], "deviation": [0]}"#,
        r#"{"column": "x", "mean": [1e99], "deviation": [1]}"#,
    ] {
        assert!(fault(text).starts_with("expected `column`, and in "), "{text}");
    }
    let error = Standardization::open("no/such.json").unwrap_err().to_string();
    assert!(error.starts_with("no/such.json: expected a file that can be read, found: "));
}

#[test]
fn columns_are_standardized_by_the_training_data() {
    let x = CsvColumn::new("x", ["area", "rooms"], Form::Numbers { scale: 1.0 });
    let table = houses(vec![x]).unwrap();
    let scaling = Standardization::of(&table, "x").unwrap();
    assert_eq!(scaling.mean, [70.0, 3.0]);
    // The squares of the differences are 400, 0 and 400.
    assert!((scaling.deviation[0] - (800.0_f32 / 3.0).sqrt()).abs() < 1e-5);
    let mut loader =
        DataLoader::new(scaling.apply(table).unwrap(), LoaderOptions::evaluation(3)).unwrap();
    let batch = loader.next().unwrap().unwrap();
    let expected = 1.5_f32.sqrt();
    for (found, expected) in batch.f32s(0).iter().zip([-expected, -expected, 0.0, 0.0]) {
        assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
    }
    let mut row = [70.0, 4.0];
    scaling.standardize(&mut row);
    scaling.restore(&mut row);
    assert_eq!(row, [70.0, 4.0]);
    let constant = Column { name: "c".to_owned(), row: vec![], values: Values::F32(vec![3.0; 4]) };
    let labels = Column { name: "y".to_owned(), row: vec![], values: Values::I32(vec![0; 4]) };
    let table = Table::new(vec![constant, labels]).unwrap();
    assert_eq!(Standardization::of(&table, "c").unwrap().deviation, [1.0]);
    let error = Standardization::of(&table, "y").unwrap_err().to_string();
    assert_eq!(error, "expected a column `y` of f32, found c of f32, y of i32");
}

// Guards: "expected a number, found `0.0`".
#[test]
fn labels_that_are_no_whole_numbers_are_named() {
    let fault = |label: &str| {
        let text = format!("x,y\n1,{label}\n");
        error_of(&text, Form::Labels { n_classes: 3 })
    };
    assert!(fault("0.0").ends_with("expected a whole number without a point, found `0.0`"));
    assert!(fault("1e0").ends_with("expected a whole number without a point, found `1e0`"));
    assert!(fault("3000000000").ends_with("expected an integer of 32 bits, found `3000000000`"));
    assert!(fault("two").ends_with("expected a number, found `two`"));
}

fn error_of(text: &str, form: Form) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("whole_numbers.csv");
    fs::write(&path, text).unwrap();
    Table::from_csv(&path, &CsvSpec::named(["x"], "y", form)).unwrap_err().to_string()
}
