//! rust-analyzer on a crate with models. It is a component of rustup, beside the sources of the
//! standard library: `rustup component add rust-analyzer rust-src`.
#![expect(clippy::print_stdout, reason = "skipped tests say why")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::rustc::newest;

/// A model with mistakes that only its evaluation finds, and uses of what is generated.
const SOURCE: &str = "
    #[soybean::layer]
    pub fn block(x: soybean::Tensor, width: usize) -> soybean::Tensor {
        soybean::nn::linear(x, width).relu()
    }
    #[soybean::model(gpus = 4096, search = \"thorough\")]
    pub mod wrong {
        use soybean::{nn, prelude::*};
        pub fn forward(x: Tensor<f32, 8, 784>, y: Tensor<i32, 8>) -> (Tensor, Tensor) {
            let h = super::block(x, 3).reshape([3, 5]);
            #[cfg(never)]
            let h = nothing(h);
            let logits = nn::linear(h, 10);
            (logits.cross_entropy(y), logits)
        }
    }
    pub fn bytes() -> u64 {
        wrong::Trainer::PLAN.bytes_total
    }
    pub fn length(batch: wrong::Batch<'_>) -> usize {
        batch.x.len() + batch.y.len()
    }
";

/// Returns the errors that rust-analyzer finds, or `None` if it is not installed.
fn errors(source: &str) -> Option<Vec<String>> {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let sysroot = PathBuf::from(String::from_utf8(sysroot.stdout).ok()?.trim());
    let standard = sysroot.join("lib/rustlib/src/rust/library");
    let analyzer = sysroot.join("bin/rust-analyzer");
    if !standard.is_dir() || !analyzer.is_file() {
        return None;
    }
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("editors");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("lib.rs"), source).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let names = ["soybean_eager", "soybean_plan", "soybean_runtime"];
    let dependency =
        |(index, name): (usize, &&str)| serde_json::json!({"crate": index + 2, "name": name});
    let mut dependencies: Vec<_> = names.iter().enumerate().map(dependency).collect();
    dependencies.push(serde_json::json!({"crate": 1, "name": "soybean_macros"}));
    let library = |file: &str, dependencies: &[serde_json::Value]| serde_json::json!({"root_module": root.join(file), "edition": "2024", "deps": dependencies});
    let mut macros = library("soybean-macros/src/lib.rs", &[]);
    macros["is_proc_macro"] = true.into();
    let built = newest("libsoybean_macros-", env::consts::DLL_SUFFIX);
    macros["proc_macro_dylib_path"] = built.display().to_string().into();
    let crates = serde_json::json!([
        library("src/lib.rs", &dependencies),
        macros,
        library("soybean-eager/src/lib.rs", &[]),
        library("soybean-plan/src/lib.rs", &[]),
        library("soybean-runtime/src/lib.rs", &dependencies[1..2]),
        {
            "root_module": folder.join("lib.rs"), "edition": "2024", "is_workspace_member": true,
            "deps": [{"crate": 0, "name": "soybean"}],
        },
    ]);
    let project =
        serde_json::json!({"sysroot": sysroot, "sysroot_src": standard, "crates": crates});
    fs::write(folder.join("rust-project.json"), project.to_string()).unwrap();
    let output = Command::new(analyzer).arg("diagnostics").arg(&folder).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("scan complete"), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let error = |line: &str| line.split_once(": Error ").map(|(_, error)| error.to_owned());
    Some(text.lines().filter_map(error).collect())
}

// Guards: an editor expands the attributes without evaluating the model and without a search, and
// knows the types of what is generated.
#[test]
fn editors_know_what_is_generated() {
    // The model itself has no error in an editor.
    let mistakes = [("bytes_total", "byte_total"), ("batch.x.len", "batch.x.leng")];
    let wrong = mistakes.iter().fold(SOURCE.to_owned(), |it, (from, to)| it.replace(from, to));
    let Some(found) = errors(&wrong) else {
        println!("skipped: rustup has not installed rust-analyzer and rust-src");
        return;
    };
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found[0].contains("no field `byte_total` on type `Plan`"), "{found:#?}");
    assert!(found[1].contains("no method `leng` on type `&[f32]`"), "{found:#?}");
}
