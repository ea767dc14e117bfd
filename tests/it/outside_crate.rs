//! A crate outside the workspace with only the README's example builds and trains.

use std::{fs, path::Path, process::Command};

#[test]
fn the_example_of_the_readme_trains_in_a_crate_of_its_own() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let (_, rest) = readme.split_once("```rust\n").unwrap();
    let (program, _) = rest.split_once("```").unwrap();

    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (folder, target) = (temporary.join("outside"), temporary.parent().unwrap());
    fs::create_dir_all(folder.join("src")).unwrap();
    fs::write(folder.join("src/main.rs"), program).unwrap();
    let manifest = format!(
        "[package]\nname = \"outside\"\nedition = \"2024\"\n\n[dependencies]\nsoybean = {{ path = {:?} }}\n\n[workspace]\n\n[profile.dev]\ndebug = \"line-tables-only\"\n",
        root.display().to_string()
    );
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    // The locked versions are available without a network.
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();

    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--offline"])
        .current_dir(&folder)
        // The build of the tests is reused where features and profile are equal.
        .env("CARGO_TARGET_DIR", target)
        .output()
        .unwrap();
    let (text, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{errors}");
    let loss = |line: &str| line.rsplit_once("loss ")?.1.parse::<f64>().ok();
    let losses: Vec<f64> = text.lines().filter_map(loss).collect();
    assert!(losses.len() >= 2 && losses.last() < losses.first(), "{text}");
}
