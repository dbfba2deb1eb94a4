"""Float atomics are found in machine code, and nothing else is taken for one."""

from __future__ import annotations

import pytest
from bundles import Spec, compile_key, make, opened, pack

from aotkern.audit.determinism import float_atomics
from aotkern.audit.sides import Side
from aotkern.spec import Parameter, VariantKey

triton = pytest.importorskip("triton")
tl = triton.language


@triton.jit
def added(x, y):
    i = tl.arange(0, 64)
    tl.atomic_add(x + i % 2, tl.load(y + i))


@triton.jit
def largest(x, y):
    i = tl.arange(0, 64)
    tl.atomic_max(x + i % 2, tl.load(y + i))


def side(compile_kernel, function, element: str, target: str = "gfx942") -> Side:
    backend = "cuda" if target[0] == "c" else "hip"
    key = VariantKey.parse(f"k[{backend}:{target.rpartition(':')[2]}](x:*{element}:D,y:*{element}:D)")
    compiled = compile_key(compile_kernel, function, key)
    bundle = opened(pack(target, [(key, compiled, {})], {"k": (Parameter("x"), Parameter("y"))}))
    return Side("b", bundle.manifest, bundle.object)


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
@pytest.mark.parametrize(
    ("element", "found"), [("fp32", True), ("fp16", True), ("bf16", True), ("fp64", True), ("i32", False)]
)
def test_additions_of_floats(compile_kernel, target, element, found):
    made = side(compile_kernel, added, element, target)
    names = float_atomics(made, made.manifest.objects[0].digest)
    assert bool(names) is found, names


def test_other_operations_and_plain_kernels(compile_kernel):
    made = side(compile_kernel, largest, "i32")
    assert float_atomics(made, made.manifest.objects[0].digest) == ()
    plain = opened(make(compile_kernel, "gfx942", (Spec("x:*fp32:D,out:*fp32:D,n:i32,factor:fp32,BLOCK=128"),)))
    assert float_atomics(Side("b", plain.manifest, plain.object), plain.manifest.objects[0].digest) == ()


def test_what_cannot_be_known(compile_kernel):
    made = side(compile_kernel, added, "fp32", "cuda:90")
    assert float_atomics(made, made.manifest.objects[0].digest) is None
    bare = Side("m", made.manifest, None)
    assert float_atomics(bare, made.manifest.objects[0].digest) is None
