//! NumPy's files: `.npy` with one array, plain or compressed with gzip, and `.npz`, an archive of
//! such files.
//!
//! A `.npy` file consists of a magic number, a version, the length of a header, the header and the
//! elements. The header is a dictionary in Python's syntax. Source: NumPy Enhancement Proposal 1
//! and `numpy.lib.format`.

use std::{fs::File, io::Read, path::Path};

use flate2::read::DeflateDecoder;
use rawzip::{CompressionMethod, RECOMMENDED_BUFFER_SIZE, ZipArchive};
use soybean_plan::open_file;

use crate::{
    ByteOrder, Column, Element, ElementKind, Error, Form,
    array::{Header, Layout},
    file::{guarded, named, open, stem, unreadable},
};

const MAGIC: [u8; 6] = *b"\x93NUMPY";

/// The limit for the bytes of a header. NumPy itself refuses more than 10,000.
const MAX_HEADER: usize = 1 << 16;

/// The codes of element types, without the byte order.
const KINDS: [(&str, ElementKind); 12] = [
    ("b1", ElementKind::Bool),
    ("u1", ElementKind::U8),
    ("i1", ElementKind::I8),
    ("u2", ElementKind::U16),
    ("i2", ElementKind::I16),
    ("u4", ElementKind::U32),
    ("i4", ElementKind::I32),
    ("u8", ElementKind::U64),
    ("i8", ElementKind::I64),
    ("f2", ElementKind::F16),
    ("f4", ElementKind::F32),
    ("f8", ElementKind::F64),
];

impl Column {
    /// Reads a `.npy` file, which may be compressed with gzip, with an array `[rows, ..]` in C or
    /// Fortran order. The column has the file's name.
    ///
    /// # Errors
    /// - If the file cannot be read, or its length does not match its header.
    /// - If its elements are neither bool nor integers nor floats, or a number cannot be converted
    ///   to `form`.
    ///
    /// The error names the file and the byte.
    pub fn from_npy(path: impl AsRef<Path>, form: Form) -> Result<Self, Error> {
        let path = path.as_ref();
        guarded(path, || {
            column(&mut open(path)?, stem(path), form).map_err(|message| named(path, &message))
        })
    }

    /// Reads one array of a `.npz` file, as [`from_npy`](Self::from_npy) does. The column has the
    /// array's name.
    ///
    /// # Errors
    /// As [`from_npy`](Self::from_npy), and if the file is not an archive or has no array of this
    /// name.
    pub fn from_npz(path: impl AsRef<Path>, array: &str, form: Form) -> Result<Self, Error> {
        let path = path.as_ref();
        let file = open_file(path).map_err(|error| unreadable(path, &error))?;
        guarded(path, || in_archive(file, array, form).map_err(|message| named(path, &message)))
    }
}

fn in_archive(file: File, array: &str, form: Form) -> Result<Column, String> {
    let no_archive = |error: rawzip::Error| format!("expected a zip archive, found: {error}");
    let mut buffer = vec![0; RECOMMENDED_BUFFER_SIZE];
    let archive = ZipArchive::from_file(file, &mut buffer).map_err(no_archive)?;
    let name = format!("{array}.npy");
    let mut names = vec![];
    let mut entries = archive.entries(&mut buffer);
    let (wayfinder, method) = loop {
        let Some(entry) = entries.next_entry().map_err(no_archive)? else {
            names.truncate(20);
            return Err(format!("expected {name}, found {names:?}"));
        };
        let found = String::from_utf8_lossy(entry.file_path().as_bytes()).into_owned();
        if found == name {
            break (entry.wayfinder(), entry.compression_method());
        }
        names.push(found);
    };
    let at = |message: String| format!("{name}: {message}");
    let entry = archive
        .get_entry(wayfinder)
        .map_err(|error| at(format!("expected an entry that can be read, found: {error}")))?;
    // The two methods that NumPy writes.
    let elements: Box<dyn Read> = match method {
        CompressionMethod::STORE => Box::new(entry.reader()),
        CompressionMethod::DEFLATE => Box::new(DeflateDecoder::new(entry.reader())),
        other => return Err(at(format!("expected a stored or deflated entry, found {other}"))),
    };
    column(&mut entry.verifying_reader(elements), array.to_owned(), form).map_err(at)
}

