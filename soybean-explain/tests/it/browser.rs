//! Pages in headless Chromium.

use std::{fs, io::ErrorKind, path::Path, process::Command};

/// A page after its scripts have run.
pub(crate) struct Opened {
    /// The elements as text.
    pub(crate) text: String,
}

impl Opened {
    /// Counts the elements with all of these classes, in this order.
    pub(crate) fn count(&self, classes: &str) -> usize {
        let has = |it: &&str| {
            let found: Vec<&str> = it.split_once('"').unwrap().0.split(' ').collect();
            let wanted: Vec<&str> = classes.split(' ').collect();
            wanted.iter().all(|it| found.contains(it))
        };
        self.text.split(" class=\"").skip(1).filter(has).count()
    }

    /// Returns the number in an attribute.
    pub(crate) fn number(&self, attribute: &str) -> usize {
        let (_, rest) = self.text.split_once(&format!("{attribute}=\"")).unwrap();
        rest.split_once('"').unwrap().0.parse().unwrap()
    }

    /// Returns the tag of the root element, for messages.
    pub(crate) fn head(&self) -> &str {
        self.text.split_once("<head>").unwrap().0
    }
}

/// Opens a page at this fragment in a browser, with a script after the page's own. Returns none
/// without a browser.
///
/// # Panics
/// If a script fails.
#[expect(clippy::print_stderr, reason = "says what is not tested")]
pub(crate) fn opened(name: &str, page: &str, fragment: &str, script: &str) -> Option<Opened> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("page-{name}"));
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("page.html");
    let watch =
        "addEventListener('error', (it) => document.documentElement.dataset.failed = it.message);";
    let script = format!("<script>{watch}</script><script>{script}</script></body>");
    fs::write(&file, page.replace("</body>", &script)).unwrap();
    let output = ["chromium", "chromium-browser", "google-chrome"].iter().find_map(|browser| {
        let output = Command::new(browser)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--window-size=1400,1000", "--virtual-time-budget=20000", "--dump-dom"])
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .arg(format!("file://{}{fragment}", file.display()))
            .output();
        match output {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            other => Some(other.unwrap()),
        }
    });
    let Some(output) = output else {
        eprintln!("skipped: Chromium is not installed");
        return None;
    };
    let opened = Opened { text: String::from_utf8(output.stdout).unwrap() };
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(opened.text.contains("data-ready=\"true\""), "{name}: {complaints}");
    let (_, errors) = opened.text.split_once("<pre id=\"errors\"").unwrap();
    let errors = errors.split_once("</pre>").unwrap().0;
    assert_eq!(errors, " hidden=\"\">", "{name}");
    assert!(!opened.text.contains("data-failed="), "{}", opened.head());
    Some(opened)
}
