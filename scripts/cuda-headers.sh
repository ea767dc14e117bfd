#!/usr/bin/env bash
# Puts NVIDIA's headers into a folder, for the tests that compare our bindings with them, and cuDNN
# with cuBLASLt, which it loads: a test asks it for its kernels.
#
#   scripts/cuda-headers.sh PYTHON FOLDER
#
# They are in wheels of 1.5 GB together, which are downloaded but not installed; the libraries take
# 1.5 GB of the folder. A folder that exists is left as it is.
set -euo pipefail
python=$1
folder=$2
[[ ! -d $folder ]] || exit 0
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
"$python" -m pip download --quiet --no-deps --dest "$wheels" \
    nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl \
    nvidia-cublas nvidia-cudnn-cu13 nvidia-nccl-cu13
rm -rf "$folder.part"
"$python" - "$wheels" "$folder.part" <<'END'
import pathlib, sys, zipfile

for wheel in pathlib.Path(sys.argv[1]).glob("*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        wanted = ("/include/", "/cudnn/lib/", "/libcublasLt.so")
        files = [it for it in archive.namelist() if any(part in it for part in wanted)]
        archive.extractall(sys.argv[2], files)
END
mv -T "$folder.part" "$folder"
