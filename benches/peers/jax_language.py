"""Measures the language models of `step_bench` in JAX: `python jax_language.py gpt2|llama` prints a JSON line.

The variable T is the number of threads, and STEPS the number of measured steps. Weights are updated in place.
"""

import functools
import json
import os
import resource
import statistics
import sys
import time

os.environ["JAX_PLATFORMS"] = "cpu"
if "T" in os.environ and hasattr(os, "sched_setaffinity"):
    # JAX sizes its thread pool by the cores that it may use.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(os.environ["T"])])

import jax  # noqa: E402  (the environment is read when it is imported)
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

BATCH, TOKENS, VOCABULARY, LEARNING_RATE = 4, 256, 8192, 0.01
random = np.random.default_rng(0)


def weight(*shape):
    return jnp.asarray((0.02 * random.standard_normal(shape)).astype(np.float32))


def linear(inputs, outputs):
    return {"w": weight(inputs, outputs), "b": jnp.zeros(outputs)}


def apply(layer, x):
    return x @ layer["w"] + layer["b"]


def layer_norm(norm, x):
    centered = x - x.mean(-1, keepdims=True)
    return norm["w"] * centered * jax.lax.rsqrt((centered * centered).mean(-1, keepdims=True) + 1e-5) + norm["b"]


def rms_norm(scale, x):
    return scale * x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def heads(x, n_heads):
    return x.reshape(BATCH, TOKENS, n_heads, -1)


def attend(query, key, value):
    """Causal attention of `[batch, tokens, heads, features]`; heads of queries may share keys."""
    groups = query.reshape(BATCH, TOKENS, key.shape[2], -1, query.shape[3])
    scores = jnp.einsum("bqhgf,bkhf->bhgqk", groups, key) / query.shape[3] ** 0.5
    seen = jnp.tril(jnp.ones((TOKENS, TOKENS), bool))
    weights = jax.nn.softmax(jnp.where(seen, scores, -1e30), axis=-1)
    return jnp.einsum("bhgqk,bkhf->bqhgf", weights, value).reshape(BATCH, TOKENS, -1)


def gpt2_parameters(width=768, n_blocks=2):
    norm = lambda: {"w": jnp.ones(width), "b": jnp.zeros(width)}
    block = lambda: {
        "norms": [norm(), norm()], "qkv": linear(width, 3 * width), "out": linear(width, width),
        "up": linear(width, 4 * width), "down": linear(4 * width, width),
    }
    blocks = [block() for _ in range(n_blocks)]
    return {"words": weight(VOCABULARY, width), "places": weight(TOKENS, width), "blocks": blocks, "norm": norm()}


def gpt2(parameters, x):
    h = parameters["words"][x] + parameters["places"]
    for block in parameters["blocks"]:
        query, key, value = jnp.split(apply(block["qkv"], layer_norm(block["norms"][0], h)), 3, axis=-1)
        h = h + apply(block["out"], attend(heads(query, 12), heads(key, 12), heads(value, 12)))
        h = h + apply(block["down"], jax.nn.gelu(apply(block["up"], layer_norm(block["norms"][1], h))))
    return layer_norm(parameters["norm"], h) @ parameters["words"].T


def llama_parameters(width=1024, hidden=2816, narrow=256):
    shapes = {"q": (width, width), "k": (width, narrow), "v": (width, narrow), "o": (width, width),
              "gate": (width, hidden), "up": (width, hidden), "down": (hidden, width), "head": (width, VOCABULARY)}
    weights = {name: weight(*shape) for name, shape in shapes.items()}
    return weights | {"words": weight(VOCABULARY, width), "norms": [jnp.ones(width) for _ in range(3)]}


def rotated(x):
    half = x.shape[-1] // 2
    angles = np.arange(TOKENS)[:, None] / 10000.0 ** (np.arange(half) / half)
    cos, sin = (jnp.asarray(it(angles).astype(np.float32))[:, None] for it in (np.cos, np.sin))
    one, other = x[..., :half], x[..., half:]
    return jnp.concatenate([one * cos - other * sin, other * cos + one * sin], axis=-1)


def llama(parameters, x):
    p, h = parameters, parameters["words"][x]
    normal = rms_norm(p["norms"][0], h)
    query, key = rotated(heads(normal @ p["q"], 16)), rotated(heads(normal @ p["k"], 4))
    h = h + attend(query, key, heads(normal @ p["v"], 4)) @ p["o"]
    normal = rms_norm(p["norms"][1], h)
    h = h + (jax.nn.silu(normal @ p["gate"]) * (normal @ p["up"])) @ p["down"]
    return rms_norm(p["norms"][2], h) @ p["head"]


def main():
    network, parameters = {"gpt2": (gpt2, gpt2_parameters), "llama": (llama, llama_parameters)}[sys.argv[1]]

    def loss_of(parameters, x, y):
        log_probabilities = jax.nn.log_softmax(network(parameters, x))
        return -jnp.mean(jnp.take_along_axis(log_probabilities, y[..., None], axis=-1))

    @functools.partial(jax.jit, donate_argnums=0)
    def step(parameters, x, y):
        loss, gradients = jax.value_and_grad(loss_of)(parameters, x, y)
        update = lambda parameter, gradient: parameter - LEARNING_RATE * gradient
        return jax.tree.map(update, parameters, gradients), loss

    parameters = parameters()
    x, y = (jnp.asarray(random.integers(0, VOCABULARY, (BATCH, TOKENS))) for _ in range(2))
    milliseconds = []
    n_warm_up = 4
    for index in range(n_warm_up + int(os.environ.get("STEPS", 15))):
        started = time.perf_counter()
        parameters, loss = step(parameters, x, y)
        jax.block_until_ready((parameters, loss))
        if index >= n_warm_up:
            milliseconds.append((time.perf_counter() - started) * 1e3)
    print(json.dumps({
        "ms_median": statistics.median(milliseconds),
        "ms_least": min(milliseconds),
        "resident_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "loss": float(loss),
    }))


main()
