#!/usr/bin/env bash
# Tests and measures on a real GPU. Programs are built where Rust is, and run where a GPU is.
#
#   scripts/gpu-check.sh build           packs stripped tests and examples with a manifest into
#                                        target/gpu-check.tar.gz
#   scripts/gpu-check.sh run check       tests, examples, and small models on the GPU and the CPU
#   scripts/gpu-check.sh run bench-mlp   perceptrons in turns with PyTorch, the peak rate of matrix
#                                        products, and the time of an empty step
#   scripts/gpu-check.sh run bench-cnn   AlexNet and VGG-16, likewise
#   scripts/gpu-check.sh run bench-gpt   the transformer, likewise
#   scripts/gpu-check.sh run table       writes one table of all results into benches/results (or
#                                        SOYBEAN_RESULTS)
#
# `run` needs the archive, scripts, examples/data, benches/peers, an NVIDIA driver, and a python3
# with torch, whose wheels contain the CUDA libraries. A call takes about LIMIT seconds (520).
# Results are kept in target/gpu-results, one file per case; a repeated call continues there.
# PRECISIONS ("bf16 tf32 f32") selects the precisions. DEVICE=cpu and SMALL=1 try `run` without a
# GPU.
set -euo pipefail
cd "$(dirname "$0")/.."

# Modules of the test program `it`.
readonly TESTS=(conformance strategies random_models networks nn transformer training_and_evaluation precision reference edges long_attention generated layers operators)
readonly EXAMPLES=(digits cnn_digits gpt gpu_bench)
readonly PROGRAMS=target/gpu-check
readonly RESULTS=target/gpu-results${SMALL:+-small}
readonly MIB_AT_MOST=60
readonly LIMIT=${LIMIT:-520}
readonly DEVICE=${DEVICE:-cuda}
readonly PYTHON=${PYTHON:-python3}
# The seconds that PyTorch has to compile and measure a model.
readonly COMPILING=240
read -ra PRECISIONS <<<"${PRECISIONS:-bf16 tf32 f32}"

step() { printf '\n== %s\n' "$*"; }
fail() {
    echo "$*" >&2
    exit 1
}
seconds_left() { echo $((LIMIT - SECONDS)); }

build() {
    local examples=() artifacts name kib
    for name in "${EXAMPLES[@]}"; do examples+=(--example "$name"); done
    # `cargo test` would build the examples as tests.
    artifacts=$(cargo build --release --message-format=json-render-diagnostics "${examples[@]}")
    artifacts+=$'\n'$(cargo test --release --no-run --message-format=json-render-diagnostics --test it)
    rm -rf "$PROGRAMS"
    mkdir -p "$PROGRAMS/tests" "$PROGRAMS/examples"
    pack "$artifacts" test it "$PROGRAMS/tests"
    for name in "${EXAMPLES[@]}"; do pack "$artifacts" example "$name" "$PROGRAMS/examples"; done
    {
        echo "commit $(git rev-parse HEAD)$(git diff --quiet HEAD || echo ' with changes')"
        rustc --version
        find "$PROGRAMS" -type f -printf '%s %P\n' | sort -k2
    } >"$PROGRAMS.manifest"
    mv "$PROGRAMS.manifest" "$PROGRAMS/manifest"
    tar -czf "$PROGRAMS.tar.gz" "$PROGRAMS"
    kib=$(du -k "$PROGRAMS.tar.gz" | cut -f1)
    cat "$PROGRAMS/manifest"
    echo "$PROGRAMS.tar.gz: $((kib / 1024)) MiB"
    ((kib <= MIB_AT_MOST * 1024)) || fail "expected at most $MIB_AT_MOST MiB: leave out tests"
}

