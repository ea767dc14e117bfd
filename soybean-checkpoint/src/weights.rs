//! Weights of other programs, such as PyTorch's, in the format safetensors. They are loaded by
//! name.
//!
//! ```
//! use soybean_checkpoint::weights::Mapping;
//!
//! // Maps the names of PyTorch's encoder to a model that calls `block` once for each layer.
//! let mapping: Mapping = "
//!     encoder.layers.*.linear1.weight = block.*.linear.0.weight
//!     encoder.layers.*.linear1.bias = block.*.linear.0.bias
//!     unused *.num_batches_tracked
//! ".parse()?;
//! # Ok::<(), soybean_checkpoint::Error>(())
//! ```

mod convert;
mod mapping;
mod matching;
pub(crate) mod nearest;
mod source;

use std::{collections::BTreeSet, ffi::OsString, fs, path::Path};

use crate::{
    Array, Error, ErrorKind, TensorSpec, TrainingState,
    folder::sync,
    tensor_file::{Reader, Sum, Writer, header, io_error},
};
pub use mapping::Mapping;
use matching::{Match, matches};
use source::SourceFile;

/// The number of tensors that [`load`] replaced, and the names that it did not match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The number of tensors that were replaced.
    pub n_tensors: usize,
    /// The parameters and buffers of the model that are not in the file.
    pub missing: Vec<String>,
    /// The tensors of the file that are not in the model.
    pub unused: Vec<String>,
}

/// Replaces the parameters and buffers of a trainer by those of a file.
///
/// `path` is a `.safetensors` file, an index of several (`.index.json`), a folder with either, or
/// the folder of a checkpoint. A folder such as `best/` means the only checkpoint in it, and the
/// folder of a run its best one. Elements of the types `F32`, `F64`, `F16` and `BF16` become `f32`.
/// The optimizer's tensors and the counters do not change.
///
/// # Errors
/// - If a file cannot be read or has unexpected contents, if tensors are missing or unused and the
///   mapping does not allow it, or if a shape differs. Then the trainer is unchanged.
/// - If the file changes while it is read, or a device fails. Then the trainer cannot be used any
///   more.
///
/// If one of several processes fails, all of them fail, and none of their trainers can be used.
/// They also fail if they have read different bytes.
pub fn load(
    state: &mut impl TrainingState,
    path: impl AsRef<Path>,
    mapping: &Mapping,
) -> Result<Loaded, Error> {
    let loaded = load_locally(state, path.as_ref(), mapping);
    let (loaded, checksums) = state.together(loaded)?;
    state.agree("weights", &checksums).map_err(|error| state.invalidate(error))?;
    Ok(loaded)
}

/// Loads the files of this process. Returns their checksums, too.
fn load_locally(
    state: &mut impl TrainingState,
    path: &Path,
    mapping: &Mapping,
) -> Result<(Loaded, String), Error> {
    let source = source::open(path)?;
    let (found, loaded) = matches(&state.spec(), &source, mapping)?;
    for (file, matches) in source.files.iter().zip(&found) {
        convert::check(&file.path, matches)?;
    }
    let mut checksums = Vec::new();
    for (file, matches) in source.files.iter().zip(&found) {
        let sum = load_file(state, file, matches).map_err(|error| state.invalidate(error))?;
        checksums.push(format!("{:08x}", sum.crc32));
    }
    Ok((loaded, format!("files with the checksums {}", checksums.join(" "))))
}

fn load_file(
    state: &mut impl TrainingState,
    file: &SourceFile,
    matches: &[Option<Match<'_>>],
) -> Result<Sum, Error> {
    let mut reader = Reader::open(&file.path)?;
    let mut data = Vec::new();
    for (entry, found) in file.entries.iter().zip(matches) {
        let Some(found) = found else {
            reader.next_as(entry, &mut |_| {})?;
            continue;
        };
        data.clear();
        data.reserve(entry.n_elements());
        reader.next_as(entry, &mut |bytes| convert::append(entry.dtype, bytes, &mut data))?;
        if found.is_transposed {
            data = transposed(&data, &entry.shape);
        }
        state.load_tensor(found.number, &data)?;
    }
    Ok(reader.sum())
}

/// Transposes a matrix `[rows, columns]` to `[columns, rows]`.
fn transposed(data: &[f32], shape: &[usize]) -> Vec<f32> {
    let columns = shape.get(1).copied().unwrap_or(1);
    (0..columns).flat_map(|column| data.iter().skip(column).step_by(columns)).copied().collect()
}

/// Writes arrays, such as averaged weights, to a `.safetensors` file. The file gets its name when
/// all of it is on disk.
///
/// # Errors
/// If the file cannot be written, a name occurs twice, or the number of elements of an array does
/// not match its shape.
pub fn save(path: impl AsRef<Path>, arrays: &[(String, Array)]) -> Result<(), Error> {
    let path = path.as_ref();
    let mut names = BTreeSet::new();
    for (name, array) in arrays {
        let (expected, found) = (array.shape.iter().product::<usize>(), array.data.len());
        let wrong = |message: String| Error::new(ErrorKind::Parameters, message);
        if expected != found {
            return Err(wrong(format!("`{name}`: expected {expected} elements, found {found}")));
        }
        if !names.insert(name) {
            return Err(wrong(format!("`{name}`: expected once, found twice")));
        }
    }
    let mut name = OsString::from(".tmp-");
    name.push(path.file_name().unwrap_or_default());
    let temporary = path.with_file_name(name);
    // A killed run may have left this file.
    let _may_not_exist = fs::remove_file(&temporary);
    write(&temporary, arrays)
        .and_then(|()| {
            let what = || format!("rename it to {}", path.display());
            fs::rename(&temporary, path).map_err(|error| io_error(&what(), &temporary, &error))?;
            path.parent().map_or(Ok(()), sync)
        })
        .inspect_err(|_| {
            let _may_not_exist = fs::remove_file(&temporary);
        })
}

fn write(path: &Path, arrays: &[(String, Array)]) -> Result<(), Error> {
    let spec = |it: &(String, Array)| TensorSpec {
        name: it.0.clone(),
        shape: it.1.shape.clone(),
        n_terms: 1,
        use_hash: it.1.use_hash,
    };
    let tensors: Vec<TensorSpec> = arrays.iter().map(spec).collect();
    let mut writer = Writer::create(path)?;
    writer.write(&header(&tensors)?, "the header")?;
    for (name, array) in arrays {
        writer.write_elements(&array.data, name)?;
    }
    writer.finish()?;
    Ok(())
}
