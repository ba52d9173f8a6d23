#!/bin/sh
# GPU tests and benchmark in one go, under ten minutes:   benchmarks/gpu.sh [FOLDER]
#
# FOLDER (benchmarks/results by default) gets <device>-<date>.json. Without a GPU it runs on the CPU
# in reduced sizes, to show that it works. PYTHON names the interpreter; .venv's is taken if it is there.
# TEST_SECONDS and BENCH_SECONDS bound the two stages.
set -u
cd "$(dirname "$0")/.."
folder=${1:-benchmarks/results}
if [ -z "${PYTHON:-}" ]; then
    if [ -x .venv/bin/python ]; then PYTHON=.venv/bin/python; else PYTHON=python3; fi
fi
export XLA_PYTHON_CLIENT_PREALLOCATE=false PYTHONUNBUFFERED=1

device=$("$PYTHON" -c 'import re, jax; print(re.sub("[^a-z0-9]+", "-", jax.devices()[0].device_kind.lower()))') || exit 1
if "$PYTHON" -c 'import sys, jax; sys.exit(jax.default_backend() != "gpu")'; then
    mode=full
else
    mode=quick
    device=$device-quick
    echo "NO GPU: JAX finds none, so this runs on the CPU in reduced sizes; its figures say nothing about a GPU."
fi
json=$folder/$device-$(date -u +%Y-%m-%d).json

stage() { # stage NAME SECONDS COMMAND...: runs a command under a time limit and remembers whether it failed
    name=$1 limit=$2
    shift 2
    echo "== $name (at most $limit s)"
    start=$(date +%s)
    timeout --kill-after=10 "$limit" "$@"
    code=$?
    [ $code -ne 124 ] || echo "$name ran out of time"
    [ $code -eq 0 ] || failed="${failed:-} $name"
    echo "== $name: exit $code after $(($(date +%s) - start)) s"
}

stage tests "${TEST_SECONDS:-280}" "$PYTHON" -m pytest -q -m gpu
stage bench "${BENCH_SECONDS:-290}" "$PYTHON" -c '
import sys
from fphys import bench
sys.exit(bench.main(json_path=sys.argv[1], quick=sys.argv[2] == "quick"))' "$json" "$mode"

[ ! -f "$json" ] || echo "results: $json"
[ -z "${failed:-}" ] || { echo "FAILED:$failed"; exit 1; }
