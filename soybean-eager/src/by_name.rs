//! Operators by name, so that tests can compare every operator of the compiler's list with its
//! eager form.

mod attention;

use super::{
    Dim, Dims, Tensor,
    creation::{arange, filled},
    slicing::{concat, stack},
};

/// An argument of an operator; argument 0 is the receiver.
#[derive(Clone, Debug)]
pub enum Argument {
    /// A tensor.
    Tensor(Tensor),
    /// An integer.
    Integer(i64),
    /// A floating-point number.
    Float(f64),
    /// An array of integers.
    List(Vec<i64>),
    /// A boolean.
    Boolean(bool),
    /// A string.
    Text(String),
    /// An array of tensors.
    Tensors(Vec<Tensor>),
    /// A function of the score, the head, and the positions of query and key.
    Function(ScoreFunction),
    /// `..`
    All,
}

/// A function that [`Tensor::flex_attention`] takes.
pub type ScoreFunction = fn(Tensor, Tensor, Tensor, Tensor) -> Tensor;

/// Calls the operator of this name; returns its results, one for all operators except `split`,
/// `chunk`, `topk` and `sort`.
///
/// # Panics
/// If there is no such operator, or the arguments do not fit it.
#[must_use]
pub fn call(name: &str, arguments: &[Argument]) -> Vec<Tensor> {
    if let Some((name, function)) = WITH_SEVERAL_RESULTS.iter().find(|it| it.0 == name) {
        return function(&Arguments { name, list: arguments });
    }
    let operator = OPERATORS.iter().find(|operator| operator.0 == name);
    let (name, function) = operator.unwrap_or_else(|| panic!("no eager operator `{name}`"));
    vec![function(&Arguments { name, list: arguments })]
}

/// The name of an operator with several results, and the call of its method.
type ListOperator = (&'static str, fn(&Arguments<'_>) -> Vec<Tensor>);

const WITH_SEVERAL_RESULTS: &[ListOperator] = &[
    ("split", |it| it.tensor(0).parts(&it.extents(1), it.integer(2))),
    ("chunk", |it| it.tensor(0).chunks(it.extent(1), it.integer(2))),
    ("topk", |it| both(it.tensor(0).topk(it.extent(1), it.integer(2)))),
    ("sort", |it| both(it.tensor(0).sort(it.integer(1), it.text(2)))),
];

fn both(results: (Tensor, Tensor)) -> Vec<Tensor> {
    vec![results.0, results.1]
}

/// Returns the names that [`call`] knows.
#[must_use]
pub fn operator_names() -> Vec<&'static str> {
    let with_several = WITH_SEVERAL_RESULTS.iter().map(|operator| operator.0);
    OPERATORS.iter().map(|operator| operator.0).chain(with_several).collect()
}

/// The name of an operator, and the call of its method.
type Operator = (&'static str, fn(&Arguments<'_>) -> Tensor);

