"""Compares golden.txt with PyTorch: the values and gradients of every operator that PyTorch has.

NumPy found the numbers in golden.txt from formulas in make_golden.py. This script computes them
again with PyTorch's own functions and autograd, in double precision, and prints the operators
without a counterpart. The tests do not need PyTorch. Run it as `python3
tests/reference/compare_pytorch.py` where `torch` is installed.
"""

import pathlib
import sys

import torch
import torch.nn.functional as F


def pair_of(dims):
    return tuple(dims) if isinstance(dims, list) else dims


def over(function):
    """A reduction over one dim, several or all."""
    return lambda x, dims: function(x) if dims is ... else function(x, dim=pair_of(dims))


def moment(function):
    return lambda x, dims, correction: function(x, dim=pair_of(dims), correction=correction)


def constant(number, like):
    """A weight, by which PyTorch computes no gradient."""
    return torch.as_tensor(number, dtype=like.dtype).detach()


def classes_first(x):
    return x.movedim(-1, 1) if x.ndim > 2 else x


def cross_entropy(x, y, weight=1.0, ignored=-100, reduction="mean", smoothing=0.0):
    weight = constant(weight, x).expand(x.shape[-1])
    return F.cross_entropy(classes_first(x), y, weight, ignore_index=ignored, reduction=reduction, label_smoothing=smoothing)


def weighted_binary(x, t, weight, reduction, positive):
    weight, positive = (constant(it, x).expand(x.shape) for it in (weight, positive))
    return F.binary_cross_entropy_with_logits(x, t, weight, reduction=reduction, pos_weight=positive)


def scatter_add(x, dim, index, source):
    # PyTorch has no gradient of a source that is longer than the index.
    return x.scatter_add(dim, index, source[tuple(map(slice, index.shape))])


def pad(x, padding, value):
    if not isinstance(value, str):
        return F.pad(x, padding, value=value)
    # PyTorch's modes take a batch of channels, and dims in this order alone.
    return F.pad(x[None], padding, mode=value)[0]


def in_order(pair):
    values, indices = pair
    return torch.cat([values.flatten(), indices.flatten().to(values.dtype)])


def flat(parts):
    return torch.cat([it.flatten() for it in parts])


