#!/usr/bin/env bash
# Tests and measures on a real GPU. Programs are built where Rust is, and run where a GPU is.
#
#   scripts/gpu-check.sh build           packs stripped programs with a manifest into
#                                        target/gpu-check.tar.gz
#   scripts/gpu-check.sh run [PART..]    runs these parts, or all, within LIMIT seconds (520)
#   scripts/gpu-check.sh rehearse        `run smoke` on virtual GPUs, with planted faults; uses the
#                                        builds of the workspace with FEATURES, if that is set
#
# The parts, the most important one first:
#
#   smoke      every kind of kernel and every small model beside the CPU, and NCCL with one GPU,
#              each in a process of its own that may take SMOKE_SECONDS (60) or MODEL_SECONDS (60)
#   bf16       five models with one rank in bf16, in turns with PyTorch, with traces; the peak rate
#              of matrix products; the time of an empty step
#   compile    the same models in torch.compile
#   tf32, f32  all of that in other precisions
#   ranks      eight ranks on the one GPU, as in the paper's Table 1, and inputs from the host
#   examples   digits, cnn_digits and gpt: devices, training, check
#   calibrate  clusters from measurements of these examples, whose own update is predicted by them
#   tests      the tests in MODULES of the test program, which take any device
#   table      one table of all results in benches/results (or SOYBEAN_RESULTS)
#
# Checks, examples and tests run JOBS at once: as many as there are cores, and at most 8. Measured
# models and calibrations run alone; LARGE chooses some of the models.
#
# A repeated call continues where the last one ended. What fails runs again with launches that wait
# for their kernels, with the logs of the libraries, and under compute-sanitizer if there is one. At
# the end of each call, results, logs, traces and kernels are packed into EVIDENCE
# (target/gpu-evidence.tar.gz). If that file exists and results do not, it is unpacked first: times
# of PyTorch stay valid, and so do results of the same programs.
#
# `run` needs the archive, scripts, examples/data, benches/peers, an NVIDIA driver, and a python3
# with torch, whose wheels contain the CUDA libraries. DEVICE=cpu and SMALL=1 try `run` without a
# GPU.
set -euo pipefail
cd "$(dirname "$0")/.."

# Modules of the test program `it`.
read -ra MODULES <<<"${MODULES:-strategies random_models networks nn transformer training_and_evaluation precision reference edges long_attention generated layers operators conformance}"
readonly EXAMPLES=(digits cnn_digits gpt gpu_bench)
read -ra MODELS <<<"${MODELS:-mlp512 alexnet vgg16 gpt peak}"
readonly PROGRAMS=${PROGRAMS:-target/gpu-check}
readonly RESULTS=${RESULTS:-target/gpu-results${SMALL:+-small}}
readonly EVIDENCE=${EVIDENCE:-target/gpu-evidence.tar.gz}
readonly MIB_AT_MOST=60
readonly LIMIT=${LIMIT:-520}
readonly SMOKE_SECONDS=${SMOKE_SECONDS:-60}
readonly MODEL_SECONDS=${MODEL_SECONDS:-60}
CORES=$(nproc)
readonly JOBS=${JOBS:-$((CORES < 8 ? CORES : 8))}
readonly DEVICE=${DEVICE:-cuda}
readonly PYTHON=${PYTHON:-python3}
# Runs a program whose kernels are too many for the evidence.
readonly UNPACKED=(env "SOYBEAN_CACHE_DIR=$PWD/$RESULTS-kernels")
# The seconds that PyTorch has to compile and measure a model.
readonly COMPILING=240

step() { printf '\n== %s\n' "$*"; }
fail() {
    echo "$*" >&2
    exit 1
}
usage() { fail "usage: scripts/gpu-check.sh build | run [smoke|bf16|compile|tf32|f32|ranks|examples|calibrate|tests|table].. | rehearse"; }
seconds_left() { echo $((LIMIT - SECONDS)); }

