//! Error messages of the macro for wrong models. `accepted.rs` has the correct ones.

#[test]
fn messages() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
