#!/usr/bin/env bash
# Trains in processes on two simulated hosts and compares every bit with a run in one process. The
# hosts are network namespaces of this machine, joined by a slow link.
#
#   scripts/namespaces.sh [PROGRAM]
#
# PROGRAM is the example `processes_program`, built with the feature `mpi`. Needs root, iproute2 and
# Open MPI.
set -euo pipefail
cd "$(dirname "$0")/.."
program=${1:-${CARGO_TARGET_DIR:-target}/debug/examples/processes_program}
megabits=${MEGABITS:-100}

skip() {
    echo "skipped: $*"
    exit 0
}

[[ $(id -u) == 0 ]] || skip "expected root, which makes network namespaces"
for tool in ip tc unshare mpirun; do
    command -v "$tool" >/dev/null || skip "$tool is not installed"
done
[[ -x $program ]] || { echo "expected the program $program, found none" >&2; exit 1; }

name=soybean$$
folder=$(mktemp -d)
remove() {
    local host
    for host in 0 1; do
        # A run that does not end by itself may be left.
        ip netns pids "$name-$host" 2>/dev/null | xargs -r kill -9 2>/dev/null || true
        ip netns del "$name-$host" 2>/dev/null || true
    done
    wait
    rm -rf "$folder"
}
trap remove EXIT

for host in 0 1; do
    ip netns add "$name-$host" || skip "network namespaces cannot be made here"
    ip -n "$name-$host" link set lo up
done
ip link add name wire netns "$name-0" type veth peer name wire netns "$name-1" || skip "pairs of virtual interfaces cannot be made here"
for host in 0 1; do
    ip -n "$name-$host" address add "10.77.0.$((host + 1))/24" dev wire
    ip -n "$name-$host" link set wire up
    ip netns exec "$name-$host" tc qdisc add dev wire root tbf rate "${megabits}mbit" burst 64kb latency 100ms || skip "the kernel cannot slow a link by tbf"
done

# Runs a command in a host's namespace with its own host name, by which Open MPI identifies hosts.
cat >"$folder/on" <<END
#!/bin/sh
host=\$1
shift
exec ip netns exec "$name-\$host" unshare --uts sh -c 'hostname "\$0"; exec "\$@"' "host\$host" "\$@"
END
# Stands in for ssh: Open MPI calls it with the address of a host and a command line.
cat >"$folder/rsh" <<END
#!/bin/sh
address=\$1
shift
host=\$((\${address##*.} - 1))
exec "$folder/on" "\$host" sh -c "\$*"
END
chmod +x "$folder/on" "$folder/rsh"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Runs half of the processes on each host: on_both PROCESSES ARGUMENT... Each run has its own
# temporary files. Both hosts share them, and a run that ends would remove those of the next run.
on_both() {
    local n=$1 half=$(($1 / 2)) temporary
    shift
    temporary=$(mktemp -d -p "$folder")
    "$folder/on" 0 mpirun -n "$n" --host "10.77.0.1:$half,10.77.0.2:$half" --oversubscribe \
        --mca orte_tmpdir_base "$temporary" --mca plm_rsh_agent "$folder/rsh" --mca pml ob1 --mca btl tcp,self \
        --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 "$program" "$@"
}

sent() { ip netns exec "$name-0" cat /sys/class/net/wire/statistics/tx_bytes; }

cases=(perceptron/8/auto/6 perceptron/8/data/6)
"$program" "${cases[@]}" >"$folder/alone" 2>/dev/null
for n in 2 8; do
    before=$(sent)
    started=$(date +%s%N)
    on_both "$n" "${cases[@]}" >"$folder/both" 2>"$folder/errors" || { cat "$folder/errors" >&2; exit 1; }
    milliseconds=$((($(date +%s%N) - started) / 1000000))
    diff "$folder/alone" "$folder/both"
    echo "$n processes on two hosts, $megabits Mbit/s between them: the same bits;" \
        "$(($(sent) - before)) bytes sent by the first host, $milliseconds ms"
done

# A process on the other host is killed. The output of the two hosts is interleaved.
touch "$folder/output" "$folder/killed"
fail() {
    echo "$*" >&2
    cat "$folder/killed" >&2
    exit 1
}
on_both 4 perceptron/8/auto/1000000 >"$folder/output" 2>"$folder/killed" &
run=$!
pid=""
for _ in {1..300}; do
    grep -q '^step 5 ' "$folder/output" && pid=$(sed -n 's/^process 3 has pid //p' "$folder/killed")
    [[ -z $pid ]] || break
    sleep 0.1
done
[[ -n $pid ]] || fail "expected the first steps within 30 s, found none"
started=$(date +%s%N)
kill -9 "$pid"
code=0
wait "$run" || code=$?
milliseconds=$((($(date +%s%N) - started) / 1000000))
[[ $code != 0 && $milliseconds -lt 10000 ]] ||
    fail "expected an end with an error within 10 s, found $code after $milliseconds ms"
# Usually mpirun names the process. If the other processes notice first, they report a lost peer.
reason='process rank 3 .* exited on signal 9|peer process has unexpectedly disconnected'
grep -qE "$reason" "$folder/killed" || fail "expected a reason for the end with code $code"
echo "a process on the other host killed: all ended with $code after $milliseconds ms"
