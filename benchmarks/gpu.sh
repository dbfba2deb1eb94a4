#!/bin/sh
# Everything that needs an NVIDIA GPU, in one go: the GPU tests, then the benchmarks.
#
#     benchmarks/gpu.sh FOLDER RESULTS
#
# FOLDER is what benchmarks/prepare.py made, and liger.*.aotk (see benchmarks/unchanged.py). RESULTS gets a JSON file of
# each benchmark, the decode family's comparison with float64 (decode.*.json), tests.txt and serve_decode.txt. Nothing is
# downloaded; aotkern, its run-time dependencies, torch, Triton, pytest and liger-kernel must be importable by python3.
set -u
folder=$1 results=$2
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
mkdir -p "$results"

# The C extension: built here if that works, else the one that was brought along.
include=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
if ! cc -O3 -fno-plt -shared -fPIC "-I$include" "$root/aotkern/_fastpath.c" -o "$root/aotkern/_fastpath.abi3.so" -lm; then
  cp "$folder/_fastpath.abi3.so" "$root/aotkern/_fastpath.abi3.so"
fi
python3 -c 'from aotkern import _fastpath; print("extension:", _fastpath.__file__)'

status=0
cd "$root"
python3 -m benchmarks launch cold-start kernels serving unchanged --bundles "$folder" --json-dir "$results" || status=1
if [ -e "$folder/kernels.sm90.aotk" ]; then
  for design in gfx950 gfx942; do
    python3 benchmarks/h200_decode.py --launcher "$folder/kernels.sm90.aotk" --design $design \
      --json "$results/decode.$design.json" | tail -1 || status=1
  done
  # An installed aotkern brings its kernels under this name.
  site=$(mktemp -d) && ln -s "$root/kernels" "$site/aotkern_kernels"
  PYTHONPATH="$PYTHONPATH:$site" python3 "$root/examples/serve_decode.py" "$folder/kernels.sm90.aotk" --units 132 \
    >"$results/serve_decode.txt" 2>&1 || status=1
  cat "$results/serve_decode.txt"
fi
AOTKERN_GPU_BUNDLES=$folder python3 -m pytest "$root/tests/gpu" -p no:cacheprovider -q -rs --durations=5 \
  >"$results/tests.txt" 2>&1 || status=1
tail -40 "$results/tests.txt"
exit $status
