#!/usr/bin/env bash
# GPU tests and benchmarks, in less than ten minutes; the last lines are tables of what was measured.
# Where there is no NVIDIA GPU it says so and ends with 0.  PYTHON names the interpreter, OUT a
# folder for the measurements as JSON; INDUCTOR=1 compiles rounds too, which takes longer.
# `benchmarks/gpu.sh tensorrt` compiles rounds by torch-tensorrt instead (extra tensorrt).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if ! nvidia-smi --list-gpus 2>/dev/null | grep -q GPU; then
  echo "There is no NVIDIA GPU here: nothing to test, nothing to measure."
  exit 0
fi
if [ -z "${PYTHON:-}" ]; then
  PYTHON=.venv/bin/python
  [ -x "$PYTHON" ] || PYTHON=python3
fi
OUT="${OUT:-.work/gpu}"
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1
mkdir -p "$OUT"
if ! "$PYTHON" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
  echo "There is a GPU, but $PYTHON has no torch that can use it." >&2
  exit 4
fi
if [ "${1:-}" = tensorrt ]; then
  timeout 1800 "$PYTHON" benchmarks/gpu_tensorrt.py --out "$OUT/tensorrt.json"
  exit
fi
status=0
if "$PYTHON" -c 'import pytest, hypothesis' 2>/dev/null; then
  timeout 200 "$PYTHON" -m pytest -q -m "gpu and not slow" tests/backends tests/training || status=1
else
  echo "pytest or hypothesis is not installed: the GPU tests are left out."
fi
timeout 130 "$PYTHON" benchmarks/gpu_attention.py --seconds 100 --out "$OUT/attention.json" || status=1
timeout 130 "$PYTHON" benchmarks/gpu_round.py --out "$OUT/round.json" --profile "$OUT/kernels.txt" || status=1
timeout 90 "$PYTHON" benchmarks/gpu_training.py --out "$OUT/training.json" || status=1
if [ -n "${INDUCTOR:-}" ]; then  # compiling a round takes three minutes and more
  timeout 500 "$PYTHON" -m pytest -q -m "gpu and slow" tests/backends/test_captured.py || status=1
  timeout 900 "$PYTHON" benchmarks/gpu_round.py --inductor --out "$OUT/inductor.json" || status=1
fi
exit $status
