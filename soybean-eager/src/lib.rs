//! The eager tensor, with which a model's function computes when it is called as ordinary Rust.
//!
//! It is the oracle for every generated trainer. So it follows the formulas, computes in double
//! precision for finite differences, and shares no code with the compiler or the kernels. It has no
//! gradients.
//!
//! ```
//! use soybean::eager::{self, Tensor};
//!
//! let x = Tensor::new([2, 2], &[1.0, -2.0, 3.0, 4.0]);
//! assert_eq!((x.relu() * 10).sum(0).to_vec(), [40.0, 40.0]);
//! ```

#![expect(
    clippy::panic,
    reason = "as in array libraries, mismatched operands are a bug of the caller, and panic"
)]

mod activation;
mod arena;
mod arithmetic;
mod attention;
mod by_name;
mod comparison;
mod convolution;
mod creation;
mod cross_entropy;
mod ctc;
mod dims;
mod dropout;
mod einsum;
mod elementwise;
mod indexing;
mod layout;
mod loss;
mod matmul;
mod noise;
mod norm;
mod ordering;
mod parameters;
mod pooling;
mod probe;
mod reduction;
mod resizing;
mod slicing;
mod strides;
mod tensor;
mod training;

pub use arena::scope;
pub use arithmetic::Operand;
pub use attention::{AttentionMask, AttentionSegments, Seen, Segments};
pub use by_name::{Argument, ScoreFunction, call, operator_names};
pub use convolution::PerDim;
pub use creation::{arange, full};
pub use dims::{Dim, Dims, Extent, Extents, Position};
pub use parameters::{
    Init, buffer, constant, he_normal, he_uniform, normal, ones, param, state, trunc_normal,
    uniform, with_parameters, xavier_normal, xavier_uniform, zeros,
};
pub use probe::with_probes;
pub use slicing::{PadValue, concat, stack};
pub use tensor::Tensor;
pub use training::in_training;

#[cfg(test)]
mod tests {
    use super::{Tensor, concat, param, stack, with_parameters, zeros};

