"""The numerics audit cannot pass by not looking: cases that show nothing, orders of waves, what cannot be run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from aotkern import schemas
from aotkern.audit import numerics_jobs, policy
from aotkern.audit.cases import Case, Exact, Ignored, Near, Sparse, Typed
from aotkern.audit.executors import ORDERS, Emulated, Limits
from aotkern.audit.findings import Verdict
from aotkern.audit.judging import judge
from aotkern.audit.numerics import NumericsReport, audit
from aotkern.bundle import Bundle, write
from aotkern.codeobject import elf, read
from aotkern.digest import Digest
from aotkern.emulator.disassembler import disassemble
from aotkern.manifest import Manifest, ObjectEntry
from aotkern.report.numerics import machine, text
from aotkern.spec import VariantKey
from aotkern.target import Target

pytest.importorskip("triton")
GFX942 = Target.parse("gfx942")

CASES = '''
"""Cases of `numbers_kernels`."""

import os

import numpy as np

from aotkern.audit.cases import Case, Exact, Near


def reverse(key, seed):
    x = np.random.default_rng(seed).standard_normal(256).astype(np.float32)
    arguments = {"x": x, "tmp": np.zeros_like(x), "out": np.zeros_like(x)}
    yield Case("reversed", (1,), arguments, {"out": Exact(x[::-1].copy()), "tmp": Exact(x)})


def total(key, seed):
    x = np.random.default_rng(seed).uniform(1, 2, 256).astype(np.float32)
    wanted = x.astype(np.float64) / x.sum(dtype=np.float64)
    yield Case("shares", (1,), {"x": x, "out": np.zeros_like(x)}, {"out": Near(wanted, 0, 1e-3)})


def spin(key, seed):
    # 2, 12, 62, ...: even numbers for ever.
    yield Case("endless", (1,), {"x": np.zeros(4, np.int32), "out": np.zeros(4, np.int32), "n": 5}, {"out": Exact(X)})


def strange(key, seed):
    x = np.ones(64, np.float32)
    yield Case("unknown", (1,), {"x": x, "out": np.zeros_like(x)}, {"out": Exact(x)})


def branchy(key, seed):
    x = np.ones(64, np.float32)
    yield Case("small n", (1,), {"x": x, "out": np.zeros_like(x), "n": 3}, {"out": Exact(x)})


def dies(key, seed):
    os._exit(3)
    yield


X = np.array([5, 0, 0, 0], np.int32)
CASES = {"reverse": reverse, "total": total, "spin": spin, "strange": strange, "branchy": branchy, "add": dies}
'''


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with a bundle of all kernels of `numbers_kernels`, and their cases."""
    folder = tmp_path_factory.mktemp("numbers")
    (folder / "numbers_cases.py").write_text(CASES)
    kernels = Path(__file__).with_name("numbers_kernels.py")
    command = [sys.executable, "-m", "aotkern", "build", str(kernels), "-t", "gfx942", "-o", str(folder), "--no-cache"]
    subprocess.run([*command, "--name", "numbers", "--jobs", "1"], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def bundle(built: Path) -> Path:
    return built / "numbers.gfx942.aotk"


def part(bundle: Path, kernel: str, change: Callable[[bytearray], None] = lambda _: None) -> Path:
    """A bundle of one kernel, whose code may be changed first."""
    opened = Bundle.open(bundle)
    manifest = opened.manifest
    (variant,) = [variant for variant in manifest.variants if variant.kernel == kernel]
    image = bytearray(opened.object(variant.object))
    change(image)
    digest = Digest.of(bytes(image))
    entry = ObjectEntry(digest, len(image), read(bytes(image), kernel).to_json())
    made = Manifest.make(
        manifest.target,
        manifest.toolchain,
        manifest.environment,
        [manifest.kernel(kernel)],
        {digest: entry},
        [(replace(variant, object=digest), manifest.options[variant.options])],
    )
    path = bundle.with_name(f"{kernel}.{digest.hex[:8]}.gfx942.aotk")
    write(path, made, {digest: bytes(image)}, {})
    return path


def without_barriers(image: bytearray) -> None:
    """Every s_barrier becomes s_nop."""
    section = elf.parse(bytes(image), "test").section(".text")
    code = disassemble(bytes(image[section.offset : section.offset + section.size]), GFX942)
    places = [one.pc for one in code if one.mnemonic == "s_barrier"]
    assert places
    for place in places:
        at = section.offset + place
        image[at : at + 4] = (0xBF800000).to_bytes(4, "little")


def audited(path: Path, **how: Any) -> NumericsReport:
    """The audit of a bundle beside its cases, in this process."""
    more = {name: how.pop(name) for name in ("jobs", "most", "bound") if name in how}
    return numerics_jobs.audit(numerics_jobs.Setting(path, str(path.with_name("numbers_cases.py")), **how), **more)


def added(bundle: Path, expected: Mapping[str, Any], **changes: Any) -> NumericsReport:
    """One case of `add`, which subtracts, with these expectations."""
    x, y = np.random.default_rng(0).standard_normal((2, 100)).astype(np.float32)
    arguments = {"x": x, "y": y, "out": np.zeros(100, np.float32), "n": 100} | changes

    def cases(key: VariantKey, seed: int) -> Iterator[Case]:
        yield Case("c", (2,), arguments, expected)

    path = part(bundle, "add")
    return audit(Bundle.open(path).manifest, {"add": cases}, Emulated(path, "gfx942"))


NAN, RIGHT = np.full(100, np.nan), Near(np.full(100, 3.0))
VACUOUS: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "nothing is expected": ({}, "out: the code stores to it, and nothing is expected of it"),
    "only an input is expected": ({"x": Near(np.zeros(100), atol=9, l2=99)}, "out: the code stores to it"),
    "the reference is NaN": ({"out": Near(NAN)}, "out: the reference holds no finite number"),
    "the reference is infinite": ({"out": Near(NAN + np.inf)}, "out: the reference holds no finite number"),
    "NaN in part": (
        {"out": Near(np.where(np.arange(100) < 9, np.nan, 3.0), atol=99, l2=99)},
        "not finite at 9 elements",
    ),
    "infinity in part": (
        {"out": Near(np.where(np.arange(100) < 9, np.inf, 3.0), atol=99, l2=99)},
        "not finite at 9 elements",
    ),
    "anything goes": ({"out": Near(np.zeros(100), undefined=np.ones(100, bool))}, "every element may hold anything"),
    "no absolute limit": ({"out": Near(np.zeros(100), atol=np.inf)}, "not finite at 100 of 100 elements"),
    "no relative limit": ({"out": Near(np.ones(100), rtol=np.inf)}, "not finite at 100 of 100 elements"),
    "NaN as limit": ({"out": Near(np.ones(100), atol=np.nan)}, "not finite at 100 of 100 elements"),
    "no limit in part": (
        {"out": Near(np.zeros(100), atol=np.where(np.arange(100) < 7, np.inf, 99.0), l2=99)},
        "not finite at 7 of 100 elements",
    ),
    "a huge limit": ({"out": Near(np.zeros(100), atol=1e30, l2=1e30)}, "holds before the launch"),
    "another shape": ({"out": Near(np.zeros(1), atol=99)}, "the expectation has the shape [1], the array [100]"),
    "another type": ({"out": Exact(np.zeros(100))}, "elements of float64, the array of float32"),
    "ignored without a reason": ({"out": Ignored(" ")}, "ignored without a reason"),
    "all ignored": ({"out": Ignored("scratch")}, "nothing is compared"),
    "no such argument": ({"out": RIGHT, "other": RIGHT}, "other: an expectation for no argument"),
    "no array": ({"out": RIGHT, "n": RIGHT}, "n: an expectation for no array"),
}


