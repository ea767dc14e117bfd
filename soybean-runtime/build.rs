//! Passes on how far this crate is optimized, so that slow programs can say so.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let level = std::env::var("OPT_LEVEL").unwrap_or_default();
    println!("cargo::rustc-env=SOYBEAN_RUNTIME_OPT_LEVEL={level}");
}
