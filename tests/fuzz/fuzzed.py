"""A small world for programs that are made up: kernels, what they can be called with, and the settings around them.

Everything that a call is made of is a text, which is evaluated when it is called: so a case can be printed and run again.
"""

from __future__ import annotations

HELPERS = {
    "fuzz_one": """\
import triton
import triton.language as tl

BIAS = tl.constexpr(7)


@triton.jit
def act(x):
    return x * 2


@triton.jit
def biased(x):
    return x + BIAS


@triton.constexpr_function
def size(n):
    return n * 2
""",
    "fuzz_two": """\
import triton
import triton.language as tl


@triton.jit
def act(x):
    return x + 100


@triton.jit
def biased(x):
    return x + 7
""",
}

KERNELS = '''\
import enum
from typing import NamedTuple

import triton
import triton.language as tl

import fuzz_one as one
import fuzz_two as two

STEP = tl.constexpr(3)
LOOSE = 5


class Mode(enum.IntEnum):
    OFF = 0
    ON = 1


class Other(enum.IntEnum):
    OFF = 0
    ON = 1


class Word(str, enum.Enum):
    A = "a"


class Perm(enum.IntFlag):
    R = 1
    W = 2


class Pair(NamedTuple):
    a: int
    b: int

    @property
    def total(self):
        return self.a + self.b


class Couple(NamedTuple):
    b: int
    a: int


class Bare(tuple):
    __slots__ = ()


class Number(int):
    pass


class Text(str):
    __slots__ = ()


@triton.jit
def local(x):
    return x * 2


@triton.constexpr_function
def seen(c):
    """A number in which everything that a compiler can see of a constant shows."""
    kind = type(c)
    text = f"{kind.__module__}.{kind.__qualname__} {c!r} {getattr(c, '_fields', 0)} {getattr(c, 'total', 0)}"
    # Triton gives a tuple to such a function as one of its own, with the fields of a named one.
    text += f" {getattr(c, 'a', 0)!r} {getattr(c, 'b', 0)!r}"
    for item in getattr(c, "values", c if kind is tuple else ()):
        value = getattr(item, "value", item)
        text += f" {type(item).__qualname__} {type(value).__module__}.{type(value).__qualname__} {value!r}"
    number = 0
    for letter in text:
        number = (number * 31 + ord(letter)) % 1000003
    return number


@triton.jit
def constant(o, C: tl.constexpr):
    tl.store(o, seen(C))


@triton.jit
def applied(x, o, F: tl.constexpr, G: tl.constexpr = one.act):
    tl.store(o, G(F(tl.load(x))))


@triton.jit
def default(o, C: tl.constexpr = 1):
    tl.store(o, seen(C))


@triton.jit
def number(o, C: tl.constexpr):
    tl.store(o, C * 1.0)


@triton.jit
def mixed(x, o, n, pair, wide: tl.int64, C: tl.constexpr):
    i = tl.arange(0, 32)
    tl.store(o + i + pair[0] * wide, tl.load(x + i * n, i < n) + seen(C) + pair[1], i < n)


@triton.jit(do_not_specialize=["n"], do_not_specialize_on_alignment=["m"])
def told(x, n, m):
    i = tl.arange(0, 64)
    tl.store(x + i * n, i + m, i < m)


@triton.jit
def product(a, b, c, n):
    i = tl.arange(0, 32)[:, None] * n + tl.arange(0, 32)[None, :]
    tl.store(c + i, tl.dot(tl.load(a + i), tl.load(b + i)))


@triton.jit
def added(x, o, n):
    i = tl.program_id(0) * 64 + tl.arange(0, 64)
    tl.atomic_add(o + i, tl.load(x + i, i < n) * STEP, i < n)


@triton.jit
def loose(o, n):
    tl.store(o, n + LOOSE)
'''

POINTERS = (
    "P('float32')",
    "P('float32', 4100)",
    "P('float32', 4112)",
    "P('float32', 4096, 2**31 - 1)",
    "P('float32', 4096, 2**31)",
    "P('float32', 4100, 2**31)",
    "P('float16')",
    "P('int32')",
)
INTEGERS = ("0", "1", "2", "16", "17", "32", "-16", "-1", "2**31 - 1", "2**31", "2**40", "2**63", "True", "2.0", "None")
CONSTANTS = (
    *(
        "None",
        "True",
        "False",
        "0",
        "1",
        "1.0",
        "0.0",
        "-0.0",
        "2",
        "-1",
        "2**70",
        "'1'",
        "'a'",
        "''",
        "'ADDS'",
        "('ADDS', 1)",
        "K.Text('a')",
    ),
    *("float('nan')", "-float('nan')", "float('inf')", "0.1", "K.Number(1)", "K.Mode.ON", "K.Mode.OFF", "K.Other.ON"),
    *("K.Word.A", "K.Perm.R", "K.Perm.R | K.Perm.W", "(1, 2)", "(True, 2)", "(1.0, 2)", "K.Pair(1, 2)", "[1, 2]"),
    *("K.Couple(1, 2)", "K.Bare((1, 2))", "((1, 2),)", "(K.Pair(1, 2),)", "(K.Mode.ON, 2)", "()", "(None,)", "(1,)"),
    *("tl.constexpr(1)", "(tl.constexpr(1), 2)", "tl.constexpr(K.Mode.ON)", "tl.float32", "tl.float16", "tl.pi_t"),
    *("(tl.float32, 1)", "one.size", "one.act", "two.act", "K.local", "tl.sum", "(one.act, 1)", "(two.act, 1)"),
)
FUNCTIONS = ("one.act", "two.act", "K.local", "one.biased", "two.biased", "tl.constexpr(one.act)", "tl.abs", "tl.flip")
NUMBERS = ("1", "True", "1.0", "0.0", "-0.0", "float('nan')", "-float('nan')", "float('inf')", "0.1", "2**33")
PAIRS = ("(1, 2)", "(3, 2)", "(16, 2)", "(3, 16)", "(2**40, 1)", "K.Pair(3, 2)", "K.Couple(3, 2)", "K.Bare((3, 2))")

