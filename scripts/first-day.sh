#!/usr/bin/env bash
# Runs docs/getting-started.md as a newcomer would: its commands in order, in a new folder, with its
# programs. Compares the output with tests/first_day.txt. Then runs README's first program there.
#
#   scripts/first-day.sh [--update]
#
# Accuracies must be at least 0.9. `--update` writes the expected text. Builds use the target folder
# of this repository.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
page=$root/docs/getting-started.md
expected=$root/tests/first_day.txt
folder=$(mktemp -d)
finish() {
    local status=$?
    [[ $status == 0 || ! -f $folder/transcript ]] || tail -40 "$folder/transcript" >&2
    rm -rf "$folder"
}
trap finish EXIT
ln -s "$root" "$folder/soybean"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target} CARGO_TERM_QUIET=true CARGO_TERM_COLOR=never

# Writes each code block of the page to a file `NN.LANGUAGE`. Hidden lines of programs are left out.
awk -v folder="$folder" '
    /^```/ && inside { inside = 0; close(file); next }
    /^```/ { split(substr($0, 4), parts, ","); inside = 1
             file = sprintf("%s/%02d.%s", folder, ++n, parts[1] == "" ? "text" : parts[1]); next }
    inside && !(file ~ /rust$/ && /^# /) { print > file }
' "$page"

# Adds a program to src/main.rs: the first one is whole, the second one replaces `main`.
programs=0
write_program() {
    programs=$((programs + 1))
    if [[ $programs == 1 ]]; then
        cp "$1" src/main.rs
    else
        sed -i '/^fn main()/,$d' src/main.rs
        cat "$1" >>src/main.rs
    fi
}

cd "$folder"
for block in "$folder"/[0-9]*.*; do
    case $block in
    *.rust) write_program "$block" ;;
    *.toml) cat "$block" >>Cargo.toml ;;
    *.sh)
        # Each command is shown before its output, as in a terminal.
        sed 's/^/$ /' "$block"
        # The block changes the folder, and `cargo new` is the first.
        set +u
        source "$block" 2>&1
        set -u
        # The locked versions are available without a network.
        [[ -f Cargo.lock ]] || cp "$root/Cargo.lock" .
        ;;
    esac
done >"$folder/transcript"

awk '/^accuracy/ && $2 < 0.9 { print "accuracy " $2 " is below 0.9"; bad = 1 } END { exit bad }' \
    "$folder/transcript"
# What differs between machines is masked; the last command lists what the machine has.
sed -E -e '/-- devices$/q' -e "s|$folder|..|g" -e 's/ +/ /g' \
    -e '/^best checkpoint/s/step-[0-9]+/step-N/' -e 's/[0-9]+ (samples\/s|threads)/N \1/' \
    -e '/^ok first update/s/[0-9]+ elements/N elements/' -e 's/[0-9]+\.[0-9]+(e-[0-9]+)?/#/g' \
    "$folder/transcript" >"$folder/masked"

mkdir examples
awk '/^```rust/ && !n++ { inside = 1; next } /^```/ { inside = 0 } inside' "$root/README.md" \
    >examples/first.rs
cargo run --release --example first | tee "$folder/losses"
awk -F'loss ' '/^step/ { if (!n++) first = $2; last = $2 } END { exit !(n > 1 && last < first) }' \
    "$folder/losses" || { echo "expected that the loss of README's program falls"; exit 1; }

if [[ ${1:-} == --update ]]; then
    cp "$folder/masked" "$expected"
else
    diff -u "$expected" "$folder/masked"
    echo "the first day is as the page tells"
fi
