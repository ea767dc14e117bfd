//! PyTorch's names for what operators here are called, or written, otherwise.

mod modules;
mod names;

use super::{call_text, find};
use modules::MODULES;
use names::NAMES;

/// The counterpart of a name of PyTorch.
enum Counterpart {
    /// The operator of this name.
    Operator(&'static str),
    /// What is written in place of it.
    Text(&'static str),
    /// None, for this reason.
    Missing(&'static str),
}

/// Returns what to write for an operator of PyTorch that has another name here, as help; `None` for
/// other names. In-place variants such as `relu_` have no counterpart of their own.
#[must_use]
pub fn pytorch_counterpart(name: &str) -> Option<String> {
    if let Some((_, counterpart)) = NAMES.iter().find(|(it, _)| *it == name) {
        return Some(match counterpart {
            Counterpart::Operator(ours) => format!("PyTorch's `{name}` is `{}`", written(ours)?),
            Counterpart::Text(text) => format!("for PyTorch's `{name}`, write {text}"),
            Counterpart::Missing(reason) => {
                format!("PyTorch's `{name}` has no counterpart: {reason}")
            }
        });
    }
    if let Some((_, text)) = MODULES.iter().find(|(it, _)| *it == name) {
        return Some(format!("for PyTorch's `{name}`, write {text}"));
    }
    let in_place = name.strip_suffix('_')?;
    let call = written(in_place)?;
    Some(format!("operators change no tensor in place: write `x = {call}`"))
}

/// Returns the call of an operator, with `x` as the receiver of a method.
fn written(name: &str) -> Option<String> {
    let (form, row) = find(name)?;
    let call = call_text(form, row);
    let receiver = format!("{}.", row.arguments[0]);
    Some(match call.strip_prefix(&receiver) {
        Some(method) => format!("x.{method}"),
        None => call,
    })
}

#[cfg(test)]
mod tests {
    use super::{Counterpart, NAMES, find, pytorch_counterpart};

    #[test]
    fn names_are_given_once_and_lead_to_operators() {
        let names: std::collections::BTreeSet<_> = NAMES.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), NAMES.len(), "a name is there twice");
        for (name, counterpart) in NAMES {
            assert!(find(name).is_none(), "`{name}` is an operator");
            let methods: Vec<&str> = match counterpart {
                Counterpart::Operator(ours) => vec![ours],
                Counterpart::Missing(_) => Vec::new(),
                // The methods in the text, but for those of numbers.
                Counterpart::Text(text) => text
                    .split('.')
                    .skip(1)
                    .filter_map(|it| it.split_once('(').map(|(method, _)| method))
                    .filter(|it| it.chars().all(|it| it.is_alphanumeric() || it == '_'))
                    .filter(|it| *it != "ln")
                    .collect(),
            };
            for method in methods {
                assert!(find(method).is_some(), "`{name}` leads to `{method}`");
            }
        }
    }

    /// Common names of `torch`, `torch.Tensor` and `torch.nn.functional`.
    const PYTORCH: &str = "
    abs absolute acos acosh adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
    adaptive_max_pool1d adaptive_max_pool2d add addbmm addcdiv addcmul addmm addmv addr
    affine_grid all allclose alpha_dropout amax amin aminmax angle any arange arccos argmax
    argmin argsort argwhere as_tensor asin asinh atan atan2 atanh atleast_1d atleast_2d
    avg_pool1d avg_pool2d avg_pool3d backward baddbmm batch_norm bernoulli bilinear
    binary_cross_entropy binary_cross_entropy_with_logits bincount bitwise_and bitwise_not
    bitwise_or bitwise_xor block_diag bmm bool broadcast_tensors broadcast_to bucketize byte
    cat cdist ceil celu chain_matmul chunk clamp clamp_max clamp_min clip clone column_stack
    concat concatenate contiguous conv1d conv2d conv3d conv_transpose1d conv_transpose2d
    conv_transpose3d copysign corrcoef cos cosh cosine_embedding_loss cosine_similarity
    count_nonzero cov cpu cross cross_entropy ctc_loss cuda cummax cummin cumprod cumsum
    cumulative_trapezoid data deg2rad det detach diag diag_embed diagflat diagonal diff dim
    dist div divide dot double dropout dropout1d dropout2d dropout3d dsplit dstack einsum
    element_size elu embedding embedding_bag empty empty_like eq equal erf erfc erfinv exp exp2
    expand expand_as expm1 eye feature_alpha_dropout fix flatten flex_attention flip fliplr
    flipud float float_power floor floor_divide fmax fmin fmod fold frac full full_like gather
    gaussian_nll_loss gcd ge gelu glu grad greater greater_equal grid_sample group_norm gt
    gumbel_softmax half hardshrink hardsigmoid hardswish hardtanh heaviside
    hinge_embedding_loss histc hsplit hstack huber_loss hypot index_add index_copy index_fill
    index_put index_select instance_norm int interpolate inverse isclose isfinite isin isinf
    isnan item kl_div kron kthvalue l1_loss layer_norm lcm ldexp le leaky_relu lerp less
    less_equal lgamma linear linspace local_response_norm log log10 log1p log2 log_softmax
    logaddexp logaddexp2 logcumsumexp logical_and logical_not logical_or logical_xor logit
    logsigmoid logspace logsumexp long lp_pool1d lp_pool2d lt margin_ranking_loss masked_fill
    masked_scatter masked_select matmul matrix_exp max max_pool1d max_pool2d max_pool3d
    max_unpool2d maximum mean median meshgrid min minimum mish mm mode moveaxis movedim
    mse_loss mul multi_head_attention_forward multi_margin_loss multilabel_margin_loss
    multilabel_soft_margin_loss multinomial multiply mv nan_to_num nanmean nansum narrow ndim
    ne neg negative new_full new_ones new_zeros nll_loss nonzero norm normal normalize
    not_equal numel numpy one_hot ones ones_like outer pad pairwise_distance pdist permute
    pinverse pixel_shuffle pixel_unshuffle poisson_nll_loss polar positive pow prelu prod
    put_along_dim quantile rad2deg rand rand_like randint randn randn_like randperm ravel
    reciprocal relu relu6 remainder renorm repeat repeat_interleave requires_grad_ reshape
    reshape_as resize retain_grad rms_norm roll rot90 round rrelu rsqrt rsub
    scaled_dot_product_attention scatter scatter_add scatter_reduce searchsorted select selu
    sgn shape sigmoid sign signbit silu sin sinc sinh size slice_scatter smooth_l1_loss
    soft_margin_loss softmax softmin softplus softshrink softsign sort split sqrt square
    squeeze stack std std_mean stft sub subtract sum svd swapaxes swapdims t take
    take_along_dim tan tanh tanhshrink tensor tensor_split tensordot threshold tile to tolist
    topk trace transpose tril tril_indices triplet_margin_loss
    triplet_margin_with_distance_loss triu triu_indices true_divide trunc type type_as unbind
    unflatten unfold unique unsqueeze upsample upsample_bilinear upsample_nearest vander var
    var_mean vdot view view_as vsplit vstack where xlogy zero_ zeros zeros_like
    ";

    #[test]
    fn common_names_exist_or_have_help() {
        let is_unknown = |name: &&str| find(name).is_none() && pytorch_counterpart(name).is_none();
        let unknown: Vec<&str> = PYTORCH.split_whitespace().filter(is_unknown).collect();
        assert!(unknown.is_empty(), "neither an operator nor a counterpart: {unknown:?}");
    }

    #[test]
    fn counterparts_are_written_as_calls() {
        let check = |name: &str, expected: &str| {
            assert_eq!(pytorch_counterpart(name).as_deref(), Some(expected));
        };
        check("view", "PyTorch's `view` is `x.reshape(shape)`");
        check("cat", "PyTorch's `cat` is `concat(tensors, dim)`");
        check("trunc", "for PyTorch's `trunc`, write `x.to_i32().to_f32()`");
        check("Linear", "for PyTorch's `Linear`, write `nn::linear(x, out_features)`");
        check("relu_", "operators change no tensor in place: write `x = x.relu()`");
        check(
            "svd",
            "PyTorch's `svd` has no counterpart: there are no inverses and decompositions of matrices",
        );
        assert_eq!(pytorch_counterpart("relu"), None);
        assert_eq!(pytorch_counterpart("rellu"), None);
    }
}
