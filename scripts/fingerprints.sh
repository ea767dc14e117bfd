#!/usr/bin/env bash
# Prints fingerprints of plans and of trained weights, to show that a change altered neither.
#
#   scripts/fingerprints.sh [NETWORK..] >before.txt
#
# Prints the plans of the zoo (all 16 networks, or those named) on 2, 4, 8, 16 and 64 GPUs under
# each strategy, and then the SHA-256 sums of the final weights of `digits`, `cnn_digits` and `gpt`
# (40 batches) at seed 0.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo run --quiet --release -p soybean-zoo --example fingerprints -- "$@"

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# Trains an example and prints the sum of its newest weights.
weights() {
    local example=$1
    shift
    cargo run --quiet --release --example "$example" -- \
        train --device cpu --out "$out/$example" "$@" >&2
    local file
    file=$(find "$out/$example" -name 'model*.safetensors' -path '*step-*' | sort | tail -1)
    printf '%s weights %s\n' "$example" "$(sha256sum <"$file" | cut -d' ' -f1)"
}
weights digits --epochs 8
weights cnn_digits --epochs 2
weights gpt --batch-limit 40
