//! Reading files that may be compressed with gzip, and errors that name a file.

use std::{
    io::{self, BufRead, BufReader, ErrorKind, Read},
    path::Path,
};

use flate2::read::MultiGzDecoder;
use soybean_plan::{caught, open_file};

use crate::Error;

/// Creates an error that names a file.
pub(super) fn named(path: &Path, message: &str) -> Error {
    Error::data(format!("{}: {message}", path.display()))
}

/// Creates the error of a file that cannot be read.
pub(super) fn unreadable(path: &Path, error: &io::Error) -> Error {
    named(path, &format!("expected a file that can be read, found: {error}"))
}

/// Reads with a decoder that may panic on damaged contents, which gives an error that names the
/// file.
pub(super) fn guarded<T>(path: &Path, read: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    caught(read).unwrap_or_else(|panic| Err(named(path, &unreadable_by(&panic))))
}

/// Describes contents on which a decoder panicked.
pub(super) fn unreadable_by(panic: &str) -> String {
    format!("expected contents that can be decoded, found some on which the decoder {panic}")
}

/// Returns the name of a file up to the first dot.
pub(super) fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}

/// Opens a file. If it begins like a gzip file, its contents are decompressed as they are read.
///
/// # Errors
/// If the file cannot be opened or read. The error names it.
pub(super) fn open(path: &Path) -> Result<Box<dyn Read>, Error> {
    let to_error = |error| unreadable(path, &error);
    let mut file = BufReader::new(Uninterrupted(open_file(path).map_err(to_error)?));
    let is_compressed = file.fill_buf().map_err(to_error)?.starts_with(&[0x1f, 0x8b]);
    Ok(match is_compressed {
        true => Box::new(Guarded(MultiGzDecoder::new(file))),
        false => Box::new(file),
    })
}

/// The most bytes of a file of JSON. Tokenizers have up to some ten millions.
pub(super) const MAX_JSON_BYTES: u64 = 1 << 28;

/// Reads a whole file.
pub(super) fn read_whole(path: &Path, most: u64) -> Result<Vec<u8>, Error> {
    soybean_plan::read_file(path, most).map_err(|error| unreadable(path, &error))
}

/// Reads a file of JSON.
pub(super) fn read_json(path: &Path) -> Result<serde_json::Value, Error> {
    let bytes = read_whole(path, MAX_JSON_BYTES)?;
    guarded(path, || {
        serde_json::from_slice(&bytes)
            .map_err(|error| named(path, &format!("expected JSON, found: {error}")))
    })
}

/// A reader that goes on after a signal. Decoders take an interrupted read for an error.
struct Uninterrupted<R>(R);

impl<R: Read> Read for Uninterrupted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(into) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                outcome => return outcome,
            }
        }
    }
}

/// A decoder whose panics are errors.
struct Guarded<R>(R);

impl<R: Read> Read for Guarded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        caught(|| self.0.read(into))
            .unwrap_or_else(|panic| Err(io::Error::other(unreadable_by(&panic))))
    }
}

/// Reads all bytes of a file. If it begins like a gzip file, they are decompressed.
///
/// # Errors
/// If the file cannot be read, or is compressed and truncated. The error names it.
pub fn read_file(path: impl AsRef<Path>) -> Result<Vec<u8>, Error> {
    let path = path.as_ref();
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes).map_err(|error| {
        let message = format!(
            "{}: after {} bytes: expected more data or the end, found: {error}",
            path.display(),
            bytes.len()
        );
        Error::data(message)
    })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    /// Contents of which every second read is interrupted, and the others give a byte.
    struct Interrupted<'a>(&'a [u8], bool);

    impl Read for Interrupted<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            let n = into.len().min(1);
            if self.1 { Err(ErrorKind::Interrupted.into()) } else { self.0.read(&mut into[..n]) }
        }
    }

    // Guards: a signal that ends the reading of a compressed file.
    #[test]
    fn decompression_goes_on_after_a_signal() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(b"x,y\n1,2\n").unwrap();
        let bytes = encoder.finish().unwrap();
        let reader = BufReader::new(Uninterrupted(Interrupted(&bytes, false)));
        let mut text = String::new();
        MultiGzDecoder::new(reader).read_to_string(&mut text).unwrap();
        assert_eq!(text, "x,y\n1,2\n");
    }

    #[test]
    fn a_panic_of_a_decoder_is_an_error_that_names_the_file() {
        let path = Path::new("x.parquet");
        let error = guarded::<()>(path, || panic!("\u{1b}[1m {}", 5)).unwrap_err();
        let expected = "x.parquet: expected contents that can be decoded, found some on which the \
                        decoder panicked: \\u{1b}[1m 5";
        assert_eq!(error.to_string(), expected);
        assert_eq!(guarded(path, || Ok(3)), Ok(3));
        let mut decoder = Guarded(PanickingReader);
        let error = decoder.read(&mut [0]).unwrap_err().to_string();
        assert!(error.ends_with("the decoder panicked: no more"), "{error}");
    }

    struct PanickingReader;

    impl Read for PanickingReader {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            panic!("no more")
        }
    }
}
