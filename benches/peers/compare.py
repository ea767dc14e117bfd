"""Compares training steps of Soybean with those of JAX and TensorFlow.

    cargo build --release --example step_bench
    python benches/peers/compare.py --rounds 5 [--python PYTHON_WITH_THE_PEERS] \
        [--peers jax,tensorflow] [--threads 2] \
        [mlp1024 mlp2048 cnn tfm unet mobilenet gpt2 llama]

Each round runs every program once. Ratios are computed within a round, and the table shows the
medians over the rounds, because the speed of a shared machine varies more between rounds than
between programs. JAX runs the perceptrons and the language models, and TensorFlow all but these.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODELS = ["mlp1024", "mlp2048", "cnn", "tfm", "unet", "mobilenet", "gpt2", "llama"]
PEERS = ["jax", "tensorflow"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["mlp1024", "mlp2048"], help="some of " + ", ".join(MODELS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--python", default=sys.executable, help="a Python that can import the peers")
    parser.add_argument("--peers", type=peers, default=["jax"], help="jax, tensorflow, or both with a comma between them")
    target = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent.parent / "target"))
    parser.add_argument("--binary", default=target / "release/examples/step_bench")
    options = parser.parse_args()
    unknown = [it for it in options.models if it not in MODELS]
    if unknown:
        parser.error(f"unknown model {unknown[0]}; the models are {', '.join(MODELS)}")
    for peer in options.peers:
        if subprocess.run([options.python, "-c", f"import {peer}"], capture_output=True).returncode != 0:
            parser.error(f"{options.python} cannot import {peer}; --python selects another one, --peers other peers")
    if not Path(options.binary).exists():
        parser.error(f"{options.binary} is missing: cargo build --release --example step_bench")
    return options


def peers(text):
    names = [it for it in text.split(",") if it]
    unknown = [it for it in names if it not in PEERS]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown peer {unknown[0]}; the peers are {', '.join(PEERS)}")
    return names


def programs(options, model):
    ours, is_perceptron = str(options.binary), model.startswith("mlp")
    commands = {"soybean, 1 rank": [ours, model, "1"]}
    if is_perceptron:
        commands["soybean, 8 ranks"] = [ours, model, "8"]
    if is_perceptron and "jax" in options.peers:
        peer = [options.python, str(HERE / "jax_mlp.py"), model]
        commands |= {"jax, 1 device": [*peer, "1"], "jax, 8 devices": [*peer, "8"]}
    is_language_model = model in ["gpt2", "llama"]
    if is_language_model and "jax" in options.peers:
        commands["jax, 1 device"] = [options.python, str(HERE / "jax_language.py"), model]
    if "tensorflow" in options.peers and not is_language_model:
        peer = [options.python, str(HERE / "tensorflow_models.py"), model]
        commands |= {f"tensorflow, {mode}": [*peer, mode] for mode in ("graph", "xla")}
    return commands


def measure(command, options):
    environment = dict(os.environ, T=str(options.threads), STEPS=str(options.steps))
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def median(rounds, value):
    return statistics.median(value(measured) for measured in rounds)


def main():
    options = arguments()
    print(f"{options.rounds} rounds of {options.steps} steps, {options.threads} threads")
    print(f"{'model':8} {'program':18} {'ms':>8} {'/ soybean 1 rank':>17} {'resident MB':>12}  of the time in")
    for model in options.models:
        commands = programs(options, model)
        rounds = [{name: measure(command, options) for name, command in commands.items()} for _ in range(options.rounds)]
        for name in commands:
            time = lambda measured: measured[name]["ms_median"]
            ours = median(rounds, lambda it: time(it) / it["soybean, 1 rank"]["ms_median"])
            resident = median(rounds, lambda it: it[name]["resident_mb"])
            shares = rounds[0][name].get("shares", {})
            most = ", ".join(f"{work} {share:.0%}" for work, share in shares.items() if share >= 0.01)
            print(f"{model:8} {name:18} {median(rounds, time):8.2f} {ours:17.2f} {resident:12.0f}  {most}")


if __name__ == "__main__":
    main()
