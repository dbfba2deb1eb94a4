#!/bin/sh
# Everything that needs an NVIDIA GPU, in one go: the benchmarks, then the GPU tests.
#
#     benchmarks/gpu.sh FOLDER RESULTS [BENCHMARK ...]
#
# FOLDER is what benchmarks/prepare.py made, and liger.*.aotk (see benchmarks/unchanged.py). RESULTS gets a JSON file of
# each benchmark; with no benchmark named, all of them run, and tests.txt and serve_decode.txt come too. Nothing is
# downloaded; aotkern, its run-time dependencies, torch, Triton, pytest and liger-kernel must be importable by python3.
set -u
folder=$1 results=$2
shift 2
part=$* names=${*:-launch cold-start decode kernels serving unchanged}
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
for name in $names; do # each in a process of its own: what ends one does not end the others
  python3 -m benchmarks "$name" --bundles "$folder" --json-dir "$results" || status=1
done
if [ -n "$part" ]; then exit $status; fi
if [ -e "$folder/kernels.sm90.aotk" ]; then
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
