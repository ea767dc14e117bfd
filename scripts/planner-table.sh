#!/usr/bin/env bash
# Measures the search, optimized and as in a macro, and rewrites the rows of docs/planner.md.
#
#   scripts/planner-table.sh [NETWORK..]
#
# GPUS="2,4,8" selects the numbers of GPUs. Unoptimized searches are slow and are measured only for
# up to 16 GPUs.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly GPUS=${GPUS:-2,4,8,16,64,256,1024}

measure() { # arguments of cargo, then numbers of GPUs, then networks
    local profile=$1 gpus=$2
    shift 2
    cargo bench --quiet --profile "$profile" -p soybean-zoo --bench search -- \
        --gpus "$gpus" --table "$PWD/docs/planner.md" "$@"
}

few=$(tr ',' '\n' <<<"$GPUS" | awk '$1 <= 16' | paste -sd,)
measure bench "$GPUS" "$@"
[[ -z $few ]] || measure dev "$few" "$@"
