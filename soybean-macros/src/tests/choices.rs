//! `match`, assertions and `matches!`.

use expect_test::expect;

use super::check_body;

// Guards: all kinds of literals, ranges, alternatives, guards and bindings in a `match`.
#[test]
fn matches_choose_among_constants() {
    check_body(
        r#"
        const SMALL: usize = 3;
        const MODE: &str = "wide";
        let a = match x.dim(0) { 0 => 1, 1 | 2 => 2, SMALL => 3, 4..6 => 4, n => n };
        let b = match MODE { "narrow" => 1, "wide" | "wider" if a == 4 => 5, _ => 9 };
        let c = match (a, true) { (0, _) => 1, (n @ 1..=4, true) => n + 2, _ => 9 };
        let d = match -2 { ..=-3 => 1, -2 => 7, _ => 9 };
        let e = match 1.5 { 0.0..1.0 => 1, 1.5 => 8, _ => 9 };
        let f = match 'c' { 'a'..='b' => 1, 'c' => 2, _ => 9 };
        let g = match b'x' { b'a' => 1, b'x' => 3, _ => 9 };
        let h = match [1, 2] { [1, n] => n + 2, _ => 9 };
        let i = match matches!(a, 3 | 4 if b == 5) { true => { 1 } false => 9 };
        let j = match x.dim(1) { 6 => x.relu(), _ => x.rellu() };
        j.sum(..) * param("w", [a, b, c, d, e, f], zeros()).sum(..) * param("v", [g, h, i], ones()).sum(..)
        "#,
        expect![[r#"
            12:22-29: a macro call is not part of the model language
              help: the model is built before macros in it are expanded; call functions and operators
            w [4, 5, 6, 7, 8, 2]
            v []
        "#]],
    );
    check_body(
        r#"
        let a = match x.dim(0) { 1 => 2 };
        let b = match x.dim(0) { "four" => 2, _ => 3 };
        let c = match x { 1 => 2, _ => 3 };
        let d = match y { 1 => 2, _ => 3 };
        (x * (a + b + c + d)).mean(..)
        "#,
        expect![[r#"
            2:16-21: no arm of this `match` takes the value
            3:33-39: this pattern is a string, but the value is an integer
            4:26-27: this pattern is an integer, but the value is a tensor
              help: `x.where_(condition, y)` chooses between the elements of tensors
            5:22-23: `y` is not known when the model is built
              help: did you mean `x`?
        "#]],
    );
}

// Guards: the words of an assertion, with names, positions and values in braces.
#[test]
fn assertions_that_fail_are_errors_in_their_words() {
    check_body(
        r#"
        const N: usize = 4;
        fn heads(x: Tensor, n_heads: usize) -> Tensor {
            let width = x.dim(1);
            assert!(width % n_heads == 0, "{n_heads} heads do not divide {width}");
            x.reshape([n_heads, width / n_heads])
        }
        assert!(true);
        assert_eq!(x.dim(0), 4, "never");
        debug_assert!(x.dim(0) == 4);
        heads(x, N);
        assert_ne!(2.0, 2.0);
        x.mean(..)
        "#,
        expect![[r#"
            5:12-82: 4 heads do not divide 6
              in: `heads(x, N)`
            12:8-28: this assertion fails: 2 and 2
        "#]],
    );
    check_body(
        r#"
        if x.dim(0) == 4 { panic!("{0} {{and}} {:?} {name} {}", x.dim(1), [1, 2], name = "n"); }
        x.rellu()
        "#,
        expect![[r#"
            2:27-93: 6 {and} 6 n [1, 2]
        "#]],
    );
    check_body(
        "assert!(x); assert!(z, \"z\"); println!(\"x\"); x.mean(..)",
        expect![[r#"
            1:55-56: an assertion needs a bool, found a tensor
              help: elements of tensors are not known when the model is built
            1:67-68: `z` is not known when the model is built
              help: did you mean `x`?
            1:76-83: a macro call is not part of the model language
              help: the model is built before macros in it are expanded; call functions and operators
        "#]],
    );
}