# Starts a command once fewer than JOBS are running. `wait` waits for all of them.
at_once() {
    local running
    mapfile -t running < <(jobs -rp)
    ((${#running[@]} < JOBS)) || wait -n || true
    "$@" &
}

# Builds the programs in a profile of cargo, and copies them to a folder without their symbols:
# programs PROFILE FOLDER [PACKAGES AND FEATURES..]
programs() {
    local profile=$1 folder=$2 artifacts name examples=()
    for name in "${EXAMPLES[@]}"; do examples+=(--example "$name"); done
    local build=(--profile "$profile" --message-format=json-render-diagnostics)
    if (($# > 2)); then
        # All targets: dependencies of fewer would have other features, and be built anew.
        artifacts=$(cargo test --no-run "${build[@]}" "${@:3}")
    else
        # `cargo test` would build these examples as tests.
        artifacts=$(cargo build "${build[@]}" "${examples[@]}")
        artifacts+=$'\n'$(cargo test --no-run "${build[@]}" -p soybean-runtime --features cuda --lib --test kernel_text)
        [[ $profile == dev ]] || artifacts+=$'\n'$(cargo test --no-run "${build[@]}" --test it)
    fi
    rm -rf "$folder"
    mkdir -p "$folder/tests" "$folder/examples"
    pack "$artifacts" test kernel_text "$folder/tests"
    pack "$artifacts" lib soybean_runtime "$folder/tests"
    [[ $profile == dev ]] || pack "$artifacts" test it "$folder/tests"
    for name in "${EXAMPLES[@]}"; do pack "$artifacts" example "$name" "$folder/examples"; done
    {
        echo "commit $(git rev-parse HEAD)$(git diff --quiet HEAD || echo ' with changes')"
        rustc --version
        find "$folder" -type f -printf '%s %P\n' | sort -k2
    } >"$folder.manifest"
    mv "$folder.manifest" "$folder/manifest"
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

build() {
    local kib
    programs release "$PROGRAMS"
    tar -czf "$PROGRAMS.tar.gz" "$PROGRAMS"
    kib=$(du -k "$PROGRAMS.tar.gz" | cut -f1)
    cat "$PROGRAMS/manifest"
    echo "$PROGRAMS.tar.gz: $((kib / 1024)) MiB"
    ((kib <= MIB_AT_MOST * 1024)) || fail "expected at most $MIB_AT_MOST MiB: leave out tests"
}

# Returns what an exit code means.
outcome() {
    case $1 in
    0) echo passed ;;
    124 | 137) echo hung ;;
    13[0-9] | 1[4-9][0-9]) echo crashed ;;
    *) echo failed ;;
    esac
}

# Runs a check that may take this many seconds: `checked NAME SECONDS COMMAND..`. A check that the
# end of the call cuts off has no result, and runs again in the next call.
checked() {
    local name=$1 allowed=$2 started=$SECONDS code=0 limit
    shift 2
    local log=$RESULTS/logs/$name.log result=$RESULTS/checks/$name.json summary
    if [[ -s $result ]]; then
        # The call in which it failed may have had no time left to explain it.
        grep -q '"outcome": "passed"' "$result" || [[ -e $log.again.log ]] || explained "$name" "$allowed" "$@"
        return
    fi
    limit=$(seconds_left)
    if ((limit < 15)); then
        echo "$name: no time left; call again"
        return
    fi
    ((limit < allowed)) || limit=$allowed
    timeout --kill-after=5 "$limit" "$@" >"$log" 2>&1 || code=$?
    if [[ $(outcome $code) == hung ]] && ((limit < allowed)); then
        echo "$name: no time left; call again"
        return
    fi
    summary=$(grep -aE '^test result|^accuracy|held-out loss|^error|agree' "$log" | tail -n 1 || true)
    [[ -n $summary ]] || summary=$(tail -n 1 "$log")
    [[ $summary != "{"* ]] || summary="$(grep -c '^{' "$log") cases"
    "$PYTHON" -c '
import json, sys
name, outcome, code, seconds, summary = sys.argv[1:]
print(json.dumps({"check": name, "outcome": outcome, "code": int(code), "seconds": int(seconds), "summary": summary}))
' "$name" "$(outcome $code)" "$code" "$((SECONDS - started))" "$summary" | tee "$result"
    ((code == 0)) || explained "$name" "$limit" "$@"
}

# Runs a failed check again so that its log names the kernel.
explained() {
    local name=$1 limit=$2 log=$RESULTS/logs/$1
    shift 2
    (($(seconds_left) > 2 * limit)) || return 0
    env CUDA_LAUNCH_BLOCKING=1 CUBLASLT_LOG_LEVEL=2 CUBLASLT_LOG_FILE="$log.cublaslt.log" \
        CUDNN_LOGLEVEL_DBG=1 CUDNN_LOGDEST_DBG="$log.cudnn.log" NCCL_DEBUG=INFO RUST_BACKTRACE=1 \
        timeout --kill-after=5 "$limit" "$@" >"$log.again.log" 2>&1 || true
    command -v compute-sanitizer >/dev/null && (($(seconds_left) > 5 * limit)) || return 0
    timeout --kill-after=5 $((3 * limit)) compute-sanitizer "$@" >"$log.sanitizer.log" 2>&1 || true
}

# Runs all cases of a kind of kernel in one process. If that fails, finds the first one that fails
# alone.
kind() {
    local name=kernel-$1 number program=("$PROGRAMS/tests/kernel_text" --exact "on_gpu::$1" --nocapture)
    checked "$name" "$SMOKE_SECONDS" env SOYBEAN_ON_GPU=1 "${program[@]}"
    grep -qE '"outcome": "(hung|crashed)"' "$RESULTS/checks/$name.json" 2>/dev/null || return 0
    if compgen -G "$RESULTS/logs/$name.case-*.log" >/dev/null; then return; fi
    for number in {0..63}; do
        (($(seconds_left) > 2 * SMOKE_SECONDS)) || return 0
        timeout --kill-after=5 "$SMOKE_SECONDS" env SOYBEAN_ON_GPU=1 SOYBEAN_CASE="$number" CUDA_LAUNCH_BLOCKING=1 \
            "${program[@]}" >"$RESULTS/logs/$name.case.log" 2>&1 || break
    done
    mv "$RESULTS/logs/$name.case.log" "$RESULTS/logs/$name.case-$number.log"
    echo "$name: the first case that fails alone is number $number"
}

smoke() {
    local name model precision ranks
    step "devices"
    checked devices "$SMOKE_SECONDS" "$PROGRAMS/examples/digits" devices
    cat "$RESULTS/logs/devices.log"
    step "every kind of kernel, and NCCL with one GPU"
    if [[ $DEVICE == cuda ]]; then
        # The virtual NCCL waits for ranks of other processes only if it has a folder for them.
        mkdir -p "$RESULTS/nccl"
        at_once checked nccl "$SMOKE_SECONDS" env SOYBEAN_ON_GPU=1 NCCL_DEBUG=VERSION SOYBEAN_FAKE_NCCL_FOLDER="$PWD/$RESULTS/nccl" \
            "$PROGRAMS/tests/soybean_runtime" nccl::tests::one_gpu::
        for name in $("$PROGRAMS/tests/kernel_text" --list --format terse on_gpu:: | sed -n 's/^on_gpu::\(.*\): test$/\1/p'); do
            at_once kind "$name"
        done
        wait
    else
        echo "skipped: the tests of kernels need a GPU"
    fi
    step "every small model"
    for ranks in 1 8; do
        for precision in f32 tf32 bf16; do
            for model in "${MODELS[@]}"; do
                [[ $model-$ranks != peak-8 ]] || continue
                at_once checked "small-$model-$precision-$ranks" "$MODEL_SECONDS" "$PROGRAMS/examples/gpu_bench" --small --check \
                    --model "$model" --precision "$precision" --ranks "$ranks" --steps 4 --device "$DEVICE"
            done
        done
    done
    at_once checked small-without-graphs "$MODEL_SECONDS" "$PROGRAMS/examples/gpu_bench" --small --check --model gpt --precision bf16 --ranks 1 --steps 4 \
        --device "$DEVICE" --no-graph
    wait
}

examples() {
    local name
    step "examples with 8 ranks"
    for name in digits cnn_digits; do
        at_once checked "$name-train" 120 "${UNPACKED[@]}" "$PROGRAMS/examples/$name" train --epochs 12 --device "$DEVICE" --out "$RESULTS/$name"
        at_once checked "$name-check" 120 "${UNPACKED[@]}" "$PROGRAMS/examples/$name" check --device "$DEVICE"
    done
    at_once checked gpt-train 120 "${UNPACKED[@]}" "$PROGRAMS/examples/gpt" train --batch-limit 40 --device "$DEVICE" --out "$RESULTS/gpt"
    at_once checked gpt-check 120 "${UNPACKED[@]}" "$PROGRAMS/examples/gpt" check --device "$DEVICE"
    wait
}

calibrate() {
    local name
    step "calibration"
    for name in digits cnn_digits gpt; do
        checked "$name-calibrate" 300 "${UNPACKED[@]}" "$PROGRAMS/examples/$name" bench --calibrate "$RESULTS/$name.toml" --device "$DEVICE"
    done
}

# Each test has a process of its own: the slowest modules take longer than a call.
tests() {
    local name
    step "tests"
    # The tests on virtual GPUs have modules with the same names.
    for name in $("$PROGRAMS/tests/it" "${MODULES[@]/%/::}" --skip cuda --list --format terse | sed -n 's/: test$//p'); do
        at_once checked "test-${name//::/-}" 480 "${UNPACKED[@]}" "$PROGRAMS/tests/it" --exact "$name"
    done
    wait
}

# Measures one case, unless its result exists: `case_of NAME COMMAND..`. The last line is JSON.
case_of() {
    local file=$RESULTS/cases/$1.json name=$1 code=0 line limit
    shift
    if [[ -s $file ]]; then return; fi
    limit=$(seconds_left)
    if ((limit < 20)); then
        echo "$name: no time left; call again"
        return
    fi
    ((limit < COMPILING + 10)) || limit=$((COMPILING + 10))
    timeout --kill-after=5 "$limit" "$@" >"$RESULTS/logs/$name.log" 2>&1 || code=$?
    line=$(grep -a '^{' "$RESULTS/logs/$name.log" | tail -n 1 || true)
    if [[ -n $line ]]; then
        echo "$line" | tee "$file"
    elif [[ $(outcome $code) == hung ]] && ((limit < COMPILING + 10)); then
        echo "$name: no time left; call again"
    else
        echo "$name: $(outcome $code) (code $code): $(tail -n 1 "$RESULTS/logs/$name.log")"
    fi
}

ours() {
    local name=soybean-$1-$2-$3-$4 flags=()
    [[ -z ${SMALL:-} ]] || flags+=(--small)
    [[ $3 != 1 || $1 == peak ]] || flags+=(--trace "$RESULTS/logs/$name.trace.json")
    case_of "$name" "$PROGRAMS/examples/gpu_bench" --model "$1" --precision "$2" --ranks "$3" --feed "$4" --device "$DEVICE" "${flags[@]}"
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

# Returns the source of a model's inputs. The transformer has small ones and only one kind of feed.
feed_of() { [[ $1 == gpt ]] && echo fed || echo kept; }

read -ra LARGE <<<"${LARGE:-mlp512 mlp2048 alexnet vgg16 gpt}"

# Measures one precision in turns with PyTorch.
eager() {
    local model
    step "one rank in $1, beside PyTorch"
    for model in "${LARGE[@]}"; do
        ours "$model" "$1" 1 "$(feed_of "$model")"
        torch "$model" "$1" eager "$(feed_of "$model")"
    done
    ours peak "$1" 1 fed
    torch peak "$1" eager fed
}

compiled() {
    local model mode
    step "torch.compile in $1"
    # The mode that compiles sooner comes first.
    for mode in graphs compile; do
        for model in "${LARGE[@]}"; do torch "$model" "$1" "$mode" "$(feed_of "$model")"; done
    done
}

ranks() {
    local model precision
    step "eight ranks, and inputs from the host"
    for precision in bf16 tf32 f32; do
        for model in "${LARGE[@]}"; do
            ours "$model" "$precision" 8 "$(feed_of "$model")"
            [[ $model != gpt ]] || continue
            ours "$model" "$precision" 1 fed
            torch "$model" "$precision" eager fed
        done
    done
}

part() {
    case $1 in
    smoke) smoke ;;
    bf16)
        eager bf16
        [[ -n ${SMALL:-} ]] || ours launch f32 1 fed
        ;;
    compile) compiled bf16 ;;
    tf32 | f32)
        eager "$1"
        compiled "$1"
        ;;
    ranks) ranks ;;
    examples) examples ;;
    calibrate) calibrate ;;
    tests) tests ;;
    table) "$PYTHON" benches/peers/gpu_table.py "$RESULTS" "$PROGRAMS/manifest" "${SOYBEAN_RESULTS:-benches/results}" ;;
    *) usage ;;
    esac
}