@pytest.mark.parametrize("name", VACUOUS)
def test_a_case_that_shows_nothing_is_no_proof(bundle: Path, name: str) -> None:
    expected, why = VACUOUS[name]
    report = added(bundle, expected)
    assert report.verdict is not Verdict.CLEAN
    assert any(why in outcome.doubt for outcome in report.outcomes), report.outcomes
    if "n" not in expected and "other" not in expected:
        assert (report.verdict, report.wrong, report.undecided) == (Verdict.UNKNOWN, 0, 1)
        assert report.unknown[0].state == "could not tell"
        assert why in text(report)
    jsonschema.validate(json.loads(json.dumps(machine(report))), schemas.load("numerics"))


def test_a_grid_that_stores_nothing_is_no_proof(bundle: Path) -> None:
    report = added(bundle, {"out": Exact(np.zeros(100, np.float32))}, n=0)
    assert report.verdict is Verdict.UNKNOWN
    assert "in none of the cases does the code store to an array" in report.outcomes[-1].doubt


def test_a_result_that_stood_there_before_is_no_proof(bundle: Path) -> None:
    same = np.ones(100, np.float32)
    report = added(bundle, {"out": Exact(np.zeros(100, np.float32))}, x=same, y=same)
    assert (report.verdict, report.wrong) == (Verdict.UNKNOWN, 0)
    assert "code that does nothing would pass" in report.outcomes[0].doubt


