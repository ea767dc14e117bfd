//! Files that `make_files.py` wrote with NumPy, Pillow and Python, and errors of damaged files.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use soybean_data::{
    CifarLabel, Column, ColumnSpec, CsvColumn, CsvSpec, DataLoader, Dataset, Element, ElementKind,
    Error, ErrorKind, Field, Form, IdxSpec, Joined, LoaderOptions, Records, Table, TokenSpec,
    TokenWidth, Tokens, Values,
};

/// Returns a file of the repository, or of the folder to which the script has just written.
pub(crate) fn made(name: &str) -> PathBuf {
    let ours = || Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
    env::var_os("SOYBEAN_DATA_FILES").map_or_else(ours, PathBuf::from).join(name)
}

/// Returns a copy of one of these files, which a test may change.
fn copied(name: &str, copy: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(copy);
    fs::copy(made(name), &path).unwrap();
    path
}

/// The contents of a dataset: its columns and all their elements.
#[derive(Debug, PartialEq)]
pub(crate) struct Contents {
    pub(crate) n_rows: usize,
    pub(crate) columns: Vec<ColumnSpec>,
    pub(crate) values: Vec<Values>,
}

/// Reads all rows, as one batch, in the calling thread.
pub(crate) fn contents(dataset: impl Dataset + 'static) -> Result<Contents, Error> {
    let (n_rows, columns) = (dataset.n_rows(), dataset.columns().to_vec());
    let options = LoaderOptions { n_threads: 0, ..LoaderOptions::evaluation(n_rows) };
    let batch = DataLoader::new(dataset, options)?.next().unwrap()?;
    let values = batch.views().into_iter().map(Values::from).collect();
    Ok(Contents { n_rows, columns, values })
}

const NUMBERS: Form = Form::Numbers { scale: 1.0 };

/// Returns `0, 1, .. 29`, each minus `shift`.
fn counted(shift: f32) -> Values {
    Values::F32((0_i16..30).map(|it| f32::from(it) - shift).collect())
}

#[test]
fn arrays_of_numpy() {
    let read = |name: &str| Column::from_npy(made(&format!("npy/{name}.npy")), NUMBERS).unwrap();
    for name in ["uint8", "uint16", "uint32", "uint64"] {
        for name in [name.to_owned(), format!("{name}_fortran")] {
            let column = read(&name);
            assert_eq!(
                (&column.name, &column.row, &column.values),
                (&name, &vec![3, 2], &counted(0.0))
            );
        }
    }
    for kind in ["int8", "int32", "int64", "float16", "float32", "float64"] {
        assert_eq!(read(kind).values, counted(10.0), "{kind}");
        assert_eq!(read(&format!("{kind}_fortran")).values, counted(10.0), "{kind}");
    }
    for kind in ["int16", "int32", "float32", "float64"] {
        assert_eq!(read(&format!("{kind}_big")).values, counted(10.0), "{kind}");
        assert_eq!(read(&format!("{kind}_big_fortran")).values, counted(10.0), "{kind}");
    }
    for version in 1..=3 {
        assert_eq!(read(&format!("version{version}")).values, counted(0.0));
    }
    let odd = Values::F32((0_i16..30).map(|it| f32::from(it % 2)).collect());
    assert_eq!((read("bool").values, read("bool_fortran").values), (odd.clone(), odd));
    let integers = Column::from_npy(made("npy/int64_fortran.npy"), Form::Integers).unwrap();
    assert_eq!(integers.values, Values::I32((-10..20).collect()));
    let scaled = Column::from_npy(made("npy/uint8.npy"), Form::Numbers { scale: 0.5 }).unwrap();
    assert_eq!(scaled.values, Values::F32((0_i16..30).map(|it| f32::from(it) / 2.0).collect()));
}

#[test]
fn archives_of_numpy() {
    for name in ["stored.npz", "deflated.npz"] {
        let x = Column::from_npz(made(name), "x", NUMBERS).unwrap();
        let y = Column::from_npz(made(name), "y", Form::Labels { n_classes: 5 }).unwrap();
        assert_eq!((&x.row, &x.values, &y.row), (&vec![3, 2], &counted(10.0), &vec![]));
        assert_eq!(y.values, Values::I32(vec![4, 3, 2, 1, 0]));
        assert_eq!(Table::new(vec![x, y]).unwrap().n_rows(), 5);
    }
    let fault = |array: &str, form| {
        Column::from_npz(made("stored.npz"), array, form).unwrap_err().to_string()
    };
    let path = made("stored.npz").display().to_string();
    assert_eq!(
        fault("z", NUMBERS),
        format!("{path}: expected z.npy, found [\"x.npy\", \"y.npy\"]")
    );
    let labels = Form::Labels { n_classes: 4 };
    let expected = format!("{path}: y.npy: byte 128: expected a label in 0..4, found 4");
    assert_eq!(fault("y", labels), expected);
}

