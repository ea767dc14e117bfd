"""Writes golden.txt and optimizers.txt: values that NumPy finds for operators and optimizers.

golden.txt has calls of every operator with their values and gradients. Gradients are those of
sum(result * weights) by each tensor of f32, by central differences in double precision (an error of
about 1e-9). optimizers.txt has updates of every optimizer for given gradients.

The formulas are written here once more, in NumPy alone, so they share nothing with the eager tensor
or the compiler. Run it as `python3 tests/reference/make_golden.py`, with another path of
golden.txt to write both files elsewhere; equal versions of NumPy write equal files.
"""

import itertools
import math
import pathlib
import sys

import numpy as np

STEP = 1e-5
rng = np.random.default_rng(7)


def tensor(*shape, low=-2.0, high=2.0):
    # Short numbers are the same in single and in double precision.
    return np.round(rng.uniform(low, high, shape) * 256) / 256


def positive(*shape):
    return tensor(*shape, low=0.5, high=2.0)


def distinct(*shape):
    """Numbers of which no two are equal: the maximum of equal ones has no derivative."""
    n = math.prod(shape)
    return (rng.permutation(n).reshape(shape) - n // 2) / 128


class Labels(np.ndarray):
    """Integers, which have no gradient."""


def labels(*shape, classes):
    return rng.integers(0, classes, shape).astype(np.float64).view(Labels)


def given(*shape, elements):
    return np.array(elements, dtype=np.float64).reshape(shape).view(Labels)


class Buffer(np.ndarray):
    """Kept from step to step without a gradient."""


def buffer(*shape, low):
    return tensor(*shape, low=low).view(Buffer)


class Array(int):
    """So many of the next arguments are one array."""


def axes(dims):
    return None if dims is ... else tuple(dims) if isinstance(dims, list) else dims


def reduction(function):
    return lambda x, dims, *rest: function(x, axis=axes(dims), *rest)


def variance(x, dims, correction):
    return np.var(x, axis=axes(dims), ddof=correction)


def log_sum_exp(x, dim):
    return np.log(np.sum(np.exp(x), axis=dim))


def softmax(x, dim):
    return np.exp(x - np.expand_dims(log_sum_exp(x, dim), dim))


def cross_entropy(logits, y):
    chosen = np.take_along_axis(logits, np.asarray(y, dtype=int)[..., None], -1)[..., 0]
    return np.mean(log_sum_exp(logits, -1) - chosen)


def cross_entropy_with(logits, y, weight, ignored, reduction, smoothing):
    """As PyTorch's cross_entropy, row by row."""
    classes = logits.shape[-1]
    weight = np.broadcast_to(weight, classes)
    losses, total = np.zeros(np.shape(y)), 0.0
    for at in np.ndindex(losses.shape):
        label = int(y[at])
        if label == ignored:
            continue
        logarithms = np.log(softmax(logits[at], -1))
        losses[at] = -(1 - smoothing) * weight[label] * logarithms[label] - smoothing * np.mean(weight * logarithms)
        total += weight[label]
    return {"mean": np.sum(losses) / total, "sum": np.sum(losses), "none": losses}[reduction]


def nll_loss(x, y):
    return -np.mean(np.take_along_axis(x, np.asarray(y, dtype=int)[..., None], -1))


def focal(x, t, alpha, gamma):
    p = 1 / (1 + np.exp(-x))
    losses = -t * np.log(p) - (1 - t) * np.log(1 - p)
    miss = 1 - (p * t + (1 - p) * (1 - t))
    return np.mean((alpha * t + (1 - alpha) * (1 - t)) * miss**gamma * losses)


def cosine(x, y, dim, eps):
    lengths = [np.maximum(np.linalg.norm(it, axis=dim), eps) for it in (x, y)]
    return np.sum(x * y, dim) / (lengths[0] * lengths[1])


def cosine_embedding(x, y, t, margin):
    c, t = cosine(x, y, -1, 0), np.asarray(t)
    return np.mean(np.where(t == 1, 1 - c, np.maximum(c - margin, 0)))


def triplet(x, y, z, margin):
    distance = lambda other: np.linalg.norm(x - other + 1e-6, axis=-1)
    return np.mean(np.maximum(distance(y) - distance(z) + margin, 0))


def layer_norm(x, weight, bias, eps):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + eps) * weight + bias


def group_norm(x, n_groups, weight, bias, eps):
    result = np.empty_like(x)
    size = x.shape[1] // n_groups
    for sample in range(x.shape[0]):
        for first in range(0, x.shape[1], size):
            group = x[sample, first : first + size]
            result[sample, first : first + size] = (group - group.mean()) / np.sqrt(group.var() + eps)
    channels = (-1,) + (1,) * (x.ndim - 2)
    return result * weight.reshape(channels) + bias.reshape(channels)


def batch_norm(x, running_mean, running_var, weight, bias, momentum, eps):
    """As in training, where the running statistics are not read."""
    dims = (0, *range(2, x.ndim))
    normal = (x - x.mean(dims, keepdims=True)) / np.sqrt(x.var(dims, keepdims=True) + eps)
    channels = (-1,) + (1,) * (x.ndim - 2)
    return normal * weight.reshape(channels) + bias.reshape(channels)


