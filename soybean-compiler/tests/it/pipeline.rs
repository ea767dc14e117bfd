//! The pipeline: each pass is shown to the observer in order, and its result is sound.

use expect_test::expect;
use soybean_compiler::{Model, Optimizer, Options, SearchRequest, compile_observed};
use soybean_plan::Precision;

use crate::support;

#[test]
fn the_observer_sees_each_pass_with_a_sound_result() {
    let (builder, loss, logits) = support::classifier(8, &[4, 16, 8], true);
    let outputs = [("logits".to_owned(), logits)];
    let options = Options {
        name: "classifier".to_owned(),
        n_gpus: 2,
        search: SearchRequest::default(),
        precision: Precision::F32,
        optimizer: Optimizer::default(),
    };
    let mut passes = String::new();
    let mut texts = Vec::new();
    let model = Model { builder, loss: Some(loss), outputs: &outputs };
    compile_observed(model, &options, &|| 0.0, &mut |name, stage| {
        assert_eq!(stage.verify(), Ok(()), "{name}");
        passes.push_str(name);
        passes.push('\n');
        texts.push(stage.text());
    })
    .unwrap();
    expect![[r#"
        differentiate
        add-updates
        simplify
        fuse
        round
        replicate
        search
        order
        lower
        overlap
        plan-memory
    "#]]
    .assert_eq(&passes);
    assert!(texts[0].contains("\ngradient of v1: "), "{}", texts[0]);
    assert!(texts[1].contains("\nupdate v1 = "), "{}", texts[1]);
    assert!(texts[10].contains("\narena: "), "{}", texts[10]);
}
