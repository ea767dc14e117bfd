//! The text form of graphs, before and after the passes.

mod support;

use expect_test::{Expect, expect};
use soybean_compiler::{Network, Optimizer, verify};

fn check(optimizer: &Optimizer, expected: &Expect) {
    let (builder, loss, _) = support::classifier(8, &[4, 6, 2], true);
    let raw =
        Network::differentiated(builder.clone(), loss, &[], optimizer).expect("the model is sound");
    verify(&raw).expect("the differentiated graph is sound");
    let network = Network::new(builder, loss, &[], optimizer).expect("the model is sound");
    verify(&network).expect("the fused graph is sound");
    expected.assert_eq(&network.graph.to_string());
}

#[test]
fn a_classifier_with_plain_sgd() {
    check(
        &Optimizer::default(),
        &expect![[r#"
        v0: f32[8, 4] = input "x"
        v1: f32[4, 6] = param "w0"
        v2: f32[8, 6] = contract ik,kj->ij (v0, v1)
        v3: f32[6] = param "b0"
        v4: f32[8, 6] = map {relu(add(x0, x1))} ij,j->ij (v2, v3)
        v5: f32[6, 2] = param "w1"
        v6: f32[8, 2] = contract ik,kj->ij (v4, v5)
        v7: f32[2] = param "b1"
        v8: i32[8] = input "y"
        v9: f32[8] = max {add(x0, x1)} ij,j->i (v6, v7)
        v10: f32[8, 2] = map {exp(sub(add(x1, x2), x0))} i,ij,j->ij (v9, v6, v7)
        v11: f32[8] = sum {x0} ij->i (v10)
        v12: f32[2] = iota ->_ ()
        v13: f32[8] = sum {select(eq(x0, x1), sub(add(x3, x4), x2), 0)} i,j,i,ij,j->i (v8, v12, v9, v6, v7)
        v14: f32[] = sum {mul(sub(log(x0), x1), 0.125)} i,i-> (v11, v13)
        v15: f32[8, 2] = map {add(select(eq(x0, x1), -0.125, 0), mul(div(0.125, x3), x2))} i,j,ij,i->ij (v8, v12, v10, v11)
        v16: f32[2] = sum {x0} ij->j (v15)
        v17: f32[8, 6] = contract ij,kj->ik (v15, v5)
        v18: f32[6, 2] = contract ik,ij->kj (v4, v15)
        v19: f32[8, 6] = map {select(gt(x0, 0), x1, 0)} ij,ij->ij (v4, v17)
        v20: f32[6] = sum {x0} ij->j (v19)
        v21: f32[4, 6] = contract ik,ij->kj (v0, v19)
        v22: f32[4, 6] = map {sub(x0, mul(s0, x1))} ij,ij->ij (v1, v21)
        v23: f32[6] = map {sub(x0, mul(s0, x1))} i,i->i (v3, v20)
        v24: f32[6, 2] = map {sub(x0, mul(s0, x1))} ij,ij->ij (v5, v18)
        v25: f32[2] = map {sub(x0, mul(s0, x1))} i,i->i (v7, v16)
    "#]],
    );
}
