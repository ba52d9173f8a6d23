#!/bin/sh
# What a GPU is asked first, part by part:   benchmarks/gpu.sh [FOLDER] [--rehearse] [--only PART ...] [--seconds N]
#
# FOLDER/gpu.jsonl (build/gpu by default) gets each result as it comes; a second call goes on with what is not done.
# PYTHON names the interpreter; .venv's is taken if it is there. .gpu/kernels and .gpu/expected are used if they are
# there: kernels compiled elsewhere (python -m fphys.bridge.ahead 90 .gpu/kernels), and what a processor made of the
# tests' scenes (python -m tests.gpu.scenes .gpu/expected).
set -u
cd "$(dirname "$0")/.."
if [ -z "${PYTHON:-}" ]; then
    if [ -x .venv/bin/python ]; then PYTHON=.venv/bin/python; else PYTHON=python3; fi
fi
export XLA_PYTHON_CLIENT_PREALLOCATE=false PYTHONUNBUFFERED=1
for name in kernels expected; do  # as folders, or packed: tar -C .gpu -czf .gpu/kernels.tgz kernels
    [ -d ".gpu/$name" ] || [ ! -f ".gpu/$name.tgz" ] || tar -C .gpu -xzf ".gpu/$name.tgz"
done
[ ! -d .gpu/kernels ] || export WARP_CACHE_PATH="$PWD/.gpu/kernels"
[ ! -d .gpu/expected ] || export FPHYS_EXPECTED="$PWD/.gpu/expected"
exec "$PYTHON" benchmarks/gpu.py "$@"
