"""Measures the training steps of `examples/gpu_bench` in PyTorch. Prints a JSON line for each case.

    python benches/peers/torch_step.py --model mlp512 --precision bf16 --mode eager --mode compile

The models have the same layers, distributions of initial values, batches and optimizers. Inputs
that are "kept" are on the device. Inputs that are "fed" are in pinned memory and are copied one
batch ahead, on a separate stream.

- Precisions: f32 without TF32, tf32 for products and convolutions, bf16 by autocast with f32 weights.
- Modes: eager; and two of `torch.compile` of the model and its loss: `graphs` is
  `mode="reduce-overhead"`, CUDA graphs with products and convolutions of NVIDIA's libraries, and
  `compile` is `mode="max-autotune"`. Optimizers are fused in all. Images are stored channels last if
  tensor cores compute, because that is faster.
- The time of a step is that between the events at its end and at the end of the step before.

Each case runs in a separate process. If it runs out of memory or exceeds its `--budget` of seconds,
its line says so, and the other cases still run.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

MODELS = ("mlp512", "mlp2048", "alexnet", "vgg16", "gpt", "peak")
PRECISIONS = ("f32", "tf32", "bf16")
MODES = ("eager", "graphs", "compile")
N_WARM_UP = 5
N_PRODUCTS = 16


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", choices=MODELS)
    parser.add_argument("--precision", action="append", choices=PRECISIONS)
    parser.add_argument("--mode", action="append", choices=MODES)
    parser.add_argument("--feed", default="kept", choices=("kept", "fed"))
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--budget", type=float, default=150, help="seconds for each case")
    parser.add_argument("--small", action="store_true", help="small shapes, to try the program")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


# The process that only starts others does not need torch, which is imported below.


def perceptron(width):
    from torch import nn

    stack = []
    for _ in range(3):
        stack += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*stack, nn.Linear(width, width))


def alexnet(width, hidden, n_classes, side):
    from torch import nn

    channels = [3 * width, 6 * width, 4 * width, 4 * width]
    stack = [nn.Conv2d(3, width, 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2)]
    stack += [nn.Conv2d(width, channels[0], 5, 1, 2), nn.ReLU(), nn.MaxPool2d(3, 2)]
    for before, after in zip(channels, channels[1:]):
        stack += [nn.Conv2d(before, after, 3, 1, 1), nn.ReLU()]
    stack += [nn.MaxPool2d(3, 2), nn.Flatten()]
    extent = (side + 4 - 11) // 4 + 1
    for _ in range(3):
        extent = (extent - 3) // 2 + 1
    features = channels[-1] * extent * extent
    for n_inputs in (features, hidden):
        stack += [nn.Dropout(0.5), nn.Linear(n_inputs, hidden), nn.ReLU()]
    return nn.Sequential(*stack, nn.Linear(hidden, n_classes))


def vgg16(width, hidden, n_classes, side):
    from torch import nn

    stack, before = [], 3
    for after, n_layers in ((width, 2), (2 * width, 2), (4 * width, 3), (8 * width, 3), (8 * width, 3)):
        for _ in range(n_layers):
            stack += [nn.Conv2d(before, after, 3, 1, 1), nn.ReLU()]
            before = after
        stack.append(nn.MaxPool2d(2, 2))
    stack.append(nn.Flatten())
    for n_inputs in (before * (side // 32) ** 2, hidden):
        stack += [nn.Linear(n_inputs, hidden), nn.ReLU(), nn.Dropout(0.5)]
    return nn.Sequential(*stack, nn.Linear(hidden, n_classes))


def gpt(vocabulary, width, n_heads, n_layers, length, p):
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down, self.dropout = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.Dropout(p)

        def forward(self, x):
            batch, length, _ = x.shape
            heads = self.qkv(self.norms[0](x)).view(batch, length, 3, n_heads, width // n_heads)
            query, key, value = heads.permute(2, 0, 3, 1, 4).unbind(0)
            attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + self.dropout(self.out(attended.transpose(1, 2).reshape(batch, length, width)))
            return x + self.dropout(self.down(functional.gelu(self.up(self.norms[1](x)))))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Parameter(0.02 * torch.randn(vocabulary, width))
            self.places = nn.Parameter(0.02 * torch.randn(length, width))
            self.dropout, self.norm = nn.Dropout(p), nn.LayerNorm(width)
            self.blocks = nn.ModuleList(Block() for _ in range(n_layers))
            self.logits = nn.Linear(width, vocabulary, bias=False)

        def forward(self, tokens):
            x = self.dropout(functional.embedding(tokens, self.words) + self.places)
            for block in self.blocks:
                x = block(x)
            return self.logits(self.norm(x)).flatten(0, 1)

    return Gpt()


def model_and_batch(name, is_small):
    """Returns the model, and the inputs and labels of a step on the host."""
    import torch

    uniform = lambda *shape: 2 * torch.rand(*shape) - 1
    if name.startswith("mlp"):
        batch, width = (32, 64) if is_small else (int(name.removeprefix("mlp")), 8192)
        return perceptron(width), uniform(batch, width), torch.randint(width, (batch,))
    if name == "gpt":
        batch, length, vocabulary = (8, 32, 64) if is_small else (8, 1024, 50304)
        shape = (32, 4, 2) if is_small else (768, 12, 12)
        draw = lambda: torch.randint(vocabulary, (batch, length))
        return gpt(vocabulary, *shape, length, 0.1), draw(), draw().flatten()
    make, small_side = {"alexnet": (alexnet, 63), "vgg16": (vgg16, 32)}[name]
    batch, side, sizes = (16, small_side, (8, 32, 16)) if is_small else (256, 224, (64, 4096, 1000))
    return make(*sizes, side), uniform(batch, 3, side, side), torch.randint(sizes[-1], (batch,))


class Clock:
    """Measures times between events on the device, or on the host if that is the device."""

    def __init__(self, is_cuda):
        self.is_cuda, self.moments = is_cuda, []

    def mark(self):
        if not self.is_cuda:
            self.moments.append(time.perf_counter())
            return
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self.moments.append(event)

    def milliseconds(self):
        pairs = zip(self.moments, self.moments[1:])
        if not self.is_cuda:
            return [(end - start) * 1e3 for start, end in pairs]
        import torch

        torch.cuda.synchronize()
        return [start.elapsed_time(end) for start, end in pairs]


class Feed:
    """Returns batches on the device: always the same, or copied from pinned memory one ahead."""

    def __init__(self, x, y, options):
        import torch

        self.is_fed = options.feed == "fed" and options.device == "cuda"
        if not self.is_fed:
            self.batch = (x.to(options.device), y.to(options.device))
            return
        self.host = (x.pin_memory(), y.pin_memory())
        self.stream = torch.cuda.Stream()
        self.prefetch()

    def prefetch(self):
        import torch

        with torch.cuda.stream(self.stream):
            self.batch = tuple(it.to("cuda", non_blocking=True) for it in self.host)

    def next(self):
        if not self.is_fed:
            return self.batch
        import torch

        current = torch.cuda.current_stream()
        current.wait_stream(self.stream)
        batch = self.batch
        for tensor in batch:
            tensor.record_stream(current)
        self.prefetch()
        return batch


def training_steps(options):
    """Returns the milliseconds of each measured step, and the last loss."""
    import torch
    from torch.nn import functional

    name, precision, mode = options.model[0], options.precision[0], options.mode[0]
    is_cuda = options.device == "cuda"
    model, x, y = model_and_batch(name, options.small)
    model.to(options.device).train()
    if x.dim() == 4 and precision != "f32":
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    if name == "gpt":
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=is_cuda)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-5, momentum=0.9, fused=is_cuda)

    def loss_of(x, y):
        with torch.autocast(options.device, torch.bfloat16, enabled=precision == "bf16"):
            return functional.cross_entropy(model(x), y)

    if mode != "eager":
        loss_of = torch.compile(loss_of, mode={"graphs": "reduce-overhead", "compile": "max-autotune"}[mode])
    feed, clock, loss = Feed(x, y, options), Clock(is_cuda), None
    for index in range(N_WARM_UP + options.steps):
        if index == N_WARM_UP:
            clock.mark()
        if mode != "eager" and is_cuda:
            torch.compiler.cudagraph_mark_step_begin()
        loss = loss_of(*feed.next())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if index >= N_WARM_UP:
            clock.mark()
    return clock.milliseconds(), loss.item()


def products(options):
    """Returns the milliseconds of chains of square matrix products, and the mean of the result."""
    import torch

    extent = 64 if options.small else 8192
    dtype = torch.bfloat16 if options.precision[0] == "bf16" else torch.float32
    start = (2 * torch.rand(extent, extent, device=options.device) - 1).to(dtype)
    w = ((3 / extent) ** 0.5 * (2 * torch.rand(extent, extent, device=options.device) - 1)).to(dtype)
    clock = Clock(options.device == "cuda")
    for index in range(N_WARM_UP + options.steps):
        if index == N_WARM_UP:
            clock.mark()
        h = start
        for _ in range(N_PRODUCTS):
            h = h @ w
        if index >= N_WARM_UP:
            clock.mark()
    return clock.milliseconds(), h.float().mean().item()


def head(options):
    batch = {"gpt": 8, "alexnet": 256, "vgg16": 256, "peak": 1, "mlp512": 512, "mlp2048": 2048}
    name = options.model[0]
    small = {"gpt": 8, "alexnet": 16, "vgg16": 16, "peak": 1}
    return {
        "program": f"torch {options.mode[0]}",
        "model": name,
        "batch": small.get(name, 32) if options.small else batch[name],
        "precision": options.precision[0],
        "ranks": 1,
        "feed": "fed" if name in ("gpt", "peak") else options.feed,
        "small": options.small,
    }


def measure_here(options):
    """Measures one case in this process."""
    import torch

    torch.manual_seed(0)
    uses_tf32 = options.precision[0] == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = uses_tf32
    torch.backends.cudnn.allow_tf32 = uses_tf32
    torch.backends.cudnn.benchmark = True
    device = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
    started = time.perf_counter()
    milliseconds, loss = (products if options.model[0] == "peak" else training_steps)(options)
    line = head(options) | {
        "device": f"{device}, torch {torch.__version__}",
        "steps": len(milliseconds),
        "ms_median": statistics.median(milliseconds),
        "ms_min": min(milliseconds),
        "setup_seconds": time.perf_counter() - started - sum(milliseconds) / 1e3,
        "loss": loss,
    }
    if options.device == "cuda":
        line["peak_bytes"] = torch.cuda.max_memory_allocated()
    print(json.dumps(line), flush=True)


def measure_elsewhere(options):
    """Measures one case in another process. Prints its line, or the reason why there is none."""
    command = [sys.executable, str(Path(__file__).resolve()), "--here", "--feed", options.feed, "--device", options.device]
    command += ["--steps", str(options.steps), "--model", options.model[0], "--precision", options.precision[0]]
    command += ["--mode", options.mode[0]] + ["--small"] * options.small
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=options.budget)
    except subprocess.TimeoutExpired:
        error = f"took longer than its budget of {options.budget:.0f} seconds"
    else:
        if done.returncode == 0:
            print(done.stdout.splitlines()[-1], flush=True)
            return True
        lines = [it for it in done.stderr.splitlines() if "Error" in it] or done.stderr.splitlines() or ["no output"]
        error = lines[-1][:400]
    print(json.dumps(head(options) | {"error": error}), flush=True)
    return False


def main():
    options = arguments()
    if options.here:
        return measure_here(options)
    all_measured = True
    for model in options.model or MODELS:
        for precision in options.precision or PRECISIONS:
            for mode in options.mode or MODES:
                if model == "peak" and mode != "eager":
                    continue
                case = argparse.Namespace(**vars(options) | {"model": [model], "precision": [precision], "mode": [mode]})
                all_measured &= measure_elsewhere(case)
    sys.exit(0 if all_measured else 1)


if __name__ == "__main__":
    main()
