//! Files of weights that are cut, damaged or made to harm: an error names the file, is short and
//! can be shown by a terminal.

use std::{fs, path::Path, process::Command};

use soybean_checkpoint::{
    Error, ErrorKind,
    weights::{Mapping, load, save},
};
use soybean_plan::random::mixed;

use crate::memory_state::{MemoryState, folder, tensor};

fn fault(path: &Path) -> Option<Error> {
    load(&mut MemoryState::linear(100), path, &Mapping::new()).err()
}

fn check(error: &Error, path: &Path, what: &str) -> String {
    let text = error.to_string();
    // An index may name another file of its folder.
    let place = path.parent().unwrap().to_string_lossy();
    assert!(text.starts_with(&*place), "{what}: {text}");
    assert!(!text.chars().any(char::is_control), "{what}: {text:?}");
    assert!(text.len() < 9000, "{what}: {} bytes", text.len());
    text
}

/// Returns a file of tensors with this header.
fn with_header(header: &str) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat()
}

#[test]
fn no_cut_and_no_damage_panics() {
    let folder = folder("hostile");
    let path = folder.join("weights.safetensors");
    save(&path, &[tensor("w", &[2, 3], 0), tensor("b", &[3], 7)]).unwrap();
    let index = folder.join("weights.safetensors.index.json");
    let names = r#"{"weight_map": {"w": "weights.safetensors", "b": "weights.safetensors"}}"#;
    fs::write(&index, names).unwrap();
    for path in [&path, &index] {
        let whole = fs::read(path).unwrap();
        assert_eq!(fault(path), None);
        let mut n_refused = 0;
        let mut read = |bytes: &[u8], what: &str| {
            fs::write(path, bytes).unwrap();
            if let Some(error) = fault(path) {
                check(&error, path, what);
                n_refused += 1;
            }
        };
        (0..whole.len()).for_each(|at| read(&whole[..at], &format!("cut at {at}")));
        for seed in 0..600_u64 {
            let mut bytes = whole.clone();
            let place = usize::try_from(mixed(seed)).unwrap() % whole.len();
            bytes[place] =
                b"\"\\[]{}09\x1b\x9b\x00\xff"[usize::try_from(mixed(!seed)).unwrap() % 12];
            read(&bytes, &format!("damaged by {seed}"));
        }
        assert!(n_refused > whole.len(), "{n_refused}");
        fs::write(path, &whole).unwrap();
    }
}

// Guards: errors of 20 MB for a name of 20 MB, and for 400,000 names.
#[test]
fn long_names_and_many_names_give_short_errors() {
    let path = folder("names").join("weights.safetensors");
    let member = |name: &str| {
        format!("\"{name}\":{{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}")
    };
    fs::write(&path, with_header(&format!("{{{}}}", member(&"n".repeat(20_000_000))))).unwrap();
    let text = check(&fault(&path).unwrap(), &path, "a long name");
    assert!(text.contains("missing `w`, `b`; unused `nnn"), "{text}");
    let members: Vec<String> = (0..400_000).map(|it| member(&format!("layer.{it}.w"))).collect();
    fs::write(&path, with_header(&format!("{{{}}}", members.join(",")))).unwrap();
    let text = check(&fault(&path).unwrap(), &path, "many names");
    assert!(text.ends_with(", and 399980 others"), "{text}");
    let escape = member("\\u001b]0;own\\u0007\\u202e");
    fs::write(&path, with_header(&format!("{{{escape}}}"))).unwrap();
    let text = check(&fault(&path).unwrap(), &path, "escapes");
    assert!(text.contains("`\\u{1b}]0;own\\u{7}\\u{202e}`"), "{text}");
}

// Guards: a stack that overflows.
#[test]
fn deep_headers_are_refused() {
    let folder = folder("deep");
    let (path, index) = (folder.join("w.safetensors"), folder.join("w.safetensors.index.json"));
    let deep = "{\"a\":".repeat(300_000);
    fs::write(&path, with_header(&deep)).unwrap();
    fs::write(&index, &deep).unwrap();
    for path in [path, index] {
        check(&fault(&path).unwrap(), &path, "deep");
    }
}

#[test]
fn files_of_pytorch_are_named() {
    let path = folder("pytorch").join("model.pt");
    for start in [&b"PK\x03\x04\x00\x00\x08\x08\x00\x00"[..], b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j"] {
        fs::write(&path, [start, &[0; 90]].concat()).unwrap();
        let text = check(&fault(&path).unwrap(), &path, "PyTorch");
        assert!(
            text.ends_with("`safetensors.torch.save_file(model.state_dict(), path)`"),
            "{text}"
        );
    }
}

// Guards: a named pipe that is called a folder.
#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_refused() {
    let folder = folder("special");
    for name in ["w.safetensors", "w.safetensors.index.json"] {
        let path = folder.join(name);
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        let error = fault(&path).unwrap();
        assert_eq!(error.kind(), ErrorKind::Checkpoint);
        assert!(check(&error, &path, name).ends_with("a device, not a regular file"), "{error}");
        fs::remove_file(&path).unwrap();
        if Command::new("mkfifo").arg(&path).status().is_ok_and(|it| it.success()) {
            let text = check(&fault(&path).unwrap(), &path, name);
            assert!(text.ends_with("a named pipe, not a regular file"), "{text}");
        }
    }
}
