//! Crates that rustc compiles against the library that was built with this program.

use std::{env, fs, path::PathBuf, process::Command};

/// A crate of one file.
pub(crate) struct Crate<'a> {
    name: &'a str,
    source: &'a str,
    edition: &'a str,
    /// The text of its manifest. Without one, the library's name is not known from it.
    manifest: Option<&'a str>,
    /// The name under which the crate knows the library.
    library: &'a str,
    /// Other crates that it uses.
    dependencies: Vec<&'a Compiled>,
}

/// A message of rustc.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) level: String,
    pub(crate) code: String,
    pub(crate) text: String,
    /// The first and last line of the place.
    pub(crate) lines: (usize, usize),
}

/// A crate with the messages of its compilation.
pub(crate) struct Compiled {
    name: String,
    path: PathBuf,
    pub(crate) messages: Vec<Message>,
}

impl<'a> Crate<'a> {
    pub(crate) fn new(name: &'a str, source: &'a str) -> Self {
        let library = "soybean";
        Self { name, source, edition: "2024", manifest: None, library, dependencies: Vec::new() }
    }

    pub(crate) fn edition(self, edition: &'a str) -> Self {
        Self { edition, ..self }
    }

    pub(crate) fn manifest(self, manifest: &'a str) -> Self {
        Self { manifest: Some(manifest), ..self }
    }

    pub(crate) fn library(self, library: &'a str) -> Self {
        Self { library, ..self }
    }

    pub(crate) fn uses(mut self, dependency: &'a Compiled) -> Self {
        self.dependencies.push(dependency);
        self
    }

    /// Compiles the crate up to its metadata.
    pub(crate) fn compile(&self) -> Compiled {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("crates").join(self.name);
        fs::create_dir_all(&folder).unwrap();
        let (source, manifest) = (folder.join("lib.rs"), folder.join("Cargo.toml"));
        fs::write(&source, self.source).unwrap();
        let built = env::current_exe().unwrap();
        let built = built.parent().unwrap();
        let mut command = Command::new(env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned()));
        command
            .args(["--crate-name", self.name, "--edition", self.edition, "--crate-type", "lib"])
            .args(["--emit", "metadata", "--error-format", "json", "--extern"])
            .arg(format!("{}={}", self.library, newest("libsoybean-", ".rlib").display()))
            .arg("-L")
            .arg(format!("dependency={}", built.display()))
            .arg("--out-dir")
            .arg(&folder)
            .arg(&source)
            // Models need no search.
            .env("SOYBEAN_GPUS", "1")
            .env("CARGO_CRATE_NAME", self.name)
            .env_remove("CARGO_MANIFEST_DIR");
        for Compiled { name, path, .. } in &self.dependencies {
            command.arg("--extern").arg(format!("{name}={}", path.display()));
            command.arg("-L").arg(format!("dependency={}", path.parent().unwrap().display()));
        }
        if let Some(text) = self.manifest {
            fs::write(manifest, text).unwrap();
            command.env("CARGO_MANIFEST_DIR", &folder);
        }
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        let messages: Vec<_> = text.lines().filter_map(message).collect();
        assert!(output.status.success() || !messages.is_empty(), "{}: {text}", self.name);
        let path = folder.join(format!("lib{}.rmeta", self.name));
        Compiled { name: self.name.to_owned(), path, messages }
    }
}

/// Returns the newest file of a crate that was built beside this program. It is at least as new as
/// the one that this program uses.
pub(crate) fn newest(start: &str, end: &str) -> PathBuf {
    let program = env::current_exe().unwrap();
    let files = fs::read_dir(program.parent().unwrap()).unwrap().map(|it| it.unwrap());
    let is_one = |name: &str| name.starts_with(start) && name.ends_with(end);
    let files = files.filter(|it| is_one(&it.file_name().to_string_lossy()));
    let newest = files.max_by_key(|it| it.metadata().unwrap().modified().unwrap());
    newest.expect("this program depends on the crate").path()
}

fn message(line: &str) -> Option<Message> {
    let json: serde_json::Value = serde_json::from_str(line).ok()?;
    let text = |key: &str| json[key].as_str().unwrap_or_default().to_owned();
    let spans = json["spans"].as_array()?;
    let primary = spans.iter().find(|it| it["is_primary"] == true)?;
    let number = |key: &str| usize::try_from(primary[key].as_u64()?).ok();
    Some(Message {
        level: text("level"),
        code: json["code"]["code"].as_str().unwrap_or_default().to_owned(),
        text: text("message"),
        lines: (number("line_start")?, number("line_end")?),
    })
}
