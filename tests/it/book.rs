//! The README and the book: pages, links, anchors, images, and the names in shell commands.

use std::{
    fs,
    path::{Path, PathBuf},
};

const ROOT_PAGES: [&str; 4] = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Returns the files of a folder and of the folders in it, with paths relative to the repository.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join(folder)).unwrap() {
        let path = Path::new(folder).join(entry.unwrap().file_name());
        if root().join(&path).is_dir() {
            found.extend(files(path.to_str().unwrap(), extension));
        } else if path.extension().is_some_and(|it| it == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> = ROOT_PAGES.iter().map(PathBuf::from).collect();
    pages.extend(files("docs", "md"));
    pages
}

/// The text of a page, split into prose and shell commands.
#[derive(Default)]
struct Text {
    prose: String,
    /// Lines of `sh` blocks and spans of inline code.
    commands: Vec<String>,
}

fn text_of(page: &Path) -> Text {
    let mut text = Text::default();
    let mut fence = None;
    for line in read(page).lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            fence = if fence.is_none() { Some(language.to_owned()) } else { None };
        } else if fence.as_deref() == Some("sh") {
            text.commands.push(line.to_owned());
        } else if fence.is_none() {
            text.prose.push_str(line);
            text.prose.push('\n');
        }
    }
    // Every second part between backticks is code.
    let prose = std::mem::take(&mut text.prose);
    for (index, part) in prose.split('`').enumerate() {
        if index % 2 == 0 {
            text.prose.push_str(part);
        } else {
            text.commands.push(part.replace('\n', " "));
        }
    }
    text
}

/// Returns the anchors that GitHub and mdBook give to the headings of a page.
fn anchors(page: &Path) -> Vec<String> {
    let anchor = |heading: &str| {
        let kept = heading.to_lowercase().replace(' ', "-");
        kept.chars().filter(|it| it.is_alphanumeric() || "-_".contains(*it)).collect()
    };
    let text = read(page);
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#').trim())).collect()
}

#[test]
fn the_summary_and_the_doc_tests_have_every_page() {
    let (summary, doc_tests) = (read("docs/SUMMARY.md"), read("src/book.rs"));
    for page in files("docs", "md") {
        let name = page.strip_prefix("docs").unwrap().to_str().unwrap();
        if name != "SUMMARY.md" {
            let n_entries = summary.matches(&format!("]({name})")).count();
            assert_eq!(n_entries, 1, "entries of {name} in SUMMARY.md");
            assert!(doc_tests.contains(&format!("../docs/{name}")), "{name} is not in src/book.rs");
        }
    }
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut faults = Vec::new();
    for page in pages() {
        let prose = text_of(&page).prose;
        let targets = prose.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
        for target in targets.filter(|it| !it.starts_with("http")) {
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            // The book has no files outside of its folder.
            let leaves_book = page.starts_with("docs") && path.starts_with("..");
            let file = if path.is_empty() { page.clone() } else { page.with_file_name(path) };
            let is_there = root().join(&file).exists();
            let has_heading = heading.is_empty()
                || is_there && anchors(&file).iter().any(|anchor| anchor == heading);
            if leaves_book || !is_there || !has_heading {
                faults.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(faults.is_empty(), "links without a target:\n{}", faults.join("\n"));
}

#[test]
fn commands_name_what_exists() {
    let sources = ["src", "examples", "tests/zoo", "soybean-runtime/benches"];
    let sources = sources.iter().flat_map(|folder| files(folder, "rs"));
    let sources: String = sources.map(read).collect();
    let mut faults = Vec::new();
    for page in pages() {
        for command in text_of(&page).commands {
            let command = command.split(" #").next().unwrap();
            faults.extend(
                unknown(command, &sources)
                    .map(|name| format!("{}: `{name}` in `{command}`", page.display())),
            );
        }
    }
    assert!(faults.is_empty(), "names that do not exist:\n{}", faults.join("\n"));
}

/// Returns the first word of a command that names an example, a crate, a benchmark, a script or a
/// flag that does not exist.
fn unknown<'a>(command: &'a str, sources: &str) -> Option<&'a str> {
    let words: Vec<&str> = command.split_whitespace().collect();
    if let Some(script) = words.iter().find(|it| it.starts_with("scripts/") && it.ends_with(".sh"))
    {
        return (!root().join(script).exists()).then_some(script);
    }
    let cargo = words.iter().position(|it| *it == "cargo")?;
    let end = words.iter().position(|it| *it == "--").unwrap_or(words.len());
    let exists = |paths: &[String]| paths.iter().any(|path| root().join(path).exists());
    for pair in words[cargo..end].windows(2) {
        let name = pair[1];
        let is_known = match pair[0] {
            "--example" => {
                let folders = ["examples", "soybean-explain/examples", "tests/zoo/examples"];
                let is_in =
                    |it: &&str| exists(&[format!("{it}/{name}.rs"), format!("{it}/{name}")]);
                name == "NAME" || folders.iter().any(is_in)
            }
            "-p" => {
                let inner = name.strip_prefix("soybean-").unwrap_or(name);
                name == "soybean"
                    || exists(&[name.to_owned(), format!("tests/{}", inner.replace('-', "_"))])
            }
            "--bench" => ["benches", "tests/zoo/benches", "soybean-runtime/benches"]
                .iter()
                .any(|it| exists(&[format!("{it}/{name}.rs"), format!("{it}/{name}")])),
            _ => true,
        };
        if !is_known {
            return Some(name);
        }
    }
    if words[cargo..].get(1) == Some(&"test") {
        return None; // the flags of libtest
    }
    let flags = words.iter().skip(end + 1).filter_map(|it| it.strip_prefix("--"));
    flags.into_iter().find(|flag| {
        let name = flag.split(['=', ']']).next().unwrap();
        name != "help"
            && !sources.contains(&format!("\"{name}\""))
            && !sources.contains(&format!("\"--{name}\""))
    })
}

#[test]
fn source_files_in_pages_exist() {
    let folders = [
        ".ci",
        "benches",
        "examples",
        "scripts",
        "src",
        "tests",
        "soybean-checkpoint",
        "soybean-cluster",
        "soybean-codegen",
        "soybean-compiler",
        "soybean-data",
        "soybean-eager",
        "soybean-explain",
        "soybean-macros",
        "soybean-minsum",
        "soybean-plan",
        "soybean-runtime",
        "soybean-simulator",
    ];
    let found: Vec<String> = ["rs", "sh", "cu", "py", "toml"]
        .iter()
        .flat_map(|extension| folders.iter().flat_map(|folder| files(folder, extension)))
        .map(|file| format!("/{}", file.display()))
        .collect();
    let mut faults = Vec::new();
    for page in pages() {
        for name in text_of(&page).commands {
            let is_source = [".rs", ".cu"].iter().any(|it| name.ends_with(it));
            if is_source
                && name != "src/main.rs"
                && !name.contains([' ', '*', '<'])
                && !found.iter().any(|file| file.ends_with(&format!("/{name}")))
            {
                faults.push(format!("{}: {name}", page.display()));
            }
        }
    }
    assert!(faults.is_empty(), "source files that do not exist:\n{}", faults.join("\n"));
}