fn column(file: &mut dyn Read, name: String, form: Form) -> Result<Column, String> {
    header(file)?.column(file, name, form)
}

/// Reads everything before the elements.
///
/// # Errors
/// A message with the byte offset, and what was expected and found.
pub(super) fn header(file: &mut dyn Read) -> Result<Header, String> {
    let mut start = [0; 8];
    take(file, &mut start, 0, "the start of a .npy file")?;
    let [magic @ .., version, _] = start;
    if magic != MAGIC {
        return Err(format!(
            "byte 0: expected a .npy file, which begins with {MAGIC:?}, found {magic:?}"
        ));
    }
    let mut length = [0; 4];
    let n_length = match version {
        1 => 2,
        2 | 3 => 4,
        _ => return Err(format!("byte 6: expected version 1, 2 or 3, found {version}")),
    };
    take(file, &mut length[..n_length], 8, "the length of the header")?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_HEADER {
        return Err(format!(
            "byte 8: expected a header of at most {MAX_HEADER} bytes, found {length}"
        ));
    }
    let mut text = vec![0; length];
    let at = 8 + n_length;
    take(file, &mut text, at, "a header")?;
    let text =
        String::from_utf8(text).map_err(|it| format!("byte {at}: expected text, found: {it}"))?;
    let start = at + length;
    let dictionary = dictionary(&text).map_err(|it| format!("byte {at}: {it}"))?;
    let header = checked(dictionary, start).map_err(|it| format!("byte {at}: {it}"))?;
    header.n_elements().map_err(|message| format!("byte {at}: {message}"))?;
    Ok(header)
}

fn take(file: &mut dyn Read, bytes: &mut [u8], at: usize, what: &str) -> Result<(), String> {
    file.read_exact(bytes).map_err(|error| format!("byte {at}: expected {what}, found: {error}"))
}

/// The three entries of a header.
#[derive(Default)]
struct Dictionary<'t> {
    descr: Option<&'t str>,
    is_fortran: Option<bool>,
    shape: Option<Vec<usize>>,
}

fn checked(dictionary: Dictionary<'_>, start: usize) -> Result<Header, String> {
    let missing = |key: &str| format!("expected the key `{key}` in the header, found none");
    let descr = dictionary.descr.ok_or_else(|| missing("descr"))?;
    let shape = dictionary.shape.ok_or_else(|| missing("shape"))?;
    let is_fortran = dictionary.is_fortran.ok_or_else(|| missing("fortran_order"))?;
    let layout = if is_fortran { Layout::ColumnMajor } else { Layout::RowMajor };
    let (order, code) = match descr.split_at_checked(1) {
        Some(("<" | "|", code)) => (ByteOrder::Little, code),
        Some((">", code)) => (ByteOrder::Big, code),
        _ => (ByteOrder::Little, ""),
    };
    let Some((_, kind)) = KINDS.into_iter().find(|it| it.0 == code) else {
        let codes = KINDS.map(|it| it.0).join(", ");
        return Err(format!("expected elements of a type of {codes}, found `{descr}`"));
    };
    Ok(Header { element: Element { kind, order }, shape, layout, start })
}

/// The rest of a header that is being parsed.
struct Text<'t>(&'t str);