# Packs what this call has found, however it ends.
pack_evidence() {
    tar -czf "$EVIDENCE" --exclude=inductor -C "$(dirname "$RESULTS")" "$(basename "$RESULTS")" &&
        echo "$EVIDENCE: $(($(du -k "$EVIDENCE" | cut -f1) / 1024)) MiB"
}

# Prepares the folder of results, and forgets results of other programs.
open_results() {
    if [[ ! -d $RESULTS && -f $EVIDENCE ]]; then
        mkdir -p "$(dirname "$RESULTS")"
        tar -xzf "$EVIDENCE" -C "$(dirname "$RESULTS")"
    fi
    mkdir -p "$RESULTS/checks" "$RESULTS/cases" "$RESULTS/logs"
    if ! cmp -s "$PROGRAMS/manifest" "$RESULTS/manifest"; then
        rm -rf "$RESULTS"/checks/* "$RESULTS"/cases/soybean-*
        cp "$PROGRAMS/manifest" "$RESULTS/manifest"
    fi
    {
        nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv,noheader 2>/dev/null | head -n 1 || echo "no GPU"
        date +%F
    } >"$RESULTS/gpu"
    trap pack_evidence EXIT
    # Later calls use the kernels that an earlier call compiled.
    export SOYBEAN_CACHE_DIR=${SOYBEAN_CACHE_DIR:-$PWD/$RESULTS/kernels}
    export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-$PWD/$RESULTS/inductor}
}

run() {
    local name failed
    (($#)) || set -- smoke bf16 compile examples calibrate tf32 ranks f32 tests table
    if [[ ! -f $PROGRAMS/manifest || $PROGRAMS.tar.gz -nt $PROGRAMS/manifest ]]; then
        [[ -f $PROGRAMS.tar.gz ]] || fail "expected $PROGRAMS.tar.gz, which 'scripts/gpu-check.sh build' makes"
        rm -rf "$PROGRAMS"
        tar -xzf "$PROGRAMS.tar.gz"
        touch "$PROGRAMS/manifest"
    fi
    open_results
    # Without a usable GPU the tests fall back to the CPU and pass.
    timeout --kill-after=5 60 "$PROGRAMS/examples/gpu_bench" --small --model mlp512 --precision f32 --ranks 1 --steps 1 \
        --device "$DEVICE" >"$RESULTS/logs/first.log" 2>&1 || fail "expected that $DEVICE can be used: $(tail -n 1 "$RESULTS/logs/first.log")"
    for name in "$@"; do part "$name"; done
    failed=$(grep -L '"code": 0,' "$RESULTS"/checks/*.json || true)
    step "$(find "$RESULTS/checks" -name '*.json' | wc -l) checks, $(wc -w <<<"$failed") of them failed"
    [[ -z $failed ]] || fail "failed, with logs in $RESULTS/logs: $(xargs -n 1 basename -s .json <<<"$failed" | xargs)"
}

# Runs the smoke test on virtual GPUs, cut off once, with a kernel that hangs, one that writes wrong
# numbers and one that kills its process. Exactly these must be found, and the rest must pass.
rehearse() {
    local folder=target/gpu-rehearsal name found expected
    local packages=()
    [[ -z ${FEATURES:-} ]] || packages=(--workspace --features "$FEATURES")
    programs dev "$folder/programs" "${packages[@]}"
    mkdir -p "$folder/libraries"
    for name in libcuda.so.1 libnvrtc.so.13 libcublasLt.so.13 libcudnn.so.9 libnccl.so.2 libsoybean_fake_cuda.so; do
        ln -sf "$PWD/target/debug/deps/libsoybean_fake_cuda.so" "$folder/libraries/$name"
    done
    rm -rf "$folder/results" "$folder/evidence.tar.gz"
    rehearsed 40 || true
    # The evidence of the first call is all that the second one finds.
    rm -rf "$folder/results"
    rehearsed 3000 && fail "expected that planted faults are found"
    found=$(cd "$folder/results/checks" && grep -H '"outcome"' ./*.json | grep -v '"passed"' | sed 's/^..\(.*\)\.json.*"outcome": "\([a-z]*\)".*/\1 \2/')
    expected=$(printf '%s\n' "kernel-concatenation crashed" "kernel-padding failed" "kernel-ranking hung")
    [[ $found == "$expected" ]] || fail "expected: $expected; found: $found"
    tar -tzf "$folder/evidence.tar.gz" >"$folder/evidence.txt"
    for name in kernel-ranking.again.log kernel-concatenation.case- kernel-padding.log; do
        grep "$name" "$folder/evidence.txt" || fail "expected $name in the evidence"
    done
    step "the rehearsal found the planted faults and nothing else"
}

# Runs `run smoke` on virtual GPUs within this many seconds. The longest check of a kernel takes 10
# seconds on two slow cores, which may have other work, and the planted hang its limit.
rehearsed() {
    local folder=target/gpu-rehearsal
    env -u SOYBEAN_CUDA_LIBS MODELS="mlp512 gpt" LD_LIBRARY_PATH="$PWD/$folder/libraries" LIMIT="$1" SMOKE_SECONDS=45 MODEL_SECONDS=300 \
        PROGRAMS="$folder/programs" RESULTS="$folder/results" EVIDENCE="$folder/evidence.tar.gz" \
        SOYBEAN_CACHE_DIR="$PWD/$folder/kernels" SOYBEAN_FAKE_CACHE="$PWD/$folder/compiled_kernels" \
        SOYBEAN_FAKE_PLANT="hang _rank,wrong _pad,crash _concatenate" \
        scripts/gpu-check.sh run smoke
}

main() {
    local command=${1:-}
    (($#)) && shift
    case $command in
    build) build ;;
    run) run "$@" ;;
    rehearse) rehearse ;;
    *) usage ;;
    esac
    # A shell reads a script while it runs. It must not read on if the script was edited meanwhile.
    exit
}

main "$@"
