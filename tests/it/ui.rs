//! What the macro says of models that are wrong. Those that are right are in `accepted.rs`.

#[test]
fn messages() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
