//! Opening files whose names users give. What is no regular file may block or never end, so it is
//! refused before it is read.

use std::{
    fs::{self, File, FileType},
    io::{self, ErrorKind, Read},
    path::Path,
};

/// Opens a regular file.
///
/// # Errors
/// If the file cannot be opened, or is a folder, a named pipe, a device or a socket.
pub fn open_file(path: &Path) -> io::Result<File> {
    // Opening a named pipe waits for a writer, so the name is checked first. The opened file is
    // checked too, because the name may have got another file in between.
    check(fs::metadata(path)?.file_type())?;
    let file = File::open(path)?;
    check(file.metadata()?.file_type())?;
    Ok(file)
}

/// Reads a regular file of at most `most` bytes.
///
/// # Errors
/// As [`open_file`], and if the file cannot be read or is longer.
pub fn read_file(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open_file(path)?;
    let mut bytes = Vec::new();
    // One byte more is read, so that a longer file is noticed, also if it grows meanwhile.
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let message = format!("more than the {most} bytes that are read of such a file");
        return Err(io::Error::new(ErrorKind::InvalidData, message));
    }
    Ok(bytes)
}

/// Reads a regular file of at most `most` bytes as text.
///
/// # Errors
/// As [`read_file`], and if the contents are not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    let text = String::from_utf8(read_file(path, most)?);
    text.map_err(|error| io::Error::new(ErrorKind::InvalidData, error.utf8_error().to_string()))
}

fn check(found: FileType) -> io::Result<()> {
    match found {
        it if it.is_file() => Ok(()),
        it if it.is_dir() => Err(io::Error::new(ErrorKind::IsADirectory, "a folder")),
        other => Err(io::Error::new(ErrorKind::InvalidInput, name(other))),
    }
}

#[cfg(unix)]
fn name(found: FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    match found {
        it if it.is_fifo() => "a named pipe, not a regular file",
        it if it.is_char_device() || it.is_block_device() => "a device, not a regular file",
        it if it.is_socket() => "a socket, not a regular file",
        _ => "something other than a regular file",
    }
}

#[cfg(not(unix))]
fn name(_: FileType) -> &'static str {
    "something other than a regular file"
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    // Guards: reading a device without end, and waiting for the writer of a named pipe.
    #[test]
    fn what_is_no_regular_file_is_refused() {
        let fault = |path: &Path| open_file(path).unwrap_err().to_string();
        assert_eq!(fault(Path::new("/dev/zero")), "a device, not a regular file");
        assert_eq!(fault(&std::env::temp_dir()), "a folder");
        let folder = std::env::temp_dir().join(format!("soybean-files-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(folder.join("socket")).unwrap();
        assert_eq!(fault(&folder.join("socket")), "a socket, not a regular file");
        let pipe = folder.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        if made.is_ok_and(|it| it.success()) {
            assert_eq!(fault(&pipe), "a named pipe, not a regular file");
        }
        let text = folder.join("text");
        fs::write(&text, "seven b").unwrap();
        assert_eq!(read_text(&text, 7).unwrap(), "seven b");
        let error = read_text(&text, 6).unwrap_err().to_string();
        assert_eq!(error, "more than the 6 bytes that are read of such a file");
        fs::remove_dir_all(&folder).unwrap();
    }
}