const OPERATORS: &[Operator] = &[
    ("matmul", |it| it.tensor(0).matmul(it.tensor(1))),
    ("add", |it| it.tensor(0) + it.tensor(1)),
    ("sub", |it| it.tensor(0) - it.tensor(1)),
    ("mul", |it| it.tensor(0) * it.tensor(1)),
    ("div", |it| it.tensor(0) / it.tensor(1)),
    ("floor_divide", |it| it.tensor(0).floor_divide(it.tensor(1))),
    ("remainder", |it| it.tensor(0).remainder(it.tensor(1))),
    ("neg", |it| -it.tensor(0)),
    ("relu", |it| it.tensor(0).relu()),
    ("relu6", |it| it.tensor(0).relu6()),
    ("leaky_relu", |it| it.tensor(0).leaky_relu(it.number(1))),
    ("tanh", |it| it.tensor(0).tanh()),
    ("sigmoid", |it| it.tensor(0).sigmoid()),
    ("gelu", |it| it.tensor(0).gelu()),
    ("gelu_tanh", |it| it.tensor(0).gelu_tanh()),
    ("silu", |it| it.tensor(0).silu()),
    ("exp", |it| it.tensor(0).exp()),
    ("log", |it| it.tensor(0).log()),
    ("sqrt", |it| it.tensor(0).sqrt()),
    ("rsqrt", |it| it.tensor(0).rsqrt()),
    ("square", |it| it.tensor(0).square()),
    ("abs", |it| it.tensor(0).abs()),
    ("sign", |it| it.tensor(0).sign()),
    ("expm1", |it| it.tensor(0).expm1()),
    ("log1p", |it| it.tensor(0).log1p()),
    ("sin", |it| it.tensor(0).sin()),
    ("cos", |it| it.tensor(0).cos()),
    ("erf", |it| it.tensor(0).erf()),
    ("floor", |it| it.tensor(0).floor()),
    ("ceil", |it| it.tensor(0).ceil()),
    ("round", |it| it.tensor(0).round()),
    ("reciprocal", |it| it.tensor(0).reciprocal()),
    ("softplus", |it| it.tensor(0).softplus()),
    ("logsigmoid", |it| it.tensor(0).logsigmoid()),
    ("mish", |it| it.tensor(0).mish()),
    ("softsign", |it| it.tensor(0).softsign()),
    ("hardsigmoid", |it| it.tensor(0).hardsigmoid()),
    ("hardswish", |it| it.tensor(0).hardswish()),
    ("selu", |it| it.tensor(0).selu()),
    ("elu", |it| it.tensor(0).elu(it.number(1))),
    ("celu", |it| it.tensor(0).celu(it.number(1))),
    ("pow", |it| it.tensor(0).pow(it.tensor(1))),
    ("eq", |it| it.tensor(0).eq(it.tensor(1))),
    ("ne", |it| it.tensor(0).ne(it.tensor(1))),
    ("lt", |it| it.tensor(0).lt(it.tensor(1))),
    ("le", |it| it.tensor(0).le(it.tensor(1))),
    ("gt", |it| it.tensor(0).gt(it.tensor(1))),
    ("ge", |it| it.tensor(0).ge(it.tensor(1))),
    ("logical_and", |it| it.tensor(0) & it.tensor(1)),
    ("logical_or", |it| it.tensor(0) | it.tensor(1)),
    ("logical_xor", |it| it.tensor(0) ^ it.tensor(1)),
    ("logical_not", |it| !it.tensor(0)),
    ("maximum", |it| it.tensor(0).maximum(it.tensor(1))),
    ("minimum", |it| it.tensor(0).minimum(it.tensor(1))),
    ("clamp", |it| it.tensor(0).clamp(it.number(1), it.number(2))),
    ("where_", |it| it.tensor(0).where_(it.tensor(1), it.tensor(2))),
    ("dropout", |it| it.tensor(0).dropout(it.number(1))),
    ("einsum", |it| it.tensor(0).einsum(it.text(1), it.tensor(2))),
    ("powi", |it| it.tensor(0).powi(it.exponent(1))),
    ("sum", |it| it.tensor(0).sum(it.dims(1))),
    ("mean", |it| it.tensor(0).mean(it.dims(1))),
    ("max", |it| it.tensor(0).max(it.dims(1))),
    ("min", |it| it.tensor(0).min(it.dims(1))),
    ("var", |it| it.tensor(0).var(it.dims(1), it.extent(2))),
    ("std", |it| it.tensor(0).std(it.dims(1), it.extent(2))),
    ("logsumexp", |it| it.tensor(0).logsumexp(it.integer(1))),
    ("softmax", |it| it.tensor(0).softmax(it.integer(1))),
    ("log_softmax", |it| it.tensor(0).log_softmax(it.integer(1))),
    ("layer_norm", |it| it.tensor(0).layer_norm(it.tensor(1), it.tensor(2), it.number(3))),
    ("rms_norm", |it| it.tensor(0).rms_norm(it.tensor(1), it.number(2))),
    ("batch_norm", |it| {
        let [x, mean, var, weight, bias] = [0, 1, 2, 3, 4].map(|at| it.tensor(at));
        x.batch_norm(mean, var, weight, bias, it.number(5), it.number(6))
    }),
    ("group_norm", |it| {
        it.tensor(0).group_norm(it.extent(1), it.tensor(2), it.tensor(3), it.number(4))
    }),
    ("local_response_norm", |it| {
        it.tensor(0).local_response_norm(it.extent(1), it.number(2), it.number(3), it.number(4))
    }),
    ("scaled_dot_product_attention", |it| {
        it.tensor(0).scaled_dot_product_attention(it.tensor(1), it.tensor(2), it.boolean(3))
    }),
    ("sliding_window_attention", |it| {
        it.tensor(0).sliding_window_attention(it.tensor(1), it.tensor(2), it.extent(3))
    }),
    ("attention_with", |it| {
        let [key, value, bias] = [1, 2, 5].map(|at| it.tensor(at));
        let (scale, p) = (it.number(6), it.number(7));
        it.tensor(0).attention_with(key, value, it.mask(3), it.segments(4), bias, scale, p)
    }),
    ("flex_attention", |it| {
        let (key, value) = (it.tensor(1), it.tensor(2));
        it.tensor(0).flex_attention(key, value, it.mask(3), it.segments(4), it.function(5))
    }),
    ("cross_entropy", |it| it.tensor(0).cross_entropy(it.tensor(1))),
    ("cross_entropy_with", |it| {
        let (labels, weight, reduction) = (it.tensor(1), it.tensor(2), it.text(4));
        it.tensor(0).cross_entropy_with(labels, weight, it.integer(3), reduction, it.number(5))
    }),
    ("nll_loss", |it| it.tensor(0).nll_loss(it.tensor(1))),
    ("sigmoid_focal_loss", |it| {
        it.tensor(0).sigmoid_focal_loss(it.tensor(1), it.number(2), it.number(3))
    }),
    ("kl_div", |it| it.tensor(0).kl_div(it.tensor(1))),
    ("per", |it| it.tensor(0).per(it.tensor(1))),
    ("cosine_similarity", |it| {
        it.tensor(0).cosine_similarity(it.tensor(1), it.integer(2), it.number(3))
    }),
    ("cosine_embedding_loss", |it| {
        it.tensor(0).cosine_embedding_loss(it.tensor(1), it.tensor(2), it.number(3))
    }),
    ("triplet_margin_loss", |it| {
        it.tensor(0).triplet_margin_loss(it.tensor(1), it.tensor(2), it.number(3))
    }),
    ("mse", |it| it.tensor(0).mse(it.tensor(1))),
    ("conv2d", |it| {
        let [x, weight] = [0, 1].map(|at| it.tensor(at));
        x.conv2d(weight, it.pair(2), it.pair(3), it.pair(4), it.extent(5))
    }),
    ("conv3d", |it| {
        let [x, weight] = [0, 1].map(|at| it.tensor(at));
        x.conv3d(weight, it.triple(2), it.triple(3), it.triple(4), it.extent(5))
    }),
    ("max_pool3d", |it| it.tensor(0).max_pool3d(it.triple(1), it.triple(2), it.triple(3))),
    ("avg_pool3d", |it| it.tensor(0).avg_pool3d(it.triple(1), it.triple(2), it.triple(3))),
    ("conv1d", |it| {
        it.tensor(0).conv1d(it.tensor(1), it.extent(2), it.extent(3), it.extent(4), it.extent(5))
    }),
    ("conv_transpose2d", |it| {
        let (x, weight, groups) = (it.tensor(0), it.tensor(1), it.extent(5));
        x.conv_transpose2d(weight, it.pair(2), it.pair(3), it.pair(4), groups, it.pair(6))
    }),
    ("max_pool1d", |it| it.tensor(0).max_pool1d(it.extent(1), it.extent(2), it.extent(3))),
    ("avg_pool1d", |it| it.tensor(0).avg_pool1d(it.extent(1), it.extent(2), it.extent(3))),
    ("interpolate", |it| it.tensor(0).interpolate(it.pair(1), it.text(2))),
    ("pixel_shuffle", |it| it.tensor(0).pixel_shuffle(it.extent(1))),
    ("pixel_unshuffle", |it| it.tensor(0).pixel_unshuffle(it.extent(1))),
    ("max_pool2d", |it| it.tensor(0).max_pool2d(it.pair(1), it.pair(2), it.pair(3))),
    ("avg_pool2d", |it| it.tensor(0).avg_pool2d(it.pair(1), it.pair(2), it.pair(3))),
    ("adaptive_avg_pool2d", |it| it.tensor(0).adaptive_avg_pool2d(it.pair(1))),
    ("global_avg_pool2d", |it| it.tensor(0).global_avg_pool2d()),
    ("ctc_loss", |it| it.tensor(0).ctc_loss(it.tensor(1), it.tensor(2), it.tensor(3))),
    ("ctc_loss_with", |it| {
        let [x, targets, inputs, lengths] = [0, 1, 2, 3].map(|at| it.tensor(at));
        let (blank, zero_infinity) = (it.extent(4), it.boolean(6));
        x.ctc_loss_with(targets, inputs, lengths, blank, it.text(5), zero_infinity)
    }),
    ("l1_loss", |it| it.tensor(0).l1_loss(it.tensor(1))),
    ("huber_loss", |it| it.tensor(0).huber_loss(it.tensor(1), it.number(2))),
    ("smooth_l1_loss", |it| it.tensor(0).smooth_l1_loss(it.tensor(1), it.number(2))),
    ("binary_cross_entropy_with_logits", |it| {
        it.tensor(0).binary_cross_entropy_with_logits(it.tensor(1))
    }),
    ("weighted_binary_cross_entropy_with_logits", |it| {
        let (target, weight, pos_weight) = (it.tensor(1), it.tensor(2), it.tensor(4));
        let x = it.tensor(0);
        x.weighted_binary_cross_entropy_with_logits(target, weight, it.text(3), pos_weight)
    }),
    ("binary_cross_entropy", |it| it.tensor(0).binary_cross_entropy(it.tensor(1))),
    ("one_hot", |it| it.tensor(0).one_hot(it.extent(1))),
    ("embedding", |it| it.tensor(0).embedding(it.tensor(1))),
    ("argmax", |it| it.tensor(0).argmax(it.integer(1))),
    ("argmin", |it| it.tensor(0).argmin(it.integer(1))),
    ("cumsum", |it| it.tensor(0).cumsum(it.integer(1))),
    ("argsort", |it| it.tensor(0).argsort(it.integer(1), it.text(2))),
    ("gather", |it| it.tensor(0).gather(it.integer(1), it.tensor(2))),
    ("scatter_add", |it| it.tensor(0).scatter_add(it.integer(1), it.tensor(2), it.tensor(3))),
    ("rand_like", |it| it.tensor(0).rand_like()),
    ("randn_like", |it| it.tensor(0).randn_like()),
    ("reshape", |it| {
        let x = it.tensor(0);
        x.reshaped(&x.inferred(it.integers(1)))
    }),
    ("repeat", |it| it.tensor(0).repeated(&it.extents(1))),
    ("repeat_interleave", |it| it.tensor(0).repeat_interleave(it.extent(1), it.integer(2))),
    ("roll", |it| it.tensor(0).roll(it.integer(1), it.integer(2))),
    ("flip", |it| it.tensor(0).flip(it.integer(1))),
    ("tril", |it| it.tensor(0).tril(it.integer(1))),
    ("triu", |it| it.tensor(0).triu(it.integer(1))),
    ("arange", |it| arange(it.extent(0))),
    ("full", |it| filled(&it.extents(0), it.number(1))),
    ("masked_fill", |it| it.tensor(0).masked_fill(it.tensor(1), it.number(2))),
    ("norm", |it| it.tensor(0).norm(it.dims(1))),
    ("normalize", |it| it.tensor(0).normalize(it.integer(1), it.number(2))),
    ("flatten", |it| it.tensor(0).flatten()),
    ("transpose", |it| it.tensor(0).transpose()),
    ("permute", |it| {
        let (x, order) = (it.tensor(0), it.integers(1));
        let rank = x.shape().len();
        let order: Vec<usize> = order.iter().map(|dim| dim.index("permute", rank)).collect();
        x.permuted(&order)
    }),
    ("unsqueeze", |it| it.tensor(0).unsqueeze(it.integer(1))),
    ("squeeze", |it| it.tensor(0).squeeze(it.integer(1))),
    ("expand", |it| it.tensor(0).expanded(&it.extents(1))),
    ("slice", |it| it.tensor(0).slice(it.integer(1), it.integer(2), it.integer(3))),
    ("pad", |it| match it.list.get(2) {
        Some(Argument::Text(mode)) => it.tensor(0).surrounded(it.integers(1), mode),
        _ => it.tensor(0).padded(it.integers(1), it.number(2)),
    }),
    ("concat", |it| concat(it.tensors(0), it.integer(1))),
    ("stack", |it| stack(it.tensors(0), it.integer(1))),
    ("to_f32", |it| it.tensor(0).to_f32()),
    ("to_i32", |it| it.tensor(0).to_i32()),
    ("detach", |it| it.tensor(0).detach()),
    ("assign", |it| it.tensor(0).assign(it.tensor(1))),
    ("probe", |it| it.tensor(0).probe(it.text(1))),
    ("tiled", |it| it.tensor(0).tiled(it.text(1))),
];

