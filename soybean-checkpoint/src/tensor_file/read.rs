//! Reading files of tensors: first the header, then the elements in their order.
//!
//! The header is checked against the length of the file before memory is allocated for elements.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{ErrorKind, Read},
    path::{Path, PathBuf},
};

use crc32fast::Hasher;
use safetensors::tensor::{Dtype, Metadata};
use soybean_plan::{caught, open_file, read_text};

use super::{Sum, USE_HASHES, checkpoint_error, read_error};
use crate::Error;

/// The number of bytes that are read at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// The limit of the format for headers.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// The limit for JSON files beside the tensors.
const MAX_TEXT_BYTES: u64 = 1 << 28;

/// A tensor in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The name of the tensor.
    pub(crate) name: String,
    /// The type of the elements.
    pub(crate) dtype: Dtype,
    /// The shape of the tensor.
    pub(crate) shape: Vec<usize>,
    /// The number of bytes of the elements.
    pub(crate) n_bytes: usize,
    /// The hash of how the model used it that wrote the file, as that of a [`TensorSpec`]; 0 if
    /// the file has none.
    ///
    /// [`TensorSpec`]: crate::TensorSpec
    pub(crate) use_hash: u64,
}

impl Entry {
    /// Returns the number of elements.
    pub(crate) fn n_elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// Returns the length of a file. It is an error if the path is not that of a file.
pub(crate) fn n_bytes_of(path: &Path) -> Result<u64, Error> {
    let found = open_file(path).and_then(|it| it.metadata());
    found.map(|it| it.len()).map_err(|error| read_error("read it", path, &error))
}

/// Reads a file of JSON as text.
pub(crate) fn text(path: &Path) -> Result<String, Error> {
    read_text(path, MAX_TEXT_BYTES).map_err(|error| read_error("read it", path, &error))
}

/// Reads the header of a file and returns its tensors in the order of their elements.
pub(crate) fn entries(path: &Path) -> Result<Vec<Entry>, Error> {
    Ok(Reader::open(path)?.entries)
}

/// Describes a file of another format by its first eight bytes.
fn other_format(start: u64) -> Option<&'static str> {
    const PYTORCH: &str = "one of PyTorch's (.pt, .pth, .bin): save it with `safetensors.torch.save_file(model.state_dict(), path)`";
    match start.to_le_bytes() {
        [b'P', b'K', 3 | 5 | 7, ..] | [0x80, 2..=5, ..] => Some(PYTORCH),
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => Some("one of NumPy's (.npy)"),
        [0x89, b'H', b'D', b'F', ..] => Some("one in HDF5 (.h5)"),
        [b'G', b'G', b'U', b'F', ..] => Some("one in GGUF"),
        _ => None,
    }
}

/// A file of tensors that is read from start to end while its checksum is computed.
pub(crate) struct Reader {
    file: File,
    path: PathBuf,
    hasher: Hasher,
    n_bytes: u64,
    entries: Vec<Entry>,
    next: usize,
    bytes: Vec<u8>,
}

