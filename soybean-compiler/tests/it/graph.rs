//! The text form of graphs, before and after the passes.

use expect_test::{Expect, expect};
use soybean_compiler::{Argument, Optimizer, build_network, optimizer, training_step, verify};
use soybean_plan::NonFinite;

use crate::support;

fn check(optimizer: &Optimizer, expected: &Expect) {
    let (builder, loss, _) = support::classifier(8, &[4, 6, 2], true);
    let raw = training_step(builder.clone(), loss, &[], optimizer).expect("the model is sound");
    verify(&raw).expect("the differentiated graph is sound");
    let network = build_network(builder, loss, &[], optimizer).expect("the model is sound");
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
            v12: i32[2] = iota ->_ ()
            v13: f32[8] = sum {select(eq.i32(x0, x1), sub(add(x3, x4), x2), 0)} i,j,i,ij,j->i (v8, v12, v9, v6, v7)
            v14: f32[] = sum {sub(log(x0), x1)} i,i-> (v11, v13)
            v15: f32[] = map {div(x0, 8)} -> (v14)
            v16: f32[8, 2] = map {add(select(eq.i32(x0, x1), -0.125, 0), mul(div(0.125, x3), x2))} i,j,ij,i->ij (v8, v12, v10, v11)
            v17: f32[2] = sum {x0} ij->j (v16)
            v18: f32[8, 6] = contract ij,kj->ik (v16, v5)
            v19: f32[6, 2] = contract ik,ij->kj (v4, v16)
            v20: f32[8, 6] = map {select(gt(x0, 0), x1, 0)} ij,ij->ij (v4, v18)
            v21: f32[6] = sum {x0} ij->j (v20)
            v22: f32[4, 6] = contract ik,ij->kj (v0, v20)
            v23: f32[4, 6] = map {sub(x0, mul(s0, x1))} ij,ij->ij (v1, v22)
            v24: f32[6] = map {sub(x0, mul(s0, x1))} i,i->i (v3, v21)
            v25: f32[6, 2] = map {sub(x0, mul(s0, x1))} ij,ij->ij (v5, v19)
            v26: f32[2] = map {sub(x0, mul(s0, x1))} i,i->i (v7, v17)
        "#]],
    );
}

/// Tensors that neither the loss nor an output depends on: gradients, states and updates; and the
/// run-time scalars.
fn check_updates(optimizer: &Optimizer, expected: &Expect) {
    let (builder, loss, _) = support::classifier(8, &[4, 2], true);
    let network = build_network(builder, loss, &[], optimizer).expect("the model is sound");
    verify(&network).expect("the fused graph is sound");
    let is_forward = network.forward();
    let lines = network.graph.values().filter(|it| !is_forward[it.index()]);
    let lines: String = lines.map(|it| network.graph.line(it) + "\n").collect();
    expected.assert_eq(&format!("{lines}{:?}\n", network.scalars));
}