def attention(q, k, v, is_causal, window=None):
    if q.ndim > 2:
        k, v = (np.repeat(it, q.shape[-3] // it.shape[-3], -3) for it in (k, v))
    scores = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    if window:
        scores = np.where(np.tri(*scores.shape[-2:], -window, dtype=bool), -np.inf, scores)
    return softmax(scores, -1) @ v


def sliding_window(q, k, v, window):
    return attention(q, k, v, True, window)


def attention_with(q, k, v, mask, *rest):
    """A query that sees no key gives zeros."""
    n, m, (bias, scale, p) = q.shape[-2], k.shape[-2], rest[-3:]
    if q.ndim > 2:
        k, v = (np.repeat(it, q.shape[-3] // it.shape[-3], -3) for it in (k, v))
    scores = scale * (q @ np.swapaxes(k, -1, -2)) + bias
    rows = lambda it: np.asarray(it).reshape(it.shape + (1,) * (scores.ndim - it.ndim))
    seen = np.ones(scores.shape, dtype=bool)
    if mask != "none":
        seen &= np.tri(n, m, dtype=bool)
    if isinstance(mask, int):
        seen &= ~np.tri(n, m, -mask, dtype=bool)
    if isinstance(rest[0], Labels):
        seen &= np.arange(m) < rows(rest[0])
    if isinstance(rest[0], Array):
        of_queries, of_keys = map(np.asarray, rest[1:3])
        same = of_queries[..., :, None] == of_keys[..., None, :]
        ones = (1,) * (scores.ndim - same.ndim)
        seen &= same.reshape(same.shape[:-2] + ones + (n, m))
    powers = np.where(seen, np.exp(scores), 0.0)
    total = powers.sum(-1, keepdims=True)
    return powers / np.where(total == 0.0, 1.0, total) @ v


def huber(x, t, delta):
    d = np.abs(x - t)
    return np.mean(np.where(d <= delta, d * d / 2, delta * (d - delta / 2)))


def binary_cross_entropy(x, t):
    s = 1 / (1 + np.exp(-x))
    return np.mean(-t * np.log(s) - (1 - t) * np.log(1 - s))


def weighted_binary_cross_entropy(x, t, weight, reduction, pos_weight):
    s = 1 / (1 + np.exp(-x))
    losses = weight * (-pos_weight * t * np.log(s) - (1 - t) * np.log(1 - s))
    return {"mean": np.mean, "sum": np.sum, "none": np.asarray}[reduction](losses)


def truth(function):
    return lambda x, y: function(x, y).astype(np.float64)


def pair(setting):
    return setting if isinstance(setting, list) else [setting, setting]


def windows(x, window, stride, padding, dilation, fill):
    """[n, c, rows, columns, window rows, window columns]"""
    (sy, sx), (py, px), (dy, dx) = pair(stride), pair(padding), pair(dilation)
    x = np.pad(x, ((0, 0), (0, 0), (py, py), (px, px)), constant_values=fill)
    reach = [dy * (window[0] - 1) + 1, dx * (window[1] - 1) + 1]
    rows = np.arange(0, x.shape[2] - reach[0] + 1, sy)[:, None] + dy * np.arange(window[0])
    columns = np.arange(0, x.shape[3] - reach[1] + 1, sx)[:, None] + dx * np.arange(window[1])
    return x[:, :, rows[:, None, :, None], columns[None, :, None, :]]


def conv2d(x, weight, stride, padding, dilation, groups):
    patches = windows(x, weight.shape[2:], stride, padding, dilation, 0.0)
    inputs, outputs = x.shape[1] // groups, weight.shape[0] // groups
    parts = [
        np.einsum(
            "ncyxij,ocij->noyx",
            patches[:, group * inputs : (group + 1) * inputs],
            weight[group * outputs : (group + 1) * outputs],
        )
        for group in range(groups)
    ]
    return np.concatenate(parts, axis=1)


def max_pool2d(x, window, stride, padding):
    return windows(x, pair(window), stride, padding, 1, -np.inf).max((4, 5))


def avg_pool2d(x, window, stride, padding):
    return windows(x, pair(window), stride, padding, 1, 0.0).mean((4, 5))


def in_one_row(pool):
    return lambda x, window, stride, padding: pool(x[:, :, None], [1, window], [1, stride], [0, padding])[:, :, 0]


def conv1d(x, weight, stride, padding, dilation, groups):
    result = conv2d(x[:, :, None], weight[:, :, None], [1, stride], [0, padding], [1, dilation], groups)
    return result[:, :, 0]


def triple(setting):
    return setting if isinstance(setting, list) else [setting] * 3


def volume_windows(x, window, stride, padding, dilation, fill):
    """[n, c, planes, rows, columns, window planes, window rows, window columns]"""
    padding, stride, dilation = triple(padding), triple(stride), triple(dilation)
    x = np.pad(x, ((0, 0), (0, 0), *((by, by) for by in padding)), constant_values=fill)
    places = []
    for dim in range(3):
        reach = dilation[dim] * (window[dim] - 1) + 1
        firsts = np.arange(0, x.shape[dim + 2] - reach + 1, stride[dim])
        places.append(firsts[:, None] + dilation[dim] * np.arange(window[dim]))
    z, y, x_ = places
    return x[:, :, z[:, None, None, :, None, None], y[None, :, None, None, :, None], x_[None, None, :, None, None, :]]


def conv3d(x, weight, stride, padding, dilation, groups):
    patches = volume_windows(x, weight.shape[2:], stride, padding, dilation, 0.0)
    inputs, outputs = x.shape[1] // groups, weight.shape[0] // groups
    parts = [
        np.einsum(
            "nczyxkij,ockij->nozyx",
            patches[:, group * inputs : (group + 1) * inputs],
            weight[group * outputs : (group + 1) * outputs],
        )
        for group in range(groups)
    ]
    return np.concatenate(parts, axis=1)


def max_pool3d(x, window, stride, padding):
    return volume_windows(x, triple(window), stride, padding, 1, -np.inf).max((5, 6, 7))


def avg_pool3d(x, window, stride, padding):
    return volume_windows(x, triple(window), stride, padding, 1, 0.0).mean((5, 6, 7))


def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    """By the list of all alignments: sequences of classes, without repetitions, without blanks."""
    losses = []
    for at in range(log_probs.shape[1]):
        frames, length = int(input_lengths[at]), int(target_lengths[at])
        target = [int(it) for it in targets[at, :length]]
        likelihood = -np.inf
        for alignment in itertools.product(range(log_probs.shape[2]), repeat=frames):
            if [it for it, _ in itertools.groupby(alignment) if it != blank] == target:
                logarithm = sum(log_probs[frame, at, it] for frame, it in enumerate(alignment))
                likelihood = np.logaddexp(likelihood, logarithm)
        losses.append(0.0 if zero_infinity and np.isinf(likelihood) else -likelihood)
    losses = np.array(losses)
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else (losses / np.maximum(target_lengths, 1)).mean()


def logarithms(*shape):
    return tensor(*shape, low=-3.0, high=-0.25)


def conv_transpose2d(x, weight, stride, padding, output_padding, groups, dilation):
    (sy, sx), (py, px), (oy, ox), (dy, dx) = map(pair, (stride, padding, output_padding, dilation))
    n, c, h, w = x.shape
    per_group, rows, columns = weight.shape[1:]
    full = np.zeros((n, groups * per_group, (h - 1) * sy + dy * (rows - 1) + 1 + oy, (w - 1) * sx + dx * (columns - 1) + 1 + ox))
    for channel in range(c):
        first = channel // (c // groups) * per_group
        for y, column, i, j in np.ndindex(h, w, rows, columns):
            pixels = x[:, channel, y, column, None] * weight[None, channel, :, i, j]
            full[:, first : first + per_group, y * sy + i * dy, column * sx + j * dx] += pixels
    return full[:, :, py : full.shape[2] - py, px : full.shape[3] - px]


def adaptive_avg_pool2d(x, size):
    (h, w), (rows, columns) = x.shape[2:], pair(size)
    result = np.empty(x.shape[:2] + (rows, columns))
    for i, j in np.ndindex(rows, columns):
        part = x[:, :, i * h // rows : -(-(i + 1) * h // rows), j * w // columns : -(-(j + 1) * w // columns)]
        result[:, :, i, j] = part.mean((2, 3))
    return result


def interpolate(x, size, mode):
    for axis, m in zip((2, 3), pair(size)):
        n = x.shape[axis]
        if mode == "nearest":
            x = np.take(x, np.arange(m) * n // m, axis)
            continue
        place = np.clip((np.arange(m) + 0.5) * n / m - 0.5, 0, n - 1)
        low = np.floor(place).astype(int)
        high = np.minimum(low + 1, n - 1)
        share = (place - low).reshape([-1 if it == axis else 1 for it in range(4)])
        x = np.take(x, low, axis) * (1 - share) + np.take(x, high, axis) * share
    return x


def pixel_shuffle(x, r):
    result = np.empty((x.shape[0], x.shape[1] // r**2, x.shape[2] * r, x.shape[3] * r))
    for i, j in np.ndindex(r, r):
        result[:, :, i::r, j::r] = x[:, i * r + j :: r**2]
    return result


def pixel_unshuffle(x, r):
    result = np.empty((x.shape[0], x.shape[1] * r**2, x.shape[2] // r, x.shape[3] // r))
    for i, j in np.ndindex(r, r):
        result[:, i * r + j :: r**2] = x[:, :, i::r, j::r]
    return result


def local_response_norm(x, size, alpha, beta, k):
    result = np.empty_like(x)
    for channel in range(x.shape[1]):
        near = x[:, max(channel - size // 2, 0) : channel + (size - 1) // 2 + 1]
        result[:, channel] = x[:, channel] / (k + alpha * np.sum(near * near, 1) / size) ** beta
    return result


def pad(x, padding, value):
    if isinstance(value, str):
        edges = [(0, 0)] * (x.ndim - len(padding) // 2) + list(zip(padding[-2::-2], padding[::-2]))
        return np.pad(x, edges, {"replicate": "edge", "circular": "wrap"}.get(value, value))
    for at, (before, after) in enumerate(zip(padding[::2], padding[1::2])):
        axis = x.ndim - 1 - at
        edges = [(0, 0)] * x.ndim
        edges[axis] = (max(before, 0), max(after, 0))
        x = np.pad(x, edges, constant_values=value)
        x = np.take(x, range(max(-before, 0), x.shape[axis] - max(-after, 0)), axis)
    return x


def split(x, sizes, dim):
    return np.concatenate([it.ravel() for it in np.split(x, np.cumsum(sizes)[:-1], dim)])


def in_order(x, dim, order):
    # The greatest first, and of equal elements the first: a stable sort of what is negated.
    return np.argsort(x if order == "ascending" else -x, dim, kind="stable")


def topk(x, k, dim):
    indices = np.take(in_order(x, dim, "descending"), range(k), dim)
    return np.concatenate([np.take_along_axis(x, indices, dim).ravel(), indices.ravel()])


def sort(x, dim, order):
    indices = in_order(x, dim, order)
    return np.concatenate([np.take_along_axis(x, indices, dim).ravel(), indices.ravel()])


def gather(x, dim, index):
    result = np.empty(index.shape)
    for at in np.ndindex(index.shape):
        place = list(at)
        place[dim] = int(index[at])
        result[at] = x[tuple(place)]
    return result


def scatter_add(x, dim, index, source):
    result = x.copy()
    for at in np.ndindex(index.shape):
        place = list(at)
        place[dim] = int(index[at])
        result[tuple(place)] += source[at]
    return result


sigmoid = lambda x: 1 / (1 + np.exp(-x))
erf = np.vectorize(math.erf)
softplus = lambda x: np.logaddexp(x, 0)
hard_sigmoid = lambda x: np.clip(x + 3, 0, 6) / 6
elu = lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(x))
cube_root = math.sqrt(2 / math.pi)
matrix = lambda: tensor(3, 5)
# None of these is a whole number, nor the half of one.
between = lambda: 4 * matrix() + 1 / 512

CASES = [
    ("add", lambda x, y: x + y, matrix(), tensor(5)),
    ("sub", lambda x, y: x - y, tensor(4, 1), tensor(3, 1, 6)),
    ("mul", lambda x, y: x * y, matrix(), tensor(3, 1)),
    ("div", lambda x, y: x / y, matrix(), positive(5)),
    ("neg", lambda x: -x, matrix()),
    ("powi", lambda x, n: x**n, positive(3, 5), -3),
    ("relu", lambda x: np.maximum(x, 0), matrix()),
    ("leaky_relu", lambda x, slope: np.where(x > 0, x, slope * x), matrix(), 0.125),
    ("tanh", np.tanh, matrix()),
    ("sigmoid", sigmoid, matrix()),
    ("exp", np.exp, matrix()),
    ("log", np.log, positive(3, 5)),
    ("sqrt", np.sqrt, positive(3, 5)),
    ("rsqrt", lambda x: x**-0.5, positive(3, 5)),
    ("square", np.square, matrix()),
    ("abs", np.abs, matrix()),
    ("sign", np.sign, matrix()),
    ("gelu", lambda x: x / 2 * (1 + erf(x / math.sqrt(2))), matrix()),
    ("gelu_tanh", lambda x: x / 2 * (1 + np.tanh(cube_root * (x + 0.044715 * x**3))), matrix()),
    ("silu", lambda x: x * sigmoid(x), matrix()),
    ("eq", truth(np.equal), labels(3, 4, classes=3), 1),
    ("ne", truth(np.not_equal), labels(3, 4, classes=3), 1),
    ("lt", truth(np.less), tensor(3, 1), tensor(5)),
    ("le", truth(np.less_equal), labels(7, classes=3), 1),
    ("gt", truth(np.greater), matrix(), 0.25),
    ("ge", truth(np.greater_equal), labels(7, classes=3), 1),
    ("maximum", np.maximum, tensor(3, 1, 5), tensor(4, 1)),
    ("minimum", np.minimum, tensor(3, 1, 5), tensor(4, 1)),
    ("clamp", np.clip, matrix(), -0.5, 1),
    ("where_", lambda x, c, y: np.where(c != 0, x, y), tensor(3, 4), labels(3, 4, classes=2), tensor(4)),
    ("matmul", np.matmul, tensor(2, 3, 5), tensor(2, 5, 4)),
    ("einsum", lambda x, e, y: np.einsum(e, x, y), tensor(2, 3, 2, 5), "bnhd,bmhd->bhnm", tensor(2, 4, 2, 5)),
    ("einsum", lambda x, e, y: np.einsum(e, x, y), tensor(3, 3, 4), "iij,jks->ki", tensor(4, 2, 2)),
    ("einsum", lambda x, e, y: np.einsum(e, x, y), tensor(5), "i,i->", tensor(5)),
    ("einsum", lambda x, e, y: np.einsum(e, x, y), tensor(3, 5), "ij,ji->ji", tensor(5, 3)),
    ("conv2d", conv2d, tensor(2, 4, 5, 6), tensor(6, 2, 3, 2), 2, [1, 0], 1, 2),
    ("max_pool2d", max_pool2d, tensor(2, 2, 5, 6), [3, 2], 2, [1, 0]),
    ("avg_pool2d", avg_pool2d, tensor(2, 2, 6, 5), 2, [2, 1], 0),
    ("global_avg_pool2d", lambda x: x.mean((2, 3)), tensor(2, 3, 4, 2)),
    ("sum", reduction(np.sum), tensor(2, 3, 5), [0, 2]),
    ("mean", reduction(np.mean), tensor(2, 3, 5), -2),
    ("max", reduction(np.max), tensor(2, 3, 5), [0, 1]),
    ("min", reduction(np.min), tensor(2, 3, 5), ...),
    ("var", variance, tensor(2, 3, 5), [0, 2], 1),
    ("std", lambda *all: np.sqrt(variance(*all)), tensor(2, 3, 5), -1, 0),
    ("logsumexp", log_sum_exp, tensor(2, 3, 5), 1),
    ("softmax", softmax, tensor(2, 3, 5), -2),
    ("log_softmax", lambda x, dim: np.log(softmax(x, dim)), tensor(2, 3, 5), 2),
    ("layer_norm", layer_norm, tensor(2, 3, 5), tensor(5), tensor(5), 0.125),
    ("rms_norm", lambda x, w, eps: x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * w, matrix(), tensor(5), 0.125),
    ("group_norm", group_norm, tensor(2, 6, 3), 3, tensor(6), tensor(6), 0.125),
    ("batch_norm", batch_norm, tensor(3, 5, 7), buffer(5, low=-1.0), buffer(5, low=0.5), tensor(5), tensor(5), 0.25, 0.125),
    ("scaled_dot_product_attention", attention, tensor(2, 2, 5, 3), tensor(2, 2, 5, 3), tensor(2, 2, 5, 4), True),
    ("scaled_dot_product_attention", attention, tensor(4, 3), tensor(7, 3), tensor(7, 2), False),
    ("cross_entropy", cross_entropy, tensor(5, 7), labels(5, classes=7)),
    ("mse", lambda x, t: np.mean((x - t) ** 2), matrix(), matrix()),
    ("l1_loss", lambda x, t: np.mean(np.abs(x - t)), matrix(), matrix()),
    ("huber_loss", huber, matrix(), matrix(), 0.75),
    ("smooth_l1_loss", lambda x, t, beta: huber(x, t, beta) / beta, matrix(), matrix(), 0.75),
    ("binary_cross_entropy_with_logits", binary_cross_entropy, matrix(), tensor(3, 5, low=0.0, high=1.0)),
    ("one_hot", lambda y, n: np.eye(n)[np.asarray(y, dtype=int)], labels(3, 2, classes=4), 5),
    ("reshape", lambda x, shape: x.reshape(shape), matrix(), [5, 3]),
    ("flatten", lambda x: x.reshape(len(x), -1), tensor(3, 2, 5)),
    ("transpose", lambda x: np.swapaxes(x, -1, -2), tensor(2, 3, 5)),
    ("permute", np.transpose, tensor(2, 3, 5), [2, 0, 1]),
    ("unsqueeze", np.expand_dims, matrix(), -1),
    ("squeeze", np.squeeze, tensor(3, 1, 5), 1),
    ("expand", np.broadcast_to, tensor(3, 1), [2, 3, 5]),
    ("conv1d", conv1d, tensor(2, 4, 7), tensor(6, 2, 3), 2, 1, 2, 2),
    ("conv_transpose2d", conv_transpose2d, tensor(2, 4, 3, 2), tensor(4, 3, 2, 3), [2, 3], 1, [1, 0], 2, 1),
    ("conv_transpose2d", conv_transpose2d, tensor(1, 2, 2, 3), tensor(2, 2, 2, 2), 1, 0, 1, 1, 2),
    ("adaptive_avg_pool2d", adaptive_avg_pool2d, tensor(2, 2, 6, 4), [3, 2]),
    ("adaptive_avg_pool2d", adaptive_avg_pool2d, tensor(1, 2, 5, 4), [3, 6]),
    ("max_pool1d", in_one_row(max_pool2d), tensor(2, 3, 8), 3, 2, 1),
    ("avg_pool1d", in_one_row(avg_pool2d), tensor(2, 3, 7), 2, 1, 1),
    ("interpolate", interpolate, tensor(2, 2, 3, 4), [6, 3], "nearest"),
    ("interpolate", interpolate, tensor(2, 2, 3, 4), [6, 3], "bilinear"),
    ("pixel_shuffle", pixel_shuffle, tensor(2, 8, 2, 3), 2),
    ("pixel_unshuffle", pixel_unshuffle, tensor(1, 2, 6, 3), 3),
    ("local_response_norm", local_response_norm, tensor(2, 6, 2, 2), 5, 0.5, 0.75, 2.0),
    ("local_response_norm", local_response_norm, tensor(3, 4, 3), 4, 1.5, 0.5, 1.0),
    ("cross_entropy", cross_entropy, tensor(2, 3, 5), labels(2, 3, classes=5)),
    ("embedding", lambda y, w: w[np.asarray(y, dtype=int)], labels(2, 3, classes=6), tensor(6, 4)),
    ("argmax", np.argmax, tensor(2, 3, 5), 1),
    ("cumsum", np.cumsum, tensor(2, 3, 4), 1),
    ("slice", lambda x, dim, start, end: np.take(x, range(start, end), dim), tensor(2, 5, 3), -2, 1, 4),
    ("split", split, tensor(2, 7, 3), [4, 1, 2], 1),
    ("pad", pad, tensor(2, 4, 5), [1, 2, -1, 3], -0.5),
    ("concat", lambda n, x, y, z, dim: np.concatenate([x, y, z], dim), Array(3), tensor(2, 1, 3), tensor(2, 4, 3), tensor(2, 2, 3), 1),
    ("stack", lambda n, x, y, dim: np.stack([x, y], dim), Array(2), tensor(2, 3), tensor(2, 3), -1),
    ("to_f32", lambda y: np.asarray(y), labels(2, 3, classes=5)),
    ("to_i32", np.trunc, tensor(3, 5)),
    ("relu6", lambda x: np.clip(x, 0, 6), 4 * matrix()),
    ("pow", np.power, positive(3, 5), tensor(5)),
    ("pow", np.power, positive(3, 5), 1.75),
    ("pow", np.power, matrix(), 3),
    ("pow", lambda x, y: x**y, matrix(), 6),
    ("reciprocal", np.reciprocal, positive(3, 5)),
    ("expm1", np.expm1, matrix()),
    ("log1p", np.log1p, positive(3, 5)),
    ("sin", np.sin, 8 * matrix()),
    ("cos", np.cos, 8 * matrix()),
    ("erf", erf, matrix()),
    ("softplus", softplus, 4 * matrix()),
    ("logsigmoid", lambda x: np.log(sigmoid(x)), 4 * matrix()),
    ("mish", lambda x: x * np.tanh(softplus(x)), 4 * matrix()),
    ("softsign", lambda x: x / (1 + np.abs(x)), matrix()),
    ("hardsigmoid", hard_sigmoid, between()),
    ("hardswish", lambda x: x * hard_sigmoid(x), between()),
    ("elu", elu, matrix(), 0.75),
    ("celu", lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(x / alpha)), matrix(), 1.5),
    ("selu", lambda x: 1.0507009873554805 * elu(x, 1.6732632423543772), matrix()),
    ("floor", np.floor, between()),
    ("ceil", np.ceil, between()),
    ("round", np.round, between()),
    ("reshape", lambda x, shape: x.reshape(shape), tensor(4, 6), [3, -1, 2]),
    ("permute", np.transpose, tensor(2, 3, 5), [0, -1, -2]),
    ("matmul", np.matmul, tensor(3, 5), tensor(2, 5, 4)),
    ("matmul", np.matmul, tensor(2, 1, 3, 5), tensor(1, 4, 5, 2)),
    ("repeat", np.tile, tensor(2, 3), [4, 1, 2]),
    ("repeat_interleave", np.repeat, tensor(2, 3, 2), 2, 1),
    ("roll", np.roll, tensor(2, 5, 3), -2, 1),
    ("flip", np.flip, tensor(2, 5, 3), 1),
    ("tril", np.tril, tensor(2, 4, 3), -1),
    ("triu", np.triu, tensor(3, 6), 2),
    ("slice", lambda x, dim, start, end: x[:, start:end], tensor(2, 5, 3), 1, -4, -1),
    ("arange", lambda n: np.arange(n, dtype=np.float64), 7),
    ("full", np.full, [3, 4], 1.25),
    ("masked_fill", lambda x, m, value: np.where(m != 0, value, x), matrix(), labels(3, 5, classes=2), -1.5),
    ("chunk", lambda x, n, dim: np.concatenate([it.ravel() for it in np.array_split(x, n, dim)]), tensor(5, 3), 2, 0),
    ("norm", lambda x, dims: np.sqrt(np.sum(x * x, axis=axes(dims))), tensor(2, 3, 5), [0, 2]),
    ("normalize", lambda x, dim, eps: x / np.maximum(np.linalg.norm(x, axis=dim, keepdims=True), eps), tensor(2, 3, 5), 1, 1.5),
    ("cross_entropy_with", cross_entropy_with, tensor(5, 4), labels(5, classes=4), positive(4), 2, "mean", 0.125),
    ("cross_entropy_with", cross_entropy_with, tensor(5, 4), labels(5, classes=5) - 1, 1, -1, "mean", 0),
    ("cross_entropy_with", cross_entropy_with, tensor(2, 3, 5), labels(2, 3, classes=5), positive(5), 0, "none", 0.25),
    ("cross_entropy_with", cross_entropy_with, tensor(7, 3), labels(7, classes=3), 2.0, -100, "sum", 0.5),
    ("nll_loss", nll_loss, tensor(2, 3, 5), labels(2, 3, classes=5)),
    ("sigmoid_focal_loss", focal, matrix(), tensor(3, 5, low=0.0, high=1.0), 0.25, 2),
    ("sigmoid_focal_loss", focal, matrix(), tensor(3, 5, low=0.0, high=1.0), 0.5, 1.5),
    ("kl_div", lambda x, t: np.sum(t * (np.log(t) - x)) / 3, matrix(), positive(3, 5)),
    ("cosine_similarity", cosine, tensor(2, 5, 3), tensor(2, 5, 3), 1, 1e-8),
    ("cosine_embedding_loss", cosine_embedding, matrix(), matrix(), 2 * labels(3, classes=2) - 1, -0.25),
    ("triplet_margin_loss", triplet, matrix(), matrix(), matrix(), 1.5),
    ("scaled_dot_product_attention", attention, tensor(2, 4, 3, 2), tensor(2, 2, 5, 2), tensor(2, 2, 5, 3), True),
    ("scaled_dot_product_attention", attention, tensor(3, 4, 2), tensor(1, 5, 2), tensor(1, 5, 2), False),
    ("sliding_window_attention", sliding_window, tensor(2, 2, 6, 2), tensor(2, 1, 6, 2), tensor(2, 1, 6, 3), 3),
    ("sliding_window_attention", sliding_window, tensor(4, 3), tensor(7, 3), tensor(7, 2), 2),
    ("topk", topk, tensor(2, 5, 3), 2, 1),
    ("topk", topk, tensor(3, 6), 6, -1),
    ("sort", sort, tensor(2, 5, 3), -2, "ascending"),
    ("sort", sort, tensor(3, 7), 0, "descending"),
    ("argsort", in_order, tensor(3, 5), 1, "descending"),
    ("gather", gather, tensor(4, 5, 3), 1, labels(3, 7, 3, classes=5)),
    ("gather", gather, tensor(4, 5), 0, labels(2, 5, classes=4)),
    ("scatter_add", scatter_add, tensor(4, 5, 3), 1, labels(3, 7, 3, classes=5), tensor(3, 8, 3)),
    ("pad", pad, tensor(2, 4, 5), [1, 3, 2, 0], "reflect"),
    ("pad", pad, tensor(2, 4, 5), [1, 7, 2, 0], "replicate"),
    ("pad", pad, tensor(2, 4, 5), [5, 3, 0, 2], "circular"),
    ("argmin", np.argmin, tensor(2, 3, 5), 1),
    ("matmul", np.matmul, tensor(5), tensor(5)),
    ("matmul", np.matmul, tensor(2, 3, 5), tensor(5)),
    ("matmul", np.matmul, tensor(5), tensor(2, 5, 3)),
    ("binary_cross_entropy", lambda x, t: np.mean(-t * np.log(x) - (1 - t) * np.log(1 - x)), tensor(3, 5, low=0.1, high=0.9), tensor(3, 5, low=0.0, high=1.0)),
    ("weighted_binary_cross_entropy_with_logits", weighted_binary_cross_entropy, matrix(), tensor(3, 5, low=0.0, high=1.0), 1.0, "mean", positive(5)),
    ("weighted_binary_cross_entropy_with_logits", weighted_binary_cross_entropy, matrix(), tensor(3, 5, low=0.0, high=1.0), positive(3, 1), "none", 2.5),
    ("logical_and", truth(np.logical_and), labels(3, 4, classes=2), labels(4, classes=3)),
    ("logical_or", truth(np.logical_or), labels(3, 4, classes=2), labels(4, classes=3)),
    ("logical_xor", truth(np.logical_xor), labels(3, 4, classes=2), labels(4, classes=3)),
    ("logical_not", lambda x: 1.0 - (x != 0), labels(3, 4, classes=3)),
    ("floor_divide", np.floor_divide, labels(3, 4, classes=9) - 4, -3),
    ("floor_divide", np.floor_divide, matrix(), positive(5)),
    ("remainder", np.mod, labels(3, 4, classes=9) - 4, labels(4, classes=3) + 1),
    ("remainder", np.mod, matrix(), positive(5)),
    ("maximum", np.maximum, labels(3, 4, classes=9) - 4, labels(4, classes=3)),
    ("minimum", np.minimum, labels(3, 4, classes=9) - 4, 1),
    ("mul", np.multiply, labels(3, 4, classes=9) - 4, labels(4, classes=3)),
    ("where_", lambda x, c, y: np.where(c != 0, x, y), labels(3, 4, classes=9), labels(4, classes=2), -100),
    ("attention_with", attention_with, tensor(4, 2, 3, 2), tensor(4, 2, 5, 2), tensor(4, 2, 5, 3), "none", labels(4, classes=6), 0.0, 0.75, 0.0),
    ("attention_with", attention_with, tensor(2, 4, 5, 2), tensor(2, 2, 5, 2), tensor(2, 2, 5, 2), "causal", Array(2), labels(2, 5, classes=2), labels(2, 5, classes=2), tensor(4, 1, 5), -0.5, 0.0),
    ("attention_with", attention_with, tensor(3, 4, 2), tensor(3, 6, 2), tensor(3, 6, 2), 2, ..., tensor(3, 4, 6), 1.5, 0.0),
    ("sum", reduction(np.sum), labels(3, 4, classes=9) - 4, 0),
    ("max", reduction(np.max), labels(2, 3, 4, classes=9) - 9, [0, 2]),
    ("min", reduction(np.min), labels(3, 4, classes=9) + 1, ...),
    ("cumsum", np.cumsum, labels(3, 4, classes=9) - 4, 1),
    ("conv3d", conv3d, tensor(2, 3, 4, 3, 5), tensor(4, 3, 3, 2, 3), 1, [1, 0, 1], 1, 1),
    ("conv3d", conv3d, tensor(1, 4, 7, 5, 4), tensor(6, 2, 2, 3, 2), [2, 1, 2], 1, [3, 2, 1], 2),
    ("max_pool3d", max_pool3d, distinct(2, 2, 4, 5, 6), [3, 2, 2], [1, 2, 2], [1, 0, 1]),
    ("avg_pool3d", avg_pool3d, tensor(2, 2, 4, 6, 5), 2, [2, 2, 1], [0, 1, 0]),
    ("ctc_loss", ctc_loss, logarithms(5, 3, 4), given(3, 2, elements=[1, 2, 3, 3, 2, 1]), given(3, elements=[5, 4, 3]), given(3, elements=[2, 2, 1])),
    ("ctc_loss_with", ctc_loss, logarithms(4, 4, 3), given(4, 3, elements=[0, 2, 0, 2, 2, 0, 0, 0, 2, 2, 0, 2]), given(4, elements=[4, 2, 4, 0]), given(4, elements=[3, 2, 0, 1]), 1, "none", True),
    ("ctc_loss_with", ctc_loss, logarithms(4, 2, 3), given(2, 2, elements=[1, 0, 1, 1]), given(2, elements=[4, 3]), given(2, elements=[2, 2]), 2, "sum", False),
    ("per", np.divide, np.array(1.5), np.array(2.5)),
]


def numbers(array):
    elements = " ".join(f"{it + 0.0:.10g}" for it in np.asarray(array).ravel())
    return f"{','.join(map(str, array.shape)) or '-'} {elements}"


def line(argument):
    if isinstance(argument, Labels):
        return f"labels {numbers(argument)}"
    if isinstance(argument, Buffer):
        return f"buffer {numbers(argument)}"
    if isinstance(argument, np.ndarray):
        return f"tensor {numbers(argument)}"
    if argument is ...:
        return "all"
    kinds = {Array: "array", bool: "boolean", int: "integer", float: "float", str: "text", list: "list"}
    value = " ".join(map(str, argument)) if isinstance(argument, list) else argument
    return f"{kinds[type(argument)]} {str(value).lower()}"


def is_differentiable(argument):
    return isinstance(argument, np.ndarray) and not isinstance(argument, (Labels, Buffer))


def gradient(function, arguments, position, weights):
    slopes = np.empty(arguments[position].shape)
    for at in np.ndindex(slopes.shape):
        losses = []
        for step in (STEP, -STEP):
            moved = [it.copy() if is_differentiable(it) else it for it in arguments]
            moved[position][at] += step
            losses.append(np.sum(function(*moved) * weights))
        slopes[at] = (losses[0] - losses[1]) / (2 * STEP)
    return slopes


def case(name, function, *arguments):
    result = np.asarray(function(*arguments))
    weights = tensor(*result.shape)
    yield f"operator {name}"
    yield from map(line, arguments)
    yield f"result {numbers(result)}"
    yield f"weights {numbers(np.asarray(weights))}"
    for position, argument in enumerate(arguments):
        if is_differentiable(argument):
            yield f"gradient {numbers(gradient(function, arguments, position, weights))}"



def sgd(p, g, state, t, rate, momentum=0.0, nesterov=False, weight_decay=0.0):
    g = g + weight_decay * p
    state["v"] = momentum * state.get("v", 0.0) + g
    return p - rate * (g + momentum * state["v"] if nesterov else state["v"])


def adam(p, g, state, t, rate, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
    g = g + weight_decay * p
    state["m"] = betas[0] * state.get("m", 0.0) + (1 - betas[0]) * g
    state["v"] = betas[1] * state.get("v", 0.0) + (1 - betas[1]) * g * g
    m, v = state["m"] / (1 - betas[0] ** t), state["v"] / (1 - betas[1] ** t)
    return p - rate * m / (np.sqrt(v) + eps)


def adamw(p, g, state, t, rate, weight_decay=1e-2, **settings):
    return adam(p - rate * weight_decay * p, g, state, t, rate, **settings)


def lazy_adam(p, g, state, t, rate, **settings):
    next_state = dict(state)
    new = adam(p, g, next_state, t, rate, **settings)
    for name, value in next_state.items():
        state[name] = np.where(g != 0, value, state.get(name, 0.0))
    return np.where(g != 0, new, p)


def rmsprop(p, g, state, t, rate, alpha=0.99, eps=1e-8, momentum=0.0, centered=False, weight_decay=0.0):
    g = g + weight_decay * p
    state["v"] = alpha * state.get("v", 0.0) + (1 - alpha) * g * g
    state["m"] = alpha * state.get("m", 0.0) + (1 - alpha) * g
    variance = state["v"] - state["m"] ** 2 if centered else state["v"]
    state["b"] = momentum * state.get("b", 0.0) + g / (np.sqrt(variance) + eps)
    return p - rate * state["b"]


def adagrad(p, g, state, t, rate, lr_decay=0.0, initial_accumulator_value=0.0, eps=1e-10, weight_decay=0.0):
    g = g + weight_decay * p
    state["s"] = state.get("s", initial_accumulator_value) + g * g
    return p - rate / (1 + (t - 1) * lr_decay) * g / (np.sqrt(state["s"]) + eps)


def lion(p, g, state, t, rate, betas=(0.9, 0.99), weight_decay=0.0):
    m = state.get("m", 0.0)
    state["m"] = betas[1] * m + (1 - betas[1]) * g
    return p - rate * (np.sign(betas[0] * m + (1 - betas[0]) * g) + weight_decay * p)


def adafactor(p, g, state, t, rate, beta2_decay=-0.8, eps=(2.0**-23, 1e-3), d=1.0, weight_decay=0.0):
    """As `torch.optim.adafactor._single_tensor_adafactor`."""

    def moving(name, value):
        state[name] = state.get(name, 0.0) + t**beta2_decay * (value - state.get(name, 0.0))
        return state[name]

    rms = lambda x: np.sqrt(np.mean(x * x))
    step = max(eps[1], rms(p)) * min(rate, t**-0.5)
    p = p * (1 - rate * weight_decay)
    if g.ndim > 1:
        rows = moving("rows", np.mean(g * g, -1, keepdims=True))
        columns = moving("columns", np.mean(g * g, -2, keepdims=True))
        estimate = rows * columns / np.maximum(rows.mean(-2, keepdims=True), eps[0])
    else:
        estimate = moving("squares", g * g)
    update = g / np.sqrt(np.maximum(estimate, eps[0] ** 2))
    return p - step * update / max(1.0, rms(update) / d)


def gradients(p, g, state, t, rate):
    return p


# Each with its defaults, then with all settings.
OPTIMIZERS = [
    (sgd, {}),
    (sgd, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    (adam, {}),
    (adam, {"betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.1}),
    (adamw, {}),
    (adamw, {"betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.1}),
    (rmsprop, {}),
    (rmsprop, {"alpha": 0.9, "eps": 1e-3, "momentum": 0.5, "centered": True, "weight_decay": 0.1}),
    (adagrad, {}),
    (adagrad, {"lr_decay": 0.25, "initial_accumulator_value": 0.5, "eps": 1e-3, "weight_decay": 0.1}),
    (lion, {}),
    (lion, {"betas": (0.8, 0.95), "weight_decay": 0.1}),
    (adafactor, {}),
    (adafactor, {"beta2_decay": -0.5, "eps": (0.5, 1.5), "d": 1.25, "weight_decay": 0.1}),
    (gradients, {}),
    (lazy_adam, {}),
    (lazy_adam, {"betas": (0.8, 0.9), "eps": 1e-3}),
]
SHAPES = [(4, 6), (12,), (2, 2, 6), (6, 1)]
N_UPDATES = 4


def setting(name, value):
    kinds = {bool: "flag", float: "number", tuple: "pair"}
    numbers = " ".join(map(str, value)) if isinstance(value, tuple) else str(value).lower()
    return f"setting {name} {kinds[type(value)]} {numbers}"


def updates(optimizer, settings):
    parameters, states = [tensor(*it) for it in SHAPES], [{} for _ in SHAPES]
    yield f"optimizer {optimizer.__name__}"
    yield from (setting(*it) for it in settings.items())
    yield from (f"parameter {numbers(it)}" for it in parameters)
    for t in range(1, N_UPDATES + 1):
        gradients = [tensor(*it) for it in SHAPES]
        if optimizer is lazy_adam:
            gradients = [np.where(np.abs(it) < 1, 0, it) for it in gradients]
        yield from (f"gradient {numbers(it)}" for it in gradients)
        tensors = zip(parameters, gradients, states)
        parameters = [optimizer(p, g, state, t, RATE, **settings) for p, g, state in tensors]
        yield from (f"updated {numbers(it)}" for it in parameters)


# Above t^-1/2 in the last updates, where Adafactor takes that instead.
RATE = 0.55
here = pathlib.Path(__file__)
path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here.with_name("golden.txt")
lines = [line for it in CASES for line in case(*it)]
path.write_text("\n".join(lines) + "\n")
lines = [line for it in OPTIMIZERS for line in updates(*it)]
path.with_name("optimizers.txt").write_text("\n".join(lines) + "\n")