def test_an_output_may_be_left_out_of_the_comparison_with_a_reason(bundle: Path) -> None:
    path = part(bundle, "reverse")

    def cases(key: VariantKey, seed: int) -> Iterator[Case]:
        x = np.arange(256, dtype=np.float32)
        arguments = {"x": x, "tmp": np.zeros_like(x), "out": np.zeros_like(x)}
        yield Case("c", (1,), arguments, {"out": Exact(x[::-1].copy()), "tmp": Ignored("scratch")})

    assert audit(Bundle.open(path).manifest, {"reverse": cases}, Emulated(path, "gfx942")).verdict is Verdict.CLEAN


def test_wrong_numbers_are_findings_whatever_else_could_not_be_told(bundle: Path) -> None:
    x = np.ones(100, np.float32)
    report = added(bundle, {"out": Near(np.full(100, 2.0)), "x": Near(NAN)}, x=x, y=x)
    assert report.verdict is Verdict.FINDINGS
    assert (report.wrong, report.undecided) == (1, 0)


@pytest.mark.parametrize("kernel", ["spin", "strange"])
def test_what_cannot_be_run_is_no_finding(bundle: Path, kernel: str) -> None:
    report = audited(part(bundle, kernel), limits=Limits(20_000))
    assert (report.verdict, report.wrong, report.undecided, report.findings) == (Verdict.UNKNOWN, 0, 1, ())
    words = {"spin": "more than 20,000 wave instructions", "strange": "v_cvt_pknorm_i16_f32"}
    assert words[kernel] in report.unknown[0].message


def test_a_launch_ends_after_its_seconds(bundle: Path) -> None:
    report = audited(part(bundle, "spin"), limits=Limits(seconds=0.2), orders=("lockstep",))
    assert report.verdict is Verdict.UNKNOWN
    assert "seconds" in report.unknown[0].message


def test_a_missing_barrier_is_found_by_the_usual_orders(bundle: Path) -> None:
    whole, broken = part(bundle, "total"), part(bundle, "total", without_barriers)
    assert audited(whole).verdict is Verdict.CLEAN
    assert audited(broken).verdict is Verdict.FINDINGS


def test_waves_that_exchange_memory_without_a_barrier_are_found(bundle: Path) -> None:
    report = audited(part(bundle, "reverse"))
    assert report.verdict is Verdict.FINDINGS
    assert (report.cases, report.wrong) == (1, 1)


def test_instructions_that_no_case_executes_are_named_and_bounded(bundle: Path) -> None:
    path = part(bundle, "branchy")
    report = audited(path)
    assert report.verdict is Verdict.CLEAN
    (coverage,) = report.coverage.values()
    assert coverage.complete
    assert 0 < coverage.share < 0.6
    assert any("v_sin_f32" in f"{gap.text}" or gap.count > 3 for gap in coverage.gaps)
    assert sum(gap.count for gap in coverage.gaps) == coverage.reachable - coverage.executed
    assert f"of {coverage.reachable} instructions ran: not 0x" in text(report)
    bounded = audited(path, bound=0.95)
    assert bounded.verdict is Verdict.FINDINGS
    assert bounded.findings[0].state == "too little executed"
    jsonschema.validate(json.loads(json.dumps(machine(bounded))), schemas.load("numerics"))


def test_every_instruction_of_a_straight_kernel_counts_as_executed(bundle: Path) -> None:
    report = audited(part(bundle, "total"), bound=1.0)
    assert (report.verdict, report.covered) == (Verdict.CLEAN, 1.0)


def test_processes_come_to_the_same_report_and_one_that_dies_costs_its_own_variant(bundle: Path) -> None:
    report = audited(bundle, jobs=2, limits=Limits(20_000))
    doubts = {outcome.key.partition("[")[0]: outcome.doubt for outcome in report.outcomes if outcome.doubt}
    assert doubts.keys() == {"add", "spin", "strange"}
    assert doubts["add"] == "the process that ran it died"
    assert {finding.subject.partition("[")[0] for finding in report.findings} == {"reverse"}
    right = [o.key.partition("[")[0] for o in report.outcomes if o.orders and not o.error and not o.doubt]
    assert sorted(right) == ["branchy", "total"]