# Copies the program of a target without its symbols. Cargo's messages name the file.
pack() {
    local file
    file=$("$PYTHON" -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    target = message.get("target", {})
    if message.get("executable") and target["name"] == sys.argv[2] and sys.argv[1] in target["kind"]:
        print(message["executable"])
' "$2" "$3" <<<"$1" | tail -n 1)
    [[ -n $file ]] || fail "cargo has not built the $2 $3"
    strip -o "$4/$3" "$file"
}

# Runs a program within the remaining time, with its output in a log and its result in a JSON file.
checked() {
    local name=$1 log=$RESULTS/logs/$1.log started=$SECONDS code=0
    shift
    if [[ -s $RESULTS/checks/$name.json ]]; then return; fi
    if (($(seconds_left) < 15)); then
        echo "$name: no time left; call again"
        return
    fi
    timeout "$(seconds_left)" "$@" >"$log" 2>&1 || code=$?
    local summary
    summary=$(grep -aE '^test result|^accuracy|held-out loss|^error|agree' "$log" | tail -n 1 || true)
    [[ -n $summary ]] || summary=$(tail -n 1 "$log")
    [[ $summary != "{"* ]] || summary="$(grep -c '^{' "$log") cases"
    "$PYTHON" -c '
import json, sys
name, code, seconds, summary = sys.argv[1:]
print(json.dumps({"check": name, "code": int(code), "seconds": int(seconds), "summary": summary}))
' "$name" "$code" "$((SECONDS - started))" "$summary" | tee "$RESULTS/checks/$name.json"
}

check() {
    local name failed
    step "devices"
    checked devices "$PROGRAMS/examples/digits" devices
    cat "$RESULTS/logs/devices.log"
    # Without a usable GPU the tests fall back to the CPU and pass.
    "$PROGRAMS/examples/gpu_bench" --small --model mlp512 --precision f32 --ranks 1 --steps 1 \
        --device "$DEVICE" || fail "expected that $DEVICE can be used"
    step "examples with 8 ranks"
    for name in digits cnn_digits; do
        checked "$name-train" "$PROGRAMS/examples/$name" train --epochs 12 --device "$DEVICE" --out "$RESULTS/$name"
        checked "$name-check" "$PROGRAMS/examples/$name" check --device "$DEVICE"
    done
    checked gpt-train "$PROGRAMS/examples/gpt" train --batch-limit 40 --device "$DEVICE" --out "$RESULTS/gpt"
    step "small models with 1 and 8 ranks, beside the CPU"
    checked small-on-cpu "$PROGRAMS/examples/gpu_bench" --small --steps 10 --device cpu
    checked small-on-device "$PROGRAMS/examples/gpu_bench" --small --steps 10 --device "$DEVICE"
    checked small-without-graphs "$PROGRAMS/examples/gpu_bench" --small --steps 10 --device "$DEVICE" --no-graph
    for name in small-on-device small-without-graphs; do
        checked "$name-losses" "$PYTHON" benches/peers/gpu_table.py losses "$RESULTS/logs/small-on-cpu.log" "$RESULTS/logs/$name.log"
    done
    step "tests"
    for name in "${TESTS[@]}"; do
        # The tests on virtual GPUs have modules with the same names.
        checked "test-$name" "$PROGRAMS/tests/it" "$name::" --skip cuda
    done
    # The exit code of `grep -L` differs between versions.
    failed=$(grep -L '"code": 0,' "$RESULTS"/checks/*.json || true)
    [[ -z $failed ]] || fail "failed, with logs in $RESULTS/logs: $failed"
}

# Measures one case, unless its result exists: `case_of NAME COMMAND..`. The last line is JSON.
case_of() {
    local file=$RESULTS/cases/$1.json name=$1 code=0 line
    shift
    if [[ -s $file ]]; then return; fi
    if (($(seconds_left) < 20)); then
        echo "$name: no time left; call again"
        return
    fi
    timeout "$(seconds_left)" "$@" >"$RESULTS/logs/$name.log" 2>&1 || code=$?
    line=$(grep -a '^{' "$RESULTS/logs/$name.log" | tail -n 1 || true)
    if [[ -z $line ]] && ((code == 124)); then
        # The call ran out of time, so the case has no result yet.
        echo "$name: no time left; call again"
    elif [[ -z $line ]]; then
        echo "$name: ended with code $code: $(tail -n 1 "$RESULTS/logs/$name.log")"
    else
        echo "$line" | tee "$file"
    fi
}

ours() {
    local small=()
    [[ -z ${SMALL:-} ]] || small=(--small)
    case_of "soybean-$1-$2-$3-$4" "$PROGRAMS/examples/gpu_bench" --model "$1" --precision "$2" --ranks "$3" --feed "$4" --device "$DEVICE" "${small[@]}"
}

torch() {
    local small=() name=torch-$1-$2-$3-$4 budget
    [[ -z ${SMALL:-} ]] || small=(--small)
    budget=$(($(seconds_left) - 5))
    ((budget < COMPILING)) || budget=$COMPILING
    case_of "$name" "$PYTHON" benches/peers/torch_step.py --model "$1" --precision "$2" --mode "$3" --feed "$4" --device "$DEVICE" --budget "$budget" "${small[@]}"
    # A timeout counts only with the full budget. The compiled code is cached for the next call.
    if ((budget < COMPILING)) && grep -q 'longer than its budget' "$RESULTS/cases/$name.json" 2>/dev/null; then
        rm "$RESULTS/cases/$name.json"
    fi
}

# Measures models in turns with PyTorch, the most important cases first. The transformer has small
# inputs and therefore only one kind of feed.
bench() {
    local model precision feed=kept
    [[ $1 != gpt ]] || feed=fed
    for precision in "${PRECISIONS[@]}"; do
        for model in "$@"; do
            ours "$model" "$precision" 1 "$feed"
            torch "$model" "$precision" eager "$feed"
        done
    done
    for precision in "${PRECISIONS[@]}"; do
        for model in "$@"; do torch "$model" "$precision" compile "$feed"; done
    done
    for precision in "${PRECISIONS[@]}"; do
        for model in "$@"; do
            ours "$model" "$precision" 8 "$feed"
            [[ $feed == kept ]] || continue
            ours "$model" "$precision" 1 fed
            torch "$model" "$precision" eager fed
        done
    done
}

bench_mlp() {
    local precision
    for precision in "${PRECISIONS[@]}"; do
        ours peak "$precision" 1 fed
        torch peak "$precision" eager fed
    done
    [[ -n ${SMALL:-} ]] || ours launch f32 1 fed
    bench mlp512 mlp2048
}

run() {
    [[ -f $PROGRAMS.tar.gz ]] || fail "expected $PROGRAMS.tar.gz, which 'scripts/gpu-check.sh build' makes"
    if [[ ! $PROGRAMS/manifest -nt $PROGRAMS.tar.gz ]]; then
        rm -rf "$PROGRAMS"
        tar -xzf "$PROGRAMS.tar.gz"
        touch "$PROGRAMS/manifest"
        # Results of older programs are obsolete.
        rm -rf "$RESULTS/checks" "$RESULTS"/cases/soybean-*
    fi
    mkdir -p "$RESULTS/checks" "$RESULTS/cases" "$RESULTS/logs"
    # Later calls use the kernels that an earlier call compiled.
    export SOYBEAN_CACHE_DIR=${SOYBEAN_CACHE_DIR:-$PWD/$RESULTS/kernels}
    export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-$PWD/$RESULTS/inductor}
    case ${1:-} in
    check) check ;;
    bench-mlp) bench_mlp ;;
    bench-cnn) bench alexnet vgg16 ;;
    bench-gpt) bench gpt ;;
    table) "$PYTHON" benches/peers/gpu_table.py table "$RESULTS" "$PROGRAMS/manifest" "${SOYBEAN_RESULTS:-benches/results}" ;;
    *) fail "usage: scripts/gpu-check.sh run check|bench-mlp|bench-cnn|bench-gpt|table" ;;
    esac
}

main() {
    case ${1:-} in
    build) build ;;
    run) run "${2:-}" ;;
    *) fail "usage: scripts/gpu-check.sh build | run check|bench-mlp|bench-cnn|bench-gpt|table" ;;
    esac
    # A shell reads a script while it runs. It must not read on if the script was edited meanwhile.
    exit
}

main "$@"