struct Arguments<'a> {
    name: &'a str,
    list: &'a [Argument],
}

impl Arguments<'_> {
    /// Returns a tensor, or a number as a scalar.
    fn tensor(&self, position: usize) -> Tensor {
        match self.list.get(position) {
            Some(Argument::Tensor(tensor)) => *tensor,
            Some(Argument::Integer(number)) => match i32::try_from(*number) {
                Ok(number) => Tensor::integers([], &[number]),
                Err(_) => Tensor::scalar(*number as f64),
            },
            _ => Tensor::scalar(self.number(position)),
        }
    }

    fn number(&self, position: usize) -> f64 {
        match self.list.get(position) {
            Some(Argument::Float(number)) => *number,
            Some(Argument::Integer(number)) => *number as f64,
            other => self.refuse(position, "a number", other),
        }
    }

    fn integer(&self, position: usize) -> i64 {
        match self.list.get(position) {
            Some(Argument::Integer(number)) => *number,
            other => self.refuse(position, "an integer", other),
        }
    }

    fn exponent(&self, position: usize) -> i32 {
        i32::try_from(self.integer(position)).expect("exponents are 32-bit integers")
    }

    /// Returns two numbers, or one number twice.
    fn pair(&self, position: usize) -> [usize; 2] {
        self.per_dim(position)
    }

    fn triple(&self, position: usize) -> [usize; 3] {
        self.per_dim(position)
    }

    fn per_dim<const N: usize>(&self, position: usize) -> [usize; N] {
        match self.list.get(position) {
            Some(Argument::Integer(number)) => [extent(*number); N],
            Some(Argument::List(numbers)) if numbers.len() == N => {
                std::array::from_fn(|at| extent(numbers[at]))
            }
            other => self.refuse(position, "an integer, or one for each dim", other),
        }
    }

    fn extent(&self, position: usize) -> usize {
        extent(self.integer(position))
    }

    fn boolean(&self, position: usize) -> bool {
        match self.list.get(position) {
            Some(Argument::Boolean(value)) => *value,
            other => self.refuse(position, "a truth value", other),
        }
    }

    fn text(&self, position: usize) -> &str {
        match self.list.get(position) {
            Some(Argument::Text(text)) => text,
            other => self.refuse(position, "a string", other),
        }
    }

    fn extents(&self, position: usize) -> Vec<usize> {
        self.integers(position).iter().map(|it| extent(*it)).collect()
    }

    fn integers(&self, position: usize) -> &[i64] {
        match self.list.get(position) {
            Some(Argument::List(numbers)) => numbers,
            other => self.refuse(position, "an array of integers", other),
        }
    }

    fn tensors(&self, position: usize) -> &[Tensor] {
        match self.list.get(position) {
            Some(Argument::Tensors(tensors)) => tensors,
            other => self.refuse(position, "an array of tensors", other),
        }
    }

    fn dims(&self, position: usize) -> AnyDims<'_> {
        match self.list.get(position) {
            Some(Argument::All) => AnyDims::All,
            Some(Argument::Integer(dim)) => AnyDims::Some(std::slice::from_ref(dim)),
            Some(Argument::List(dims)) => AnyDims::Some(dims),
            other => self.refuse(position, "dims", other),
        }
    }

    fn refuse(&self, position: usize, wanted: &str, found: Option<&Argument>) -> ! {
        panic!("`{}`: argument {position} is {wanted}, found {found:?}", self.name)
    }
}

fn extent(number: i64) -> usize {
    usize::try_from(number).expect("extents and orders of dims are not negative")
}

enum AnyDims<'a> {
    All,
    Some(&'a [i64]),
}

impl Dims for AnyDims<'_> {
    fn mask(self, operator: &str, rank: usize) -> Vec<bool> {
        match self {
            Self::All => (..).mask(operator, rank),
            Self::Some(dims) => dims.mask(operator, rank),
        }
    }
}
