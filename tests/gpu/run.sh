#!/usr/bin/env bash
# Checks on a machine with a real NVIDIA GPU, in less than eight minutes: docs/hardware.md.
#   run.sh --prepare [HAMI_CORE_SOURCE [HAMI_BUILD]]   where there is a package index and a compiler
#   run.sh [JSON]                                      on the GPU machine; default $OUT/gpu.json
# HAMI_BUILD is a folder with a build.sh that compiles libvgpu.so into out/; default ../shared/hami.
# WITHOUT="numba llvmlite" leaves large wheels out that no check needs.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
carried=$root/build/gpu
python=${PYTHON:-python3}

if [ "${1:-}" = --prepare ]; then
  mkdir -p "$carried/wheels"
  "$python" - "$root/requirements/image.txt" ${WITHOUT:-} >"$carried/requirements.txt" <<'FILTER'
import re, sys
without = set(sys.argv[2:])
for block in re.split(r"\n(?=[a-z])", open(sys.argv[1]).read()):
    if re.split(r"[=\s]", block)[0] not in without:
        print(block)
FILTER
  "$python" -m pip download --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
    --dest "$carried/wheels" --requirement "$carried/requirements.txt"
  if [ -n "${2:-}" ]; then
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    cp -r "${3:-$root/../shared/hami}/." "$scratch"
    chmod -R u+w "$scratch"
    bash "$scratch/build.sh" "$2"
    cp "$scratch/out/libvgpu.so" "$carried/libvgpu.so"
  fi
  echo "prepared in $carried: $(du -sh "$carried" | cut -f1)"
  exit 0
fi

json=${1:-${OUT:-$carried}/gpu.json}
# The first line of output without a GPU is a sentence, and that is no failure.
status=0
"$python" "$root/tests/gpu/probe.py" || status=$?
[ "$status" != 4 ] || exit 0
[ "$status" = 0 ] || exit "$status"
if [ -z "${PYTHON:-}" ]; then
  packages=$(mktemp -d)
  trap 'rm -rf "$packages"' EXIT
  "$python" -m pip install --quiet --disable-pip-version-check --no-index --find-links "$carried/wheels" \
    --require-hashes --target "$packages" --requirement "$carried/requirements.txt"
  export PYTHONPATH=$packages${PYTHONPATH:+:$PYTHONPATH}
fi
export PYTHONPATH=$root/src:$root${PYTHONPATH:+:$PYTHONPATH}
library=()
[ ! -e "$carried/libvgpu.so" ] || library=(--library "$carried/libvgpu.so")
cd "$root"
status=0
timeout 470 "$python" -m tests.gpu --json "$json" "${library[@]}" || status=$?
exit "$status"
