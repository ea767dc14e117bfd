//! Error messages of the macro for wrong models. `tests/it/accepted.rs` has correct ones.

#[test]
fn messages() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
