//! Diagnostics of calls whose operands do not fit: a call as users write it, then the message, the
//! argument and the help.

mod images;
mod losses;

use soybean_compiler::{Argument, Builder, CallPart, Value};
use soybean_plan::{DType, Init};

/// The arguments of a call, the receiver first.
enum Given {
    /// A tensor of `f32`.
    Tensor(&'static [usize]),
    /// Labels.
    Labels(&'static [usize]),
    /// Anything else.
    Other(Argument),
}

use Given::{Labels, Tensor};

fn integer(value: i64) -> Given {
    Given::Other(Argument::Integer(value))
}

fn float(value: f64) -> Given {
    Given::Other(Argument::Float(value))
}

fn text(value: &str) -> Given {
    Given::Other(Argument::Text(value.to_owned()))
}

fn boolean(value: bool) -> Given {
    Given::Other(Argument::Boolean(value))
}

fn list(values: &[i64]) -> Given {
    Given::Other(Argument::List(values.iter().map(|&it| Argument::Integer(it)).collect()))
}

#[track_caller]
fn check(operator: &str, given: &[Given], expected: &str) {
    let mut builder = Builder::new();
    let argument = |it: &Given| match it {
        Tensor(shape) => Argument::Tensor(tensor(&mut builder, shape)),
        Labels(shape) => Argument::Tensor(builder.input("labels", DType::I32, shape)),
        Given::Other(argument) => argument.clone(),
    };
    let arguments: Vec<Argument> = given.iter().map(argument).collect();
    let fault = builder.call(operator, &arguments).unwrap_err();
    let place = match fault.at {
        CallPart::Call => "call".to_owned(),
        CallPart::Argument(position) => position.to_string(),
    };
    let help = fault.help.map_or(String::new(), |it| format!("; help: {it}"));
    let message = fault.message.strip_prefix(&format!("`{operator}`: ")).unwrap();
    assert_eq!(format!("{place}: {message}{help}"), expected, "{operator}");
}

fn tensor(builder: &mut Builder, shape: &[usize]) -> Value {
    builder.parameter("tensor", shape, Init::Constant(0.0))
}

#[test]
fn comparisons_and_choices() {
    const HELP: &str = "; help: aligned at the last dim, each pair of extents must be equal, or one of them 1 or missing";
    let shapes = format!("1: shapes [2, 3] and [2] do not broadcast{HELP}");
    for operator in ["add", "eq", "ne", "lt", "le", "gt", "ge", "minimum", "maximum"] {
        check(operator, &[Tensor(&[2, 3]), Tensor(&[2])], &shapes);
        check(
            operator,
            &[Tensor(&[2]), text("x")],
            &format!(
                "1: `{}` must be a tensor, found a string",
                if operator == "add" { "right" } else { "other" }
            ),
        );
    }
    check("eq", &[integer(1), integer(2)], "0: `input` must be a tensor, found an integer");
    check(
        "minimum",
        &[Labels(&[2]), Tensor(&[2])],
        "0: takes operands of one type, found i32 and f32; help: `.to_f32()` makes numbers of integers",
    );
    check(
        "where_",
        &[Tensor(&[2, 3]), Tensor(&[3]), Tensor(&[4])],
        &format!("2: shapes [2, 3] and [4] do not broadcast{HELP}"),
    );
    check(
        "clamp",
        &[Tensor(&[2]), float(1.5), integer(1)],
        "2: `high` must not be less than `low`, found 1.5 and 1",
    );
    check(
        "clamp",
        &[Tensor(&[2]), Tensor(&[2]), integer(1)],
        "1: `low` must be a number, found a tensor",
    );
}

#[test]
fn shapes() {
    const EIGHT: &[usize] = &[1, 1, 1, 1, 1, 1, 1, 1];
    check(
        "unsqueeze",
        &[Tensor(&[2]), integer(2)],
        "1: dim 2 is out of range for a tensor of 2 dims",
    );
    check("unsqueeze", &[Tensor(EIGHT), integer(0)], "0: a tensor has at most 8 dims, found 9");
    check("squeeze", &[Tensor(&[2, 1]), integer(0)], "1: dim 0 must have extent 1, found 2");
    check(
        "squeeze",
        &[Tensor(&[1]), integer(-2)],
        "1: dim -2 is out of range for a tensor of 1 dims",
    );
    check(
        "expand",
        &[Tensor(&[2, 3]), list(&[2, 6])],
        "1: [2, 3] does not expand to [2, 6]; help: aligned at the last dim, each extent must be the same, or 1 or missing before",
    );
    check("expand", &[Tensor(&[2]), list(&[-1, 2])], "1: extents must be positive, found [-1, 2]");
    check("expand", &[Tensor(&[1]), list(&[1; 9])], "1: a tensor has at most 8 dims, found 9");
    check("reshape", &[Tensor(&[4]), list(&[3])], "1: [4] has 4 elements, [3] has 3");
}

#[test]
fn reductions() {
    check("min", &[Tensor(&[2]), list(&[0, -1])], "1: dim 0 is given twice");
    check(
        "var",
        &[Tensor(&[2]), integer(0), integer(2)],
        "2: `correction` must be 0 or 1, found 2",
    );
    check(
        "std",
        &[Tensor(&[2, 1]), integer(-1), integer(1)],
        "1: a variance with correction 1 needs at least 2 elements, found 1",
    );
    check(
        "logsumexp",
        &[Tensor(&[2]), integer(1)],
        "1: dim 1 is out of range for a tensor of 1 dims",
    );
}

#[test]
fn norms() {
    let (x, w) = (|| Tensor(&[4, 6]), || Tensor(&[6]));
    check("layer_norm", &[x(), w(), Tensor(&[4]), float(0.1)], "2: `bias` must be [6], found [4]");
    check("layer_norm", &[x(), x(), w(), float(0.1)], "1: `weight` must be [6], found [4, 6]");
    check(
        "layer_norm",
        &[x(), w(), w(), float(-0.1)],
        "3: `eps` must be a number from 0 to 3.4e38, found -0.1",
    );
    check(
        "rms_norm",
        &[Tensor(&[]), w(), float(0.1)],
        "0: takes tensors of at least 1 dim, found a scalar",
    );
    check("rms_norm", &[x(), Tensor(&[4]), float(0.1)], "1: `weight` must be [6], found [4]");
    check(
        "group_norm",
        &[x(), integer(4), w(), w(), float(0.1)],
        "1: `n_groups` must divide the 6 channels, found 4",
    );
    check(
        "group_norm",
        &[x(), integer(0), w(), w(), float(0.1)],
        "1: `n_groups` must divide the 6 channels, found 0",
    );
    check(
        "group_norm",
        &[w(), integer(1), w(), w(), float(0.1)],
        "0: the input must be [n, channels, ..], found [6]",
    );
}

#[test]
fn equations() {
    const HELP: &str =
        "; help: letters for the dims of both operands and of the result, as in `ij,jk->ik`";
    let check = |equation: &str, expected: &str| {
        check("einsum", &[Tensor(&[2, 3]), text(equation), Tensor(&[3, 4])], expected);
    };
    check("ij,jk", &format!("1: the equation must have `->` and a result, found \"ij,jk\"{HELP}"));
    check("ij->i", &format!("1: the equation must have 2 operands, found 1{HELP}"));
    check("i,j,k->i", &format!("1: the equation must have 2 operands, found 3{HELP}"));
    check("..i,ij->j", &format!("1: dims are letters, found `.`{HELP}"));
    check("ijk,jk->i", "0: \"ijk\" has 3 dims, the operand [2, 3]");
    check("ij,k->i", "2: \"k\" has 1 dims, the operand [3, 4]");
    check("ij,ik->jk", "2: `i` is 2, but here 3");
    check("ii,jk->i", "0: `i` is 2, but here 3");
    check("ij,jk->in", "1: `n` of the result is in no operand");
    check("ij,jk->ikk", "1: `k` stands twice in the result");
    self::check(
        "einsum",
        &[Tensor(&[1; 5]), text("abcde,fghij->abcdefghij"), Tensor(&[1; 5])],
        "1: a tensor has at most 8 dims, found 10",
    );
    self::check(
        "einsum",
        &[Tensor(&[1]), integer(1), Tensor(&[1])],
        "1: `equation` must be a string, found an integer",
    );
}

#[test]
fn attention() {
    const HELP: &str =
        "; help: query [.., h, n, d], key [.., g, m, d], value [.., g, m, e], where g divides h";
    let check = |[query, key, value]: [&'static [usize]; 3], expected: &str| {
        let given = [Tensor(query), Tensor(key), Tensor(value), boolean(false)];
        check("scaled_dot_product_attention", &given, &format!("{expected}{HELP}"));
    };
    check([&[4], &[4], &[4]], "0: takes tensors of at least 2 dims, found [4]");
    let heads = |h: usize, g| format!("1: {h} heads of queries cannot share {g} heads of keys");
    check([&[2, 4, 3], &[5, 4, 3], &[2, 4, 3]], &heads(2, 5));
    check([&[6, 4, 3], &[4, 4, 3], &[4, 4, 3]], &heads(6, 4));
    check(
        [&[3, 2, 4, 3], &[1, 2, 4, 3], &[3, 2, 4, 3]],
        "1: leading dims differ: [3, 2] vs [1, 2]",
    );
    check([&[2, 4, 3], &[4, 3], &[4, 3]], "1: leading dims differ: [2] vs []");
    let values = |found| format!("2: leading dims of keys and values differ: {found}");
    check([&[4, 3], &[4, 3], &[2, 4, 3]], &values("[] vs [2]"));
    check([&[4, 4, 3], &[2, 4, 3], &[4, 4, 3]], &values("[2] vs [4]"));
    check([&[4, 3], &[4, 5], &[4, 3]], "1: queries have 3 features, but keys 5");
    check([&[4, 3], &[5, 3], &[4, 3]], "2: there are 5 keys, but 4 values");
    let qkv = || Tensor(&[2, 2]);
    self::check(
        "scaled_dot_product_attention",
        &[qkv(), qkv(), qkv(), integer(1)],
        "3: `is_causal` must be `true` or `false`, found an integer",
    );
    const EIGHT: &[usize] = &[1, 1, 1, 1, 1, 2, 4, 3];
    const SHARED: &[usize] = &[1, 1, 1, 1, 1, 1, 4, 3];
    self::check(
        "scaled_dot_product_attention",
        &[Tensor(EIGHT), Tensor(SHARED), Tensor(SHARED), boolean(false)],
        "0: a tensor has at most 8 dims, found 9",
    );
    let window = |shapes: [&'static [usize]; 3], window, expected| {
        let [query, key, value] = shapes.map(Tensor);
        self::check("sliding_window_attention", &[query, key, value, integer(window)], expected);
    };
    window([&[2, 2]; 3], 0, "3: `window` must be at least 1, found 0");
    window(
        [&[4, 3], &[2, 3], &[2, 3]],
        1,
        "1: there are 4 queries, but only 2 keys; help: each query sees the key of its position",
    );
}

#[test]
fn elements_in_order_and_by_their_indices() {
    let input = || Tensor(&[2, 3]);
    let order = |it: &str| Given::Other(Argument::Text(it.to_owned()));
    check(
        "topk",
        &[input(), integer(4), integer(1)],
        "1: `k` is at most 3, the elements of dim 1, found 4",
    );
    check("topk", &[input(), integer(0), integer(1)], "1: `k` must be at least 1, found 0");
    check(
        "sort",
        &[input(), integer(1), order("down")],
        "2: `order` must be `\"ascending\"` or `\"descending\"`, found \"down\"",
    );
    check(
        "argsort",
        &[input(), integer(2), order("ascending")],
        "1: dim 2 is out of range for a tensor of 2 dims",
    );
    check(
        "gather",
        &[input(), integer(1), Labels(&[3, 3])],
        "2: but for dim 1, the indices must be within [2, 3], found [3, 3]",
    );
    check(
        "gather",
        &[input(), integer(1), input()],
        "2: the indices must be i32, found f32; help: write its type as `Tensor<i32, 2, 3>`",
    );
    check(
        "scatter_add",
        &[input(), integer(0), Labels(&[4, 3]), Tensor(&[3, 3])],
        "3: the source must have an element for each index, [4, 3], found [3, 3]",
    );
}

#[test]
fn parts_and_joined_tensors() {
    check(
        "slice",
        &[Tensor(&[2, 3]), integer(2), integer(0), integer(1)],
        "1: dim 2 is out of range for a tensor of 2 dims",
    );
    check(
        "slice",
        &[Tensor(&[2, 3]), integer(1), integer(-1), integer(2)],
        "3: -1..2 is not a part of dim 1, which has 3 elements; help: a part has at least 1 element",
    );
    check(
        "slice",
        &[Tensor(&[2, 3]), integer(1), integer(-4), integer(2)],
        "2: -4..2 is not a part of dim 1, which has 3 elements; help: a part has at least 1 element",
    );
    check(
        "split",
        &[Tensor(&[2, 3]), list(&[3, 0]), integer(1)],
        "1: sizes must be positive, found [3, 0]",
    );
    check(
        "pad",
        &[Tensor(&[2, 3]), list(&[1]), integer(0)],
        "1: the padding of a tensor of 2 dims is at most 2 pairs of numbers, found [1]; \
         help: before and after the last dim, then the one before it, and so on",
    );
    check("concat", &[list(&[]), integer(0)], "0: takes at least 1 tensor, found 0");
    check(
        "stack",
        &[Tensor(&[2]), integer(0)],
        "0: `tensors` must be an array of tensors, found a tensor",
    );
    check(
        "embedding",
        &[Labels(&[1; 8]), Tensor(&[3, 4])],
        "0: a tensor has at most 8 dims, found 9",
    );
    check(
        "argmax",
        &[Labels(&[2, 3]), integer(0)],
        "0: takes tensors of f32, found i32; help: `.to_f32()` makes numbers of integers",
    );
    check(
        "cumsum",
        &[Tensor(&[2, 3]), integer(-3)],
        "1: dim -3 is out of range for a tensor of 2 dims",
    );
    let mut builder = Builder::new();
    let words = Argument::Tensor(builder.input("words", DType::I32, &[2, 3]));
    let padding = Argument::List(vec![Argument::Integer(0), Argument::Integer(2)]);
    let padded = builder.call("pad", &[words, padding, Argument::Integer(-1)]).unwrap();
    let table = Argument::Tensor(tensor(&mut builder, &[9, 4]));
    let fault = builder.call("embedding", &[padded, table]).unwrap_err();
    assert_eq!(fault.message, "`embedding`: integers must be in 0..9, but are padded with -1");
}

#[test]
fn inferred_repeated_and_broadcast_shapes() {
    let x = || Tensor(&[4, 6]);
    check("reshape", &[x(), list(&[-1, -1])], "1: only one extent can be -1, found [-1, -1]");
    check(
        "reshape",
        &[x(), list(&[-1, 5])],
        "1: [4, 6] has 24 elements, which the others, 5, do not divide",
    );
    check("reshape", &[x(), list(&[-2, 12])], "1: extents must be positive, found [-2, 12]");
    check("repeat", &[x(), list(&[2])], "1: a number for each dim of [4, 6] is needed, found [2]");
    check(
        "matmul",
        &[Tensor(&[2, 3, 4]), Tensor(&[3, 4, 5])],
        "1: batch dimensions differ: [2] vs [3]; help: aligned at the last one, leading dims must be equal, or one of them 1 or missing",
    );
    check("tril", &[Tensor(&[3]), integer(0)], "0: takes tensors of at least 2 dims, found 1");
    check(
        "chunk",
        &[Tensor(&[6]), integer(4), integer(0)],
        "1: dim 0 of 6 elements has no 4 parts of 2, the last one smaller",
    );
    check("arange", &[integer(0)], "0: `end` must be at least 1, found 0");
    check("full", &[list(&[2, 0]), float(1.0)], "0: extents must be positive, found [2, 0]");
    check(
        "normalize",
        &[x(), integer(0), float(0.0)],
        "2: `eps` must be a number from 1e-18 to 3.4e38, found 0",
    );
}

#[test]
fn sizes() {
    let large = Given::Other(Argument::Integer(i64::MAX));
    let message = "1: integers are at most 2147483647, found 9223372036854775807";
    check("one_hot", &[Labels(&[2]), large], message);
    check(
        "slice",
        &[Tensor(&[4]), integer(0), integer(1), integer(1 << 31)],
        "3: integers are at most 2147483647, found 2147483648",
    );
    check(
        "one_hot",
        &[Labels(&[1 << 30]), integer(1 << 30)],
        "call: a tensor has at most 17592186044416 elements, found [1073741824, 1073741824]",
    );
    check(
        "expand",
        &[Tensor(&[1, 1]), list(&[1 << 30, 1 << 30])],
        "call: a tensor has at most 17592186044416 elements, found [1073741824, 1073741824]",
    );
    check(
        "pad",
        &[Tensor(&[4]), list(&[i64::from(i32::MAX), 0]), integer(0)],
        "call: a dim has at most 2147483647 elements, found 2147483651",
    );
    check(
        "reshape",
        &[Tensor(&[4]), list(&[i64::from(i32::MAX); 8])],
        "1: [4] has 4 elements, [2147483647, 2147483647, 2147483647, 2147483647, 2147483647, 2147483647, 2147483647, 2147483647] has 18446744073709551615",
    );
}