impl Reader {
    /// Opens a file and reads its header.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let n_bytes = n_bytes_of(path)?;
        let mut file = open_file(path).map_err(|error| read_error("open it", path, &error))?;
        let mut hasher = Hasher::new();
        let wrong = |message: String| checkpoint_error(format!("{}: {message}", path.display()));
        let mut read = |bytes: &mut [u8]| {
            file.read_exact(bytes).map_err(|error| read_error("read its header", path, &error))?;
            hasher.update(bytes);
            Ok::<_, Error>(())
        };
        if n_bytes < 8 {
            return Err(wrong(format!(
                "expected a file of tensors (safetensors), found {n_bytes} bytes"
            )));
        }
        let mut length = [0; 8];
        read(&mut length)?;
        let length = u64::from_le_bytes(length);
        let most = MAX_HEADER_BYTES.min(n_bytes - 8);
        let header_bytes = usize::try_from(length).ok().filter(|_| length <= most);
        let Some(header_bytes) = header_bytes else {
            return Err(wrong(match other_format(length) {
                Some(found) => format!("expected a file of tensors (safetensors), found {found}"),
                None => format!(
                    "expected a header of at most {most} bytes at offset 8, found one of {length}"
                ),
            }));
        };
        let mut header = vec![0; header_bytes];
        read(&mut header)?;
        let metadata = caught(|| serde_json::from_slice(&header).map_err(|it| it.to_string()));
        let metadata: Metadata = metadata.flatten().map_err(|error| {
            wrong(format!("expected the header of tensors at offset 8: {error}"))
        })?;
        let expected = (metadata.data_len() as u64).checked_add(8 + length);
        if expected != Some(n_bytes) {
            let data = metadata.data_len();
            return Err(wrong(format!(
                "expected a header of 8 + {length} bytes and {data} bytes of elements, found a file of {n_bytes} bytes"
            )));
        }
        let (entries, path) = (sorted(&metadata), path.to_owned());
        Ok(Self { file, path, hasher, n_bytes: 8 + length, entries, next: 0, bytes: Vec::new() })
    }

    /// Reads the next tensor. Calls `take` with chunks of its elements, as bytes.
    pub(crate) fn next(&mut self, take: &mut dyn FnMut(&[u8])) -> Result<Option<&Entry>, Error> {
        let Some(entry) = self.entries.get(self.next) else { return Ok(None) };
        self.next += 1;
        self.bytes.resize(CHUNK_BYTES, 0);
        let mut left = entry.n_bytes;
        while left > 0 {
            let bytes = &mut self.bytes[..left.min(CHUNK_BYTES)];
            self.file.read_exact(bytes).map_err(|error| {
                let (name, offset, n_bytes) = (&entry.name, self.n_bytes, bytes.len());
                let what = format!("read {n_bytes} bytes of `{name}` at offset {offset}");
                read_error(&what, &self.path, &error)
            })?;
            self.hasher.update(bytes);
            self.n_bytes += bytes.len() as u64;
            left -= bytes.len();
            take(bytes);
        }
        Ok(Some(entry))
    }

    /// Does the same as [`Self::next`], and checks that the next tensor is the expected one. It is
    /// another if the file has changed since `expected` was read from its header.
    pub(crate) fn next_as(
        &mut self,
        expected: &Entry,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Error> {
        if self.entries.get(self.next) != Some(expected) {
            let (path, name) = (self.path.display(), &expected.name);
            return Err(checkpoint_error(format!(
                "{path}: expected `{name}` next, as before, found another tensor"
            )));
        }
        self.next(take).map(|_| ())
    }

    /// Returns the length and the checksum of the bytes read so far. After the last tensor, these
    /// are the values of the whole file.
    pub(crate) fn sum(self) -> Sum {
        Sum { n_bytes: self.n_bytes, crc32: self.hasher.finalize() }
    }
}

/// Computes the length and the checksum of a file. Calls `take` with chunks of its bytes.
pub(crate) fn read_chunks(path: &Path, take: &mut dyn FnMut(&[u8])) -> Result<Sum, Error> {
    let mut file = open_file(path).map_err(|error| read_error("open it", path, &error))?;
    let (mut hasher, mut n_bytes, mut bytes) = (Hasher::new(), 0, vec![0; CHUNK_BYTES]);
    loop {
        let what = || format!("read it at offset {n_bytes}");
        let n_read = match file.read(&mut bytes) {
            // A signal ends no read.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            found => found.map_err(|error| read_error(&what(), path, &error))?,
        };
        if n_read == 0 {
            return Ok(Sum { n_bytes, crc32: hasher.finalize() });
        }
        hasher.update(&bytes[..n_read]);
        n_bytes += n_read as u64;
        take(&bytes[..n_read]);
    }
}

fn sorted(metadata: &Metadata) -> Vec<Entry> {
    let hashes = use_hashes(metadata);
    let entry = |name: String| {
        let info = metadata.info(&name)?;
        let n_bytes = info.data_offsets.1 - info.data_offsets.0;
        let (dtype, shape) = (info.dtype, info.shape.clone());
        let use_hash = hashes.get(&name).copied().unwrap_or(0);
        Some(Entry { dtype, shape, n_bytes, name, use_hash })
    };
    metadata.offset_keys().into_iter().filter_map(entry).collect()
}

/// Returns the hashes that the file has, by name. What is no hash is as if it were not there: the
/// file may be another program's.
fn use_hashes(metadata: &Metadata) -> BTreeMap<String, u64> {
    let text = metadata.metadata().as_ref().and_then(|it| it.get(USE_HASHES));
    let hashes: BTreeMap<String, String> =
        text.and_then(|it| serde_json::from_str(it).ok()).unwrap_or_default();
    let number = |(name, hash): (String, String)| {
        u64::from_str_radix(&hash, 16).ok().map(|number| (name, number))
    };
    hashes.into_iter().filter_map(number).collect()
}
