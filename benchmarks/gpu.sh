#!/bin/sh
# What a GPU is asked first, part by part:   benchmarks/gpu.sh [FOLDER] [--rehearse] [--only PART ...] [--seconds N] [--again]
# What needs no GPU and is done before:      benchmarks/gpu.sh --prepare
#
# FOLDER/gpu.jsonl (build/gpu by default) gets each result as it comes; a second call goes on with what is not done, and
# after a mend or an installation, --again --only PART asks a part anew.
# PYTHON names the interpreter; .venv's is taken if it is there. --prepare writes build/gpu/kernels, all kernels
# compiled for an H100 or H200, and build/gpu/expected, what a processor makes of the tests' scenes; each also packed.
# Folders or packed files are used if they are there. Without them kernels are compiled and scenes computed on the way.
set -eu
cd "$(dirname "$0")/.."
if [ -z "${PYTHON:-}" ]; then
    if [ -x .venv/bin/python ]; then PYTHON=.venv/bin/python; else PYTHON=python3; fi
fi
# The kernels' folder is imported as fphys.kernels. Where this checkout is not installed, a link serves.
PYTHONPATH="$PWD" "$PYTHON" -c 'import fphys.kernels' 2>/dev/null || ln -sfn ../kernels fphys/kernels
export XLA_PYTHON_CLIENT_PREALLOCATE=false PYTHONUNBUFFERED=1 FPHYS_EXPECTED="$PWD/build/gpu/expected"
mkdir -p build/gpu
if [ "${1:-}" = --prepare ]; then
    export JAX_PLATFORMS=cpu PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
    "$PYTHON" -m fphys.bridge.ahead 90 build/gpu/kernels
    XLA_FLAGS=--xla_gpu_deterministic_ops=true "$PYTHON" -m tests.gpu.ordered_kernels 90 build/gpu/kernels
    "$PYTHON" -m tests.gpu.scenes build/gpu/expected
    for name in kernels expected; do
        tar -C build/gpu -czf "build/gpu/$name.tgz" "$name"
        touch "build/gpu/$name.unpacked"
    done
    du -h build/gpu/*.tgz
    exit
fi
for name in kernels expected; do
    packed="build/gpu/$name.tgz"
    if [ -f "$packed" ] && [ ! "build/gpu/$name.unpacked" -nt "$packed" ]; then
        tar -C build/gpu -xzf "$packed"
        touch "build/gpu/$name.unpacked"
    fi
done
case " $* " in
*" --rehearse "*) ;; # a processor's kernels are in Warp's usual place
*) [ ! -d build/gpu/kernels ] || export WARP_CACHE_PATH="$PWD/build/gpu/kernels" ;;
esac
exec "$PYTHON" benchmarks/gpu.py "$@"
