"""A matrix product of three stages on gfx950, whose loads into LDS stay outstanding over barriers.

The static check does not know which loads filled what a wave reads there, so a wait that is weaker than it should be
is left to runs in which everything is late.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
import waits
from corpus.harness import Case, Configuration, Near, Prepared, prepare, wide

from aotkern.emulator.static import Fault, check
from aotkern.errors import EmulatorError


@triton.jit
def multiply(a, b, c, K):
    i, j, k = tl.arange(0, 64), tl.arange(0, 64), tl.arange(0, 32)
    total = tl.zeros((64, 64), tl.float32)
    for s in range(0, K, 32):
        left = tl.load(a + i[:, None] * K + (s + k)[None, :])
        total = tl.dot(left, tl.load(b + (s + k)[:, None] * 64 + j[None, :]), total)
    tl.store(c + i[:, None] * 64 + j[None, :], total)


def _make(rng: np.random.Generator, _: str) -> Case:
    a = torch.from_numpy(rng.standard_normal((64, 160))).to(torch.float16)
    b = torch.from_numpy(rng.standard_normal((160, 64))).to(torch.float16)
    return Case((a, b, torch.zeros(64, 64), 160), {2: Near(wide(a) @ wide(b), 1e-3, 1e-3)})


@pytest.fixture(scope="module")
def product() -> Prepared:
    constants = {"num_warps": 4, "num_stages": 3}
    return prepare(Configuration("matmul", "three stages", multiply, (1,), constants, _make), "gfx950")


def test_deep_pipelines_are_no_missing_waits(product: Prepared) -> None:
    assert sum("lds" in one.text for _, one in waits.instructions(product.code)) >= 4
    assert [flaw for flaw in check(product.code) if flaw.fault is Fault.MISSING_WAIT] == []


def test_every_wait_before_a_barrier_is_noticed_when_everything_is_late(product: Prepared) -> None:
    code = list(waits.instructions(product.code))
    places = [
        place
        for (place, one), (_, after) in pairwise(code)
        if one.name == "s_waitcnt" and "vmcnt" in one.text and after.name == "s_barrier"
    ]
    assert len(places) >= 2
    for place in places:
        changed = Prepared(
            product.configuration, waits.without(product.code, place), product.how, product.passed, product.case
        )
        try:
            changed.run(latest=True)
        except EmulatorError:
            continue
        assert changed.complaint() is not None, hex(place)
    product.run(latest=True, detect_races=True)
    assert product.complaint() is None
