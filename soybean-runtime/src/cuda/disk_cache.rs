//! The cache of compiled kernels, of cuDNN's plans and of chosen algorithms on disk.
//!
//! Machine code runs on the GPU with the rights of the program, so the cache is only used if no
//! other user can write to it.
#![cfg_attr(unix, expect(unsafe_code, reason = "the user's number is asked of the C library"))]

use std::{
    env,
    fs::{self, DirBuilder, File, Metadata, OpenOptions},
    hash::{BuildHasher, Hasher, RandomState},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

/// Returns the folder of the cache, if one can be used. A new folder has the mode 0700.
pub(super) fn folder() -> Option<PathBuf> {
    let variable = |name| env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
    let folders = [
        variable("SOYBEAN_CACHE_DIR"),
        variable("XDG_CACHE_HOME").map(|it| it.join("soybean")),
        variable("HOME").map(|it| it.join(".cache/soybean")),
    ];
    folders.into_iter().flatten().find(|it| is_usable(it))
}

/// Creates the folder if needed. Returns true if only its owner, this user, can write to it.
fn is_usable(folder: &Path) -> bool {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    let found = builder.create(folder).and_then(|()| fs::metadata(folder));
    found.is_ok_and(|it| is_ours(&it))
}

/// Returns true if a file or folder belongs to this user, and no other can write to it.
#[cfg(unix)]
fn is_ours(found: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    // SAFETY: the function has no conditions and cannot fail.
    let user = unsafe { libc::geteuid() };
    found.uid() == user && found.mode() & WRITABLE_BY_OTHERS == 0
}

#[cfg(not(unix))]
fn is_ours(_: &Metadata) -> bool {
    true
}

/// First bytes of a cache file. The number is the version of the format.
const FILE_HEADER: &[u8] = b"soybean cache 1\n";

/// Reads a cache file. Returns `None` if the file is damaged, or others can write to
/// it.
pub(super) fn read(file: &Path) -> Option<Vec<u8>> {
    let mut file = open(OpenOptions::new().read(true), file).ok()?;
    let found = file.metadata().ok()?;
    if !found.is_file() || !is_ours(&found) {
        return None;
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).ok()?;
    let (sum, contents) = bytes.strip_prefix(FILE_HEADER)?.split_first_chunk::<16>()?;
    (checksum(contents).to_le_bytes() == *sum).then(|| contents.to_vec())
}

/// Writes a cache file under a random name and renames it, so that readers never see part of it.
pub(super) fn write(file: &Path, contents: &[u8]) -> io::Result<()> {
    // The keys of hash maps are the random numbers of the standard library.
    let number = RandomState::new().build_hasher().finish();
    let unfinished = file.with_extension(format!("{number:016x}.tmp"));
    let bytes = [FILE_HEADER, &checksum(contents).to_le_bytes(), contents].concat();
    let mut created = open(OpenOptions::new().write(true).create_new(true), &unfinished)?;
    let written = created.write_all(&bytes).and_then(|()| fs::rename(&unfinished, file));
    if written.is_err() {
        let _gone = fs::remove_file(&unfinished);
    }
    written
}

/// Waits until no other process has locked a cache file, and locks it until the result is dropped.
/// Returns `None` if the file system has no locks.
pub(super) fn lock(file: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    let lock = open(options.write(true).create(true), &file.with_extension("lock")).ok()?;
    lock.lock().ok().map(|()| lock)
}

/// Opens a file, but not through a symbolic link. Only its owner can read and write a new file.
fn open(options: &mut OpenOptions, file: &Path) -> io::Result<File> {
    #[cfg(unix)]
    let options = {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600).custom_flags(libc::O_NOFOLLOW)
    };
    options.open(file)
}

/// Returns a 128-bit hash of several texts. Collisions by chance are negligible, and whoever can
/// write to the folder needs no collision. Source: Fowler, Noll & Vo 1991, FNV-1a.
pub(super) fn fingerprint(texts: &[&str]) -> u128 {
    // The lengths separate the texts.
    let bytes = texts.iter().flat_map(|it| {
        let length = (it.len() as u64).to_le_bytes();
        length.into_iter().chain(it.bytes())
    });
    bytes.fold(FNV_START, fold)
}

fn checksum(bytes: &[u8]) -> u128 {
    bytes.iter().copied().fold(FNV_START, fold)
}

const FNV_START: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const FNV_PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

fn fold(state: u128, byte: u8) -> u128 {
    (state ^ u128::from(byte)).wrapping_mul(FNV_PRIME)
}

#[cfg(test)]
mod tests;
