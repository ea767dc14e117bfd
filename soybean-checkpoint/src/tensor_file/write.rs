//! Writing files of tensors: first the header, then the elements.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

use crc32fast::Hasher;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};

use super::{USE_HASHES, checkpoint_error, io_error};
use crate::{Error, TensorSpec};

/// The number of elements that are converted to bytes at a time.
const CHUNK: usize = 1 << 18;

/// The length and the checksum of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sum {
    /// The length in bytes.
    pub(crate) n_bytes: u64,
    /// The CRC-32 of all its bytes.
    pub(crate) crc32: u32,
}

/// Returns the header of a file with these tensors of `f32`, in the order of their elements.
pub(crate) fn header(tensors: &[TensorSpec]) -> Result<Vec<u8>, Error> {
    let mut end = 0;
    let info = |tensor: &TensorSpec| {
        let start = end;
        end += 4 * tensor.n_elements();
        let (shape, data_offsets) = (tensor.saved_shape(), (start, end));
        (tensor.name.clone(), TensorInfo { dtype: Dtype::F32, shape, data_offsets })
    };
    let infos = tensors.iter().map(info).collect();
    let wrong =
        |error: &dyn std::fmt::Display| checkpoint_error(format!("a header of tensors: {error}"));
    let metadata = Metadata::new(None, infos).map_err(|it| wrong(&it))?;
    let of_tensors = serde_json::to_string(&metadata).map_err(|it| wrong(&it))?;
    let of_file = serde_json::to_string(&of_file(tensors)).map_err(|it| wrong(&it))?;
    // The library would write several entries of the file in a random order.
    let comma = if tensors.is_empty() { "" } else { "," };
    let mut text = format!("{{\"__metadata__\":{of_file}{comma}{}", &of_tensors[1..]).into_bytes();
    // The format requires that elements start at a multiple of 8.
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut header = (text.len() as u64).to_le_bytes().to_vec();
    header.append(&mut text);
    Ok(header)
}

/// Returns the entries of a file that are of no tensor.
fn of_file(tensors: &[TensorSpec]) -> BTreeMap<&'static str, String> {
    let hash = |it: &TensorSpec| {
        (it.use_hash != 0).then(|| (it.name.clone(), format!("{:016x}", it.use_hash).into()))
    };
    let hashes: serde_json::Map<String, serde_json::Value> =
        tensors.iter().filter_map(hash).collect();
    // Tools for PyTorch expect this entry.
    let mut entries = BTreeMap::from([("format", "pt".to_owned())]);
    if !hashes.is_empty() {
        entries.insert(USE_HASHES, serde_json::Value::from(hashes).to_string());
    }
    entries
}

/// A file that is being written while its checksum is computed.
pub(crate) struct Writer {
    file: File,
    path: PathBuf,
    hasher: Hasher,
    n_bytes: u64,
    bytes: Vec<u8>,
}

impl Writer {
    /// Creates a new file. It is an error if the file exists.
    pub(crate) fn create(path: &Path) -> Result<Self, Error> {
        let file = OpenOptions::new().write(true).create_new(true).open(path);
        let file = file.map_err(|error| io_error("create it", path, &error))?;
        Ok(Self::new(file, path))
    }

    fn new(file: File, path: &Path) -> Self {
        let (hasher, path) = (Hasher::new(), path.to_owned());
        Self { file, path, hasher, n_bytes: 0, bytes: Vec::new() }
    }

    /// Writes bytes. `what` names them in the error.
    pub(crate) fn write(&mut self, bytes: &[u8], what: &str) -> Result<(), Error> {
        self.hasher.update(bytes);
        let written = self.n_bytes;
        self.n_bytes += bytes.len() as u64;
        self.file.write_all(bytes).map_err(|error| {
            let n_bytes = bytes.len();
            let what = format!("write {n_bytes} bytes of {what} at offset {written}");
            io_error(&what, &self.path, &error)
        })
    }

    /// Writes the elements of a tensor.
    pub(crate) fn write_elements(&mut self, elements: &[f32], name: &str) -> Result<(), Error> {
        let mut bytes = std::mem::take(&mut self.bytes);
        let what = format!("`{name}`");
        for chunk in elements.chunks(CHUNK) {
            bytes.resize(4 * chunk.len(), 0);
            for (bytes, element) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(chunk) {
                *bytes = element.to_le_bytes();
            }
            self.write(&bytes, &what)?;
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Waits until the file is on disk.
    pub(crate) fn finish(self) -> Result<Sum, Error> {
        let n_bytes = self.n_bytes;
        self.file.sync_all().map_err(|error| {
            let what = format!("bring the last of {n_bytes} bytes to the disk");
            io_error(&what, &self.path, &error)
        })?;
        Ok(Sum { n_bytes, crc32: self.hasher.finalize() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_named_with_what_was_to_be_written() {
        let path = Path::new("/dev/full");
        let Ok(file) = OpenOptions::new().write(true).open(path) else { return };
        let mut writer = Writer::new(file, path);
        let error = writer.write_elements(&[0.5; 3], "dense.w").unwrap_err().to_string();
        let start = "/dev/full: expected to write 12 bytes of `dense.w` at offset 0, found: ";
        assert!(error.starts_with(start) && error.contains("No space left"), "{error}");
    }

    #[test]
    fn headers_are_those_of_the_format() {
        let tensor = |name: &str, shape| TensorSpec {
            name: name.to_owned(),
            shape,
            n_terms: 1,
            use_hash: 0,
        };
        let tensors = [tensor("a", vec![2, 3]), tensor("b", vec![])];
        let header = header(&tensors).unwrap();
        assert_eq!((header.len() % 8, header[0] as usize), (0, header.len() - 8));
        let file = [header, vec![0; 28]].concat();
        let file = safetensors::SafeTensors::deserialize(&file).unwrap();
        assert_eq!(file.tensor("a").unwrap().shape(), [2, 3]);
        assert_eq!(file.tensor("b").unwrap().data().len(), 4);
    }
}