    fn matrix() -> Tensor {
        Tensor::new([2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    }

    fn close(found: Tensor, shape: &[usize], expected: &[f64]) {
        assert_eq!(found.shape(), shape);
        for (found, expected) in found.to_vec().iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{found}, expected {expected}");
        }
    }

    #[test]
    fn literals_need_no_annotation() {
        let x = matrix();
        close((x * 2.0).relu() - (2 * x).relu(), &[2, 3], &[0.0; 6]);
        close((0.5 * x).sum([0, -1]) / 2 + x.max(..) - 1.0_f32, &[], &[10.25]);
        close(x.mean(x.dim(0) - 1), &[2], &[2.0, 5.0]);
    }

    #[test]
    fn products_over_leading_dims() {
        let x = matrix();
        close(x.matmul(x.transpose()), &[2, 2], &[14.0, 32.0, 32.0, 77.0]);
        let pair = Tensor::new([2, 1, 2], &[1.0, 0.0, 0.0, 1.0]);
        close(pair.matmul(x), &[2, 1, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let columns = Tensor::new([2, 2, 1], &[1.0, 2.0, 3.0, 4.0]);
        close(pair.matmul(columns), &[2, 1, 1], &[1.0, 4.0]);
    }

    #[test]
    fn broadcasting_and_orders_of_dims() {
        let (row, column) =
            (Tensor::new([3], &[1.0, 2.0, 3.0]), Tensor::new([2, 1], &[10.0, 20.0]));
        close(row + column, &[2, 3], &[11.0, 12.0, 13.0, 21.0, 22.0, 23.0]);
        close(matrix().permute([1, 0]), &[3, 2], &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        close(matrix().reshape([3, 1, 2]).flatten().sum(1), &[3], &[3.0, 7.0, 11.0]);
    }

    #[test]
    fn losses_by_their_formulas() {
        let logits = Tensor::new([2, 2], &[1000.0, 1000.0, 0.0, 3.0_f64.ln()]);
        close(logits.softmax(-1), &[2, 2], &[0.5, 0.5, 0.25, 0.75]);
        let loss = (2.0_f64.ln() + 4.0_f64.ln()) / 2.0;
        close(logits.cross_entropy(Tensor::new([2], &[1.0, 0.0])), &[], &[loss]);
        close(matrix().mse(matrix() + Tensor::new([3], &[0.0, 0.0, 3.0])), &[], &[3.0]);
        // erf(1 / sqrt(2)) = 0.682689492137086, the probability within one standard deviation.
        close(Tensor::scalar(1.0).gelu(), &[], &[f64::midpoint(1.0, 0.682_689_492_137_086)]);
    }

    #[test]
    fn products_in_index_notation() {
        let x = matrix();
        close(x.einsum("ij,kj->ki", x), &[2, 2], &[14.0, 32.0, 32.0, 77.0]);
        let square = x.einsum("ij,kj->ik", x);
        close(square.einsum("ii,i->i", Tensor::new([2], &[1.0, 2.0])), &[2], &[14.0, 154.0]);
        close(x.einsum(" ij , -> j", Tensor::scalar(2.0)), &[3], &[10.0, 14.0, 18.0]);
    }

    #[test]
    fn parts_and_joined_tensors() {
        let x = matrix();
        let [left, right] = x.split([1, 2], -1);
        close(concat([right, left], 1), &[2, 3], &[2.0, 3.0, 1.0, 5.0, 6.0, 4.0]);
        close(stack([left, left], 0).squeeze(2), &[2, 2], &[1.0, 4.0, 1.0, 4.0]);
        close(x.pad([-1, 0, 1, 0], 9.0), &[3, 2], &[9.0, 9.0, 2.0, 3.0, 5.0, 6.0]);
        close(x.slice(1, 1, 3).cumsum(0), &[2, 2], &[2.0, 3.0, 7.0, 9.0]);
        let ties = Tensor::new([2, 2], &[1.0, 1.0, 0.0, 3.0]);
        close(ties.argmax(1), &[2], &[0.0, 1.0]);
        close((x / -2).to_i32(), &[2, 3], &[0.0, -1.0, -1.0, -2.0, -2.0, -3.0]);
        close(Tensor::new([2], &[1.0, 0.0]).embedding(x).sum(1), &[2], &[15.0, 6.0]);
    }

    #[test]
    fn windows_of_even_and_of_unequal_sizes() {
        let image = Tensor::new([1, 1, 1, 3], &[1.0, 2.0, 4.0]);
        // Windows 0..2 and 1..3.
        close(image.adaptive_avg_pool2d([1, 2]), &[1, 1, 1, 2], &[1.5, 3.0]);
        let weight = Tensor::new([1, 1, 1, 2], &[1.0, 10.0]);
        let spread = image.conv_transpose2d(weight, [1, 2], 0, [0, 1], 1, 1);
        close(spread, &[1, 1, 1, 7], &[1.0, 10.0, 2.0, 20.0, 4.0, 40.0, 0.0]);
        // Each of two channels has itself and the one before it.
        let channels = Tensor::new([1, 3], &[1.0, 1.0, 2.0]);
        let divisors = [1.5, 2.0, 3.5];
        let expected: Vec<f64> = [1.0, 1.0, 2.0].iter().zip(divisors).map(|(x, d)| x / d).collect();
        close(channels.local_response_norm(2, 1.0, 1.0, 1.0), &[1, 3], &expected);
    }

    #[test]
    fn masks_and_choices() {
        let x = Tensor::new([3], &[-1.0, 0.0, f64::NAN]);
        close(x.ge(0) + x.lt(0.0) * 2, &[3], &[2.0, 1.0, 0.0]);
        close(x.ne(x) + x.eq(0) * 2, &[3], &[0.0, 2.0, 1.0]);
        close(x.where_(x.eq(x), 7).minimum(0.5).abs(), &[3], &[1.0, 0.0, 0.5]);
        let labels = Tensor::new([2], &[2.0, 0.0]);
        close(labels.one_hot(3), &[2, 3], &[0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
        let queries = Tensor::new([2, 1], &[1.0, 0.0]);
        let values = Tensor::new([2, 1], &[4.0, 8.0]);
        let attended = queries.scaled_dot_product_attention(queries, values, true);
        close(attended, &[2, 1], &[4.0, 6.0]);
    }

    #[test]
    fn operands_that_do_not_fit() {
        let check = |expected: &str, compute: fn(Tensor) -> Tensor| {
            let panic = std::panic::catch_unwind(|| compute(matrix()).item()).unwrap_err();
            assert_eq!(panic.downcast_ref::<String>().unwrap(), expected);
        };
        check("`eq`: shapes [2, 3] and [3, 2] do not broadcast", |x| x.eq(x.transpose()));
        check("`where_`: shapes [2, 3] and [6] do not broadcast", |x| x.where_(x, x.reshape([6])));
        check("`clamp`: `high` must not be less than `low`, found 1 and 0", |x| x.clamp(1.0, 0.0));
        check("`squeeze`: dim 0 must have extent 1, found 2", |x| x.squeeze(0));
        check("`unsqueeze`: no dim 3 in a tensor of 3 dims", |x| x.unsqueeze(3));
        check("`expand`: [2, 3] does not expand to [4, 3]", |x| x.expand([4, 3]));
        check("`var`: the correction is 0 or 1, found 2", |x| x.var(.., 2));
        check("`var`: correction 1 needs more than 1 elements", |x| {
            x.sum(0).unsqueeze(0).var(0, 1)
        });
        check("`layer_norm`: a scalar has no last dim", |x| x.sum(..).layer_norm(x, x, 0.1));
        check("`rms_norm`: weight and bias are [3], found [2]", |x| x.rms_norm(x.sum(1), 0.1));
        check("`group_norm`: the input is [n, channels, ..], found [3]", |x| {
            x.sum(0).group_norm(1, x, x, 0.1)
        });
        check("`group_norm`: 2 groups do not divide 3 channels", |x| x.group_norm(2, x, x, 0.1));
        check("`einsum`: \"ij\" is not of the form \"ij,jk->ik\"", |x| x.einsum("ij", x));
        check("`einsum`: \"ij,jk->ik\" does not fit [2, 3] and [2, 3]", |x| {
            x.einsum("ij,jk->ik", x)
        });
        check("`slice`: 2..4 is not a part of dim 1 of [2, 3]", |x| x.slice(1, 2, 4));
        check("`split`: sizes [1, 3] do not add up to dim 1 of [2, 3]", |x| x.split([1, 3], 1)[0]);
        check("`pad`: 3 numbers for 2 dims, which take at most two each", |x| x.pad([1; 3], 0.0));
        check("`pad`: nothing is left of dim 1 of [2, 3]", |x| x.pad([-2, -1], 0.0));
        check("`concat`: shapes [2, 3] and [3, 2] differ in more than dim 0", |x| {
            concat([x, x.transpose()], 0)
        });
        check("`embedding`: the weight is [rows, width], found [2]", |x| x.embedding(x.sum(1)));
        check("`embedding`: expected an integer, found 0.5", |x| (x * 0.5).embedding(x));
        check("`mse`: shapes [2, 3] and [2] differ", |x| x.mse(x.sum(1)));
        check("`huber_loss`: `delta` must be positive, found 0", |x| x.huber_loss(x, 0.0));
        check("`smooth_l1_loss`: `beta` must be positive, found -1", |x| x.smooth_l1_loss(x, -1.0));
        check("`one_hot`: expected an integer, found 0.5", |x| (x * 0.5).one_hot(3));
    }

    #[test]
    #[should_panic(expected = "`matmul`: inner dims differ: 3 and 2 in [2, 3] and [2, 3]")]
    fn shapes_that_do_not_fit() {
        let _ = matrix().matmul(matrix());
    }

    #[test]
    #[should_panic(expected = "`sum`: no dim to reduce is given; `..` reduces all dims")]
    fn an_empty_list_of_dims() {
        let _ = matrix().sum([0; 0]);
    }

    #[test]
    #[should_panic(expected = "`param(\"w\", ..)`: shape is [3, 4], but value 1 has shape [2, 3]")]
    fn parameters_of_another_shape() {
        let _ = with_parameters(&[matrix()], || param("w", [3, 4], zeros()));
    }

    #[test]
    #[should_panic(expected = "the tensor was made in an eager scope that has ended")]
    fn tensors_do_not_outlive_their_scope() {
        let _ = super::scope(|| matrix() + 1).to_vec();
    }

    // Guards: eager integers are those of trainers, modulo 2^32.
    #[test]
    fn integers_are_modulo_2_to_the_32() {
        let left = [i32::MAX, i32::MIN, -7, i32::MIN, 7, 0, 1 << 30];
        let right = [2, -1, 2, 3, 0, -5, 4];
        let (x, y) = (Tensor::integers([7], &left), Tensor::integers([7], &right));
        let check = |found: Tensor, rule: fn(i32, i32) -> i32| {
            let expected = left.iter().zip(right).map(|(x, y)| f64::from(rule(*x, y)));
            assert_eq!(found.to_vec(), expected.collect::<Vec<_>>());
            // What follows is of integers, too.
            assert_eq!((found * i32::MAX).reshape([7, 1]).sum(..).item().fract(), 0.0);
        };
        check(x + y, i32::wrapping_add);
        check(x - y, i32::wrapping_sub);
        check(x * y, i32::wrapping_mul);
        check(x.floor_divide(y), soybean_plan::floor_divide);
        check(x.remainder(y), soybean_plan::remainder);
        check(x.maximum(y), i32::max);
        check(x.minimum(y), i32::min);
        check(-x, |x, _| x.wrapping_neg());
        check(x.where_(x.gt(y), y), i32::max);
        let wrapping = |sum: i32, x: &i32| sum.wrapping_add(*x);
        assert_eq!(x.sum(..).item(), f64::from(left.iter().fold(0, wrapping)));
        assert_eq!(x.cumsum(0).to_vec()[6], x.sum(..).item());
        assert_eq!(
            (x.min(..).item(), x.max(..).item()),
            (f64::from(i32::MIN), f64::from(i32::MAX))
        );
        // Numbers are not wrapped, but casts saturate.
        assert_eq!((x.to_f32() * 2).to_vec()[0], 4_294_967_294.0);
        let casts = Tensor::new([4], &[3e9, -3e9, f64::NAN, -1.9]).to_i32();
        assert_eq!(casts.to_vec(), [i32::MAX, i32::MIN, 0, -1].map(f64::from));
        assert_eq!((casts + 1).to_vec()[0], f64::from(i32::MIN));
    }

    // Guards: equal numbers have no spread.
    #[test]
    fn spreads_of_equal_numbers() {
        for x in [0.3, 1000.1, -7e-5] {
            let x = Tensor::new([7], &[x; 7]);
            assert_eq!((x.var(.., 1).item(), x.std(.., 0).item()), (0.0, 0.0));
            let (ones, zeros) = (Tensor::new([7], &[1.0; 7]), Tensor::new([7], &[0.0; 7]));
            assert_eq!(x.layer_norm(ones, zeros, 1e-30).to_vec(), [0.0; 7]);
        }
    }
}
