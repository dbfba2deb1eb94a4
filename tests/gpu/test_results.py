"""What a bundle launches computes what Triton's JIT computes, bit for bit."""

from __future__ import annotations

import math

import pytest

from aotkern.errors import InputError, MissError


def twice(launcher, grid, *args, **kwargs) -> None:
    """Launch two times, so that the second launch is the C extension's where it is there."""
    for _ in range(2):
        launcher[grid](*args, **kwargs)


@pytest.mark.parametrize("n", [0, 1, 2, 16, 255, 256, 257, 1000, 4096])
def test_masks(torch, bundle, jit, n):
    x, y = torch.randn(4096, device="cuda"), torch.randn(4096, device="cuda")
    ours, theirs = torch.zeros_like(x), torch.zeros_like(x)
    grid = (math.ceil(n / 256),)
    twice(bundle["masked_add"], grid, x, y, ours, n, BLOCK=256)
    if n:
        jit.masked_add[grid](x, y, theirs, n, BLOCK=256)
    assert torch.equal(ours, theirs)
    assert torch.equal(ours[:n], (x + y)[:n])
    assert not ours[n:].any()


def test_view_with_an_offset_gets_the_variant_for_unaligned_pointers(torch, bundle):
    x, y, out = (torch.randn(1025, device="cuda") for _ in range(3))
    twice(bundle["masked_add"], (4,), x[1:], y[1:], out[1:], 1024, BLOCK=256)
    assert torch.equal(out[1:], x[1:] + y[1:])
    used = [text for text, count in bundle.counters().dispatched.items() if count]
    assert used == ["masked_add[cuda:90](x:*fp32,y:*fp32,out:*fp32,n:i32:D,BLOCK=256)"]
    with pytest.raises(MissError, match="16-byte aligned"):
        bundle["count"][1](torch.zeros(9, dtype=torch.int32, device="cuda")[1:], 3)


@pytest.mark.parametrize(
    "values",
    [
        (0.125, 0.125, 0.125, 0.125, True, 5, 7),
        (0.1, 0.1, 0.1, 0.1, False, -(2**40), -7),
        (65504.0, 3.0e38, 1.0e-45, 1.0e300, True, 2**62, 2**31 - 1),
        (6.0e-8, -1.5, math.inf, -math.inf, False, 1, 3),
        (3, 2, -0.0, 5, True, 0, 0),
    ],
)
def test_scalars_of_every_width(torch, bundle, jit, values):
    ours, theirs = (torch.zeros(7, dtype=torch.float64, device="cuda") for _ in range(2))
    twice(bundle["scalars"], 1, ours, *values)
    jit.scalars[(1,)](theirs, *values)
    assert torch.equal(ours, theirs)
    assert ours[2].item() == pytest.approx(values[2], rel=1e-6)
    assert ours[3].item() == float(values[3])
    assert ours[4:].tolist() == [float(value) for value in values[4:]]


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_fp8(torch, bundle, dtype):
    x = torch.arange(256, dtype=torch.uint8, device="cuda").view(getattr(torch, dtype))
    out = torch.zeros(256, device="cuda")
    twice(bundle["from_fp8"], 1, x, out, 256, BLOCK=256)
    assert torch.equal(out.nan_to_num(7.0), x.float().nan_to_num(7.0))


@pytest.mark.parametrize("dtype", ["float8_e4m3fnuz", "float8_e5m2fnuz", "uint8", "float16", "int8"])
def test_other_element_type_is_a_miss_and_nothing_is_launched(torch, bundle, dtype):
    x = torch.zeros(256, dtype=torch.uint8, device="cuda").view(getattr(torch, dtype))
    out = torch.full((256,), 7.0, device="cuda")
    with pytest.raises(MissError):
        bundle["from_fp8"][1](x, out, x.numel(), BLOCK=256)
    torch.cuda.synchronize()
    assert bool((out == 7).all())


def test_atomics_and_a_million_programs(torch, bundle):
    out = torch.zeros(2, dtype=torch.int32, device="cuda")
    twice(bundle["count"], (1 << 20,), out, 1000)
    assert out.tolist() == [2 << 20, 2000]


def test_grid_whose_product_is_2_to_the_32(torch, bundle):
    out = torch.zeros((2**15, 2**17), dtype=torch.int8, device="cuda")
    bundle["mark"][(2**17, 2**15)](out, 2**17)
    assert int(out.sum(dtype=torch.int64)) == 2**32


def test_grid_over_the_limit_is_refused(torch, bundle):
    out = torch.zeros(16, dtype=torch.int8, device="cuda")
    for _ in range(2):
        with pytest.raises(InputError, match="at most 65535 workgroups, found 65536"):
            bundle["mark"][(1, 65536)](out, 1)


def test_tensors_over_2_to_the_31_elements(torch, bundle):
    n = 2**31 + 16
    x = torch.ones(n, dtype=torch.int8, device="cuda")
    out = torch.zeros(n, dtype=torch.int8, device="cuda")
    twice(bundle["masked_add"], (math.ceil(n / 1024),), x, x, out, n, BLOCK=1024)
    assert bool((out[-64:] == 2).all())
    assert int(out.sum(dtype=torch.int64)) == 2 * n
    wide = torch.zeros(16, dtype=torch.float32, device="cuda")
    with pytest.raises(MissError, match="n: i32 -> out of its range"):
        bundle["masked_add"][1](wide, wide, wide, n, BLOCK=256)


@pytest.mark.parametrize(("depth", "stages"), [(32, 1), (64, 2), (64, 3), (128, 3)])
def test_shared_memory_up_to_and_over_48_kib(torch, bundle, jit, depth, stages):
    a = torch.randn((128, 8 * depth), device="cuda", dtype=torch.float16)
    b = torch.randn((8 * depth, 128), device="cuda", dtype=torch.float16)
    out = torch.zeros((128, 128), device="cuda")
    shape = {"M": 128, "N": 128, "K": depth, "STAGES": stages}
    twice(bundle["multiply"], 1, a, b, out, **shape)
    assert torch.allclose(out, a.float() @ b.float(), atol=2e-1, rtol=1e-2)


def test_kernel_with_a_tuple_argument(torch, bundle):
    x, out = torch.randn(128, device="cuda"), torch.zeros(128, device="cuda")
    twice(bundle["pair_sum"], 1, x, (3, 0.5), out, BLOCK=128)
    assert torch.allclose(out, x * 3 + 0.5, atol=1e-6)  # the kernel may fuse what torch rounds twice


def test_scratch_memory_needs_no_set_up(torch, bundle):
    x = torch.randn((128, 32), device="cuda")
    out = torch.zeros_like(x)
    twice(bundle["described"], (4,), x, out, 128, 32, BLOCK=32)
    assert torch.equal(out, 2 * x)
    big = torch.randn((4096 * 32, 32), device="cuda")
    out = torch.zeros_like(big)
    twice(bundle["described"], (4096,), big, out, 4096 * 32, 32, BLOCK=32)
    assert torch.equal(out, 2 * big)


def test_cooperative_grid(torch, bundle):
    out = torch.zeros(2, dtype=torch.int32, device="cuda")
    twice(bundle["count_cooperative"], (64,), out, 3)
    assert out.tolist() == [128, 6]
    with pytest.raises(InputError, match="cooperative grid: expected at most"):
        bundle["count_cooperative"][(1 << 20,)](out, 3)
    assert out.tolist() == [128, 6]


def test_clusters(torch, bundle):
    out = torch.zeros(2, dtype=torch.int32, device="cuda")
    twice(bundle["count_cluster"], (64,), out, 3)
    assert out.tolist() == [128, 6]