CALLS = {
    "constant": (POINTERS[:1], CONSTANTS),
    "applied": (POINTERS, POINTERS[:1], FUNCTIONS, FUNCTIONS),
    "default": (POINTERS[:1], (*CONSTANTS, "")),
    "number": (POINTERS[:1], NUMBERS),
    "mixed": (POINTERS, POINTERS, INTEGERS, PAIRS, INTEGERS, ("1", "True", "K.Mode.ON")),
    "told": (POINTERS, INTEGERS, INTEGERS),
    "product": (POINTERS, POINTERS[:4], POINTERS[:3], INTEGERS),
    "added": (POINTERS, POINTERS, INTEGERS),
    "loose": (POINTERS[:3], INTEGERS),
}
"""For each kernel what each of its arguments can be; an empty text leaves the argument out."""

OPTIONS = (
    *("num_warps=1", "num_warps=2", "num_warps=4", "num_warps=8", "num_stages=1", "num_stages=2", "num_stages=3"),
    *("enable_fp_fusion=False", "enable_fp_fusion=True", "debug=True", "maxnreg=64", "waves_per_eu=2", "kpack=2"),
    *("num_ctas=2", "matrix_instr_nonkdim=16", "launch_cooperative_grid=True", "sanitize_overflow=False"),
    *("allow_flush_denorm=True", "ptx_options='-O1'", "extern_libs={}", "arch='gfx90a'", "schedule_hint='attention'"),
)

EDITS = (
    ("fuzz_one", "x * 2", "x * 3"),
    ("fuzz_one", "constexpr(7)", "constexpr(8)"),
    ("fuzz_one", "n * 2", "n * 3"),
    ("fuzz_two", "x + 100", "x + 200"),
    ("fuzz_kernels", "STEP = tl.constexpr(3)", "STEP = tl.constexpr(4)"),
    ("fuzz_kernels", "LOOSE = 5", "LOOSE = 6"),
    ("fuzz_kernels", "return self.a + self.b", "return self.a - self.b"),
    ("fuzz_kernels", "    ON = 1\n\n\nclass Other", "    ON = 1\n    NEW = 2\n\n\nclass Other"),
    ("fuzz_kernels", "% 1000003", "% 1000033"),
    ("fuzz_kernels", "def constant(", "# a comment\ndef constant("),
    ("fuzz_kernels", "n + LOOSE", "LOOSE + n"),
)

SETTINGS = (
    *("TRITON_F32_DEFAULT=ieee", "TRITON_F32_DEFAULT=tf32", "AMDGCN_USE_BUFFER_OPS=0", "AMDGCN_USE_BUFFER_OPS=1"),
    *("AMDGCN_USE_BUFFER_ATOMICS=0", "AMDGCN_ANALYZE_SMALL_TENSOR_RANGE=1", "AMDGCN_SCALARIZE_PACKED_FOPS=1"),
    *("TRITON_HIP_USE_BLOCK_PINGPONG=1", "TRITON_HIP_USE_IN_THREAD_TRANSPOSE=0", "TRITON_HIP_USE_ASYNC_COPY=1"),
    *("TRITON_HIP_USE_ASYNC_COPY=0", "TRITON_HIP_USE_COEXEC_SCHEDULER=1", "TRITON_HIP_USE_EXPERT_SCHEDULING=1"),
    *("DISABLE_MMA_V3=1", "DISABLE_MMA_V5=1", "ALLOW_LHS_TMEM_LAYOUT_CONVERSION=1", "DISABLE_PTXAS_OPT=1"),
    *("TRITON_DEFAULT_FP_FUSION=0", "TRITON_FORCE_DISABLE_FP_FUSION=1", "TRITON_ALLOW_NON_CONSTEXPR_GLOBALS=1"),
    *("MLIR_DISABLE_MULTITHREADING=1", "TRITON_ENABLE_ASAN=1", "TRITON_MOCK_PTX_VERSION=8.0", "USE_IR_LOC=ttir"),
    *("language.fp32_default='ieee'", "language.fp32_default='tf32x3'", "amd.use_buffer_ops=False"),
    *("amd.use_async_copy=True", "language.default_fp_fusion=False", "amd.scalarize_packed_fops=True"),
    *("compilation.allow_non_constexpr_globals=True", "nvidia.disable_ptxas_opt=True", "compilation.use_ir_loc='x'"),
    *("compilation.instrumentation_mode='fpsan'", "runtime.debug=True", "runtime.override_arch='gfx90a'"),
    "runtime.add_stages_inspection_hook=lambda *_: ('', '')",
)
"""`NAME=text` is a variable of the environment, `group.name=value` a knob that is set in Python."""