/// Parses `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`.
fn dictionary(text: &str) -> Result<Dictionary<'_>, String> {
    let mut text = Text(text);
    let mut found = Dictionary::default();
    text.expect('{')?;
    while !text.eat('}') {
        let key = text.string()?;
        text.expect(':')?;
        match key {
            "descr" => found.descr = Some(text.string()?),
            "fortran_order" => found.is_fortran = Some(text.truth()?),
            "shape" => found.shape = Some(text.extents()?),
            _ => return Err(format!("expected descr, fortran_order or shape, found `{key}`")),
        }
        if !text.eat(',') {
            text.expect('}')?;
            break;
        }
    }
    match text.0.trim() {
        "" => Ok(found),
        rest => Err(format!("expected nothing after the header's dictionary, found `{rest}`")),
    }
}

impl<'t> Text<'t> {
    fn eat(&mut self, sign: char) -> bool {
        let rest = self.0.trim_start();
        self.0 = rest.strip_prefix(sign).unwrap_or(rest);
        self.0.len() < rest.len()
    }

    fn expect(&mut self, sign: char) -> Result<(), String> {
        if self.eat(sign) { Ok(()) } else { Err(self.error(&format!("`{sign}`"))) }
    }

    fn error(&self, expected: &str) -> String {
        let found: String = self.0.trim_start().chars().take(20).collect();
        format!("expected {expected} in the header, found `{found}`")
    }

    fn string(&mut self) -> Result<&'t str, String> {
        let quote = if self.eat('"') { '"' } else { '\'' };
        if quote == '\'' {
            self.expect('\'').map_err(|_| self.error("a string"))?;
        }
        let (string, rest) =
            self.0.split_once(quote).ok_or_else(|| self.error("the end of a string"))?;
        self.0 = rest;
        Ok(string)
    }

    /// Takes letters and digits up to another character.
    fn word(&mut self) -> &'t str {
        let text = self.0.trim_start();
        let end = text.find(|it: char| !it.is_ascii_alphanumeric()).unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        self.0 = rest;
        word
    }

    fn truth(&mut self) -> Result<bool, String> {
        match self.word() {
            "True" => Ok(true),
            "False" => Ok(false),
            other => Err(format!("expected True or False in the header, found `{other}`")),
        }
    }

    fn extents(&mut self) -> Result<Vec<usize>, String> {
        let mut extents = Vec::new();
        self.expect('(')?;
        while !self.eat(')') {
            let word = self.word();
            // Python 2 wrote long integers as `3L`.
            let digits = word.strip_suffix('L').unwrap_or(word);
            let extent = digits
                .parse()
                .map_err(|_| format!("expected an extent in the header, found `{word}`"))?;
            extents.push(extent);
            if !self.eat(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(extents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Header, String> {
        checked(dictionary(text)?, 0)
    }

    #[test]
    fn headers_are_read() {
        let text = "{'descr': '>f8', 'fortran_order': True, 'shape': (3, 4), }   \n";
        let element = Element::big(ElementKind::F64);
        let expected = Header { element, shape: vec![3, 4], layout: Layout::ColumnMajor, start: 0 };
        assert_eq!(parsed(text), Ok(expected));
        let text = r#"{"shape":(5L,),"descr":"|u1","fortran_order":False}"#;
        assert_eq!(parsed(text).unwrap().shape, [5]);
        let error_of = |text: &str| parsed(text).unwrap_err();
        assert_eq!(error_of("{}"), "expected the key `descr` in the header, found none");
        let structured = "{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (3,), }";
        assert_eq!(
            error_of(structured),
            "expected a string in the header, found `[('x', '<f4')], 'for`"
        );
        assert_eq!(
            error_of("{'descr': '<c8', 'fortran_order': False, 'shape': (3,), }"),
            "expected elements of a type of b1, u1, i1, u2, i2, u4, i4, u8, i8, f2, f4, f8, found `<c8`"
        );
        assert_eq!(error_of("{'shape': (3, -4), }"), "expected an extent in the header, found ``");
        assert_eq!(error_of("{'rows': 3}"), "expected descr, fortran_order or shape, found `rows`");
    }
}
