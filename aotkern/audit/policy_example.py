"""The commented policy that `aotkern audit --init` writes."""

EXAMPLE = """\
# The release gate of this project: `aotkern audit` runs every step below and gives one verdict.
# Exit code 0: all clean; 1: findings; 2: some step could not tell. A step that is not here is not run.
version = 1

# Kernel files and folders, so that SARIF reports can point at the lines of kernels. Nothing is judged by them.
sources = ["my_kernels.py"]

# Every byte of these bundles is hashed, and every code object held against the manifest.
[verify]
bundles = ["out/my_kernels.gfx942.aotk", "out/my_kernels.gfx950.aotk"]

# This target must not change: the bundle's code is compared, variant by variant, with a golden manifest in git
# (made by `aotkern manifest out/my_kernels.gfx942.aotk -o manifests/gfx942.json`).
[[identity]]
bundle = "out/my_kernels.gfx942.aotk"
baseline = "manifests/gfx942.json"

# Bounds for the code of this target; changes against the baseline are listed as well. A rule names kernels (and, if it
# likes, variant keys) by shell patterns. Bounds: vgprs, agprs, sgprs, vgpr_spills, sgpr_spills, scratch_bytes,
# lds_bytes and code_bytes are upper ones, waves (of a SIMD) is a lower one. `instructions` must occur; `a|b` accepts
# either.
[[resources]]
bundle = "out/my_kernels.gfx950.aotk"
baseline = "manifests/gfx950.json"

[[resources.rule]]
kernel = "*"
target = "gfx950"
vgpr_spills = 0
scratch_bytes = 0

# These kernels are built twice, the second time in another folder, order, locale, with other file times and hash seed.
[[reproducible]]
kernels = ["my_kernels.py"]
targets = ["gfx942", "gfx950"]

# Every call of this domain (see `aotkern audit coverage`) must find a variant.
[[coverage]]
bundle = "out/my_kernels.gfx950.aotk"
domain = "audits/calls.toml"

# The machine code is executed by an emulator on small inputs: every distinct code object, or, with `most`, so many of
# each kernel, drawn by the seed. `orders` are those in which waves run; each case must be right in all of them.
# `coverage` is the least share of its instructions that the cases of each code object must execute. A launch that takes
# more than `limit` wave instructions or `timeout` seconds could not be judged.
[[numerics]]
bundle = "out/my_kernels.gfx950.aotk"
cases = "my_cases.py"
seed = 0
orders = ["lockstep", "reverse"]
coverage = 0.9
limit = 1000000000
timeout = 600

# A workload is served on paper, in graph captures, warm-up and scored requests, and this bundle must serve every call
# (see `aotkern audit replay`). Each phase that is to be judged is named with the most compiles that it may cause. Leave
# `bundle` away for an arm of Triton's JIT.
[[replay]]
workload = "audits/serving.toml"
arm = "bundle"
bundle = "out/my_kernels.gfx950.aotk"
compiles = { capture = 0, warmup = 0, scored = 0 }

# A program is run, without a shell, and may compile only what the budget allows (see `aotkern audit jit`). The phase
# `serving` begins at a line of output that matches `ready_pattern`, or when `ready_file` exists, or the program marks
# its phases itself. After `seconds` it is ended.
[[jit]]
command = ["python", "serve_once.py"]
budget = "audits/jit-budget.toml"
seconds = 600
ready_pattern = "startup complete"
"""
