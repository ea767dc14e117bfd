#!/usr/bin/env bash
# Puts NVIDIA's headers into a folder, for the tests that compare our bindings with them, and cuDNN,
# which a test asks for its kernels.
#
#   scripts/cuda-headers.sh PYTHON FOLDER
#
# They are in wheels of 1.5 GB together, which are downloaded but not installed; cuDNN takes 1 GB of
# the folder. A folder that exists is left as it is.
set -euo pipefail
python=$1
folder=$2
[[ ! -d $folder ]] || exit 0
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
"$python" -m pip download --quiet --no-deps --dest "$wheels" \
    nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl \
    nvidia-cublas nvidia-cudnn-cu13 nvidia-nccl-cu13
"$python" - "$wheels" "$folder.part" <<'END'
import pathlib, sys, zipfile

for wheel in pathlib.Path(sys.argv[1]).glob("*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        folders = ("/include/", "/cudnn/lib/")
        files = [it for it in archive.namelist() if any(folder in it for folder in folders)]
        archive.extractall(sys.argv[2], files)
END
mv "$folder.part" "$folder"
