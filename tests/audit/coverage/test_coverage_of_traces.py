"""The calls of a run against a bundle: as dispatch would have chosen."""

from __future__ import annotations

import triton
import triton.language as tl

from aotkern.audit.counting import count_jit
from aotkern.audit.coverage.catalogue import Catalogue
from aotkern.audit.coverage.trace import replay
from aotkern.audit.jit.judge import judge
from aotkern.spec import Parameter, VariantKey
from aotkern.target import Target
from aotkern.triton_bridge.budget import Budget
from aotkern.triton_bridge.paper import PaperTensor

PARAMETERS = (Parameter("x"), Parameter("n"), Parameter("pair"), Parameter("B", constexpr=True))


@triton.jit
def kernel(x, n, pair, B: tl.constexpr):
    tl.store(x + B, n + pair[0])


def catalogue(*arguments: str) -> Catalogue:
    keys = [VariantKey.parse(f"kernel[hip:gfx942]({text})") for text in arguments]
    return Catalogue.of_keys("test.aotk", Target.parse("gfx942"), {"kernel": (PARAMETERS, keys)})


def recorded(device):
    device("gfx942")
    kernel.device_caches.clear()
    with count_jit() as jit:
        for n, second, address in ((16, 0.5, 4096), (17, 0.5, 4096), (32, None, 4096), (33, 0.5, 4100)):
            kernel.warmup(PaperTensor("float32", address), n, (3, second), B=64, grid=(1,))
    return jit.report.log


def test_every_distinct_call_of_a_run_is_held_against_the_variants(device):
    log = recorded(device)
    found = catalogue("x:*fp32:DS,n:i32,pair(:i32,:fp32),B=64", "x:*fp32:DS,n:i32:D,pair(:i32,=None),B=64")
    report = replay(found, log.compiles, "events")
    (row,) = report.kernels
    assert (row.calls, row.covered) == (4, 3)
    assert row.gaps[0].reasons[0].startswith("x: 16-byte aligned -> not 16-byte aligned (address 0x1004)")
    assert report.verdict.exit_code == 1


def test_a_run_without_calls_could_not_tell():
    assert replay(catalogue(), (), "events").verdict.exit_code == 2


def test_a_jit_report_says_what_a_bundle_would_have_done(device):
    log = recorded(device)
    found = catalogue("x:*fp32:DS,n:i32,pair(:i32,:fp32),B=64")
    (row,) = judge(log, Budget(), catalogues=[found]).rows
    said = [explained.prebuilt for explained in row.compiles]
    assert said[0] == "test.aotk has a variant for this call, which did not go through it"
    assert said[3].startswith(
        "nearest prebuilt: kernel[hip:gfx942](x:*fp32:DS,n:i32,pair(:i32,:fp32),B=64); differs in: x:"
    )