#[test]
fn clipped_gradients_have_a_norm() {
    let optimizer = Optimizer { clip_norm: Some(2.0), ..Optimizer::default() };
    check_updates(
        &optimizer,
        &expect![[r#"
            v12: f32[8, 2] = map {add(select(eq.i32(x0, x1), -0.125, 0), mul(div(0.125, x3), x2))} i,j,ij,i->ij (v4, v8, v6, v7)
            v13: f32[2] = sum {x0} ij->j (v12)
            v14: f32[4, 2] = contract ik,ij->kj (v0, v12)
            v15: f32[] = sum {mul(x0, x0)} ij-> (v14)
            v16: f32[] = sum {mul(x0, x0)} i-> (v13)
            v17: f32[] = total +,+->+ (v15, v16)
            v18: f32[] = map {sqrt(x0)} -> (v17)
            v19: f32[4, 2] = map {sub(x0, mul(s0, mul(x1, div(2, maximum(add(x2, 0.000001), 2)))))} ij,ij,->ij (v1, v14, v18)
            v20: f32[2] = map {sub(x0, mul(s0, mul(x1, div(2, maximum(add(x2, 0.000001), 2)))))} i,i,->i (v3, v13, v18)
            [LearningRate]
        "#]],
    );
}

#[test]
fn several_steps_share_an_update() {
    check_updates(
        &Optimizer { accumulate: 4, ..Optimizer::default() },
        &expect![[r#"
            v12: f32[8, 2] = map {add(select(eq.i32(x0, x1), -0.125, 0), mul(div(0.125, x3), x2))} i,j,ij,i->ij (v4, v8, v6, v7)
            v13: f32[2] = sum {x0} ij->j (v12)
            v14: f32[4, 2] = contract ik,ij->kj (v0, v12)
            v15: f32[] = map {select(s1, x0, 0)} -> (v11)
            v16: f32[4, 2] = state "w0.gradient_sum"
            v17: f32[4, 2] = accumulate ij,ij->ij (v16, v14)
            v18: f32[4, 2] = accumulated ij,ij->ij (v16, v14)
            v19: f32[4, 2] = map {sub(x0, mul(s0, mul(x1, s2)))} ij,ij->ij (v1, v18)
            v20: f32[2] = state "b0.gradient_sum"
            v21: f32[2] = accumulate i,i->i (v20, v13)
            v22: f32[2] = accumulated i,i->i (v20, v13)
            v23: f32[2] = map {sub(x0, mul(s0, mul(x1, s2)))} i,i->i (v3, v22)
            [LearningRate, HasBatch, InverseSteps]
        "#]],
    );
}

#[test]
fn averages_follow_parameters_and_some_parameters_are_not_decayed() {
    let decay = ("weight_decay".to_owned(), Argument::Float(0.1));
    let decayed = optimizer("sgd", &[decay]).expect("known");
    let no_decay = vec!["b*".to_owned()];
    check_updates(
        &Optimizer { ema: Some(0.75), no_decay, ..decayed },
        &expect![[r#"
            v12: f32[8, 2] = map {add(select(eq.i32(x0, x1), -0.125, 0), mul(div(0.125, x3), x2))} i,j,ij,i->ij (v4, v8, v6, v7)
            v13: f32[2] = sum {x0} ij->j (v12)
            v14: f32[4, 2] = contract ik,ij->kj (v0, v12)
            v15: f32[4, 2] = state "w0.ema"
            v16: f32[4, 2] = map {sub(x0, mul(s0, add(x1, mul(x0, 0.1))))} ij,ij->ij (v1, v14)
            v17: f32[4, 2] = map {add(mul(x2, 0.75), mul(sub(x0, mul(s0, add(x1, mul(x0, 0.1)))), 0.25))} ij,ij,ij->ij (v1, v14, v15)
            v18: f32[2] = state "b0.ema"
            v19: f32[2] = map {sub(x0, mul(s0, x1))} i,i->i (v3, v13)
            v20: f32[2] = map {add(mul(x2, 0.75), mul(sub(x0, mul(s0, x1)), 0.25))} i,i,i->i (v3, v13, v18)
            [LearningRate]
        "#]],
    );
}

#[test]
fn steps_that_are_not_finite_are_skipped() {
    let optimizer = Optimizer { non_finite: NonFinite::Skip, ..Optimizer::default() };
    check_updates(
        &optimizer,
        &expect![[r#"
            v12: f32[8, 2] = map {add(select(eq.i32(x0, x1), -0.125, 0), mul(div(0.125, x3), x2))} i,j,ij,i->ij (v4, v8, v6, v7)
            v13: f32[2] = sum {x0} ij->j (v12)
            v14: f32[4, 2] = contract ik,ij->kj (v0, v12)
            v15: f32[] = sum {mul(x0, x0)} ij-> (v14)
            v16: f32[] = sum {mul(x0, x0)} i-> (v13)
            v17: f32[] = total +,+->+ (v15, v16)
            v18: f32[] = map {sqrt(x0)} -> (v17)
            v19: f32[4, 2] = map {select(eq(add(mul(x2, 0), mul(x3, 0)), 0), sub(x0, mul(s0, x1)), x0)} ij,ij,,->ij (v1, v14, v11, v18)
            v20: f32[2] = map {select(eq(add(mul(x2, 0), mul(x3, 0)), 0), sub(x0, mul(s0, x1)), x0)} i,i,,->i (v3, v13, v11, v18)
            [LearningRate]
        "#]],
    );
}

#[test]
fn losses_are_scaled() {
    let optimizer =
        Optimizer { non_finite: NonFinite::Scale, accumulate: 2, ..Optimizer::default() };
    check_updates(
        &optimizer,
        &expect![[r#"
            v12: f32[8] = map {div(div(s0, 8), x0)} i->i (v7)
            v13: f32[8, 2] = map {add(select(eq.i32(x0, x1), neg(div(s0, 8)), 0), mul(x3, x2))} i,j,ij,i->ij (v4, v8, v6, v12)
            v14: f32[2] = sum {x0} ij->j (v13)
            v15: f32[4, 2] = contract ik,ij->kj (v0, v13)
            v16: f32[] = map {select(s2, x0, 0)} -> (v11)
            v17: f32[4, 2] = state "w0.gradient_sum"
            v18: f32[4, 2] = accumulate ij,ij->ij (v17, v15)
            v19: f32[4, 2] = accumulated ij,ij->ij (v17, v15)
            v20: f32[2] = state "b0.gradient_sum"
            v21: f32[2] = accumulate i,i->i (v20, v14)
            v22: f32[2] = accumulated i,i->i (v20, v14)
            v23: f32[] = sum {mul(mul(mul(x0, div(1, s0)), s3), mul(mul(x0, div(1, s0)), s3))} ij-> (v19)
            v24: f32[] = sum {mul(mul(mul(x0, div(1, s0)), s3), mul(mul(x0, div(1, s0)), s3))} i-> (v22)
            v25: f32[] = total +,+->+ (v23, v24)
            v26: f32[] = map {sqrt(x0)} -> (v25)
            v27: f32[4, 2] = map {select(eq(add(mul(x2, 0), mul(x3, 0)), 0), sub(x0, mul(s1, mul(mul(x1, div(1, s0)), s3))), x0)} ij,ij,,->ij (v1, v19, v16, v26)
            v28: f32[2] = map {select(eq(add(mul(x2, 0), mul(x3, 0)), 0), sub(x0, mul(s1, mul(mul(x1, div(1, s0)), s3))), x0)} i,i,,->i (v3, v22, v16, v26)
            [LossScale, LearningRate, HasBatch, InverseSteps]
        "#]],
    );
}
