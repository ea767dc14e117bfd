//! Tests of the differences of plans.

use expect_test::{Expect, expect};
use soybean_compiler::{Options, Recipe, Strategy, optimizer};
use soybean_explain::{SavedPlan, Side, diff};
use soybean_plan::Precision;
use soybean_zoo::{Model, perceptron};

fn json(name: &str, strategy: Strategy, precision: Precision, model: Model) -> String {
    let options = Options {
        name: name.to_owned(),
        n_gpus: 4,
        search: strategy.into(),
        precision,
        optimizer: optimizer("sgd", &[]).unwrap(),
    };
    let recipe =
        Recipe { builder: model.builder, loss: Some(model.loss), outputs: Vec::new(), options };
    recipe.compile(&|| 0.0).unwrap().report.json()
}

fn model() -> Model {
    perceptron(16, &[32, 64, 16])
}

fn side(title: &str, json: &str) -> Side {
    Side { title: title.to_owned(), plan: SavedPlan::read(json).unwrap() }
}

fn check(left: &str, right: &str, expected: Expect) {
    expected.assert_eq(&diff(&side("left", left), &side("right", right)).unwrap());
}

#[test]
fn plans_differ_in_tilings_forms_and_conversions() {
    let auto = json("net", Strategy::Auto, Precision::F32, model());
    let data = json("net", Strategy::Data, Precision::F32, model());
    check(
        &auto,
        &data,
        expect![[r#"
            plans of `net`: `left` (strategy auto, 4 GPUs, f32) and `right` (strategy data, 4 GPUs, f32)

                                                left     right
              bytes moved in one training step  6.4 kB   75.7 kB  11.90 x
              memory of each GPU                11.5 kB  34.0 kB  2.96 x
              work over that of one device      1.00     1.00

            tensors with different tilings (13 have equal ones)
              tensor                  shape        left     right
              x                       f32[16, 32]  [r r]    [P0 P0]
              0.weight                f32[32, 64]  [P1 P1]  [r r]
              0.matmul                f32[16, 64]  [P1 P1]  [P0 P0]
              0.bias                  f32[64]      [P0 P0]  [r r]
              relu                    f32[16, 64]  [P1 P1]  [P0 P0]
              1.weight                f32[64, 16]  [P0 P0]  [r r]
              cross_entropy gradient  f32[16, 16]  [r r]    [P0 P0]
              1.matmul gradient       f32[16, 64]  [P1 P1]  [P0 P0]
              relu gradient           f32[16, 64]  [P1 P1]  [P0 P0]
              0.weight.grad           f32[32, 64]  [P1 P1]  [P0 P0]

            operators that run in another form
              operator  pass      signature  left   right
              0.matmul  forward   ik,kj->ij  [j j]  [i i]
              relu      forward   ij,j->ij   [j j]  [i i]
              1.matmul  forward   ik,kj->ij  [k k]  [i i]
              *.add     backward  ij->j      [j j]  [i i]
              1.matmul  backward  ij,kj->ik  [k k]  [i i]
              1.matmul  backward  ik,ij->kj  [k k]  [i i]
              relu      backward  ij,ij->ij  [j j]  [i i]
              0.matmul  backward  ik,ij->kj  [j j]  [i i]
              0.map     update    ij,ij->ij  [j j]  [i i]

            only `left` has 2 conversions, 6.1 kB
              3.1 kB  1.matmul [red red] -> [P0 P0]            for 1.matmul, forward
              3.1 kB  cross_entropy gradient [P0 P0] -> [r r]  for cross_entropy, backward

            only `right` has 7 conversions, 75.5 kB
              24.6 kB  0.weight.grad [red red] -> [P0 P0]  for 0.matmul, backward
              24.6 kB  0.weight' [P0 P0] -> [r r]          for 0.map, update
              12.3 kB  1.weight.grad [red red] -> [P0 P0]  for 1.matmul, backward
              12.3 kB  1.weight' [P0 P0] -> [r r]          for 1.map, update
              768 B    0.bias.grad [red red] -> [P0 P0]    for 0.add, backward
              768 B    0.bias' [P0 P0] -> [r r]            for 0.map, update
              192 B    1.bias.grad [red red] -> [P0 P0]    for 1.add, backward
        "#]],
    );
    check(
        &auto,
        &auto,
        expect![[r#"
            plans of `net`: `left` (strategy auto, 4 GPUs, f32) and `right` (strategy auto, 4 GPUs, f32)

                                                left     right
              bytes moved in one training step  6.4 kB   6.4 kB   1.00 x
              memory of each GPU                11.5 kB  11.5 kB  1.00 x
              work over that of one device      1.00     1.00

            only `left` has 0 conversions, 0 B

            only `right` has 0 conversions, 0 B
        "#]],
    );
}

#[test]
fn plans_of_other_graphs_are_compared_by_names() {
    let exact = json("net", Strategy::Data, Precision::F32, model());
    let rounded = json("net", Strategy::Auto, Precision::Bf16, model());
    check(
        &exact,
        &rounded,
        expect![[r#"
            plans of `net`: `left` (strategy data, 4 GPUs, f32) and `right` (strategy auto, 4 GPUs, bf16)

                                                left     right
              bytes moved in one training step  75.7 kB  3.3 kB   0.04 x
              memory of each GPU                34.0 kB  12.0 kB  0.35 x
              work over that of one device      1.00     1.00

            tensors with different tilings (6 have equal ones)
              tensor         shape        left     right
              x              f32[16, 32]  [P0 P0]  [r r]
              0.weight       f32[32, 64]  [r r]    [P1 P1]
              0.bias         f32[64]      [r r]    [P0 P0]
              1.weight       f32[64, 16]  [r r]    [P0 P0]
              0.weight.grad  f32[32, 64]  [P0 P0]  [P1 P1]

            operators that run in another form
              operator  pass      signature  left   right
              *.add     backward  ij->j      [i i]  [j j]
              1.matmul  backward  ik,ij->kj  [i i]  [k k]
              0.matmul  backward  ik,ij->kj  [i i]  [j j]
              0.map     update    ij,ij->ij  [i i]  [j j]

            only `left` has 8 conversions, 75.5 kB
              24.6 kB  0.weight.grad [red red] -> [P0 P0]  for 0.matmul, backward
              24.6 kB  0.weight' [P0 P0] -> [r r]          for 0.map, update
              12.3 kB  1.weight.grad [red red] -> [P0 P0]  for 1.matmul, backward
              12.3 kB  1.weight' [P0 P0] -> [r r]          for 1.map, update
              768 B    0.bias.grad [red red] -> [P0 P0]    for 0.add, backward
              768 B    0.bias' [P0 P0] -> [r r]            for 0.map, update
              192 B    1.bias.grad [red red] -> [P0 P0]    for 1.add, backward
              24 B     cross_entropy [red red] -> [r r]    for cross_entropy, forward

            only `right` has 3 conversions, 3.1 kB
              1.5 kB  1.matmul [red red] -> [P0 P0]            for 1.matmul, forward
              1.5 kB  cross_entropy gradient [P0 P0] -> [r r]  for cross_entropy, backward
              24 B    cross_entropy [red red] -> [r r]         for cross_entropy, forward
        "#]],
    );
}

#[test]
fn what_is_no_plan_is_refused() {
    let plan = json("net", Strategy::Auto, Precision::F32, model());
    let fault = |text: &str| SavedPlan::read(text).err().unwrap();
    let without = |from: &str, to: &str| {
        assert!(plan.contains(from), "{from} in {plan}");
        fault(&plan.replacen(from, to, 1))
    };
    let other = |json: &str| diff(&side("left", &plan), &side("right", json)).err().unwrap();
    let faults = [
        fault("P0"),
        fault("[1, 2]"),
        without("\"gpus\": 4", "\"gpus\": \"four\""),
        without("\"mode\"", "\"mood\""),
        without("\"tiling\"", "\"tilings\""),
        without("\"from\": [", "\"from\": [{}, "),
        without("\"ops\": [", "\"ops\": [3, "),
        without("\"output\": ", "\"output\": 999"),
        other(&json("other", Strategy::Auto, Precision::F32, model())),
        other(&json("net", Strategy::Auto, Precision::F32, perceptron(16, &[32, 72, 16]))),
        other(&json("net", Strategy::Auto, Precision::F32, perceptron(16, &[32, 64, 64, 16]))),
    ];
    expect![[r#"
        not JSON: expected value at line 1 column 1
        not a plan: expected a list at `tensors`
        not a plan: expected a whole number from 0 at `gpus`
        not a plan: expected a string at `mode`
        not a plan: expected a list at `tensors[0].tiling`
        not a plan: unexpected {} in `ops[2].conversions[0].from`
        not a plan: expected a list at `ops[0].conversions`
        not a whole plan: there is no tensor 9992
        `left` is a plan of `net`, `right` one of `other`
        the plans are of different versions of `net`: `0.bias` is f32[64] in `left`, but f32[72] in `right`
        the plans are of different versions of `net`: `1.bias` is f32[16] in `left`, but f32[64] in `right`"#]].assert_eq(&faults.join("\n"));
}

#[test]
fn plans_with_other_paddings_are_compared() {
    let model = || perceptron(30, &[24, 24, 24]);
    let auto = json("net", Strategy::Auto, Precision::F32, model());
    let data = json("net", Strategy::Data, Precision::F32, model());
    let (left, right) = (side("left", &auto), side("right", &data));
    assert!((right.plan.work - 32.0 / 30.0).abs() < 0.02, "{}", right.plan.work);
    let text = diff(&left, &right).unwrap();
    for part in ["work over that of one device", " f32[30, 24] ", " of [32, 24]"] {
        assert!(text.contains(part), "`{part}` in {text}");
    }
}

#[test]
fn plans_of_different_modes_are_not_compared() {
    let trained = json("net", Strategy::Auto, Precision::F32, model());
    let predicting = trained.replacen("\"mode\": \"training\"", "\"mode\": \"inference\"", 1);
    let message = diff(&side("left", &trained), &side("right", &predicting)).unwrap_err();
    assert_eq!(message, "`left` is a plan for training, `right` one for inference");
    let unknown = trained.replacen("\"mode\": \"training\"", "\"mode\": \"guessing\"", 1);
    let message = SavedPlan::read(&unknown).unwrap_err();
    assert_eq!(
        message,
        "not a plan: expected one of training, inference, found `guessing` at `mode`"
    );
}
