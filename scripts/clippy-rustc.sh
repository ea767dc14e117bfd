#!/usr/bin/env bash
# Stands in for rustc in `RUSTC_WRAPPER=scripts/clippy-rustc.sh cargo ..`. Warnings are errors, also
# those of Clippy.
#
# `cargo clippy` only checks, and builds the compiler that runs in macros in a way that no other
# command can use. Here Clippy's driver takes what cargo checks, and tests and examples that it
# builds. rustc takes libraries, which are optimized, and all that is not of this workspace.
set -euo pipefail
case " $* " in
*" --cap-lints "*) exec "$@" ;;
*" --emit=dep-info,metadata "* | *" --emit=dep-info,link "*) exec clippy-driver "$@" -D warnings ;;
*) exec "$@" ;;
esac
