"""Measures the same training step in JAX: `python jax_mlp.py mlp1024 [devices]` prints a JSON line.

The variable T is the number of threads, and STEPS the number of measured steps. The batch is split
over all devices.
"""

import json
import os
import resource
import statistics
import sys
import time

width = int(sys.argv[1].removeprefix("mlp"))
n_devices = int(sys.argv[2]) if len(sys.argv) > 2 else 1
os.environ["JAX_PLATFORMS"] = "cpu"
if n_devices > 1:
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={n_devices}"
if "T" in os.environ and hasattr(os, "sched_setaffinity"):
    # JAX sizes its thread pool by the cores that it may use.
    cores = sorted(os.sched_getaffinity(0))[: int(os.environ["T"])]
    os.sched_setaffinity(0, cores)

import jax  # noqa: E402  (the environment is read when it is imported)
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

BATCH, N_LAYERS, LEARNING_RATE = 512, 4, 0.01


def loss_of(parameters, x, y):
    for weight, bias in parameters[:-1]:
        x = jax.nn.relu(x @ weight + bias)
    weight, bias = parameters[-1]
    log_probabilities = jax.nn.log_softmax(x @ weight + bias)
    return -jnp.mean(jnp.take_along_axis(log_probabilities, y[:, None], axis=1))


@jax.jit
def step(parameters, x, y):
    loss, gradients = jax.value_and_grad(loss_of)(parameters, x, y)
    update = lambda parameter, gradient: parameter - LEARNING_RATE * gradient
    return jax.tree.map(update, parameters, gradients), loss


def main():
    random = np.random.default_rng(0)
    bound = 0.03
    weight = lambda: jnp.asarray(random.uniform(-bound, bound, (width, width)).astype(np.float32))
    parameters = [(weight(), jnp.zeros(width)) for _ in range(N_LAYERS)]
    x = jnp.asarray(random.standard_normal((BATCH, width)).astype(np.float32))
    y = jnp.asarray(random.integers(0, width, BATCH))
    if n_devices > 1:
        mesh = Mesh(np.array(jax.devices()[:n_devices]), ("batch",))
        split = NamedSharding(mesh, PartitionSpec("batch"))
        x, y = jax.device_put(x, split), jax.device_put(y, split)
        parameters = jax.device_put(parameters, NamedSharding(mesh, PartitionSpec()))
    milliseconds = []
    n_warm_up = 4
    for index in range(n_warm_up + int(os.environ.get("STEPS", 15))):
        started = time.perf_counter()
        parameters, loss = step(parameters, x, y)
        jax.block_until_ready((parameters, loss))
        if index >= n_warm_up:
            milliseconds.append((time.perf_counter() - started) * 1e3)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({
        "ms_median": statistics.median(milliseconds),
        "ms_least": min(milliseconds),
        "resident_mb": resident,
        "loss": float(loss),
    }))


main()