def test_the_command_tells_what_cannot_be_run_by_its_exit_code(aotkern, bundle: Path) -> None:
    cases = bundle.with_name("numbers_cases.py")
    ask = ("--cases", cases, "--jobs", "1")
    answer = aotkern("audit", "numerics", part(bundle, "spin"), *ask, "--limit", "20000")
    assert answer.code == 2
    assert "more than 20,000 wave instructions" in answer.out
    answer = aotkern("audit", "numerics", part(bundle, "spin"), *ask, "--timeout", "0.2")
    assert answer.code == 2
    assert aotkern("audit", "numerics", part(bundle, "total"), *ask).code == 0
    broken = part(bundle, "total", without_barriers)
    assert aotkern("audit", "numerics", broken, *ask, "--orders", "lockstep").code == 0
    assert aotkern("audit", "numerics", broken, *ask).code == 1
    assert aotkern("audit", "numerics", broken, *ask, "--orders", "sideways").code == 2
    assert aotkern("audit", "numerics", part(bundle, "branchy"), *ask, "--coverage", "0.99").code == 1


def test_a_finite_output_where_the_reference_is_not_is_wrong_where_that_is_meant() -> None:
    wanted = np.array([1.0, np.nan, np.inf])
    assert judge(np.array([1.0, np.nan, np.inf]), Near(wanted)).compared == 3
    assert judge(np.array([1.0, np.nan, np.inf]), Near(wanted)) == judge(
        np.array([1.0, np.nan, np.inf]), Near(wanted, nonfinite=True)
    )
    zero = judge(np.array([1.0, 0.0, np.inf]), Near(wanted, nonfinite=True))
    assert "1 elements differ where the reference is not finite, first at [1]: expected nan, found 0" in zero.wrong
    assert judge(np.array([1.0, np.inf, np.inf]), Near(wanted)).wrong
    assert judge(np.array([1.0, np.nan, -np.inf]), Near(wanted)).wrong


def test_all_nan_is_a_reference_only_where_that_is_meant() -> None:
    nan = np.full(3, np.nan)
    assert judge(nan, Near(nan)).doubt
    meant = judge(nan, Near(nan, nonfinite=True))
    assert (meant.wrong, meant.doubt, meant.compared) == ("", "", 3)


def test_types_without_a_decoding_leave_the_question_open() -> None:
    assert "fp8e5" in judge(Typed(np.zeros(2, np.uint8), "fp8e5"), Near(np.zeros(2))).doubt


def test_sparse_memory_is_compared_where_something_stands_or_was_stored() -> None:
    size = 1 << 33
    before = Sparse((size,), np.dtype(np.uint8), {})
    after = Sparse((size,), np.dtype(np.uint8), {size - 3: np.array([1, 2, 3], np.uint8)})
    found = np.zeros(size, np.uint8)
    assert "no page" in judge(found, Exact(before)).doubt
    assert "first at byte 8,589,934,589" in judge(found, Exact(after)).wrong
    found[-3:] = (1, 2, 3)
    assert not judge(found, Exact(after)).wrong
    found[5 << 30] = 7
    assert not judge(found, Exact(after)).wrong
    assert "first at byte 5,368,709,120" in judge(found, Exact(after), {(5 << 30) // 4096}).wrong


@pytest.mark.parametrize("kernel", ["total", "reverse"])
def test_races_are_an_order_of_the_audit(bundle: Path, kernel: str) -> None:
    change = without_barriers if kernel == "total" else (lambda _: None)
    report = audited(part(bundle, kernel, change), orders=("races",))
    assert report.verdict is Verdict.FINDINGS
    assert "RaceError" in report.outcomes[0].error
    assert "wave" in report.outcomes[0].error


def test_right_code_passes_every_order(bundle: Path) -> None:
    report = audited(part(bundle, "total"), orders=tuple(ORDERS))
    assert report.verdict is Verdict.CLEAN, report.outcomes
    assert report.outcomes[0].orders == tuple(ORDERS)


def test_a_policy_knows_the_orders_of_the_executors() -> None:
    assert tuple(ORDERS) == policy.ORDERS
