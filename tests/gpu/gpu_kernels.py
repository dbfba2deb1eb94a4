"""Kernels that the GPU tests launch from a bundle and through Triton's JIT, and compare."""

import triton
import triton.language as tl

from aotkern.spec import Bool, Constexpr, Float, Int, Joint, Kernel, Pointer, Space, Tuple

TARGETS = ("cuda:90",)


@triton.jit
def masked_add(x, y, out, n, BLOCK: tl.constexpr):
    """out = x + y, with a mask at the end."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)


@triton.jit
def scalars(out, half: tl.float16, brain: tl.bfloat16, single, double: tl.float64, flag, wide: tl.int64, narrow):
    """Every width of scalar, as fp64."""
    tl.store(out + 0, half.to(tl.float64))
    tl.store(out + 1, brain.to(tl.float64))
    tl.store(out + 2, single.to(tl.float64))
    tl.store(out + 3, double)
    tl.store(out + 4, flag.to(tl.float64))
    tl.store(out + 5, wide.to(tl.float64))
    tl.store(out + 6, narrow.to(tl.float64))


@triton.jit
def from_fp8(x, out, n, BLOCK: tl.constexpr):
    """out = x, from fp8 to fp32."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask).to(tl.float32), mask=mask)


@triton.jit
def count(out, n):
    """Every program adds one; programs below n add one more."""
    tl.atomic_add(out, 1)
    if tl.program_id(0) < n:
        tl.atomic_add(out + 1, 1)


@triton.jit
def mark(out, width):
    """One byte for each program of a two-dimensional grid."""
    at = tl.program_id(1).to(tl.int64) * width + tl.program_id(0)
    tl.store(out + at, 1)


@triton.jit
def multiply(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, STAGES: tl.constexpr):
    """c = a @ b for one tile, with as much shared memory as the stages ask for."""
    rows, columns, depth = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    total = tl.zeros((M, N), dtype=tl.float32)
    for step in tl.range(0, 8, num_stages=STAGES):
        left = tl.load(a + rows[:, None] * (8 * K) + step * K + depth[None, :])
        right = tl.load(b + (step * K + depth)[:, None] * N + columns[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * N + columns[None, :], total)


@triton.jit
def described(x, out, rows, columns, BLOCK: tl.constexpr):
    """out = 2 x through a tensor descriptor made on the device, which needs global scratch memory."""
    at = tl.program_id(0) * BLOCK
    source = tl.make_tensor_descriptor(x, shape=[rows, columns], strides=[columns, 1], block_shape=[BLOCK, BLOCK])
    target = tl.make_tensor_descriptor(out, shape=[rows, columns], strides=[columns, 1], block_shape=[BLOCK, BLOCK])
    target.store([at, 0], source.load([at, 0]) * 2)


@triton.jit
def only_scalars(n, factor):
    """Nothing to write to: a launch without a tensor."""
    if n < 0:
        tl.device_print("negative", factor)


@triton.jit
def pair_sum(x, pair, out, BLOCK: tl.constexpr):
    """out = x * pair[0] + pair[1], from a tuple argument."""
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) * pair[0] + pair[1])


def fp32(*names: str, **changes: str) -> dict[str, Pointer]:
    """Pointers to fp32."""
    return {name: Pointer("fp32", **changes) for name in names}


KERNELS = (
    Kernel(
        masked_add,
        Space(TARGETS, {**fp32("x", "y", "out", alignment="both"), "n": Int(classes=("1", "16", "any")), "BLOCK": 256}),
        Space(
            TARGETS,
            {
                **{name: Pointer("i8") for name in ("x", "y", "out")},
                "n": Int("i64", ("any",)),
                "BLOCK": Constexpr(1024),
            },
        ),
    ),
    Kernel(
        scalars,
        Space(
            TARGETS,
            {
                "out": Pointer("fp64"),
                "half": Float("fp16"),
                "brain": Float("bf16"),
                "single": Float(),
                "double": Float("fp64"),
                "flag": Bool(),
                "wide": Int("i64", ("any",)),
                "narrow": Int(classes=("any",)),
            },
        ),
    ),
    Kernel(
        from_fp8,
        *(
            Space(TARGETS, {"x": Pointer(kind), "out": Pointer("fp32"), "n": Int(classes=("any",)), "BLOCK": 256})
            for kind in ("fp8e4nv", "fp8e5")
        ),
    ),
    Kernel(count, Space(TARGETS, {"out": Pointer("i32"), "n": Int(classes=("any",))})),
    Kernel(
        count,
        Space(
            TARGETS,
            {"out": Pointer("i32"), "n": Int(classes=("any",))},
            options={"launch_cooperative_grid": True},
        ),
        name="count_cooperative",
    ),
    Kernel(
        count,
        Space(TARGETS, {"out": Pointer("i32"), "n": Int(classes=("any",))}, options={"num_ctas": 2}),
        name="count_cluster",
    ),
    Kernel(mark, Space(TARGETS, {"out": Pointer("i8"), "width": Int(classes=("any",))})),
    Kernel(
        multiply,
        Space(
            TARGETS,
            {"a": Pointer("fp16"), "b": Pointer("fp16"), "c": Pointer("fp32"), "M": 128, "N": 128},
            joint=(Joint(("K", "STAGES"), ((32, 1), (64, 2), (64, 3), (128, 3))),),
            options={"num_warps": 4},
        ),
    ),
    Kernel(
        described,
        Space(
            TARGETS, {**fp32("x", "out"), "rows": Int(classes=("16",)), "columns": Int(classes=("16",)), "BLOCK": 32}
        ),
    ),
    Kernel(only_scalars, Space(TARGETS, {"n": Int(classes=("any",)), "factor": Float()})),
    Kernel(pair_sum, Space(TARGETS, {**fp32("x", "out"), "pair": Tuple(Int(classes=("any",)), Float()), "BLOCK": 128})),
)