def attention(q, k, v, is_causal):
    if q.ndim > 2:
        k, v = (it.repeat_interleave(q.shape[-3] // it.shape[-3], -3) for it in (k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)


def batch_norm(x, mean, var, weight, bias, momentum, eps):
    return F.batch_norm(x, mean.clone(), var.clone(), weight, bias, True, momentum, eps)


def nll_loss(x, y):
    return F.nll_loss(classes_first(x), y)


def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    losses = F.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, "none", zero_infinity)
    # PyTorch adds the probabilities of all classes to the gradient, which log_softmax takes away.
    is_inside = (torch.arange(len(log_probs))[:, None] < input_lengths) & (losses != 0)
    probabilities = log_probs.exp().sum(2)
    losses = losses - ((probabilities - probabilities.detach()) * is_inside).sum(0)
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else (losses / target_lengths.clamp(min=1)).mean()


# Operators whose functions have other arguments than ours, or other names.
FUNCTIONS = {
    "sum": over(torch.sum),
    "mean": over(torch.mean),
    "max": over(torch.amax),
    "min": over(torch.amin),
    "var": moment(torch.var),
    "std": moment(torch.std),
    "norm": over(torch.linalg.vector_norm),
    "powi": torch.pow,
    "where_": lambda x, condition, y: torch.where(condition != 0, x, torch.as_tensor(y, dtype=x.dtype)),
    "masked_fill": lambda x, mask, value: x.masked_fill(mask != 0, value),
    "einsum": lambda x, equation, y: torch.einsum(equation, x, y),
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "layer_norm": lambda x, weight, bias, eps: F.layer_norm(x, x.shape[-1:], weight, bias, eps),
    "rms_norm": lambda x, weight, eps: F.rms_norm(x, x.shape[-1:], weight, eps),
    "batch_norm": batch_norm,
    "scaled_dot_product_attention": attention,
    "cross_entropy": cross_entropy,
    "cross_entropy_with": cross_entropy,
    "nll_loss": nll_loss,
    "mse": F.mse_loss,
    "huber_loss": lambda x, t, delta: F.huber_loss(x, t, delta=delta),
    "smooth_l1_loss": lambda x, t, beta: F.smooth_l1_loss(x, t, beta=beta),
    "weighted_binary_cross_entropy_with_logits": weighted_binary,
    "kl_div": lambda x, t: F.kl_div(x, t, reduction="batchmean"),
    "cosine_embedding_loss": lambda x, y, t, margin: F.cosine_embedding_loss(x, y, t, margin),
    "maximum": lambda x, y: torch.maximum(x, torch.as_tensor(y)),
    "minimum": lambda x, y: torch.minimum(x, torch.as_tensor(y)),
    "scatter_add": scatter_add,
    "triplet_margin_loss": lambda x, near, far, margin: F.triplet_margin_loss(x, near, far, margin),
    "normalize": lambda x, dim, eps: F.normalize(x, dim=dim, eps=eps),
    "global_avg_pool2d": lambda x: x.mean((2, 3)),
    "conv1d": lambda x, w, stride, padding, dilation, groups: F.conv1d(x, w, None, stride, padding, dilation, groups),
    "conv3d": lambda x, w, stride, padding, dilation, groups: F.conv3d(x, w, None, stride, padding, dilation, groups),
    "ctc_loss": ctc_loss,
    "ctc_loss_with": ctc_loss,
    "conv2d": lambda x, w, stride, padding, dilation, groups: F.conv2d(x, w, None, stride, padding, dilation, groups),
    "conv_transpose2d": lambda x, w, *rest: F.conv_transpose2d(x, w, None, *rest),
    "interpolate": lambda x, size, mode: F.interpolate(x, size, mode=mode),
    "flatten": lambda x: x.flatten(1),
    "transpose": lambda x: x.mT,
    "concat": torch.cat,
    "pad": pad,
    "slice": lambda x, dim, start, end: x.narrow(dim, start % x.shape[dim], (end - start) if start * end >= 0 else end % x.shape[dim] - start),
    "split": lambda x, sizes, dim: flat(x.split(sizes, dim)),
    "chunk": lambda x, n, dim: flat(x.chunk(n, dim)),
    "topk": lambda x, k, dim: in_order(x.topk(k, dim)),
    "sort": lambda x, dim, order: in_order(x.sort(dim=dim, descending=order == "descending", stable=True)),
    "argsort": lambda x, dim, order: x.argsort(dim=dim, descending=order == "descending"),
    "repeat": lambda x, repeats: x.repeat(repeats),
    "roll": torch.roll,
    "flip": lambda x, dim: x.flip(dim),
    "to_f32": lambda x: x.double(),
    "to_i32": lambda x: x.trunc().detach(),
    "one_hot": F.one_hot,
    "embedding": F.embedding,
    "arange": lambda n: torch.arange(n, dtype=torch.double),
    "full": lambda shape, value: torch.full(shape, value, dtype=torch.double),
    "floor_divide": lambda x, y: torch.div(x, y, rounding_mode="floor"),
}


def function_of(name):
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    return next((getattr(it, name) for it in (F, torch, torch.Tensor) if hasattr(it, name)), None)


def numbers(text, dtype=torch.double):
    shape, elements = text.split(" ", 1)
    extents = [int(it) for it in shape.split(",")] if shape != "-" else []
    return torch.tensor([float(it) for it in elements.split()], dtype=torch.double).reshape(extents).to(dtype)


READERS = {
    "tensor": lambda text: numbers(text).requires_grad_(),
    "buffer": numbers,
    "labels": lambda text: numbers(text, torch.long),
    "integer": int,
    "float": float,
    "boolean": lambda text: text == "true",
    "text": str,
    "list": lambda text: [int(it) for it in text.split()],
    "all": lambda text: ...,
}


def cases(path):
    case = None
    for line in path.read_text().splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "operator":
            case = {"name": rest, "arguments": [], "gradients": []}
            yield case
        elif kind == "array":
            case["array"] = int(rest)
        elif kind == "gradient":
            case["gradients"].append(numbers(rest))
        elif kind in ("result", "weights"):
            case[kind] = numbers(rest)
        else:
            case["arguments"].append(READERS[kind](rest))


def is_close(found, expected):
    # The file has ten digits, and its gradients are central differences.
    return found.shape == expected.shape and torch.allclose(found.double(), expected, rtol=1e-7, atol=1e-7)


def compare(case):
    """Returns what differs, or none; raises where PyTorch takes no such arguments."""
    arguments, n = case["arguments"], case.get("array", 0)
    tensors = [it for it in arguments if isinstance(it, torch.Tensor) and it.requires_grad]
    given = [arguments[:n], *arguments[n:]] if n else arguments
    result = function_of(case["name"])(*given)
    if not is_close(result.detach(), case["result"]):
        return f"value {result.tolist()}, expected {case['result'].tolist()}"
    loss = (result * case["weights"]).sum()
    if not loss.requires_grad:
        found = [torch.zeros_like(it) for it in tensors]
    else:
        found = torch.autograd.grad(loss, tensors, allow_unused=True)
    for at, (gradient, expected) in enumerate(zip(found, case["gradients"])):
        if gradient is not None and not is_close(gradient, expected):
            return f"gradient {at} {gradient.tolist()}, expected {expected.tolist()}"
    return None


def main():
    path = pathlib.Path(__file__).with_name("golden.txt")
    n_equal, without, faults = 0, set(), []
    for case in list(cases(path)):
        if function_of(case["name"]) is None:
            without.add(case["name"])
            continue
        try:
            fault = compare(case)
        except (TypeError, RuntimeError, NotImplementedError) as error:
            fault = f"PyTorch: {error}"
        if fault:
            faults.append(f"{case['name']}: {fault}")
        else:
            n_equal += 1
    print(f"{n_equal} cases are equal; PyTorch lacks {', '.join(sorted(without))}")
    sys.exit("\n".join(faults) or None)


main()