#[test]
fn arrays_that_cannot_be_columns() {
    let fault = |name: &str, form| {
        let path = made(&format!("npy/{name}.npy"));
        let error = Column::from_npy(&path, form).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Data);
        let text = error.to_string();
        text.strip_prefix(&format!("{}: ", path.display())).unwrap().to_owned()
    };
    assert_eq!(
        fault("scalar", NUMBERS),
        "byte 10: expected an array of rows with 1 to 2^40 elements in all, found extents []"
    );
    assert_eq!(
        fault("complex", NUMBERS),
        "byte 10: expected elements of a type of b1, u1, i1, u2, i2, u4, i4, u8, i8, f2, f4, f8, found `<c8`"
    );
    assert_eq!(
        fault("structured", NUMBERS),
        "byte 10: expected a string in the header, found `[('a', '<f4'), ('b',`"
    );
    assert_eq!(fault("nan", NUMBERS), "byte 136: expected a finite number, found NaN");
    assert_eq!(fault("float32", Form::Integers), "expected integers, found F32");
    assert_eq!(
        fault("labels", Form::Labels { n_classes: 10 }),
        "byte 160: expected a label in 0..10, found 12"
    );
}

#[test]
fn rows_of_a_numpy_file_are_read_when_they_are_asked_for() {
    let records = || Records::open_npy(made("npy/float64_big.npy"), NUMBERS).unwrap();
    let found = contents(records()).unwrap();
    assert_eq!((found.columns[0].row.as_slice(), found.values), (&[3, 2][..], vec![counted(10.0)]));
    let path = made("npy/uint8_fortran.npy");
    let error = Records::open_npy(&path, NUMBERS).unwrap_err().to_string();
    assert!(error.ends_with("found Fortran order"), "{error}");
    let labels = Records::open_npy(made("npy/labels.npy"), Form::Integers).unwrap();
    let joined = Joined::new(vec![Arc::new(records()), Arc::new(labels)]).unwrap();
    let found = contents(joined).unwrap().values;
    assert_eq!(found, [counted(10.0), Values::I32(vec![0, 1, 2, 3, 12])]);
    let uneven = Joined::new(vec![Arc::new(records()), Arc::new(ThreeRows)]);
    assert_eq!(
        uneven.unwrap_err().to_string(),
        "dataset of ``: expected 5 rows, as the first one has, found 3"
    );
}

/// Three rows without columns.
struct ThreeRows;

impl Dataset for ThreeRows {
    fn n_rows(&self) -> usize {
        3
    }

    fn columns(&self) -> &[ColumnSpec] {
        &[]
    }

