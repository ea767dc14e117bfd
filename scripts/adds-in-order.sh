#!/usr/bin/env bash
# Fails if a kernel's machine code adds numbers by atomic operations, whose order is that of blocks.
#
#   scripts/adds-in-order.sh NVDISASM KERNEL
set -euo pipefail
text=$("$1" -c "$2")
if grep -E '\b(ATOM|RED)[A-Z.]*\.F32|UTMAREDG' <<<"$text"; then
    echo "error: $2 adds in any order" >&2
    exit 1
fi
