//! Losses and their options.

use super::{
    Given::{self, Labels, Tensor},
    check, float, integer, text,
};

#[test]
fn losses() {
    for operator in ["mse", "l1_loss", "binary_cross_entropy_with_logits"] {
        check(
            operator,
            &[Tensor(&[2, 3]), Tensor(&[3])],
            "1: the target must have the input's shape [2, 3], found [3]",
        );
    }
    let x = || Tensor(&[2]);
    check(
        "huber_loss",
        &[x(), x(), integer(0)],
        "2: `delta` must be a number above 0 in single precision, so from 1e-45 to 3.4e38, found 0",
    );
    check(
        "smooth_l1_loss",
        &[x(), x(), float(-1.5)],
        "2: `beta` must be a number above 0 in single precision, so from 1e-45 to 3.4e38, found -1.5",
    );
    check("one_hot", &[Labels(&[2]), integer(0)], "1: `n_classes` must be at least 1, found 0");
    check(
        "one_hot",
        &[Tensor(&[2, 3]), integer(4)],
        "0: the labels must be i32, found f32; help: write its type as `Tensor<i32, 2, 3>`",
    );
    check("one_hot", &[Labels(&[1; 8]), integer(4)], "0: a tensor has at most 8 dims, found 9");
    check(
        "cross_entropy",
        &[Tensor(&[2, 3]), integer(4)],
        "1: the labels must be a tensor, found an integer",
    );
    check("celu", &[x(), integer(0)], "1: `alpha` must be a number other than 0, found 0");
    check(
        "sigmoid_focal_loss",
        &[x(), x(), float(0.5), float(-1.0)],
        "3: `gamma` must be a number from 0 to 3.4e38, found -1",
    );
    check(
        "triplet_margin_loss",
        &[x(), x(), Tensor(&[3]), float(1.0)],
        "2: the negative tensor must have the input's shape [2], found [3]",
    );
    check(
        "cosine_embedding_loss",
        &[Tensor(&[2, 3]), Tensor(&[2, 3]), Labels(&[3]), float(0.0)],
        "2: the target must be [2], one for each row, found [3]",
    );
    check(
        "cosine_similarity",
        &[x(), x(), integer(0), integer(0)],
        "3: `eps` must be a number from 1e-18 to 3.4e38, found 0",
    );
}

#[test]
fn options_of_cross_entropy() {
    let with = |weight: Given, reduction: &str, smoothing: f64, expected: &str| {
        let (logits, labels) = (Tensor(&[2, 3]), Labels(&[2]));
        let given = [logits, labels, weight, integer(-100), text(reduction), float(smoothing)];
        check("cross_entropy_with", &given, expected);
    };
    let shape = "2: the weight must be a number or [3], one for each class, found [2]";
    with(Tensor(&[2]), "mean", 0.0, shape);
    let reduction = "4: `reduction` must be `\"mean\"`, `\"sum\"` or `\"none\"`, found \"average\"";
    with(float(1.0), "average", 0.0, reduction);
    with(float(1.0), "mean", 1.5, "5: `label_smoothing` must be a number from 0 to 1, found 1.5");
}
