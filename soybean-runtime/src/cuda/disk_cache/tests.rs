//! Tests of the cache of cubins.

use std::process;

use super::*;

/// A new folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("soybean-cubins-{name}-{}", process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn fingerprints_follow_the_published_function() {
    // Values for the empty text and for `a` from the authors' list.
    assert_eq!(checksum(b""), FNV_START);
    assert_eq!(checksum(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
}

#[test]
fn fingerprints_separate_texts() {
    assert_ne!(fingerprint(&["ab", "c"]), fingerprint(&["a", "bc"]));
    assert_ne!(fingerprint(&["ab", "c"]), fingerprint(&["ab", "d"]));
}

#[test]
fn damaged_cache_files_are_ignored() {
    let folder = Folder::new("files");
    let file = folder.0.join("it.cubin");
    assert_eq!(read(&file), None);
    write(&file, b"code").unwrap();
    assert_eq!(read(&file).as_deref(), Some(&b"code"[..]));
    let whole = fs::read(&file).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(&file, &damaged).unwrap();
        assert_eq!(read(&file), None, "byte {at}");
        fs::write(&file, &whole[..at]).unwrap();
        assert_eq!(read(&file), None, "{at} bytes");
    }
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1, "nothing unfinished stays");
}

#[cfg(unix)]
#[test]
fn files_and_folders_that_others_can_write_are_not_used() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = Folder::new("others");
    let set_mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let inner = folder.0.join("inner");
    assert!(is_usable(&inner));
    assert_eq!(mode(&inner), 0o700);
    let file = inner.join("it.cubin");
    write(&file, b"code").unwrap();
    assert_eq!((mode(&file), read(&file).as_deref()), (0o600, Some(&b"code"[..])));
    set_mode(&file, 0o622);
    assert_eq!(read(&file), None);
    set_mode(&file, 0o644);
    let link = inner.join("link.cubin");
    symlink(&file, &link).unwrap();
    assert_eq!((read(&file).is_some(), read(&link)), (true, None));
    for mode in [0o770, 0o707] {
        set_mode(&inner, mode);
        assert!(!is_usable(&inner), "{mode:o}");
    }
    set_mode(&inner, 0o755);
    assert!(is_usable(&inner));
}