    fn read(&self, _: &[usize], _: &mut [soybean_data::ViewMut<'_>]) -> Result<(), Error> {
        Ok(())
    }
}

#[test]
fn idx_files_of_python() {
    for ending in ["", ".gz"] {
        let spec = IdxSpec { scale: 2.0, n_classes: 5 };
        let images = made(&format!("images-idx3-ubyte{ending}"));
        let labels = made(&format!("labels-idx1-ubyte{ending}"));
        let table = Table::from_idx(&images, &labels, &spec).unwrap();
        assert_eq!(table.columns()[0].row, [2, 3]);
        let pixels = (0_i16..24).map(|it| 2.0 * f32::from(it)).collect();
        assert_eq!(table.values(0), &Values::F32(pixels));
        assert_eq!(table.values(1), &Values::I32(vec![3, 1, 4, 1]));
        let error = Table::from_idx(&images, &labels, &IdxSpec { n_classes: 4, ..spec });
        let expected = format!("{}: byte 10: expected a label in 0..4, found 4", labels.display());
        assert_eq!(error.unwrap_err().to_string(), expected);
        let error = Table::from_idx(&labels, &labels, &spec).unwrap_err().to_string();
        assert!(error.ends_with(": byte 3: expected 2 dims or more, found 1"), "{error}");
    }
    let doubles = Column::from_idx(made("doubles.idx"), NUMBERS).unwrap();
    assert_eq!((doubles.row, doubles.values), (vec![2], Values::F32(vec![0.5, -1.5, 2.25, 1e10])));
}

/// Returns the fields of `points.csv`.
pub(crate) fn points() -> CsvSpec {
    let labels = CsvColumn::new("label", 2, Form::Labels { n_classes: 3 });
    CsvSpec { has_header: true, columns: vec![CsvColumn::new("features", 0..2, NUMBERS), labels] }
}

#[test]
fn tables_of_python() {
    for name in ["points.csv", "points.csv.gz"] {
        let table = Table::from_csv(made(name), &points()).unwrap();
        assert_eq!(table.values(0), &Values::F32(vec![0.5, -1.25, 1e-3, 3.0, 7.0, 8.0]));
        assert_eq!(table.values(1), &Values::I32(vec![2, 0, 1]));
    }
}

/// Returns `(7 r + i) % 256` for each pixel `i` of these records `r`.
fn cifar_pixels(records: std::ops::Range<u16>) -> Values {
    let pixels = records.flat_map(|r| (0..3072).map(move |i| f32::from((7 * r + i) % 256)));
    Values::F32(pixels.collect())
}

#[test]
fn cifar() {
    let paths = ["cifar10/data_batch_1.bin", "cifar10/data_batch_2.bin"].map(made);
    let found = contents(Records::cifar10(&paths, 1.0).unwrap()).unwrap();
    assert_eq!(found.columns[0].row, [3, 32, 32]);
    assert_eq!(found.values, [cifar_pixels(0..5), Values::I32((0..5).collect())]);
    let paths = [made("cifar100/train.bin")];
    for (which, first) in [(CifarLabel::Coarse, 19), (CifarLabel::Fine, 99)] {
        let found = contents(Records::cifar100(&paths, which, 1.0).unwrap()).unwrap();
        assert_eq!(found.values, [cifar_pixels(0..2), Values::I32(vec![first, first - 1])]);
    }
    let path = copied("cifar10/data_batch_1.bin", "cut.bin");
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(9218).unwrap();
    let error = Records::cifar10(&[&path], 1.0).unwrap_err().to_string();
    let message =
        "byte 6146: expected records of 3073 bytes, found 2 of them and a rest of 3072 bytes";
    assert_eq!(error, format!("{}: {message}", path.display()));
    // A file that is truncated after it was opened, and one with a label out of range.
    let path = copied("cifar10/data_batch_1.bin", "shrinking.bin");
    let records = Records::cifar10(&[&path], 1.0).unwrap();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(7000).unwrap();
    let message = "byte 6146: expected 3073 bytes, found the end of the file at byte 7000; it had 9219 bytes when it was opened";
    let error = contents(records).unwrap_err().to_string();
    assert_eq!(error, format!("{}: {message}", path.display()));
    let mut bytes = fs::read(made("cifar10/data_batch_1.bin")).unwrap();
    bytes[3073] = 10;
    fs::write(&path, bytes).unwrap();
    let error = contents(Records::cifar10(&[&path], 1.0).unwrap()).unwrap_err().to_string();
    let message = "byte 3073: `label`: expected a label in 0..10, found 10";
    assert_eq!(error, format!("{}: {message}", path.display()));
}

#[test]
fn fields_must_lie_in_records() {
    let field = |start, row, kind, form| Field {
        name: "x".to_owned(),
        start,
        row,
        element: Element::little(kind),
        form,
    };
    let paths = [made("tokens.u16")];
    let fault = |fields| Records::open(&paths, 6, fields).unwrap_err().to_string();
    let floats = ElementKind::F32;
    assert_eq!(
        fault(vec![field(4, vec![], floats, NUMBERS)]),
        "field `x`: expected numbers within the 6 bytes of a record, found [] of 4 bytes from byte 4"
    );
    assert!(fault(vec![field(0, vec![usize::MAX, 3], floats, NUMBERS)]).starts_with("field `x`"));
    assert!(fault(vec![field(usize::MAX, vec![], floats, NUMBERS)]).starts_with("field `x`"));
    assert_eq!(
        fault(vec![field(0, vec![], floats, Form::Integers)]),
        "field `x`: expected integers, found F32"
    );
    assert!(fault(Vec::new()).starts_with("expected records with at least one field"));
}

const WINDOWS: TokenSpec = TokenSpec { length: 8, stride: 6, vocabulary: 50_000 };

#[test]
fn windows_of_tokens() {
    let text: Vec<i32> = (0..300).map(|it| (it * it) % 50_000).collect();
    let starts = (0..300 - 8).step_by(6);
    let expected = [0, 1].map(|shift| {
        let window = |start: usize| &text[start + shift..start + shift + 8];
        Values::I32(starts.clone().flat_map(window).copied().collect())
    });
    let memory = contents(Tokens::new(text.clone(), WINDOWS).unwrap()).unwrap();
    assert_eq!((memory.n_rows, memory.values), (49, expected.to_vec()));
    for (name, width) in [("tokens.u16", TokenWidth::U16), ("tokens.u32", TokenWidth::U32)] {
        let tokens = Tokens::open(made(name), width, WINDOWS).unwrap();
        assert_eq!(contents(tokens).unwrap().values, expected);
        // 223 squared is 49,729; all other tokens are less.
        let spec = TokenSpec { vocabulary: 49_729, ..WINDOWS };
        let error = contents(Tokens::open(made(name), width, spec).unwrap()).unwrap_err();
        let at = if width == TokenWidth::U16 { 2 * 223 } else { 4 * 223 };
        let expected = format!("byte {at}: expected a token in 0..49729, found 49729");
        assert_eq!(error.to_string(), format!("{}: {expected}", made(name).display()));
    }
}

#[test]
fn token_files_that_are_not_whole() {
    let open = |path: &Path, width| Tokens::open(path, width, WINDOWS);
    let path = copied("tokens.u16", "cut.u16");
    let resize = |n| fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(n).unwrap();
    let fault = |width| {
        let text = open(&path, width).unwrap_err().to_string();
        text.strip_prefix(&format!("{}: ", path.display())).unwrap().to_owned()
    };
    resize(599);
    assert_eq!(fault(TokenWidth::U16), "byte 598: expected tokens of 2 bytes, found a rest of 1");
    resize(34);
    assert_eq!(fault(TokenWidth::U32), "byte 32: expected tokens of 4 bytes, found a rest of 2");
    resize(16);
    assert_eq!(
        fault(TokenWidth::U16),
        "expected at least 9 tokens, those of a window and the one that follows, found 8"
    );
    // A file that another program truncates while it is in use.
    let path = copied("tokens.u32", "shrinking.u32");
    let tokens = open(&path, TokenWidth::U32).unwrap();
    let mut loader = DataLoader::new(tokens, LoaderOptions::evaluation(1)).unwrap();
    assert!(loader.next().unwrap().is_ok());
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(800).unwrap();
    let error = loader.find_map(Result::err).unwrap().to_string();
    let expected = "expected 36 bytes, found the end of the file at byte 800; it had 1200 bytes when it was opened";
    assert_eq!(error, format!("{}: byte 768: {expected}", path.display()));
}

#[test]
fn tokens_in_memory_are_checked() {
    let fault = |text: Vec<i32>, spec| Tokens::new(text, spec).unwrap_err().to_string();
    let spec = TokenSpec { length: 2, stride: 1, vocabulary: 3 };
    assert_eq!(fault(vec![0, 1, 2, 3], spec), "token 3: expected a token in 0..3, found 3");
    assert_eq!(fault(vec![0, -1, 2], spec), "token 1: expected a token in 0..3, found -1");
    let spec = TokenSpec { stride: 0, ..spec };
    assert!(fault(vec![0; 3], spec).starts_with("expected windows and a stride of at least one"));
}

#[test]
fn files_that_are_not_there() {
    let missing = "no/such/file";
    let errors = [
        Column::from_npy(missing, NUMBERS).err(),
        Column::from_npz(missing, "x", NUMBERS).err(),
        Column::from_idx(missing, NUMBERS).err(),
        Records::open_npy(missing, NUMBERS).err(),
        Records::cifar10(&[missing], 1.0).err(),
        Tokens::open(missing, TokenWidth::U16, WINDOWS).err(),
    ];
    for error in errors {
        let text = error.unwrap().to_string();
        assert!(
            text.starts_with("no/such/file: expected a file that can be read, found:"),
            "{text}"
        );
    }
    let folder = Tokens::open(made("npy"), TokenWidth::U16, WINDOWS).unwrap_err().to_string();
    assert!(folder.ends_with("expected a file that can be read, found: a folder"), "{folder}");
}
