//! Files with random damage, the same in every run: flipped bytes, missing ends, appended bytes and
//! noise at the start.
//!
//! No reader panics, hangs or allocates much more memory than the file is long. Damage that a
//! checksum or the size of the file reveals is an error.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use soybean_data::{Column, Error, Form, IdxSpec, Records, Table, TokenSpec, TokenWidth, Tokens};
use soybean_plan::random::mixed;

use soybean_counting_allocator as allocations;

use crate::files::{Contents, contents, made, points};

/// The number of damaged files for each reader.
const N_FILES: u64 = 240;

/// The property of a file by which a reader finds damage.
#[derive(Clone, Copy, PartialEq)]
enum DetectedBy {
    /// A checksum: contents that are read are right.
    Checksum,
    /// The size of the file: there are no more elements than bytes.
    Size,
    /// Nothing: the contents are compressed without a checksum.
    #[cfg(any(feature = "image", feature = "parquet"))]
    Nothing,
}

struct Reader {
    file: &'static str,
    detected_by: DetectedBy,
    read: fn(&Path) -> Result<Contents, Error>,
}

const NUMBERS: Form = Form::Numbers { scale: 1.0 };

fn table(column: Result<Column, Error>) -> Result<Contents, Error> {
    contents(Table::new(vec![column?])?)
}

fn csv(path: &Path) -> Result<Contents, Error> {
    contents(Table::from_csv(path, &points())?)
}

fn idx(path: &Path) -> Result<Contents, Error> {
    contents(Table::from_idx(
        path,
        made("labels-idx1-ubyte"),
        &IdxSpec { scale: 1.0, n_classes: 5 },
    )?)
}

fn npy(path: &Path) -> Result<Contents, Error> {
    table(Column::from_npy(path, NUMBERS))
}

fn npz(path: &Path) -> Result<Contents, Error> {
    table(Column::from_npz(path, "x", NUMBERS))
}

fn json_lines(path: &Path) -> Result<Contents, Error> {
    contents(Table::from_json_lines(path, &crate::json_lines::columns())?)
}

#[cfg(feature = "parquet")]
fn parquet(path: &Path) -> Result<Contents, Error> {
    contents(Table::from_parquet(path, &crate::parquet::columns())?)
}

const WINDOWS: TokenSpec = TokenSpec { length: 16, stride: 16, vocabulary: 50_000 };

const READERS: &[Reader] = &[
    Reader { file: "points.csv", detected_by: DetectedBy::Size, read: csv },
    Reader { file: "points.csv.gz", detected_by: DetectedBy::Checksum, read: csv },
    Reader { file: "images-idx3-ubyte", detected_by: DetectedBy::Size, read: idx },
    Reader { file: "images-idx3-ubyte.gz", detected_by: DetectedBy::Checksum, read: idx },
    Reader {
        file: "doubles.idx",
        detected_by: DetectedBy::Size,
        read: |path| table(Column::from_idx(path, NUMBERS)),
    },
    Reader { file: "npy/float32.npy", detected_by: DetectedBy::Size, read: npy },
    Reader { file: "npy/int64_fortran.npy", detected_by: DetectedBy::Size, read: npy },
    Reader { file: "npy/version3.npy", detected_by: DetectedBy::Size, read: npy },
    Reader { file: "stored.npz", detected_by: DetectedBy::Checksum, read: npz },
    Reader { file: "deflated.npz", detected_by: DetectedBy::Checksum, read: npz },
    Reader {
        file: "npy/uint8.npy",
        detected_by: DetectedBy::Size,
        read: |path| contents(Records::open_npy(path, NUMBERS)?),
    },
    Reader {
        file: "cifar10/data_batch_2.bin",
        detected_by: DetectedBy::Size,
        read: |path| contents(Records::cifar10(&[path], 1.0)?),
    },
    Reader {
        file: "tokens.u16",
        detected_by: DetectedBy::Size,
        read: |path| contents(Tokens::open(path, TokenWidth::U16, WINDOWS)?),
    },
    Reader {
        file: "tokens.u32",
        detected_by: DetectedBy::Size,
        read: |path| contents(Tokens::open(path, TokenWidth::U32, WINDOWS)?),
    },
    Reader { file: "rows.jsonl", detected_by: DetectedBy::Size, read: json_lines },
    Reader { file: "rows.jsonl.gz", detected_by: DetectedBy::Checksum, read: json_lines },
    #[cfg(feature = "parquet")]
    Reader { file: "parquet/none.parquet", detected_by: DetectedBy::Nothing, read: parquet },
    #[cfg(feature = "parquet")]
    Reader { file: "parquet/snappy.parquet", detected_by: DetectedBy::Nothing, read: parquet },
    #[cfg(feature = "image")]
    Reader { file: "images/colors/b.png", detected_by: DetectedBy::Checksum, read: image },
    #[cfg(feature = "image")]
    Reader { file: "images/colors/c.png", detected_by: DetectedBy::Checksum, read: image },
    #[cfg(feature = "image")]
    Reader { file: "images/colors/d.JPG", detected_by: DetectedBy::Nothing, read: image },
    #[cfg(feature = "image")]
    Reader { file: "images/gray/c.jpeg", detected_by: DetectedBy::Nothing, read: image },
];

