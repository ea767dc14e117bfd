//! The depth to which expressions nest.

use expect_test::expect;

use super::check_body;

#[test]
fn expressions_nest_to_a_bounded_depth() {
    let body =
        |n: usize| format!("(x * param(\"w\", [6], ones())){}.mean(..)", ".relu()".repeat(n));
    check_body(
        &body(300),
        expect![[r#"
            gpus 2
            w [6]
        "#]],
    );
    check_body(
        &body(500),
        expect![[r#"
            1:47-783: expressions and calls nest at most 400 deep in a model
              help: give parts of it names with `let`
        "#]],
    );
    let sum = vec!["x"; 2400].join(" + ");
    check_body(
        &format!("(x * param(\"w\", [6], ones()) + {sum}).mean(..)"),
        expect![[r#"
            gpus 2
            w [6]
        "#]],
    );
    let functions: String =
        (0..100).map(|it| format!("fn f{}(x: Tensor) -> Tensor {{ f{it}(x) }} ", it + 1)).collect();
    check_body(
        &format!(
            "fn f0(x: Tensor) -> Tensor {{ x * param(\"w\", [6], ones()) }} {functions} f100(x).mean(..)"
        ),
        expect![[r#"
            gpus 2
            f100.f99.f98.f97.f96.f95.f94.f93.f92.f91.f90.f89.f88.f87.f86.f85.f84.f83.f82.f81.f80.f79.f78.f77.f76.f75.f74.f73.f72.f71.f70.f69.f68.f67.f66.f65.f64.f63.f62.f61.f60.f59.f58.f57.f56.f55.f54.f53.f52.f51.f50.f49.f48.f47.f46.f45.f44.f43.f42.f41.f40.f39.f38.f37.f36.f35.f34.f33.f32.f31.f30.f29.f28.f27.f26.f25.f24.f23.f22.f21.f20.f19.f18.f17.f16.f15.f14.f13.f12.f11.f10.f9.f8.f7.f6.f5.f4.f3.f2.f1.f0.w [6]
        "#]],
    );
}