/// Opens the image folder of an image, two levels above the file.
#[cfg(feature = "image")]
fn image(path: &Path) -> Result<Contents, Error> {
    use soybean_data::{ImageFolder, ImageSpec};
    let classes = path.parent().and_then(Path::parent).unwrap();
    contents(ImageFolder::open(classes, ImageSpec::new(8, 8))?)
}

/// Returns pseudorandom numbers that depend on their index.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 += 1;
        usize::try_from(mixed(self.0) % n.max(1) as u64).unwrap()
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap()
    }
}

fn damaged(whole: &[u8], number: u64) -> Vec<u8> {
    let mut dice = Dice(number << 32);
    let mut bytes = whole.to_vec();
    match number % 6 {
        // One flipped bit, anywhere or near the beginning.
        0 => bytes[dice.below(whole.len())] ^= 1 << dice.below(8),
        1 => bytes[dice.below(whole.len().min(64))] ^= 1 << dice.below(8),
        2 => {
            for _ in 0..=dice.below(8) {
                bytes[dice.below(whole.len())] = dice.byte();
            }
        }
        3 => bytes.truncate(dice.below(whole.len())),
        4 => bytes.extend((0..=dice.below(40)).map(|_| dice.byte())),
        _ => {
            let n = 1 + dice.below(whole.len().min(64));
            bytes[..n].fill_with(|| dice.byte());
        }
    }
    bytes
}

/// Replaces the contents of a file without truncating it first, because some file systems wait for
/// the disk after a truncation.
pub(crate) fn put(path: &Path, bytes: &[u8]) {
    let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(path);
    let mut file = file.unwrap();
    file.write_all(bytes).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
}

fn check(reader: &Reader) {
    let Reader { file, detected_by, read } = reader;
    let whole = fs::read(made(file)).unwrap();
    let folder =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("damaged").join(file).join("class");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(Path::new(file).file_name().unwrap());
    put(&path, &whole);
    let expected = read(&path).unwrap();
    let (mut n_refused, mut n_alike) = (0, 0);
    for number in 0..N_FILES {
        let bytes = damaged(&whole, number);
        put(&path, &bytes);
        let started = Instant::now();
        let (outcome, n_most) = allocations::most_during(|| read(&path));
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "{file} {number}: {:?}",
            started.elapsed()
        );
        // A fixed size for buffers and tables of decoders and readers, and some copies of the
        // contents, which are at most four times as large in memory.
        assert!(n_most < (1 << 20) + 64 * bytes.len(), "{file} {number}: {n_most} bytes");
        match outcome {
            Err(error) => {
                n_refused += 1;
                let text = error.to_string();
                assert!(
                    text.contains("expected") && text.contains("found"),
                    "{file} {number}: {text}"
                );
            }
            Ok(found) => {
                n_alike += usize::from(found == expected);
                check_shapes(&found, bytes.len(), *detected_by, &format!("{file} {number}"));
                assert!(
                    *detected_by != DetectedBy::Checksum || found == expected,
                    "{file} {number}: {found:?}"
                );
            }
        }
    }
    // Some damage must be found. Damage of bytes without meaning need not be.
    assert!(n_refused >= N_FILES / 10, "{file}: {n_refused} refused, {n_alike} alike");
}

fn check_shapes(found: &Contents, n_bytes: usize, detected_by: DetectedBy, what: &str) {
    let mut n_elements = 0;
    for (column, values) in found.columns.iter().zip(&found.values) {
        assert_eq!(values.n_elements(), found.n_rows * column.row_elements(), "{what}");
        assert_eq!(values.dtype(), column.dtype, "{what}");
        n_elements += values.n_elements();
    }
    // Each token of a window is in both columns, and the labels of images are in another file.
    assert!(
        detected_by != DetectedBy::Size || n_elements <= n_bytes + 4,
        "{what}: {n_elements} of {n_bytes} bytes"
    );
}

#[test]
fn damaged_files_are_refused_or_read_as_they_are() {
    for reader in READERS {
        check(reader);
    }
}
